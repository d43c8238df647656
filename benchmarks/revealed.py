"""Revealed contexts: the bias of p̂ before a value is revealed, and the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import stopwise as sw
from benchmarks.report import table
from benchmarks.timing import progress
from stopwise.reference import sigmoid

Array = NDArray[np.float64]
Probability = Callable[[Array, Array], Array]

ROUNDS = (1_000, 10_000, 100_000)
RUNS, QUICK_RUNS = 12, 2
GRID = np.linspace(-0.95, 0.95, 39)  # contexts for comparing p̂ with p
COLUMNS = ("world", "model", "rounds", "bias", "error", "loss", "loss with true p")
POINTS = 2_001  # for sums over a continuous z

NOTE = """\
x and z are uniform, and arm 1 of three reveals z. Arms 0 and 1 disagree with probability g(x), arms
1 and 2 with f(x, z), and arm 2 is right. "bias" is the mean of p̂_02 − p_02 over contexts and runs,
"error" its root mean square, "loss" the mean cost and errors per round since the first, "loss with
true p" that of the rule with p instead of its estimate. In "right" models the logit of f is linear
in the features, in "wrong" ones it is not."""


@dataclass(frozen=True)
class World:
    """Two disagreement probabilities, the costs of arms 1 and 2, and the form of the features."""

    name: str
    model: str  # "right" or "wrong"
    g: Probability
    f: Probability
    costs: tuple[float, float]
    values: int = 0  # number of values of z, evenly spaced; 0 if continuous
    degree: int | None = None  # of the features; None for `Standard`

    def draw(self, n: int, seed: int) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return contexts, outputs and labels."""
        random = np.random.default_rng(seed)
        x = random.uniform(-1, 1, n)
        z = random.uniform(-1, 1, n)
        if self.values:
            z = random.choice(self.all_z(), n)
        first = random.random(n) < self.g(x, z)
        second = random.random(n) < self.f(x, z)
        right = random.integers(0, 2, n)
        outputs = np.column_stack([right ^ second ^ first, right ^ second, right])
        return np.column_stack([x, z]), outputs, right

    def all_z(self) -> Array:
        """Return the values of z, or a grid if it is continuous."""
        if self.values:
            return np.linspace(-1, 1, self.values)
        return (np.arange(POINTS) + 0.5) / POINTS * 2 - 1

    def optimum(self, x: float) -> tuple[float, float]:
        """Return p_02 and the loss of the rule with the true p at a context."""
        z = self.all_z()
        at = np.full(len(z), x)
        f, g = self.f(at, z), float(self.g(at, z)[0])
        deep = float(np.mean(f * (1 - g) + (1 - f) * g))
        second, third = self.costs
        if second > g and second + third > deep:
            return deep, deep
        return deep, second + float(np.where(third > f, f, third).mean())

    def policy(self, seed: int) -> sw.USSLaplace:
        """Return a new policy; its first arm is free."""
        features = None if self.degree is None else sw.Polynomial(self.degree, bound=1)
        ridge = None if self.degree is None else 0.05
        cascade = sw.Cascade([0.0, *self.costs])
        return sw.USSLaplace(cascade, features, 1, reveals=[0, 1], ridge=ridge, seed=seed)


def graded(*probabilities: float, slope: float = 0.0) -> Probability:
    """Return a probability that depends on the grade z and, in its logit, on x."""

    def probability(x: Array, z: Array) -> Array:
        grade = np.round((z + 1) / 2 * (len(probabilities) - 1)).astype(np.int64)
        share = np.array(probabilities)[grade]
        return sigmoid(np.log(share / (1 - share)) + slope * x)

    return probability


def constant(share: float) -> Probability:
    """Return a constant probability."""
    return lambda x, z: np.full(len(x), share)


WORLDS = (
    World(
        "logistic",
        "right",
        lambda x, z: sigmoid(-1.5 + x),
        lambda x, z: sigmoid(-1.5 + 3 * z),
        (0.05, 0.30),
    ),
    World(
        "three even grades",
        "right",
        constant(0.02),
        graded(0.12, 0.27, 0.5, slope=1.0),
        (0.05, 0.25),
        values=3,
        degree=1,
    ),
    World(
        "step",
        "wrong",
        lambda x, z: sigmoid(-1.5 + x),
        lambda x, z: np.where(z > 0.2, 0.6, 0.02),
        (0.05, 0.30),
    ),
    World(
        "step, degree 1",
        "wrong",
        lambda x, z: sigmoid(-1.5 + x),
        lambda x, z: np.where(z > 0.2, 0.6, 0.02),
        (0.05, 0.30),
        degree=1,
    ),
    World(
        "three grades",
        "wrong",
        constant(0.1),
        graded(0.02, 0.36, 0.45),
        (0.05, 0.30),
        values=3,
        degree=1,
    ),
    World(
        "three grades, near a tie",
        "wrong",
        lambda x, z: sigmoid(-3 + x),
        graded(0.02, 0.36, 0.45, slope=0.5),
        (0.06, 0.26),
        values=3,
        degree=1,
    ),
    World(
        "five grades, near a tie",
        "wrong",
        constant(0.02),
        graded(0.26, 0.20, 0.30, 0.42, 0.75, slope=0.5),
        (0.05, 0.30),
        values=5,
        degree=1,
    ),
)


def run(quick: bool) -> tuple[str, dict[str, Any]]:
    """Run every world; return the table and the result."""
    lines: list[list[str]] = []
    results: list[dict[str, Any]] = []
    for world in WORLDS:
        progress(f"revealed: {world.name}")
        optima = np.array([world.optimum(x) for x in GRID])
        results_of_runs = np.array(
            [play(world, seed, optima[:, 0]) for seed in range(QUICK_RUNS if quick else RUNS)]
        )
        for n, runs in zip(ROUNDS, results_of_runs.transpose(1, 0, 2), strict=True):
            bias, loss = float(runs[:, 0].mean()), float(runs[:, 2].mean())
            error, best = float(np.sqrt(runs[:, 1].mean())), float(optima[:, 1].mean())
            cells = [f"{bias:+.3f}", f"{error:.3f}", f"{loss:.4f}", f"{best:.4f}"]
            lines.append([world.name, world.model, f"{n:,}", *cells])
            numbers = {
                "rounds": n,
                "bias": bias,
                "error": error,
                "loss": loss,
                "loss_with_true_p": best,
            }
            results.append({"world": world.name, "model": world.model, **numbers})
    text = table("Revealed contexts: p̂ before the value is revealed", COLUMNS, lines, NOTE)
    return text, {"results": results}


def play(world: World, seed: int, truth: Array) -> list[tuple[float, float, float]]:
    """Run once; return the bias, squared error and loss after each number of rounds."""
    contexts, outputs, right = world.draw(ROUNDS[-1], seed)
    policy, results = world.policy(seed), []
    total, start = 0.0, 0
    for n in ROUNDS:
        rows = np.arange(start, n)
        stops = policy.run(contexts[rows], outputs[rows])
        wrong = outputs[rows, stops] != right[rows]
        total += float((policy.cascade.cumulative[stops] + wrong).sum())
        phi = policy.features.transform(GRID[:, None])
        error = sigmoid(phi @ policy.theta(0, 2)) - truth
        results.append((float(error.mean()), float((error**2).mean()), total / n))
        start = n
    return results
