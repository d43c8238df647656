"""The reproduction: which runs, in what store, and the report on them."""

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from stopwise.errors import InvalidParameterError, MissingPackageError, PersistenceError
from stopwise.executors import make_executor
from stopwise.progress import Progress, no_progress
from stopwise.reporting.wording import duration, plural
from stopwise.research.experiments.campaign import run_campaign
from stopwise.research.experiments.spec import ExperimentSpec
from stopwise.research.experiments.store import RunStore
from stopwise.research.experiments.summary import What, curves
from stopwise.research.paper import choices
from stopwise.research.paper.catalogue import EXHIBITS
from stopwise.research.paper.evidence import ClaimEvidence
from stopwise.research.paper.report import Facts, Report, Row, write_report
from stopwise.research.paper.section import Exhibit
from stopwise.research.paper.settings import SETTINGS
from stopwise.text import suggestion
from stopwise.version import __version__

TITLE = "USS-PD, reproduced"
STORE = "runs.sqlite"
QUICK = 3  # repetitions
QUICK_SCALE = f"a quick look: {choices.ROUNDS:,} rounds, {QUICK} repetitions"
FULL_SCALE = (
    f"{choices.ROUNDS:,} rounds, {choices.REPETITIONS} repetitions "
    f"({choices.REALIZABLE_REPETITIONS} of USS-PD in the realizable setting)"
)
MEASURES: tuple[What, ...] = ("regret", "signed", "undominated", "total_cost")


def repetitions(exhibit: Exhibit, policy: str, *, quick: bool) -> int:
    """Return how often the runs of a policy are repeated for an exhibit."""
    if quick:
        return QUICK
    return choices.REALIZABLE_REPETITIONS if policy in exhibit.many else choices.REPETITIONS


def reproduce(
    out: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    executor: str = "threads",
    jobs: int | None = None,
    address: str | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
    command: str = "stopwise reproduce",
) -> Report:
    """Do the paper's experiments again and write the report on them.

    Runs that are already in ``out`` are not done again; killed at any moment and called again, it
    resumes and comes to the same numbers.

    Runs of all calls are stored in ``out``; figures, numbers and the report are those of the last.
    With ``quick`` growth is not judged, and many other claims stay undecided. ``only`` has names
    from ``EXHIBITS``; ``executor``, ``jobs`` and ``address`` are those of `make_executor`; ``seed``
    is that of the first repetition, which the others follow; ``command`` is how the report says to
    repeat this.
    """
    if unknown := [name for name in only if name not in EXHIBITS]:
        raise InvalidParameterError(
            f"nothing in the paper is called {unknown[0]!r}; {suggestion(unknown[0], EXHIBITS)}"
        )
    if missing := [name for name in ("jinja2", "matplotlib", "pyarrow") if find_spec(name) is None]:
        raise MissingPackageError.of("the report", " and ".join(missing), "paper")
    workers = make_executor(executor, jobs, address)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PersistenceError(f"cannot create the folder {out}: {error.strerror}") from error
    started, clock = datetime.now(UTC), time.perf_counter()
    chosen = [exhibit for name, exhibit in EXHIBITS.items() if not only or name in only]
    cells = {exhibit.name: exhibit.cells() for exhibit in chosen}
    most: dict[ExperimentSpec, int] = {}  # where two exhibits share runs, the larger number
    for exhibit in chosen:
        for cell in cells[exhibit.name]:
            n = repetitions(exhibit, cell.policy, quick=quick)
            most[cell.spec] = max(n, most.get(cell.spec, 0))
    seeds = {spec: range(seed, seed + n) for spec, n in most.items()}
    with workers, RunStore(out / STORE) as store:
        run_campaign(seeds.items(), store, workers, progress)
        runs = {spec: store.get(spec) for spec in seeds}  # perhaps with seeds of earlier calls
    traces = {spec.key: [runs[spec][k] for k in wanted] for spec, wanted in seeds.items()}
    evidence = {name: ClaimEvidence(of_exhibit, traces) for name, of_exhibit in cells.items()}
    last = seed + max(most.values(), default=1) - 1
    seconds = time.perf_counter() - clock
    report = Report(
        title=TITLE,
        command=command,
        sections=tuple(exhibit.build(evidence[exhibit.name]) for exhibit in chosen),
        choices=choices.CHOICES,
        settings=tuple((s.name, s.explanation) for s in SETTINGS),
        provenance=provenance(started, seconds, f"{seed} to {last}", executor, workers.jobs),
        scale=QUICK_SCALE if quick else FULL_SCALE,
        quick=quick,
    )
    write_report(report, out, progress, list(_curve_rows(evidence)))
    return report


def provenance(started: datetime, seconds: float, seeds: str, executor: str, jobs: int) -> Facts:
    """Return where numbers come from: the machine, the versions, the seeds. Never who ran it."""
    packages = [f"{name} {version(name)}" for name in ("numpy", "matplotlib")]
    system = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        ("Started", f"{started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("Took", f"{duration(seconds)}, not counting runs stored before"),
        ("Seeds", seeds),
        ("Executor", f"{executor}, {jobs} at a time"),
        ("System", f"{system}, {plural(os.cpu_count() or 1, 'core')}, {python}"),
        ("Versions", ", ".join([f"stopwise {__version__}", *packages])),
    )


def _curve_rows(evidence: Mapping[str, ClaimEvidence]) -> Iterator[Row]:
    """Yield every curve, a row for each point."""
    for name, found in evidence.items():
        for cell in found.cells:
            traces = found.traces(*cell[:3])
            for what in MEASURES:
                if getattr(traces[0], what) is None:
                    continue
                for t, mean, low, high in zip(*curves(traces, what), strict=True):
                    yield {
                        "exhibit": name,
                        "setting": cell.setting,
                        "instance": cell.instance,
                        "policy": cell.policy,
                        "measure": what,
                        "round": int(t),
                        "mean": float(mean),
                        "low": float(low),
                        "high": float(high),
                        "repetitions": len(traces),
                        "spec": cell.spec.key,
                    }
