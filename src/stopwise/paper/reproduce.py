"""The whole reproduction: which runs, in what store, and the report on them."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from stopwise.errors import InvalidParameterError, PersistenceError, missing_package
from stopwise.experiments.campaign import run_campaign
from stopwise.experiments.engines import make_engine
from stopwise.experiments.runs import Trace
from stopwise.experiments.spec import ExperimentSpec
from stopwise.experiments.store import RunStore
from stopwise.experiments.summary import curves
from stopwise.paper import choices
from stopwise.paper.catalogue import EXHIBITS
from stopwise.paper.evidence import Cell, ClaimEvidence
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.numbers import write_numbers
from stopwise.paper.provenance import gather
from stopwise.paper.report import Report, write_report
from stopwise.paper.settings import SETTINGS
from stopwise.records import Progress, no_progress

TITLE = "USS-PD, reproduced"
STORE = "runs.sqlite"
ENDINGS = (".png", ".svg", ".csv", ".parquet")


class Scale(msgspec.Struct, frozen=True):
    """How often each run is repeated."""

    repetitions: int
    realizable_repetitions: int

    def of(self, exhibit: Exhibit, cell: Cell) -> int:
        """Return how often a cell's runs are repeated."""
        return self.realizable_repetitions if cell.policy in exhibit.many else self.repetitions

    def __str__(self) -> str:
        said = f"{choices.ROUNDS:,} rounds, {self.repetitions} repetitions"
        if self.realizable_repetitions != self.repetitions:
            said += f" ({self.realizable_repetitions} of USS-PD in the realizable setting)"
        return said


FULL = Scale(choices.REPETITIONS, choices.REALIZABLE_REPETITIONS)
QUICK = Scale(3, 3)


def reproduce(
    out: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    engine: str = "processes",
    jobs: int | None = None,
    address: str | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
    command: str = "stopwise reproduce",
) -> Report:
    """Do the paper's experiments again and write the report on them.

    Runs that are already in ``out`` are not done again; killed at any moment and called again, it
    goes on where it was and comes to the same numbers.

    Parameters
    ----------
    out : Path
        The folder for runs, figures, numbers and reports; made if it is not there. Runs add up
        there; figures, numbers and reports are those of the last call.
    quick : bool
        A few repetitions only: the curves are there, most intervals are too wide to decide.
    only : sequence of str
        Names from ``EXHIBITS``; all by default.
    engine, jobs, address
        Who does the runs, as in `make_engine`.
    seed : int
        Of the first repetition; the others follow it.
    progress : callable, optional
        Called as ``progress(stage, done, of)``.
    command : str
        What to call this in the report.

    Returns
    -------
    Report
        What was written.
    """
    chosen = _chosen(only)
    _check_packages()
    workers = make_engine(engine, jobs, address)
    scale = QUICK if quick else FULL
    started, clock = datetime.now(UTC), time.perf_counter()
    _make_folder(out)
    cells = {exhibit.name: exhibit.cells() for exhibit in chosen}
    often = {
        (exhibit.name, cell.spec): scale.of(exhibit, cell)
        for exhibit in chosen
        for cell in cells[exhibit.name]
    }
    wanted: dict[ExperimentSpec, int] = {}  # where two exhibits share runs, the larger number
    for (_, spec), times in often.items():
        wanted[spec] = max(times, wanted.get(spec, 0))
    seeds = {spec: range(seed, seed + times) for spec, times in wanted.items()}
    with workers, RunStore(out / STORE) as store:
        run_campaign(seeds.items(), store, workers, progress)
        traces = {spec: _kept(store, spec, which) for spec, which in seeds.items()}
    evidence = {
        exhibit.name: ClaimEvidence(
            cells[exhibit.name],
            {
                c.spec.key: traces[c.spec][: often[exhibit.name, c.spec]]
                for c in cells[exhibit.name]
            },
        )
        for exhibit in chosen
    }
    sections = tuple(exhibit.build(evidence[exhibit.name]) for exhibit in chosen)
    last = seed + max(wanted.values(), default=1) - 1
    report = Report(
        title=TITLE,
        command=command,
        sections=sections,
        choices=choices.CHOICES,
        settings=tuple((s.name, s.explanation) for s in SETTINGS),
        provenance=gather(
            started,
            time.perf_counter() - clock,
            f"{seed} to {last}",
            engine,
            getattr(workers, "jobs", 1),
        ),
        scale=f"a quick look: {scale}" if quick else str(scale),
        quick=quick,
    )
    write_report(report, out, progress)
    if wanted:
        write_numbers(_rows(evidence), out / "numbers" / "curves")
    _remove_others(report, out, with_curves=bool(wanted))
    return report


def _chosen(only: Sequence[str]) -> list[Exhibit]:
    if unknown := [name for name in only if name not in EXHIBITS]:
        raise InvalidParameterError(
            f"nothing in the paper is called {unknown[0]!r}; there are {', '.join(EXHIBITS)}"
        )
    return [exhibit for name, exhibit in EXHIBITS.items() if not only or name in only]


def _kept(store: RunStore, spec: ExperimentSpec, seeds: Sequence[int]) -> list[Trace]:
    runs = store.get(spec)  # which may have been asked for more, or other, seeds before
    return [runs[seed] for seed in seeds]


def _check_packages() -> None:
    """Miss what is not installed now, not after all the runs."""
    if missing := [name for name in ("jinja2", "matplotlib", "pyarrow") if find_spec(name) is None]:
        raise missing_package("the report", " and ".join(missing), "paper")


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PersistenceError(f"cannot make the folder {out}: {error.strerror}") from error


def _remove_others(report: Report, out: Path, *, with_curves: bool) -> None:
    """Remove figures and numbers of an earlier report: a folder shows one. Runs are kept."""
    pictures = {picture.name for section in report.sections for picture in section.pictures}
    numbers = {table.name for section in report.sections for table in section.tables} | {"claims"}
    if with_curves:
        numbers.add("curves")
    for folder, names in (("figures", pictures), ("numbers", numbers)):
        for path in (out / folder).glob("*"):
            if path.suffix in ENDINGS and path.stem not in names:
                path.unlink()


def _rows(evidence: dict[str, ClaimEvidence]) -> Iterator[dict[str, Any]]:
    """Return every curve, a row for each point."""
    for name, found in evidence.items():
        for cell in found.cells:
            yield from _points(name, cell, found.traces(*cell[:3]))


def _points(name: str, cell: Cell, traces: Sequence[Trace]) -> Iterator[dict[str, Any]]:
    spec: ExperimentSpec = cell.spec
    measures = ["regret", "undominated"] + ["total_cost"] * (traces[0].total_cost is not None)
    for what in measures:
        for t, mean, low, high in zip(*curves(traces, what), strict=True):  # pyright: ignore[reportArgumentType] (three of its three words)
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
                "spec": spec.key,
            }
