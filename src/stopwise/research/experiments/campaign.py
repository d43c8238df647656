"""A campaign: many runs, each done once, however often the campaign is interrupted."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from threading import Event
from typing import TypeAlias

from stopwise.executors import Executor
from stopwise.progress import Progress, no_progress
from stopwise.research.experiments.runs import Trace, built, execute
from stopwise.research.experiments.spec import ExperimentSpec
from stopwise.research.experiments.store import RunStore

Task: TypeAlias = tuple[ExperimentSpec, tuple[int, ...]]
Result: TypeAlias = tuple[ExperimentSpec, list[Trace]]

# Heuristic: at least 40 tasks (where there are as many runs) let workers finish together.
TASKS = 40


def run_campaign(
    experiments: Iterable[tuple[ExperimentSpec, Iterable[int]]],
    store: RunStore,
    executor: Executor,
    progress: Progress = no_progress,
) -> None:
    """Do the runs that a store lacks, and store those of each task as soon as it finishes.

    Killed or interrupted (Ctrl-C) at any moment and started again, it resumes.

    ``experiments`` are specs with the seeds of their runs. The executor stays open. ``progress`` is
    called as ``progress("running", done, of)``, in runs, those already stored included.

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
    seeds_of: dict[ExperimentSpec, dict[int, None]] = {}  # each once, though listed twice
    for spec, seeds in experiments:
        seeds_of.setdefault(spec, {}).update(dict.fromkeys(seeds))
    missing = {spec: store.missing(spec, seeds) for spec, seeds in seeds_of.items()}
    for spec in (spec for spec, seeds in missing.items() if seeds):
        # a mistake in the last spec should not show after hours
        environment = built(spec.environment)
        spec.policy.build(environment.cascade, environment.context_dim, seed=0)
    of = sum(map(len, seeds_of.values()))
    done = of - sum(map(len, missing.values()))
    progress("running", done, of)
    if done == of:
        return
    # Closed at once if anything fails, and not when garbage is collected.
    with closing(executor.run(run_task, tasks(missing, executor.runs_per_task))) as results:
        for spec, traces in results:
            store.put(spec, traces)
            done += len(traces)
            progress("running", done, of)


def tasks(missing: Mapping[ExperimentSpec, Sequence[int]], most: int = 10) -> list[Task]:
    """Cut runs into tasks, a few of every experiment first, so that early results show them all."""
    size = min(most, max(1, sum(map(len, missing.values())) // TASKS))
    cut = [
        (start, spec, tuple(seeds[start : start + size]))
        for spec, seeds in missing.items()
        for start in range(0, len(seeds), size)
    ]
    return [(spec, seeds) for _, spec, seeds in sorted(cut, key=lambda task: task[0])]


def run_task(spec: ExperimentSpec, seeds: tuple[int, ...], stop: Event | None = None) -> Result:
    """Execute the runs of a task, until ``stop`` is set."""

    def progress(stage: str, done: int, of: int) -> None:
        if stop is not None and stop.is_set() and done < of:
            raise CancelledError

    return spec, [execute(spec, seed, progress) for seed in seeds]
