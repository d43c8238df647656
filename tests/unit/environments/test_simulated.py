"""The worlds of experiments: what they refuse, and their formulas."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.data import load_table

TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.1, 0.2, 0.2])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mu(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


# ------------------------------------------------------------------------------------ logistic arms


def test_logistic_arms_keeps_weights_of_its_own() -> None:
    arms = np.array([[1.0, 0.0], [4.0, 0.0]])
    environment = sw.LogisticArms(TWO, arms, [8.0, 0.0])
    before = environment.sample(20, generator())
    arms[:] = 0.0
    np.testing.assert_array_equal(
        environment.sample(20, generator()).disagreement, before.disagreement
    )


def test_logistic_arms_states_the_chances_of_independent_answers() -> None:
    environment = sw.LogisticArms(THREE, [[1, 2, 0], [-3, 1, 1], [0, 0, -2]], [5, 0, 0.5])
    batch = environment.sample(50, generator(1))
    assert batch.error_rates is not None
    x = np.column_stack([batch.contexts, np.ones(50)])
    one = mu(x @ np.array([[1, 2, 0], [-3, 1, 1], [0, 0, -2]]).T)
    label = mu(x @ np.array([5, 0, 0.5]))
    for i in range(3):
        wrong = one[:, i] * (1 - label) + (1 - one[:, i]) * label
        np.testing.assert_allclose(batch.error_rates[:, i], wrong, rtol=1e-12)
        for j in range(i + 1, 3):
            p = one[:, i] * (1 - one[:, j]) + (1 - one[:, i]) * one[:, j]
            np.testing.assert_allclose(batch.disagreement[:, i, j], p, rtol=1e-12)


def test_the_random_stream_stays_what_it_was() -> None:
    """Recorded results depend on it: contexts, then answers, then labels."""
    batch = sw.LogisticArms(TWO, [[1, 2, 0], [4, 4, 1]], [8, 8, 0]).sample(6, generator(3))
    same = generator(3)
    x = same.uniform(-1, 1, (6, 2))
    answers, labels = same.random((6, 2)), same.random(6)
    np.testing.assert_array_equal(batch.contexts, x)
    np.testing.assert_array_equal(batch.outputs, answers < mu(x @ [[1, 4], [2, 4]] + [0, 1]))
    np.testing.assert_array_equal(batch.labels, labels < mu(x @ [8, 8]))


def test_extreme_weights_make_certain_answers_not_overflow() -> None:
    arms = sw.LogisticArms(TWO, [[1e6, 1e6], [-1e6, -1e6]], [1e6, 1e6]).sample(50, generator())
    assert np.isfinite(arms.disagreement).all()
    pairs = sw.Realizable(TWO, {(0, 1): [-3000.0, 1.0]}).sample(50, generator())
    assert (pairs.disagreement[:, 0, 1] < 1e-300).all()
    assert (pairs.optimal == 0).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sw.LogisticArms(TWO, [[1.0, 2.0]], [1.0, 2.0]), "one row of weights"),
        (lambda: sw.LogisticArms(TWO, [[1.0, 0.0]] * 2, [1.0]), "label"),
        (lambda: sw.LogisticArms(TWO, [[1.0, 0.0], [np.inf, 0.0]], [1.0, 0.0]), "finite"),
        (lambda: sw.Realizable(THREE, {(0, 1): [1.0], (0, 2): [1.0]}), "each of the pairs"),
        (lambda: sw.Realizable(THREE, [[1.0, 2.0]] * 2), "each of the pairs"),
        (lambda: sw.Realizable(THREE, [[1.0, 0.0], [1.0], [1.0]]), "one length"),
        (lambda: sw.Realizable(TWO, [[0.0, np.nan]]), "finite"),
        (lambda: sw.Realizable(TWO, [[1.0] * 5], degree=2), "theta needs vectors of"),
        (lambda: sw.Realizable(TWO, [[1.0] * 5], context_dim=4), "theta needs vectors of"),
        (lambda: sw.Realizable(TWO, [[1.0] * 5], degree=0), "degree"),
        (lambda: sw.Realizable(TWO, [[1.0, 1.0]], margin=-0.1), "margin"),
        (lambda: sw.Synthetic(TWO), "C needs one number for each of 2 arms"),
        (lambda: sw.Synthetic(TWO, C=(1.0, 1.0), samples=0), "samples"),
        (lambda: load_table("iris"), "there are pima, heart"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        build()


# -------------------------------------------------------------------------------------- binary arms


class Stated(sw.BinaryArms):
    """Says what it is told to."""

    def __init__(self, *drawn: Any, context_dim: int = 1) -> None:
        self.cascade, self.context_dim, self.drawn = TWO, context_dim, drawn

    def draw(self, rounds: int, random: np.random.Generator) -> Any:
        del rounds, random
        return tuple(np.array(part, dtype=float) for part in self.drawn)


def test_certain_chances_make_certain_answers() -> None:
    batch = Stated([[0.5]] * 3, [[0, 1], [1, 1], [0, 0]], [1, 1, 0]).sample(3, generator())
    assert batch.outputs is not None
    assert batch.labels is not None
    assert batch.error_rates is not None
    assert batch.outputs.tolist() == [[0, 1], [1, 1], [0, 0]]
    assert batch.labels.tolist() == [1, 1, 0]
    assert batch.error_rates.tolist() == [[1, 0], [0, 0], [0, 0]]
    assert batch.optimal.tolist() == [1, 0, 0]
    assert batch.margins.tolist() == pytest.approx([np.inf, 0.3, 0.3])


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (([[0], [0]], [[0, 1]], [1]), r"contexts of shape \(1, 1\)"),
        (([[0]], [[0, 1, 0]], [1]), r"says_one of shape \(1, 2\)"),
        (([[0]], [[0, 1]], [[1]]), r"is_one of shape \(1,\)"),
        (([[0]], [[0, 1.1]], [1]), "from 0 to 1 as says_one"),
        (([[0]], [[0, 1]], [-0.1]), "from 0 to 1 as is_one"),
        (([[0]], [[0, np.nan]], [1]), "from 0 to 1 as says_one"),
    ],
)
def test_a_draw_that_breaks_its_promise_is_refused(drawn: Any, message: str) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        Stated(*drawn).sample(1, generator())


# --------------------------------------------------------------------------------------- realizable


def test_realizable_is_logistic_in_the_identity_features() -> None:
    theta = {(0, 1): [-1.0, 2.0, 0.5], (0, 2): [0.0, 1.0, 1.0], (1, 2): [1.0, 0.0, -2.0]}
    environment = sw.Realizable(THREE, theta)
    batch = environment.sample(40, generator(2))
    assert environment.context_dim == 3
    assert (batch.contexts[:, 0] == 1).all()
    phi = sw.USSPD(THREE, context_dim=3).features.transform(batch.contexts)
    for (i, j), weights in theta.items():
        np.testing.assert_allclose(
            batch.disagreement[:, i, j], mu(phi @ np.array(weights)), rtol=1e-12
        )
    assert (np.tril(batch.disagreement) == 0).all()


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_realizable_of_a_degree_is_logistic_in_what_a_policy_sees(degree: int) -> None:
    policy = sw.USSPD(THREE, features=sw.Polynomial(degree=degree), context_dim=2)
    size = policy.features.n_features
    theta = 9 * generator(1).normal(size=(3, size))
    environment = sw.Realizable(THREE, theta.tolist(), degree=degree)
    assert environment.context_dim == 2
    batch = environment.sample(60, generator(2))
    assert np.abs(batch.contexts).max() <= 1
    assert batch.contexts.std(axis=0).min() > 0.3  # no coordinate is an intercept here
    p = mu(policy.features.transform(batch.contexts) @ theta.T)
    for k, (i, j) in enumerate(THREE.pairs()):
        np.testing.assert_allclose(batch.disagreement[:, i, j], p[:, k], atol=1e-15)


def test_a_margin_redraws_contexts_and_nothing_else() -> None:
    theta = [[-1.0, 3.0], [-1.0, 4.0], [-2.0, 5.0]]
    free = sw.Realizable(THREE, theta).sample(4000, generator())
    kept = sw.Realizable(THREE, theta, margin=0.1).sample(4000, generator())
    clear = np.array([_decided_by(p) for p in free.disagreement])
    assert np.min(clear) < 0.01
    assert 0.2 < np.mean(clear >= 0.1) < 0.9
    assert kept.margins.min() >= 0.1
    assert min(_decided_by(p) for p in kept.disagreement) >= 0.1
    assert len(kept.contexts) == 4000
    # the first of them are those of the free draw that pass
    passing = free.contexts[clear >= 0.1]
    np.testing.assert_array_equal(kept.contexts[: len(passing)], passing)


def _decided_by(p: np.ndarray) -> float:
    """By how much the stopping test is decided in a context, one arm at a time."""
    least = np.inf
    for i in range(THREE.n_arms - 1):
        spare = min(THREE.gaps[i, j] - p[i, j] for j in range(i + 1, THREE.n_arms))
        least = min(least, abs(spare))
        if spare > 0:
            break
    return least


def test_a_margin_that_hardly_any_context_has_is_refused() -> None:
    # p = μ(−1.4) ≈ 0.2 < 0.3 everywhere: ξ(x) is about 0.1
    with pytest.raises(sw.InvalidParameterError, match="only 0 of 1000 contexts"):
        sw.Realizable(TWO, [[-2.0, 0.0]], margin=0.2).sample(5, generator())


# ----------------------------------------------------------------------------------------- registry


def test_an_environment_is_made_from_json() -> None:
    spec = json.loads(json.dumps({"theta": [[-3.0, 2.0, 1.0]], "degree": 2, "margin": 0.05}))
    environment = sw.make_environment("realizable", TWO, **spec)
    assert isinstance(environment, sw.Realizable)
    assert environment.sample(10, generator()).margins.min() >= 0.05


def test_an_unknown_environment_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(sw.UnknownEnvironmentError) as caught:
        sw.make_environment("pimas", TWO)
    assert isinstance(caught.value, KeyError)
    assert str(caught.value).startswith("no environment is called 'pimas'; there are logistic-arms")
    assert all(name in str(caught.value) for name in sw.ENVIRONMENTS)
    assert "your own, register it in ENVIRONMENTS where worker processes" in str(caught.value)
