"""Stopwise compared with solving every round, at three depths."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import plain_reference, reference, uss_pd
from benchmarks.report import table
from benchmarks.timing import REPEATS, cpu_seconds, progress
from benchmarks.workload import Workload, make

N_ARMS, N_FEATURES = 5, 10
DEPTHS = {"shallow": 0.45, "even": 0.25, "deep": 0.12}
"""Cost of running all arms: the lower, the deeper rounds go, and the more there is to solve."""

NOTE = """\
"plain" is the paper's pseudocode in compiled loops; "by hand" the same with the history laid out
and the sums vectorised by hand. Both solve only the pairs that a round updated, and start from the
last solution. CPU time, best of three, on the same contexts."""


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Run the same rounds with all three and compare times and decisions."""
    n_rounds = 2_000 if quick else 5_000
    progress("exactness: compiling the references")
    warm = make(300, N_ARMS, N_FEATURES)
    plain_reference.run(warm)
    reference.run(warm)
    uss_pd.check_features(N_ARMS, N_FEATURES)
    rows: list[list[Any]] = []
    results: list[dict[str, Any]] = []
    for name, all_the_way in DEPTHS.items():
        load = make(n_rounds, N_ARMS, N_FEATURES, all_the_way=all_the_way)
        stops: dict[str, Any] = {}
        best: dict[str, float] = dict.fromkeys(("stopwise", "plain", "by hand"), float("inf"))
        for repeat in range(REPEATS):
            progress(f"exactness: {name}, run {repeat + 1} of {REPEATS}")
            spent, stops["stopwise"] = uss_pd.run_compiled(load)
            best["stopwise"] = min(best["stopwise"], spent)
            for name_, play in (("plain", plain_reference.run), ("by hand", _by_hand)):
                spent, stops[name_] = _timed(play, load)
                best[name_] = min(best[name_], spent)
        equal_plain = stops["stopwise"] == stops["plain"]
        equal_by_hand = stops["stopwise"] == stops["by hand"]
        same = int((equal_plain & equal_by_hand).sum())
        shares = np.bincount(stops["stopwise"], minlength=N_ARMS) / n_rounds
        micros = {key: value * 1e6 for key, value in best.items()}
        ratios = [micros["plain"] / micros["stopwise"], micros["by hand"] / micros["stopwise"]]
        depth = " ".join(f"{share:.0%}" for share in shares)
        rows.append([f"{name}: {depth}", *micros.values(), *ratios, f"{same:,} of {n_rounds:,}"])
        results.append({"name": name, "us": micros, "ratios": ratios, "same": same})
    progress("")
    columns = ["rounds that stop at each arm", "Stopwise µs", "plain µs", "by hand µs",
               "plain / Stopwise", "by hand / Stopwise", "same decisions"]  # fmt: skip
    title = f"Solving every round, {n_rounds:,} rounds, K = {N_ARMS}, d' = {N_FEATURES}"
    return table(title, columns, rows, NOTE), {"rounds": n_rounds, "rows": results}


def _timed(play: Any, load: Workload) -> tuple[float, Any]:
    """Run a workload; return CPU seconds per round and the stops."""
    stops: list[Any] = []
    spent = cpu_seconds(lambda: stops.append(play(load, **uss_pd.SETTINGS)))
    return spent / load.n_rounds, stops[0]


def _by_hand(load: Workload, **settings: Any) -> Any:
    return reference.run(load, **settings).stops
