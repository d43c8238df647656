"""The paper's lemmas, by brute force over joint distributions of the label and every output.

A world is the probability table of all 2^(K+1) values of (Y, Y¹, …, Yᴷ).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.policies.uss_pd import USSPD
from stopwise.research.theory.bounds import regret_bound
from stopwise.research.theory.dominance import (
    arm_margins,
    dominance_margins,
    first_candidates,
)
from stopwise.research.theory.regret import optimal_arms, pseudo_regret, regret


class World(NamedTuple):
    """A context with its outcomes and their probabilities."""

    labels: NDArray[np.int64]  # (outcomes,)
    outputs: NDArray[np.int64]  # (outcomes, K)
    chance: NDArray[np.float64]  # (outcomes,)

    @property
    def errors(self) -> NDArray[np.float64]:
        return self.chance @ (self.outputs != self.labels[:, None])

    @property
    def disagreement(self) -> NDArray[np.float64]:
        differ = self.outputs[:, :, None] != self.outputs[:, None, :]
        return np.einsum("s,sij->ij", self.chance, differ)


def world(chance: NDArray[np.float64]) -> World:
    """Every combination of bits: the label first, then the arms."""
    k = len(chance).bit_length() - 2
    bits = (np.arange(len(chance))[:, None] >> np.arange(k + 1)) & 1
    return World(bits[:, 0], bits[:, 1:], chance)


def random_worlds(seed: int, n: int, k: int) -> list[World]:
    """Tables from nearly even to nearly deterministic."""
    rng = np.random.default_rng(seed)
    alphas = rng.choice([0.02, 0.1, 1.0], n)
    return [world(rng.dirichlet(np.full(2 ** (k + 1), a))) for a in alphas]


def world_of_mistakes(wrong: dict[str, float]) -> World:
    """A world with label 1 in which the arms make these mistakes: {"0110": probability}."""
    mistakes = np.array([[int(c) for c in pattern] for pattern in wrong])
    return World(np.ones(len(wrong), dtype=np.int64), 1 - mistakes, np.array(list(wrong.values())))


def optimum(cascade: Cascade, context: World) -> tuple[int, bool, int]:
    """Return i*, whether weak dominance holds, and min B."""
    p = context.disagreement[None]
    best = optimal_arms(cascade, context.errors[None])
    return (
        int(best[0]),
        bool(dominance_margins(cascade, p, best)[0] > 0),
        int(first_candidates(cascade, p)[0]),
    )


# --- Lemma 2, and Theorem 1: weak dominance is necessary -------------------


@pytest.mark.parametrize("k", [2, 4])
def test_the_first_candidate_is_optimal_if_and_only_if_weak_dominance_holds(k: int) -> None:
    """Otherwise another world has the same outputs and a different best arm.

    That world keeps the distribution of the outputs, which is all that is observable, and its label
    is the output of the arm that violates dominance.
    """
    rng = np.random.default_rng(100 + k)
    counts = {True: 0, False: 0}
    for context in random_worlds(k, 400, k):
        cascade = Cascade(rng.uniform(0, 0.5, k))
        best, dominant, first = optimum(cascade, context)
        counts[dominant] += best < k - 1  # dominance is trivial for the last arm
        assert (first == best) == dominant
        assert first >= best  # too deep, never too shallow
        errors, p = (np.array([table] * k) for table in (context.errors, context.disagreement))
        arms, bests = np.arange(k), np.full(k, best)
        bound = pseudo_regret(cascade, np.triu(p, 1), bests, arms)
        assert (regret(cascade, errors, arms) <= bound + 1e-12).all()
        if not dominant:
            slack = cascade.gaps[best] - context.disagreement[best]
            j = next(j for j in range(best + 1, k) if slack[j] <= 0)
            twin = context._replace(labels=context.outputs[:, j])
            np.testing.assert_array_equal(twin.disagreement, context.disagreement)
            assert optimum(cascade, twin)[0] != best
    assert min(counts.values()) >= 20


@given(data=st.data(), k=st.integers(2, 4))
def test_lemma_2_holds_with_ties(data: st.DataObject, k: int) -> None:
    # chances and costs in twentieths: ties in loss and in dominance are frequent
    outcome = st.integers(0, 2 ** (k + 1) - 1)
    drawn = data.draw(st.lists(outcome, min_size=20, max_size=20))
    costs = data.draw(st.lists(st.integers(0, 8), min_size=k, max_size=k))
    counts = np.bincount(drawn, minlength=2 ** (k + 1))
    context = world(counts / 20)
    best, dominant, first = optimum(Cascade(np.array(costs) / 20), context)
    exact_errors = counts @ (context.outputs != context.labels[:, None])
    exact_losses = (exact_errors + np.cumsum(costs)).tolist()
    assert best == max(i for i in range(k) if exact_losses[i] == min(exact_losses))
    assert (first == best) == dominant


# --- strong dominance ------------------------------------------------------------------------


@given(data=st.data(), k=st.integers(2, 5))
def test_strong_dominance_implies_weak_dominance(data: st.DataObject, k: int) -> None:
    # an outcome is a label and the first arm that is right; all in twentieths, so that ties occur
    outcome = st.tuples(st.integers(0, 1), st.integers(0, k))
    drawn = data.draw(st.lists(outcome, min_size=20, max_size=20))
    costs = data.draw(st.lists(st.integers(0, 5), min_size=k, max_size=k))
    labels = np.array([label for label, _ in drawn])
    right = np.arange(k) >= np.array([first for _, first in drawn])[:, None]
    context = World(
        labels, np.where(right, labels[:, None], 1 - labels[:, None]), np.full(20, 0.05)
    )
    gamma, p = context.errors, context.disagreement
    above = np.triu(gamma[:, None] - gamma[None, :], 1)
    np.testing.assert_allclose(above, np.triu(p, 1), atol=1e-12)
    best, dominant, first = optimum(Cascade(np.array(costs) / 20), context)
    assert dominant
    assert first == best


def test_with_three_answers_strong_dominance_does_not_imply_weak_dominance() -> None:
    context = World(np.array([0]), np.array([[1, 2]]), np.array([1.0]))  # no arm is right
    assert optimum(Cascade([0.1, 0.2]), context) == (0, False, 1)


# --- Theorem 2 has a gap -----------------------------------------------------------------------


def test_uss_pd_can_remain_one_arm_too_deep() -> None:
    """The proof of Theorem 2 counts a stop at h′ as an observation of the pair that prevented i*.

    That pair, (i*, h), may be deeper than the stop, h > h′, and is then not observed. Here arm 0 is
    always right. Pair (1, 2) is clear after fewer observations of arm 2 than pair (0, 2), because μ
    is flat near zero. From then on the stop is arm 1 and pair (0, 2) remains unclear: regret grows
    linearly and eventually exceeds the bound. σ = ½ holds for any binary noise.
    """
    rounds, delta, sigma = 1_000_000, 0.05, 0.5
    cascade = Cascade.from_cumulative([0.0, 0.45, 0.75])
    context = world_of_mistakes({"000": 0.7, "011": 0.25, "001": 0.05})
    p, best = context.disagreement[None], optimal_arms(cascade, context.errors[None])
    assert best.tolist() == [0]
    assert dominance_margins(cascade, p, best)[0] > 0
    min_mu = 1 / (1 + math.exp(1 - math.log(0.05 / 0.95)))  # μ at θ* − 1 of the rarest disagreement
    kappa = min_mu * (1 - min_mu)

    rng = np.random.default_rng(0)
    outputs = context.outputs[rng.choice(3, size=rounds, p=context.chance)]
    rule: dict[str, Any] = {"delta": delta, "sigma": sigma, "kappa": kappa, "forced_rounds": "auto"}
    policy = USSPD(cascade, context_dim=1, **rule)
    stops = policy.run(np.ones((rounds, 1)), outputs)

    second_half = stops[rounds // 2 :]
    assert (second_half == 1).mean() > 0.99
    lost_pairs = [e for e in policy.decide([1.0]).evidence if not e.gap_won]
    assert [(e.first, e.second) for e in lost_pairs] == [(0, 2)]
    transitive = USSPD(cascade, context_dim=1, transitive=True, **rule)
    assert (transitive.run(np.ones((rounds, 1)), outputs)[rounds // 2 :] == 0).mean() > 0.99
    (through,) = (e for e in transitive.decide([1.0]).evidence if e.through is not None)
    assert str(through).endswith("not worth it: neither 0 → 1 nor 1 → 2 is")

    regrets = regret(cascade, np.repeat(context.errors[None], 3, axis=0), [0, 1, 2])
    total_regret = regrets @ np.bincount(stops, minlength=3)
    for constant in (1.0, 10.0, 50.0):
        bound = regret_bound(
            rounds,
            n_features=1,
            n_arms=3,
            delta=delta,
            sigma=sigma,
            kappa=kappa,
            min_eigenvalue=1.0,
            dominance_margin=arm_margins(cascade, p, best),
            R_max=float(regrets.max()),
            C=constant,
            C1=constant,
            C2=constant,
        )
        assert total_regret > bound
