"""Edge cases of `stopwise.reference` and the policies.

`test_decisions` compares the two in runs.
"""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import stopwise as sw
from stopwise import reference


def test_decisions_with_a_singular_gram_matrix_equal_the_reference() -> None:
    """Two of four features are copies of each other, so that V has no inverse in any round."""
    rng = np.random.default_rng(3)
    x = rng.choice([-1.0, 0.0, 1.0], (120, 2))
    features = np.column_stack([np.ones(120), x[:, 0], x[:, 0], x[:, 1]])
    outputs = (rng.random((120, 2)) < 0.1).astype(np.int64)
    rule: dict[str, Any] = {"sigma": 0.05, "forced_rounds": 3, "ridge": 0.01}
    policy = sw.USSPD(sw.Cascade([0.1, 0.6]), sw.Identity(), 4, **rule)
    oracle = reference.ReferenceUSSPD(np.array([0.1, 0.7]), 4, **rule)
    early = ties = 0
    for context, y in zip(features, outputs, strict=True):
        stop, phi = policy.decide(context).stop, context / 2
        # a policy inverts V + εI with a small ε, which is accurate to 1e-6 here
        if oracle.closest(phi) > 1e-6:
            assert stop == oracle.decide(phi)
        else:
            ties += 1
        policy.observe(context, y[: stop + 1].tolist())
        oracle.observe(phi, y[: stop + 1].tolist())
        early += stop == 0
    assert early > 20
    assert ties <= 1


@pytest.mark.parametrize(
    ("gap", "x", "seen", "stop"),
    [
        # before any observation a disagreement may be certain: p̃ = 1
        (0.99, 1.0, 0, 1),
        (1.0, 1.0, 0, 1),
        (1.01, 1.0, 0, 0),
        # a context of zeros has p̃ = μ(0) = ½ exactly: a gap of ½ is a tie, and does not stop
        (0.499, 0.0, 3, 1),
        (0.5, 0.0, 3, 1),
        (0.501, 0.0, 3, 0),
    ],
)
@pytest.mark.filterwarnings("ignore::stopwise.errors.CostUnitWarning")
def test_the_rule_stops_only_if_the_gap_is_strictly_larger(
    gap: float, x: float, seen: int, stop: int
) -> None:
    phi, costs = np.array([x]), np.array([0.0, gap])
    oracle = reference.ReferenceUSSPD(costs, 1, forced_rounds=0)
    policies: list[Any] = [sw.USSPD(sw.Cascade(costs), context_dim=1, forced_rounds=0)]
    if seen:  # Thompson draws have no variance at zero
        policies.append(sw.Thompson(sw.Cascade(costs), sw.Identity(), 1, forced_rounds=0))
    for policy in (oracle, *policies):
        for _ in range(seen):
            policy.observe(np.ones(1), [0, 1])
    assert oracle.decide(phi) == stop
    assert [policy.decide(phi).stop for policy in policies] == [stop] * len(policies)


# -------------------------------------------------------------------- the reference by itself


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_newton_converges_from_distant_starts_and_on_separable_data(rate: float) -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (60, 3)) / math.sqrt(3)
    differ = (rng.random(60) < rate).astype(float)
    for distance, ridge in ((0.0, 1e-4), (3.0, 2.0), (300.0, 1e-4)):
        theta_hat = reference.estimate(rows, differ, ridge, distance * rng.normal(size=3))
        gradient = rows.T @ (differ - expit(rows @ theta_hat)) - ridge * theta_hat
        assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("ratio", [1e-4, 1e-8, 1e-13])
@pytest.mark.parametrize(
    ("first", "second", "square"),
    [(1.0, 0.0, 1 / 3), (0.0, 1.0, 4 / 3), (1.0, 1.0, 1.0)],
)
def test_the_norm_is_accurate_for_ill_conditioned_rows(
    ratio: float, first: float, second: float, square: float
) -> None:
    """λ_min/λ_max of V is about ratio²/5, which a sum of φφᵀ would lose to rounding.

    V⁻¹ = [[1, −1/ratio], [−1/ratio, 4/ratio²]]/3, and φ = (first, second·ratio).
    """
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, ratio]])
    norm = reference.norm(np.array([first, second * ratio]), rows)
    assert norm == pytest.approx(math.sqrt(square), rel=max(1e-12, 1e-15 / ratio))


@pytest.mark.parametrize("ratio", [1e-4, 1e-8, 1e-13])
def test_the_norm_is_accurate_across_nearly_parallel_rows(ratio: float) -> None:
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, ratio]])
    norm = reference.norm(np.array([0.0, 1.0]), rows)
    expected = math.sqrt(4 / 3 / ratio**2)
    assert norm == pytest.approx(expected, rel=max(1e-12, 1e-15 / ratio))


def test_the_norm_of_an_unseen_direction_is_infinite() -> None:
    rows = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]) / 2
    assert reference.norm(np.array([1.0, 0.0, 0.0]), rows) == math.inf
    assert reference.norm(np.array([0.0, 0.0, 1e-3]), rows) == math.inf
    assert reference.norm(np.array([0.5, 0.5, 0.0]), rows) == pytest.approx(math.sqrt(0.5))
    assert reference.norm(np.ones(3), np.empty((0, 3))) == math.inf
    assert reference.norm(np.zeros(3), np.empty((0, 3))) == 0.0


@pytest.mark.parametrize(
    ("gap", "phi", "stop"),
    [
        # p̃ = 1 in a direction never seen: a gap of one is a tie, and does not stop
        (1.0, [0.0, 1.0], 1),
        (0.999, [0.0, 1.0], 1),
        (1.001, [0.0, 1.0], 0),
        # elsewhere p̃ < 1, and a gap of one stops
        (1.0, [1.0, 0.0], 0),
    ],
)
@pytest.mark.filterwarnings("ignore::stopwise.errors.CostUnitWarning")
def test_a_gap_of_one_does_not_stop_in_a_direction_never_seen(
    gap: float, phi: list[float], stop: int
) -> None:
    costs = np.array([0.0, gap])
    oracle = reference.ReferenceUSSPD(costs, 2, forced_rounds=0)
    policy = sw.USSPD(sw.Cascade(costs), context_dim=2, forced_rounds=0)
    for k in range(20):
        oracle.observe(np.array([1.0, 0.0]) / math.sqrt(2), [0, k % 2])
        policy.observe([1.0, 0.0], [0, k % 2])
    decision = policy.decide(phi)
    assert oracle.decide(np.array(phi) / math.sqrt(2)) == stop
    assert decision.stop == stop
    for evidence in decision.evidence:
        assert evidence.gap_won == (evidence.gap > evidence.disagreement_ucb)
