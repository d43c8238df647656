"""Campaigns: execute the missing runs of several experiments in parallel and resumably."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from threading import Event
from typing import TypeAlias

from stopwise.executors import Executor
from stopwise.progress import Progress, no_progress
from stopwise.research.experiments.runs import Trace, build_environment, execute
from stopwise.research.experiments.spec import ExperimentSpec
from stopwise.research.experiments.store import RunStore

Task: TypeAlias = tuple[ExperimentSpec, tuple[int, ...]]
Result: TypeAlias = tuple[ExperimentSpec, list[Trace]]

# Aim for at least this many tasks, so that workers finish at about the same time (heuristic).
TASKS = 40


def run_campaign(
    experiments: Iterable[tuple[ExperimentSpec, Iterable[int]]],
    store: RunStore,
    executor: Executor,
    progress: Progress = no_progress,
) -> None:
    """Execute the runs missing from a store; store the runs of a task as soon as it finishes.

    After a crash or an interrupt (Ctrl-C), the next call executes the runs that are still missing.

    ``experiments`` are pairs of a spec and the seeds of its runs. The executor is not closed.
    ``progress`` is called as ``progress("running", done, total)``; both numbers count runs and
    include those already stored.

    Examples
    --------
    >>> import tempfile
    >>> from stopwise.executors import ThreadExecutor
    >>> from stopwise.research.experiments.spec import EnvironmentSpec, PolicySpec
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> where = EnvironmentSpec("logistic-arms", (0.1, 0.2), arms)
    >>> spec = ExperimentSpec(where, PolicySpec("uss-ucb"), rounds=100)
    >>> with tempfile.TemporaryDirectory() as folder, RunStore(f"{folder}/runs.db") as store:
    ...     run_campaign([(spec, range(3))], store, ThreadExecutor())
    ...     sorted(store.get(spec))
    [0, 1, 2]
    """
    seeds_of: dict[ExperimentSpec, dict[int, None]] = {}  # without duplicates, in order
    for spec, seeds in experiments:
        seeds_of.setdefault(spec, {}).update(dict.fromkeys(seeds))
    missing = {spec: store.missing(spec, seeds) for spec, seeds in seeds_of.items()}
    for spec in (spec for spec, seeds in missing.items() if seeds):
        # report an invalid spec now, not hours later when its first run starts
        environment = build_environment(spec.environment)
        spec.policy.build(environment.cascade, environment.context_dim, seed=0)
    total = sum(map(len, seeds_of.values()))
    done = total - sum(map(len, missing.values()))
    progress("running", done, total)
    if done == total:
        return
    # Close the generator as soon as anything fails, not only when it is garbage-collected.
    with closing(executor.run(run_task, tasks(missing, executor.runs_per_task))) as results:
        for spec, traces in results:
            store.put(spec, traces)
            done += len(traces)
            progress("running", done, total)


def tasks(missing: Mapping[ExperimentSpec, Sequence[int]], most: int = 10) -> list[Task]:
    """Split runs into tasks; interleave experiments, so that early results cover all of them."""
    size = min(most, max(1, sum(map(len, missing.values())) // TASKS))
    chunks = [
        (start, spec, tuple(seeds[start : start + size]))
        for spec, seeds in missing.items()
        for start in range(0, len(seeds), size)
    ]
    return [(spec, seeds) for _, spec, seeds in sorted(chunks, key=lambda chunk: chunk[0])]


def run_task(spec: ExperimentSpec, seeds: tuple[int, ...], stop: Event | None = None) -> Result:
    """Execute a task's runs; raise CancelledError once ``stop`` is set."""

    def progress(stage: str, done: int, total: int) -> None:
        if stop is not None and stop.is_set() and done < total:
            raise CancelledError

    return spec, [execute(spec, seed, progress) for seed in seeds]
