"""Simulated cascades in which a case has the same difficulty for all arms.

The difficulty is h(x) = x₀ + ½x₁; arm i errs with probability ½·μ(b_i + 2·h(x)). Given the context
and the label, arms err independently.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import stopwise as sw
from stopwise.arrays import Floats, Ints

COSTS = (0.01, 0.04, 0.06, 0.10)


class Simulated(NamedTuple):
    """A cascade and its rounds: contexts (n, 4), outputs (n, K), labels (n,)."""

    cascade: sw.Cascade
    contexts: Floats
    outputs: Ints
    labels: Ints


def bad_cascade(n: int, seed: int, classes: int = 2) -> Simulated:
    """Four arms, of which the most expensive is the worst; arm 2 is the best fixed depth."""
    return simulated(n, seed, COSTS, (0.25, 0.15, 0.08, 0.35), classes)


def good_cascade(n: int, seed: int, classes: int = 2) -> Simulated:
    """Four arms that improve with cost."""
    return simulated(n, seed, COSTS, (0.35, 0.25, 0.15, 0.04), classes)


def shared_mistakes(n: int, seed: int) -> Simulated:
    """Three text classifiers with four classes, right in 69, 76 and 90 % of the rows.

    For high x₀, the rules and the small model give the same wrong answer. The errors of the big
    model are independent.
    """
    random = np.random.default_rng(seed)
    contexts, labels = random.uniform(size=(n, 2)), random.integers(0, 4, n)

    def wrong() -> Ints:
        return (labels + random.integers(1, 4, n)) % 4

    both, same = random.random(n) < _mu(12 * (contexts[:, 0] - 0.78)), wrong()
    rules = np.where(both, same, np.where(random.random(n) < 0.1, wrong(), labels))
    alone = np.where(random.random(n) < 0.03, wrong(), labels)
    small = np.where(both & (random.random(n) < 0.95), same, alone)
    big = np.where(random.random(n) < 0.1, wrong(), labels)
    cascade = sw.Cascade([0.005, 0.02, 0.2], names=["rules", "small", "big"])
    return Simulated(cascade, contexts, np.column_stack([rules, small, big]), labels)


def simulated(
    n: int, seed: int, costs: Sequence[float], errors: Sequence[float], classes: int = 2
) -> Simulated:
    """Draw n rounds of a cascade with these error rates."""
    random = np.random.default_rng(seed)
    contexts = random.uniform(-1, 1, (n, 4))
    wrong = random.random((n, len(errors))) < error_rates(contexts, errors)
    # The right answer depends on a coordinate that does not affect the difficulty.
    labels = (classes * _mu(2 * contexts[:, 2] + random.logistic(size=n))).astype(np.int64)
    shift = random.integers(1, classes, (n, len(errors)))
    outputs = np.where(wrong, (labels[:, None] + shift) % classes, labels[:, None])
    names = ("rules", "small", "medium", "large", "huge")[: len(errors)]
    return Simulated(sw.Cascade(list(costs), names=names), contexts, outputs, labels)


def write_log(drawn: Simulated, path: Path, *, labelled: float = 0.0, seed: int = 0) -> Path:
    """Write a Parquet log with all outputs, and labels for a random share of the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, object] = {
        f"context.x{c}": drawn.contexts[:, c] for c in range(drawn.contexts.shape[1])
    }
    for k, name in enumerate(drawn.cascade.names):
        columns[f"output.{name}"] = drawn.outputs[:, k]
    if labelled:
        unknown = np.random.default_rng(seed).random(len(drawn.labels)) >= labelled
        columns["label"] = pa.array(drawn.labels, mask=unknown)
    pq.write_table(pa.table(columns), path)
    return path


def error_rates(contexts: Floats, errors: Sequence[float]) -> Floats:
    """Return e_i(x) for every context and arm."""
    hard = 2 * (contexts[:, :1] + 0.5 * contexts[:, 1:2])
    return 0.5 * _mu(hard + np.array([_offset(e) for e in errors]))


@cache
def _offset(error: float) -> float:
    """Return b with E[½·μ(b + 2·h(x))] = error over the box, by bisection on a grid."""
    grid = (np.arange(200) + 0.5) / 100 - 1
    hard = 2 * (grid[:, None] + 0.5 * grid[None, :])
    low, high = -20.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * _mu(hard + middle).mean() < error else (low, middle)
    return low


def _mu(z: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * z))
