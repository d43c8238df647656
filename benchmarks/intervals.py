"""Coverage of the intervals of shadow reports and diagnoses, by simulation.

``python -m benchmarks.intervals 50`` simulates 50 days in place of 200.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import stopwise as sw
from benchmarks.report import table
from benchmarks.timing import progress
from stopwise.arrays import Floats, Ints
from stopwise.intervals import Z90, Interval, wilson
from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.diagnosis.models import Disagreement
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from stopwise.logs.log import Log
from stopwise.proxy.config import CascadeConfig, StageConfig
from stopwise.proxy.cross_fitting import cross_fit, train_policy
from stopwise.proxy.report import intervals
from stopwise.records import RecordedRounds

ARMS, ROUNDS, WORLDS = (2, 3, 5), (100, 300, 1000), ("informative", "constant")
FULL, QUICK = 200, 5  # simulated days for each number of arms, of rounds and kind of world
BASE, REVEALED = 4, 5  # context features of a request, and of each answer
NEW_PER_ROUND = 40  # new requests per round, to estimate the truth

COLUMNS = ("changed", "saving", "in sample", "diagnose", "Wilson")
NOTE = """\
The share of simulated days on which an interval covers the value for new requests, with the policy
trained on all rounds. "changed" and "saving": the proxy's report, at 90 %; "in sample": Wilson's
interval for the rounds that the policy learned from; "diagnose": how often the rule's answer
differs from the last arm's, at 95 %, compared with Wilson's interval alone. Each day draws its
costs and error rates. In informative worlds, the context separates hard requests from easy ones; in
constant worlds it is noise. A coverage c has a standard error of √(c(1 − c)/days)."""


class World(NamedTuple):
    """Costs of the arms in units of one error, their error rates, and the signal of contexts."""

    costs: Floats
    logits: Floats
    slope: float
    informative: float


class Day(NamedTuple):
    """Requests: contexts (n, BASE + REVEALED·(K − 1)), outputs (n, K)."""

    contexts: Floats
    outputs: Ints

    def rounds(self) -> RecordedRounds:
        """Return the requests as rounds in which every arm ran."""
        n, k = self.outputs.shape
        columns = [
            self.outputs[:, i] != self.outputs[:, j] for i in range(k) for j in range(i + 1, k)
        ]
        differ = np.column_stack(columns).astype(np.uint8)
        failed = np.zeros(n, dtype=np.bool_)
        return RecordedRounds(self.contexts, differ, np.full(n, k), failed)


class Trial(NamedTuple):
    """An interval and the truth."""

    estimate: Interval
    truth: float

    @property
    def covered(self) -> bool:
        """Whether the interval covers the truth, up to rounding."""
        return self.estimate.low - 1e-9 <= self.truth <= self.estimate.high + 1e-9


def draw_world(random: np.random.Generator, n_arms: int, kind: str) -> World:
    """Draw a cascade whose arms improve with cost."""
    costs = np.geomspace(random.uniform(0.002, 0.03), random.uniform(0.1, 0.4), n_arms)
    errors = np.geomspace(random.uniform(0.15, 0.5), random.uniform(0.02, 0.1), n_arms)
    slope, informative = {"informative": (1.5, 1.0), "constant": (0.0, 0.0)}[kind]
    return World(costs, np.log(errors / (1 - errors)), slope, informative)


def draw_day(random: np.random.Generator, world: World, n: int) -> Day:
    """Draw requests with context features like those of the proxy."""
    hard = random.normal(size=n)
    signal = world.informative * hard
    columns = [
        5.0 + signal + random.normal(size=n),  # length
        1.0 + random.poisson(2, n),  # messages
        random.random(n) < 0.3,  # tools
        random.random(n) < 0.2,  # a schema
    ]
    outputs = np.empty((n, len(world.costs)), dtype=np.int64)
    for arm, logit in enumerate(world.logits):
        wrong = random.random(n) < 1 / (1 + np.exp(-(logit + world.slope * hard)))
        outputs[:, arm] = np.where(wrong, random.integers(1, 4, n), 0)
        if arm < len(world.costs) - 1:
            sure = 0.3 + 0.3 * signal + 0.3 * world.informative * wrong
            mean = -np.abs(sure + 0.3 * random.normal(size=n))
            columns += [mean, mean - random.exponential(size=n), np.ones(n)]  # log-probabilities
            columns += [random.normal(3, 0.5, n), random.random(n) < 0.03]  # length, refusal
    return Day(np.column_stack(columns).astype(np.float64), outputs)


def shadow_day(seed: int, n_arms: int, n: int, kind: str) -> dict[str, Trial]:
    """Return the report's intervals after n shadow rounds, with the truth for new requests."""
    random = np.random.default_rng([seed, n_arms, n, len(kind)])
    world = draw_world(random, n_arms, kind)
    day, later = draw_day(random, world, n), draw_day(random, world, NEW_PER_ROUND * n)
    names = [f"stage {arm}" for arm in range(n_arms)]
    stages = [
        StageConfig(name=name, python="math:sqrt", cost=cost)
        for name, cost in zip(names, world.costs.tolist(), strict=True)
    ]
    spec = CascadeConfig(name="simulated", stage=stages).spec()
    rounds = day.rounds()
    policy = train_policy(spec, rounds)
    stops = policy.decide_many(later.rounds())
    in_sample_stops = policy.decide_many(rounds)
    differs = day.outputs != day.outputs[:, [-1]]
    fit = cross_fit(spec, policy, rounds)
    saving, changed = intervals(world.costs, n_arms - 1, differs, fit)
    saved = world.costs[-1] - np.cumsum(world.costs)
    truth = float(_changed(later, stops).mean())
    in_sample = wilson(int(_changed(day, in_sample_stops).sum()), n, Z90)
    return {
        "changed": Trial(changed, truth),
        "saving": Trial(saving, float(saved[stops].mean())),
        "in sample": Trial(in_sample, truth),
    }


