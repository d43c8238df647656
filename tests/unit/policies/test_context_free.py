"""Tests of USS-UCB and USS-TS against a plain computation from counts."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.engine import internals
from tests.helpers import archive

THREE = sw.Cascade([0.05, 0.15, 0.2])


def some_outputs(seed: int, n: int, k: int) -> NDArray[np.int64]:
    return (np.random.default_rng(seed).random((n, k)) < 0.05).astype(np.int64)


def by_counts(
    cascade: sw.Cascade, outputs: NDArray[np.int64], upper: Callable[[int, int, int], float]
) -> list[int]:
    """Play in plain Python with an upper bound ``upper(round, n_j, disagreements_ij)``."""
    k, total = cascade.n_arms, cascade.cumulative
    n, d = [0] * k, np.zeros((k, k), dtype=np.int64)
    stops: list[int] = []
    for t, y in enumerate(outputs.tolist()):
        uppers = {(i, j): upper(t + 1, n[j], int(d[i, j])) for i, j in cascade.pairs()}
        wins = [all(total[j] - total[i] > uppers[i, j] for j in range(i + 1, k)) for i in range(k)]
        stop = wins.index(True)  # always true for the last arm
        stops.append(stop)
        for j in range(stop + 1):
            n[j] += 1
            for i in range(j):
                d[i, j] += y[i] != y[j]
    return stops


def assert_plays(policy: Any, outputs: NDArray[np.int64], stops: list[int]) -> None:
    assert len(set(stops)) > 1
    twin = copy.deepcopy(policy)
    for y, stop in zip(outputs, stops, strict=True):
        assert policy.decide(0.0).stop == stop
        policy.observe(0.0, y[: stop + 1].tolist())
    assert twin.run(np.zeros((len(outputs), 1)), outputs).tolist() == stops


@pytest.mark.parametrize("n_arms", [2, 3, 6])
@pytest.mark.parametrize("a", [0.5, 0.05])
def test_uss_ucb_follows_its_formula(a: float, n_arms: int) -> None:
    cascade, outputs = sw.Cascade([0.2] * n_arms), some_outputs(6, 700, n_arms)

    def index(t: int, n: int, d: int) -> float:
        return d / n + math.sqrt(a * math.log(t) / n) if n else math.inf

    assert_plays(sw.USSUCB(cascade, a=a), outputs, by_counts(cascade, outputs, index))


@pytest.mark.parametrize("n_arms", [2, 3, 6])
def test_uss_ts_follows_its_formula(n_arms: int) -> None:
    cascade, outputs = sw.Cascade([0.15] * n_arms), some_outputs(7, 500, n_arms)
    random = internals.Random(8)
    stops = by_counts(cascade, outputs, lambda _, n, d: random.beta(1 + d, 1 + n - d))
    assert_plays(sw.USSTS(cascade, seed=8), outputs, stops)


def test_uss_ucb_continues_at_a_tie() -> None:
    policy = sw.USSUCB(sw.Cascade([0.25, 0.5]), a=1e-300)  # a bonus below rounding
    policy.observe(0.0, [0, 1])
    policy.observe(0.0, [0, 0])
    (e,) = policy.decide(0.0).evidence
    assert (e.gap, e.disagreement_ucb, e.gap_won) == (0.5, 0.5, False)
    assert policy.run(np.zeros((2, 1)), np.zeros((2, 2))).tolist() == [1, 0]


def test_every_decision_of_uss_ts_draws_all_pairs() -> None:
    shallow, deep = (sw.USSTS(sw.Cascade(costs), seed=3) for costs in ([0.1, 1, 1], [0, 0, 0]))
    random = internals.Random(3)
    for _ in range(5):
        assert shallow.decide(0.0).stop == 0
        decision = deep.decide(0.0)
        assert decision.stop == 2
        draws = [e.disagreement_ucb for e in decision.evidence]
        assert draws == [random.beta(1, 1) for _ in range(3)]
    np.testing.assert_array_equal(shallow.state()["random"], deep.state()["random"])


@pytest.mark.parametrize("kind", [sw.USSUCB, sw.USSTS])
def test_estimates_are_shares_of_disagreements(kind: Any) -> None:
    policy = kind(THREE)
    assert np.isnan(policy.disagreement()).all()
    for outputs in ([0, 1, 1], [0, 0, 1], [0, 1], [0]):
        policy.observe(None, outputs)
    p = policy.disagreement()
    assert (p[0, 1], p[0, 2], p[1, 2]) == (2 / 3, 1.0, 0.5)
    for e in policy.decide(None).evidence:
        assert e.disagreement == p[e.first, e.second]


@pytest.mark.parametrize("kind", [np.bool_, np.int64, np.float64, object])
def test_disagreements_may_have_any_type(kind: Any) -> None:
    differ = np.random.default_rng(1).integers(2, size=(50, 3)).astype(np.uint8)
    expected, policy = sw.USSUCB(THREE), sw.USSUCB(THREE)
    expected.run(np.zeros((50, 1)), differ=differ)
    policy.run(np.zeros((50, 1)), differ=differ.astype(kind)[::-1][::-1])
    np.testing.assert_array_equal(policy.disagreement(), expected.disagreement())


def test_run_compares_outputs_without_numpy_conversion() -> None:
    mixed = [["1", 1, 1.0], ["1", 1, 2]]
    counting, learning = sw.USSUCB(THREE), sw.USSPD(THREE, context_dim=2)
    for policy in (counting, learning):
        policy.run([[0.1, 0.2]] * 2, mixed)
    assert counting.disagreement()[np.triu_indices(3, 1)].tolist() == [1.0, 1.0, 0.5]
    assert [(row.count, row.positives) for row in archive.rows(learning)] == [(2, (2, 2, 1))]
