"""Contexts, outputs, labels and failures of a spec, computed with + − × ÷ for portability."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.identical.specs import Column, Spec

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class World(NamedTuple):
    """All outcomes of n rounds of K arms.

    ``contexts`` has the initial coordinates, then those that each arm except the last reveals.
    ``fails`` says which arms fail if they run, ``reach`` the last arm in a record of the round.
    ``labelled`` and ``unrequested`` say whether the label of a round arrives if it is requested,
    and if it is not; ``run_all`` whether the round runs every arm regardless of the rule.
    ``disagreement`` (n, K, K) and ``optimal`` are the truth for comparators.
    """

    contexts: Floats
    outputs: list[list[Any]]
    labels: list[Any]
    fails: Bools
    reach: Ints
    labelled: Bools
    unrequested: Bools
    run_all: Bools
    disagreement: Floats
    optimal: Ints

    def digest(self) -> str:
        """Return a checksum of the inputs of a policy."""
        events = [self.fails, self.reach, self.labelled, self.unrequested, self.run_all]
        total = hashlib.sha256(repr([self.outputs, self.labels]).encode())
        for table in [self.contexts, *events]:
            total.update(np.ascontiguousarray(table).tobytes())
        return total.hexdigest()


def draw(spec: Spec) -> World:
    """Draw the world of a spec."""
    rng, world = np.random.default_rng(spec.seed), spec.world
    n, n_arms, d = world.rounds, len(spec.costs), len(world.columns)
    initial = rng.uniform(-1, 1, (n, d))
    revealed = rng.uniform(-1, 1, (n, sum(world.reveals)))
    labels = rng.integers(0, world.classes, n)
    errors = _error_rates(spec, initial, revealed)

    chance = rng.random((n, n_arms))
    shift = rng.integers(1, world.classes, (n, n_arms))
    common = rng.random(n) < world.shared
    chance[common] = chance[common, :1]  # wrong in the same rounds, with the same answer
    shift[common] = shift[common, :1]
    wrong = (labels[:, None] + shift) % world.classes
    outputs = np.where(chance < errors, wrong, labels[:, None])

    cut = rng.random(n) < spec.unknown
    reach = np.where(cut, rng.integers(-1, n_arms, n), n_arms - 1)
    fails = rng.random((n, n_arms)) < spec.failing
    labelled, unrequested, run_all = (
        rng.random(n) < share for share in (spec.answered, spec.unrequested, spec.run_all)
    )
    columns = [_column(kind, initial[:, c], rng) for c, kind in enumerate(world.columns)]
    contexts = np.column_stack([*columns, revealed]) if d else revealed
    disagreement = _disagreement(errors, world.shared, world.classes)
    losses = np.cumsum(spec.costs) + errors
    optimal = n_arms - 1 - np.argmin(losses[:, ::-1], axis=1)
    values = [f"answer {k}" if world.text else k for k in range(world.classes)]
    return World(
        contexts,
        [[values[k] for k in row] for row in outputs],
        [values[k] for k in labels],
        fails,
        reach,
        labelled,
        unrequested,
        run_all,
        disagreement,
        optimal,
    )


def _error_rates(spec: Spec, initial: Floats, revealed: Floats) -> Floats:
    """Return the error rate of every arm in every round, (n, K)."""
    world, n_arms = spec.world, len(spec.costs)
    hard = np.ones(world.rounds)
    for column, weight in zip(initial.T, (0.8, 0.5), strict=False):
        hard += weight * column
    for column in revealed.T:
        hard += 0.9 * column / len(world.reveals)
    errors = world.errors * hard[:, None] / (1 + world.improvement * np.arange(n_arms))
    if world.shift_at:
        errors[world.shift_at :, 0] *= 3
    return np.clip(errors, 0.005, 0.75)


def _disagreement(errors: Floats, shared: float, classes: int) -> Floats:
    """Return the probability that two arms disagree, (n, K, K)."""
    e, f = errors[:, :, None], errors[:, None, :]
    apart = e + f - e * f * classes / (classes - 1)
    return np.triu((1 - shared) * apart + shared * np.abs(e - f), 1)


def _column(kind: Column, u: Floats, rng: np.random.Generator) -> Floats:
    """Return a column of contexts made of a uniform number in [−1, 1]."""
    if kind == "levels":
        return np.round(2 * u) / 2
    if kind == "binary":
        return (u > 0).astype(np.float64)
    if kind == "constant":
        return np.full_like(u, 7.0)
    if kind == "raw":
        return 40 + 25 * u
    if kind == "outliers":
        return np.where(rng.random(len(u)) < 0.02, -999_999.0, 3 * u)
    return u


def _wave(x: Floats) -> list[float]:
    return [0.5, 0.5 * x[0], 0.5 * x[0] * (1 - x[1] * x[1]), 0.5 * x[1]]


def _steps(x: Floats) -> Floats:
    x[:] = np.where(x > 0, 1.0, -1.0)  # its argument is a copy
    return np.array([1.0, *x]) / (1 + len(x))


FUNCTIONS: dict[str, Callable[[Floats], Any]] = {"wave": _wave, "steps": _steps}
