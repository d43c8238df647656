"""Growth of regret beyond the paper's 5,000 rounds.

USS-PD runs on instances of the reproduction for 100,000 rounds, with both of its settings. At each
horizon, the fit of the report classifies the regret as logarithmic, linear or undecided.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.timing import progress
from stopwise.research.experiments.runs import execute
from stopwise.research.experiments.spec import ExperimentSpec
from stopwise.research.paper import choices, instances
from stopwise.research.paper.growth import MIN_RUNS, fit_growth
from stopwise.research.paper.settings import SETTINGS

HORIZONS = (5000, 20_000, 100_000)
CHECKPOINT = 100
INSTANCES = {
    "synthetic, instance 4": instances.synthetic(choices.SYNTHETIC_COSTS["instance 4"]),
    "realizable, four arms, case 1": instances.realizable(4, 1, choices.REALIZABLE_MARGINS[1]),
}


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Run the longest horizon, and fit the growth up to each."""
    horizons = HORIZONS[:2] if quick else HORIZONS
    rows: list[tuple[Any, ...]] = []
    for name, environment in INSTANCES.items():
        for setting in SETTINGS:
            policy = setting.policies(environment)["USS-PD"]
            spec = ExperimentSpec(environment, policy, horizons[-1], horizons[-1] // CHECKPOINT)
            curves: list[Any] = []
            for seed in range(MIN_RUNS):
                progress(f"{name}, {setting.name}: run {seed + 1} of {MIN_RUNS}")
                curves.append(execute(spec, seed).regret)
            rows += [(name, setting.name, *row) for row in _fits(np.array(curves), spec, horizons)]
    progress("")
    columns = ["instance", "setting", "rounds", "regret", "linear part", "from", "to", "growth"]
    text = table("Growth of the regret of USS-PD at longer horizons", columns, rows)
    return text, {"columns": columns, "rows": rows}


def _fits(curves: Any, spec: ExperimentSpec, horizons: tuple[int, ...]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for horizon in horizons:
        until = spec.checkpoint_rounds <= horizon
        growth = fit_growth(spec.checkpoint_rounds[until].astype(np.float64), curves[:, until])
        assert growth is not None  # there are enough runs
        shares = (growth.share.value, growth.share.low, growth.share.high)
        rows.append(
            (
                f"{horizon:,}",
                float(curves[:, until][:, -1].mean()),
                *(f"{share:.0%}" for share in shares),
                growth.shape,
            )
        )
    return rows