def diagnosed_day(seed: int, n_arms: int, n: int, kind: str) -> dict[str, Trial]:
    """Return the diagnosis' interval of the disagreement, with the truth for new rows.

    The log has the four context features of a request.
    """
    random = np.random.default_rng([seed, n_arms, n, len(kind), 1])
    world = draw_world(random, n_arms, kind)
    day, later = draw_day(random, world, n), draw_day(random, world, NEW_PER_ROUND * n)
    columns: dict[str, Any] = {f"context.{c}": day.contexts[:, c] for c in range(BASE)}
    columns |= {f"output.{arm}": day.outputs[:, arm] for arm in range(n_arms)}
    log = Log(pa.table(columns), name="simulated")
    cascade = sw.Cascade(world.costs, log.arms)
    disagreement = diagnose(log, cascade).saving.disagreement
    # The rows are doubled so that the model that leaves out one half is fitted on all of them.
    contexts = np.tile(day.contexts[:, :BASE], (2, 1))
    model = Disagreement(cascade, contexts, np.tile(day.rounds().differ, (2, 1)))
    new = later.contexts[:, :BASE]
    stops = plug_in_stops(cascade, model.predict(new, np.zeros(len(new), dtype=np.int64)))
    truth = float(_changed(later, stops).mean())
    return {
        "diagnose": Trial(disagreement, truth),
        "Wilson": Trial(wilson(disagreement.value * n, n), truth),
    }


def coverage(
    simulate: Callable[[int, int, int, str], dict[str, Trial]],
    n_arms: int,
    n: int,
    kind: str,
    days: int,
) -> dict[str, float]:
    """Return the share of days on which each interval covers the truth."""
    trials = [simulate(seed, n_arms, n, kind) for seed in range(days)]
    return {name: float(np.mean([day[name].covered for day in trials])) for name in trials[0]}


def run(quick: bool = False, days: int = FULL) -> tuple[str, dict[str, Any]]:
    """Simulate days for every number of arms and rounds, and kind of world."""
    days = QUICK if quick else days
    rows: list[list[Any]] = []
    for n in ROUNDS:
        for n_arms in ARMS:
            for kind in WORLDS:
                shares = coverage(shadow_day, n_arms, n, kind, days)
                shares |= coverage(diagnosed_day, n_arms, n, kind, days)
                rows.append([f"n = {n:,}, K = {n_arms}, {kind}", *(shares[c] for c in COLUMNS)])
                progress(" ".join(map(str, rows[-1])))
    progress("")
    columns = ["", *COLUMNS]
    result = {"days": days, "rows": [dict(zip(columns, row, strict=True)) for row in rows]}
    return table(f"Coverage of intervals, {days} days each", columns, rows, NOTE), result


def _changed(day: Day, stops: Ints) -> NDArray[np.bool_]:
    """Return whether each answer would differ from the last arm's."""
    return day.outputs[np.arange(len(stops)), stops] != day.outputs[:, -1]


if __name__ == "__main__":
    print(run(days=int(sys.argv[1]) if len(sys.argv) > 1 else FULL)[0])
