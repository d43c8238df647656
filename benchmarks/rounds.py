"""Cost of one decide-and-learn round: Stopwise, a reference and other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import peers, reference, uss_pd
from benchmarks.peers.base import Peer
from benchmarks.report import table
from benchmarks.timing import Entry, cpu_seconds, play, progress, race
from benchmarks.workload import Workload, make

N_ARMS, N_FEATURES = 5, 10
BASELINE = "numpy LinUCB, stacked"
TIE = 1e-9
"""A decision with a smaller margin is a tie, which rounding may decide either way."""

NOTE = """\
The other libraries do not solve this problem: they are bandits over depths that receive a reward
(minus the cost, minus 1 for differing from the deepest arm). The times are those of one decide +
one learn. Contexts are converted to each library's form (arrays, dicts, text) before the clock
starts. Slow libraries run fewer rounds, or their rounds are timed at that history length;
scikit-learn is timed in every 100th round, which estimates refitting in every round."""


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Time all learners on the same contexts; return the table and the result."""
    n_rounds, n_exact = (4_000, 2_000) if quick else (20_000, 5_000)
    workload = make(n_rounds, N_ARMS, N_FEATURES)
    short = workload.head(n_exact)
    progress("rounds: compiling the reference")
    reference.run(workload.head(200))
    exact: list[reference.ReferenceRun] = []
    installed = uss_pd.installed()
    if installed:
        uss_pd.check_features(N_ARMS, N_FEATURES)

    def solve_every_round() -> float:
        return cpu_seconds(lambda: exact.append(reference.run(short, **uss_pd.SETTINGS))) / n_exact

    def compiled(load: Workload) -> Callable[[], float] | None:
        return (lambda: uss_pd.run_compiled(load)[0]) if installed else None

    python_api = _entry(
        uss_pd.StopwisePython if installed else None, uss_pd.StopwisePython.name, workload
    )
    complete_run = Entry("Stopwise, compiled loop", n_rounds, compiled(workload))
    short_run = Entry("Stopwise, compiled loop", n_exact, compiled(short))
    solving = Entry("solves every round, vectorised by hand", n_exact, solve_every_round)
    others = [_entry(peers.load(module), name, workload) for module, name in peers.MODULES.items()]
    entries = [python_api, complete_run, short_run, solving, *others]
    race(entries, "rounds")

    unit = next(entry.best for entry in entries if entry.name == BASELINE)
    rows = [_row(entry, unit) for entry in entries]
    summary = [NOTE]
    result: dict[str, Any] = {
        "n_arms": N_ARMS,
        "n_features": N_FEATURES,
        "rows": [dict(zip(("name", "rounds", "us", "ratio"), row, strict=True)) for row in rows],
    }
    if installed:
        stops = uss_pd.run_compiled(short)[1]
        agreement = compare(stops, exact[0])
        same_by_both = int((stops == uss_pd.stops_by_python(short)).sum())
        speedup = solving.best / short_run.best
        result |= {"speedup": speedup, "agreement": agreement, "same_by_both_roads": same_by_both}
        summary += [
            f"Speed over solving every round, at {n_exact:,} rounds: {speedup:,.0f} times",
            describe(agreement),
            f"Same decisions by Python API and compiled loop: {same_by_both:,} of {n_exact:,}",
        ]
    title = f"One round, K = {N_ARMS}, d' = {N_FEATURES}"
    columns = ["", "rounds", "µs per round", "relative to numpy LinUCB"]
    return table(title, columns, rows, "\n".join(summary)), result


def compare(stops: Any, exact: reference.ReferenceRun) -> dict[str, int]:
    """Count equal decisions, and ties among the others."""
    differs = stops != exact.stops
    return {
        "rounds": len(exact.stops),
        "same": int((~differs).sum()),
        "ties": int((differs & (exact.margins < TIE)).sum()),
        "unsettled_solves": exact.unsettled,
    }


def describe(agreement: dict[str, int]) -> str:
    """Return an agreement as text."""
    same, rounds, ties = agreement["same"], agreement["rounds"], agreement["ties"]
    line = f"Same decisions as solving every round: {same:,} of {rounds:,}"
    return line + (f" ({ties:,} of the others are ties)" if ties else "")


def _entry(kind: type[Peer] | None, name: str, workload: Workload) -> Entry:
    """Return the entry of a peer with its input prepared; without `play` if it is not installed."""
    if kind is None:
        return Entry(name, 0, None)
    load = workload.head(kind.rounds)
    contexts, outputs = kind.prepare(load.contexts), load.outputs.tolist()
    return Entry(
        kind.name,
        load.n_rounds,
        lambda: play(kind(load.costs, load.n_features), contexts, outputs),
    )


def _row(entry: Entry, unit: float) -> tuple[str, int | None, float | str, float | None]:
    if entry.play is None:
        return entry.name, None, "not installed", None
    return entry.name, entry.rounds, entry.best * 1e6, entry.best / unit
