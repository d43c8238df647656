"""Rounds with many features: d' = 45 and 91, degree-two maps of 8 and 12 measurements.

Also the first 300 rounds with up to 768 features, the size of an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import reference, uss_pd
from benchmarks.peers.numpy_linucb import NumpyLinUCB
from benchmarks.report import table
from benchmarks.rounds import compare, describe
from benchmarks.timing import REPEATS, Entry, cpu_seconds, play, progress, race
from benchmarks.workload import make

N_ARMS = 3
N_FEATURES = (45, 91)
FIRST_ROUNDS = 300
FIRST_FEATURES = (50, 100, 200, 384, 768)

NOTE = """\
Forced rounds: 3·d', so that V is invertible when they end. The reference runs fewer rounds, because
its rounds get slower as history grows. The last column compares it with Stopwise at the same
length: the reference's time divided by that of the row."""

FIRST_NOTE = f"""\
The compiled loop from its first round, with {uss_pd.FORCED_ROUNDS} forced rounds. Total CPU
seconds, best of {REPEATS} runs."""


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Time Stopwise, numpy LinUCB and the reference at each size, then the first rounds."""
    n_rounds, n_exact = (2_000, 800) if quick else (5_000, 2_000)
    rows: list[list[Any]] = []
    verdicts: list[str] = []
    results: list[dict[str, Any]] = []
    for d in N_FEATURES:
        entries, agreement = _race(d, n_rounds, n_exact)
        solving = entries[-1]
        for entry in entries:
            micros = entry.best * 1e6 if entry.play is not None else "not installed"
            alike = entry is not solving and entry.rounds == solving.rounds
            ratio = solving.best / entry.best if alike and entry.play is not None else None
            rows.append([f"d' = {d}: {entry.name}", entry.rounds, micros, ratio])
            results.append({"n_features": d, "name": entry.name, "rounds": entry.rounds,
                            "us": micros, "reference_ratio": ratio})  # fmt: skip
        if agreement is not None:
            verdicts.append(f"d' = {d}: {describe(agreement)}")
            results[-1]["agreement"] = agreement
    text = table(
        f"Many features, K = {N_ARMS}",
        ["", "rounds", "µs per round", "reference / this"],
        rows,
        "\n".join([NOTE, *verdicts]),
    )
    result: dict[str, Any] = {"n_arms": N_ARMS, "rows": results}
    if uss_pd.installed():
        first = _first_rounds(FIRST_FEATURES[:-1] if quick else FIRST_FEATURES)
        columns = ["features", "CPU seconds", "ms per round"]
        title = f"The first {FIRST_ROUNDS} rounds, K = {N_ARMS}"
        table_rows = [(str(d), spent, spent / FIRST_ROUNDS * 1e3) for d, spent in first.items()]
        text += "\n" + table(title, columns, table_rows, FIRST_NOTE)
        result["first_rounds"] = {"rounds": FIRST_ROUNDS, "seconds": first}
    return text, result


def _first_rounds(sizes: Sequence[int]) -> dict[int, float]:
    """Return the CPU seconds of the first rounds by the number of features."""
    loads = {d: make(FIRST_ROUNDS, N_ARMS, d) for d in sizes}
    entries = {
        d: Entry(f"{d} features", FIRST_ROUNDS, lambda load=load: uss_pd.run_compiled(load)[0])
        for d, load in loads.items()
    }
    race(list(entries.values()), f"wide, first {FIRST_ROUNDS} rounds")
    return {d: entry.best * FIRST_ROUNDS for d, entry in entries.items()}


def _race(d: int, n_rounds: int, n_exact: int) -> tuple[list[Entry], dict[str, int] | None]:
    """Return the timed entries of one size, and the agreement of Stopwise with the reference."""
    forced_rounds = 3 * d
    workload = make(n_rounds, N_ARMS, d)
    short = workload.head(n_exact)
    contexts, outputs = list(workload.contexts), workload.outputs.tolist()
    progress(f"wide, d' = {d}: compiling the reference")
    reference.run(workload.head(200))
    installed = uss_pd.installed()
    if installed:
        uss_pd.check_features(N_ARMS, d)
    exact: list[reference.ReferenceRun] = []

    def by_python() -> float:
        learner = uss_pd.StopwisePython(workload.costs, d, forced_rounds)
        return play(learner, contexts, outputs)

    def by_compiled_loop() -> float:
        return uss_pd.run_compiled(workload, forced_rounds)[0]

    def by_compiled_loop_in_short() -> float:
        return uss_pd.run_compiled(short, forced_rounds)[0]

    def by_linucb() -> float:
        return play(NumpyLinUCB(workload.costs, d), contexts, outputs)

    def by_reference() -> float:
        def solve() -> None:
            exact.append(reference.run(short, forced_rounds=forced_rounds, **uss_pd.SETTINGS))

        return cpu_seconds(solve) / n_exact

    entries = [
        Entry("Stopwise, Python API", n_rounds, by_python if installed else None),
        Entry("Stopwise, compiled loop", n_rounds, by_compiled_loop if installed else None),
        Entry("Stopwise, compiled loop", n_exact, by_compiled_loop_in_short if installed else None),
        Entry("numpy LinUCB, stacked", n_rounds, by_linucb),
        Entry("reference, solves every round", n_exact, by_reference),
    ]
    race(entries, f"wide, d' = {d}")
    if not installed:
        return entries, None
    return entries, compare(uss_pd.run_compiled(short, forced_rounds)[1], exact[0])
