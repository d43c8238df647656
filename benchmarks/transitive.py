"""Transitive decisions compared with the closure of exact solves, and their passes over history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from benchmarks.report import table
from benchmarks.timing import progress
from stopwise.reference import radius, sigmoid

Array = NDArray[np.float64]

ARMS = (4, 5, 6, 7)
ROUNDS_OF_A_RUN = 150
FULL, QUICK = 500_000, 4_000
COLUMNS = (
    "rounds",
    "wrong",
    "ties",
    "early",
    "chains",
    "settled",
    "most passes",
    "most per pair",
)
TIE = 1e-9  # smaller margins, in probability, may be decided either way

NOTE = """\
Each run draws its costs, error rates, features, ridge, radius, half-life and outputs; runs with
"defaults" have three context columns, default parameters, and the costs
default_rng(1).uniform(.01, .25, 4). "wrong" are stops excluded by the closure of the exact solves;
"ties" are rounds in which a margin below 1e-9 allows more than one stop; "early" are stops before
the last arm; "chains" are rounds that stop earlier because of a chain; "settled" are decisions
without a certificate. Passes are over history, for one decision."""


@dataclass
class ExactClosure:
    """The transitive rule over exact solves, in plain numpy without the engine.

    Every round solves the regressions of all pairs to convergence, in one batch.
    """

    kind: str  # "laplace" or "pd"
    cumulative: Array
    ridge: float
    dim: int
    z: float = 0.5
    sigma: float = 0.1
    half_life: float | None = None

    def __post_init__(self) -> None:
        """Start with an empty history."""
        n_arms = len(self.cumulative)
        self.pairs = np.array(list(combinations(range(n_arms), 2)))
        first, second = self.pairs.T
        self.gaps = self.cumulative[second] - self.cumulative[first]
        self.rows: list[Array] = []
        self.stops: list[int] = []
        self.differ: list[NDArray[np.bool_]] = []
        self.theta_hat = np.zeros((len(self.pairs), self.dim))

    def observe(self, phi: Array, outputs: NDArray[np.int64], stop: int) -> None:
        """Add a round in which the arms up to ``stop`` ran."""
        first, second = self.pairs.T
        self.rows.append(phi)
        self.stops.append(stop)
        self.differ.append(outputs[first] != outputs[second])

    def change_features(self, rows: Array, ridge: float) -> None:
        """Replace the features of all rounds so far."""
        self.rows = list(rows)
        self.ridge = ridge
        self.dim = rows.shape[1]
        self.theta_hat = np.zeros((len(self.pairs), self.dim))

    def margins(self, phi: Array) -> Array:
        """Return C_j − C_i − p̃_ij(x) of every pair."""
        n = len(self.rows)
        rows = np.array(self.rows).reshape(n, self.dim)
        decay = 1.0 if self.half_life is None else 2.0 ** (-1.0 / self.half_life)
        age = np.arange(n - 1, -1, -1, dtype=np.float64)
        ran = np.array(self.stops)[:, None] >= self.pairs[:, 1]
        weights = np.power(decay, age)[:, None] * ran  # (rounds, pairs)
        effective = float(n if decay == 1.0 else (1 - decay**n) / (1 - decay))
        hessian = self._solve(rows, weights)
        logits = self.theta_hat @ phi
        if self.kind == "laplace":
            solved = np.linalg.solve(hessian, np.tile(phi, (len(self.pairs), 1))[:, :, None])
            bonus = self.z * (1 + 4 / (1 + effective / 20)) * np.sqrt(solved[:, :, 0] @ phi)
        else:
            alpha = radius(
                effective, self.dim, len(self.cumulative), 0.05, self.sigma, 0.25, 0.0, 0.0
            )
            bonus = np.array([alpha * self._norm(phi, rows, w) for w in weights.T])
        return self.gaps - sigmoid(logits + bonus)

    def stop(self, margins: Array, tolerance: float = 0.0, *, chains: bool = True) -> int:
        """Return the first arm that wins against all deeper arms, directly or through others.

        A pair wins if its margin exceeds ``tolerance``.
        """
        n_arms = len(self.cumulative)
        wins = np.zeros((n_arms, n_arms), dtype=bool)
        wins[self.pairs[:, 0], self.pairs[:, 1]] = margins > tolerance
        for k in range(n_arms) if chains else ():  # Warshall's algorithm
            wins |= wins[:, k, None] & wins[k]
        for i in range(n_arms - 1):
            if wins[i, i + 1 :].all():
                return i
        return n_arms - 1

    def _solve(self, rows: Array, weights: Array) -> Array:
        """Solve all pairs by damped Newton steps; return the Hessians at the solutions."""
        answers = np.array(self.differ, dtype=float)
        ridge = self.ridge * np.eye(self.dim)
        theta = self.theta_hat
        outer = rows[:, :, None] * rows[:, None, :]
        outer = outer.reshape(len(rows), -1)
        for _ in range(1000):
            p = sigmoid(rows @ theta.T)
            curvature = weights * p * (1 - p)
            hessian = (curvature.T @ outer).reshape(-1, self.dim, self.dim) + ridge
            gradient = (weights * (answers - p)).T @ rows - self.ridge * theta
            step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
            move = np.maximum(np.abs(rows @ step.T).max(axis=0), 1e-300)
            theta = theta + (np.log1p(move) / move)[:, None] * step
            if np.abs(step).max() <= 1e-8 * max(1.0, np.abs(theta).max()):
                self.theta_hat = theta  # the next step would be of the order of rounding
                p = sigmoid(rows @ theta.T)
                curvature = weights * p * (1 - p)
                return (curvature.T @ outer).reshape(-1, self.dim, self.dim) + ridge
        raise ArithmeticError("Newton's method did not converge")

    def _norm(self, phi: Array, rows: Array, weights: Array) -> float:
        gram = (rows.T * weights) @ rows
        return math.sqrt(phi @ np.linalg.solve(gram, phi))


@dataclass
class Tally:
    """Counts over a number of rounds."""

    rounds: int = 0
    wrong: int = 0
    ties: int = 0
    early: int = 0  # rounds that stop before the last arm
    settled: int = 0
    most_passes: int = 0
    most_per_pair: float = 0.0
    chains: int = 0  # rounds that stop earlier because of a chain

    def add(self, other: Tally) -> None:
        """Add the rounds of another tally."""
        self.rounds += other.rounds
        self.wrong += other.wrong
        self.ties += other.ties
        self.early += other.early
        self.settled += other.settled
        self.chains += other.chains
        self.most_passes = max(self.most_passes, other.most_passes)
        self.most_per_pair = max(self.most_per_pair, other.most_per_pair)


def play(
    kind: str,
    n_arms: int,
    seed: int,
    n_rounds: int = ROUNDS_OF_A_RUN,
    *,
    half_life: float | None = None,
    degree: int = 1,
    z: float = 0.5,
) -> Tally:
    """Run random rounds and compare every stop with the closure of exact solves."""
    rng = np.random.default_rng([n_arms, seed, len(kind)])
    rates = np.sort(rng.uniform(0, 0.5, n_arms))[::-1]  # of errors, by arm
    costs = rng.uniform(0.01, 0.25, n_arms)
    if seed % 2 == 1:  # close to what the next arm corrects, where chains matter most
        costs[1:] = (rates[:-1] - rates[1:]) * rng.uniform(0.8, 2.0, n_arms - 1) + 0.01
    n_columns = int(rng.integers(1, 4))
    cascade = sw.Cascade(costs)
    ridge = float(10.0 ** rng.uniform(-3, -1))
    settings: dict[str, Any] = {"ridge": ridge, "transitive": True, "half_life": half_life}
    features = sw.Polynomial(degree)
    sigma = 0.1
    if kind == "laplace":
        policy: Any = sw.USSLaplace(cascade, features, n_columns, z=z, **settings)
    else:
        sigma = float(rng.uniform(0.01, 0.05))
        policy = sw.USSPD(cascade, features, n_columns, sigma=sigma, forced_rounds=20, **settings)
    dim = policy.features.n_features
    exact = ExactClosure(kind, cascade.cumulative, ridge, dim, z, sigma, half_life)
    contexts = rng.uniform(-1, 1, (n_rounds, n_columns))
    return compare(policy, exact, contexts, draw_outputs(rng, contexts, rates))


def play_defaults(seed: int, n_rounds: int = 300) -> Tally:
    """Run random rounds with default parameters and fixed costs."""
    cascade = sw.Cascade(np.random.default_rng(1).uniform(0.01, 0.25, 4))
    policy = sw.USSLaplace(cascade, context_dim=3)
    rng = np.random.default_rng([1, seed])
    contexts = rng.uniform(-1, 1, (n_rounds, 3))
    rates = np.sort(rng.uniform(0, 0.5, 4))[::-1]
    exact = ExactClosure("laplace", cascade.cumulative, 1.0, policy.features.n_features)
    return compare(policy, exact, contexts, draw_outputs(rng, contexts, rates))


def compare(policy: Any, exact: ExactClosure, contexts: Array, outputs: NDArray[np.int64]) -> Tally:
    """Let a policy learn from rounds and check each of its stops."""
    tally = Tally(rounds=len(contexts))
    before = policy.effort["passes"]
    features = policy.features
    rows = features.transform(contexts)
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        if policy.features is not features:  # default features scale themselves, and set the ridge
            features = policy.features
            rows = features.transform(contexts)
            exact.change_features(rows[:t], features.maps[0].size ** 2)
        stop = policy.decide(x).stop
        spent = policy.effort["passes"] - before
        tally.most_passes = max(tally.most_passes, spent)
        tally.most_per_pair = max(tally.most_per_pair, spent / len(exact.pairs))
        if policy.rounds >= policy.options.forced_rounds:
            margins = exact.margins(rows[t])
            earliest, latest = exact.stop(margins, -TIE), exact.stop(margins, TIE)
            tally.ties += earliest != latest
            tally.wrong += not earliest <= stop <= latest
            tally.early += stop < policy.cascade.n_arms - 1
            tally.chains += stop < exact.stop(margins, chains=False)
        policy.observe(x, y[: stop + 1].tolist())
        exact.observe(rows[t], y, stop)
        before = policy.effort["passes"]
    tally.settled = policy.effort["settled"]
    return tally


def draw_outputs(rng: np.random.Generator, contexts: Array, rates: Array) -> NDArray[np.int64]:
    """Draw outputs with nested or independent errors, whose rates may depend on the context."""
    shape = len(contexts), 1 if rng.random() < 0.5 else len(rates)
    logits = np.log(rates / (1 - rates)) + rng.uniform(0, 3) * contexts[:, :1]
    return (rng.random(shape) < sigmoid(logits)).astype(np.int64)


def random_settings(seed: int) -> dict[str, Any]:
    """Return the settings of a run; half of the runs use the defaults."""
    rng = np.random.default_rng([seed, 7])
    if seed % 4 < 2:
        return {}
    return {
        "half_life": float(rng.uniform(30, 300)) if rng.random() < 0.5 else None,
        "degree": int(rng.integers(1, 3)),
        "z": float(rng.uniform(0.1, 1.0)),
    }


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Compare random transitive rounds of USS-Laplace and USS-PD with exact solves."""
    kinds = ("laplace", "pd")
    each = (QUICK if quick else FULL) // (len(kinds) * len(ARMS))
    rows: list[list[Any]] = []
    total = Tally()
    for kind in kinds:
        for n_arms in ARMS:
            tally = Tally()
            for seed in range(math.ceil(each / ROUNDS_OF_A_RUN)):
                progress(f"transitive: {kind}, {n_arms} arms, {tally.rounds:,} rounds")
                tally.add(play(kind, n_arms, seed, **random_settings(seed)))
            rows.append([f"{kind}, K = {n_arms}", *_columns(tally)])
            total.add(tally)
    tally = Tally()
    for seed in range(5 if quick else 100):
        progress(f"transitive: defaults, {tally.rounds:,} rounds")
        tally.add(play_defaults(seed))
    rows.append(["laplace, K = 4, defaults", *_columns(tally)])
    total.add(tally)
    rows.append(["all", *_columns(total)])
    progress("")
    columns = ["", *COLUMNS]
    result = {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}
    return table("Transitive decisions against exact solves", columns, rows, NOTE), result


def _columns(tally: Tally) -> list[Any]:
    counts = [tally.rounds, tally.wrong, tally.ties, tally.early, tally.chains, tally.settled]
    return [*(f"{n:,}" for n in [*counts, tally.most_passes]), f"{tally.most_per_pair:.1f}"]
