"""Run the paper's experiments and write the report."""

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
from stopwise.research.experiments.summary import Measure, curves
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
QUICK_SCALE = f"quick run: {choices.ROUNDS:,} rounds, {QUICK} repetitions"
FULL_SCALE = (
    f"{choices.ROUNDS:,} rounds, {choices.REPETITIONS} repetitions "
    f"({choices.REALIZABLE_REPETITIONS} of USS-PD in the realizable setting)"
)
MEASURES: tuple[Measure, ...] = ("regret", "signed", "undominated", "total_cost")


def repetitions(exhibit: Exhibit, policy: str, *, quick: bool) -> int:
    """Return the number of repetitions of a policy for an exhibit."""
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
    """Repeat the paper's experiments and write the report.

    Runs stored in ``out`` are reused, so repeating a call that was killed at any moment resumes it
    and gives the same numbers. The runs of all calls stay in ``out``; the figures, numbers and
    report are those of the last call.

    Parameters
    ----------
    out : Path
        The folder for the runs and the report.
    quick : bool
        Run only 3 repetitions. Growth is not tested, and many other claims stay undecided.
    only : sequence of str
        Names from ``EXHIBITS``; by default, all of them.
    executor, jobs, address
        As in `make_executor`.
    seed : int
        The seed of the first repetition; each further repetition uses the next seed.
    progress : callable
        Called as ``progress(stage, done, total)``.
    command : str
        The command that repeats this call, shown in the report.
    """
    if unknown := [name for name in only if name not in EXHIBITS]:
        raise InvalidParameterError(
            f"unknown table or figure {unknown[0]!r}; {suggestion(unknown[0], EXHIBITS)}"
        )
    if missing := [name for name in ("jinja2", "matplotlib", "pyarrow") if find_spec(name) is None]:
        raise MissingPackageError.of("the report", " and ".join(missing), "paper")
    workers = make_executor(executor, jobs, address)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PersistenceError(f"cannot create the folder {out}: {error.strerror}") from error
    started, clock = datetime.now(UTC), time.perf_counter()
    exhibits = [exhibit for name, exhibit in EXHIBITS.items() if not only or name in only]
    cells = {exhibit.name: exhibit.cells() for exhibit in exhibits}
    counts: dict[ExperimentSpec, int] = {}  # the larger number if exhibits share runs
    for exhibit in exhibits:
        for cell in cells[exhibit.name]:
            n = repetitions(exhibit, cell.policy, quick=quick)
            counts[cell.spec] = max(n, counts.get(cell.spec, 0))
    seeds = {spec: range(seed, seed + n) for spec, n in counts.items()}
    with workers, RunStore(out / STORE) as store:
        run_campaign(seeds.items(), store, workers, progress)
        runs = {spec: store.get(spec) for spec in seeds}  # may include seeds of earlier calls
    traces = {spec.key: [runs[spec][k] for k in wanted] for spec, wanted in seeds.items()}
    evidence = {name: ClaimEvidence(exhibit_cells, traces) for name, exhibit_cells in cells.items()}
    last = seed + max(counts.values(), default=1) - 1
    seconds = time.perf_counter() - clock
    report = Report(
        title=TITLE,
        command=command,
        sections=tuple(exhibit.build(evidence[exhibit.name]) for exhibit in exhibits),
        choices=choices.CHOICES,
        settings=tuple((s.name, s.explanation) for s in SETTINGS),
        provenance=provenance(started, seconds, f"{seed} to {last}", executor, workers.jobs),
        scale=QUICK_SCALE if quick else FULL_SCALE,
        quick=quick,
    )
    write_report(report, out, progress, list(_curve_rows(evidence)))
    return report


def provenance(started: datetime, seconds: float, seeds: str, executor: str, jobs: int) -> Facts:
    """Return the system, versions and seeds of the runs, without user or host names."""
    packages = [f"{name} {version(name)}" for name in ("numpy", "matplotlib")]
    system = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        ("Started", f"{started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("Duration", f"{duration(seconds)}, excluding previously stored runs"),
        ("Seeds", seeds),
        ("Executor", f"{executor}, {plural(jobs, 'parallel job')}"),
        ("System", f"{system}, {plural(os.cpu_count() or 1, 'core')}, {python}"),
        ("Versions", ", ".join([f"stopwise {__version__}", *packages])),
    )


def _curve_rows(evidence: Mapping[str, ClaimEvidence]) -> Iterator[Row]:
    """Yield every curve, one row per point."""
    for name, exhibit_evidence in evidence.items():
        for cell in exhibit_evidence.cells:
            traces = exhibit_evidence.traces(*cell[:3])
            for measure in MEASURES:
                if getattr(traces[0], measure) is None:
                    continue
                for t, mean, low, high in zip(*curves(traces, measure), strict=True):
                    yield {
                        "exhibit": name,
                        "setting": cell.setting,
                        "instance": cell.instance,
                        "policy": cell.policy,
                        "measure": measure,
                        "round": int(t),
                        "mean": float(mean),
                        "low": float(low),
                        "high": float(high),
                        "repetitions": len(traces),
                        "spec": cell.spec.key,
                    }
