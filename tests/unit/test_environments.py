"""The worlds of experiments: what they refuse, and their formulas."""

import numpy as np
import pytest

import stopwise as sw

TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.1, 0.2, 0.2])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    "arms", [[[1.0, 2.0, 0.0]], [1.0, 2.0], [[1.0, 0.0]] * 3], ids=["one row", "flat", "three rows"]
)
def test_logistic_arms_needs_a_row_per_arm(arms: object) -> None:
    with pytest.raises(sw.InvalidParameterError, match="one row of weights"):
        sw.LogisticArms(TWO, arms, [1.0, 2.0, 0.0])  # pyright: ignore[reportArgumentType]


def test_logistic_arms_needs_a_label_of_the_same_length() -> None:
    with pytest.raises(sw.InvalidParameterError, match="label"):
        sw.LogisticArms(TWO, [[1.0, 0.0, 0.0]] * 2, [1.0, 0.0])


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
    one = 1 / (1 + np.exp(-x @ np.array([[1, 2, 0], [-3, 1, 1], [0, 0, -2]]).T))
    label = 1 / (1 + np.exp(-x @ np.array([5, 0, 0.5])))
    for i in range(3):
        wrong = one[:, i] * (1 - label) + (1 - one[:, i]) * label
        np.testing.assert_allclose(batch.error_rates[:, i], wrong, rtol=1e-12)
        for j in range(i + 1, 3):
            p = one[:, i] * (1 - one[:, j]) + (1 - one[:, i]) * one[:, j]
            np.testing.assert_allclose(batch.disagreement[:, i, j], p, rtol=1e-12)


def test_extreme_weights_make_certain_answers_not_overflow() -> None:
    arms = sw.LogisticArms(TWO, [[1e6, 1e6], [-1e6, -1e6]], [1e6, 1e6]).sample(50, generator())
    assert np.isfinite(arms.disagreement).all()
    pairs = sw.Realizable(TWO, {(0, 1): [-3000.0, 1.0]}).sample(50, generator())
    assert (pairs.disagreement[:, 0, 1] < 1e-300).all()
    assert (pairs.optimal == 0).all()


@pytest.mark.parametrize(
    "pairs", [[], [(0, 1), (0, 2)], [(0, 1), (0, 2), (1, 2), (2, 3)], [(0, 1), (0, 2), (2, 1)]]
)
def test_realizable_needs_a_vector_for_each_pair(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(sw.InvalidParameterError, match="each of the pairs"):
        sw.Realizable(THREE, {pair: [1.0, 2.0] for pair in pairs})


def test_realizable_is_logistic_in_the_identity_features() -> None:
    theta = {(0, 1): [-1.0, 2.0, 0.5], (0, 2): [0.0, 1.0, 1.0], (1, 2): [1.0, 0.0, -2.0]}
    environment = sw.Realizable(THREE, theta)
    batch = environment.sample(40, generator(2))
    assert environment.context_dim == 3
    assert (batch.contexts[:, 0] == 1).all()
    phi = sw.USSPD(THREE, context_dim=3).features.transform(batch.contexts)
    for (i, j), weights in theta.items():
        p = 1 / (1 + np.exp(-phi @ np.array(weights)))
        np.testing.assert_allclose(batch.disagreement[:, i, j], p, rtol=1e-12)
    assert (np.tril(batch.disagreement) == 0).all()


def test_realizable_knows_disagreements_only() -> None:
    batch = sw.Realizable(TWO, {(0, 1): [0.0, 1.0]}).sample(5, generator())
    assert (batch.outputs, batch.labels, batch.error_rates) == (None, None, None)
    assert batch.differ is not None
    assert set(batch.differ.ravel().tolist()) <= {0, 1}


def test_weights_must_be_finite() -> None:
    with pytest.raises(sw.InvalidParameterError, match="finite"):
        sw.Realizable(TWO, {(0, 1): [0.0, np.nan]})
    with pytest.raises(sw.InvalidParameterError, match="finite"):
        sw.LogisticArms(TWO, [[1.0, 0.0], [np.inf, 0.0]], [1.0, 0.0])


def test_vectors_of_different_length_are_refused() -> None:
    with pytest.raises(sw.InvalidParameterError, match="one length"):
        sw.Realizable(THREE, {(0, 1): [1.0, 0.0], (0, 2): [1.0], (1, 2): [1.0]})


def test_an_environment_is_a_class_that_samples() -> None:
    with pytest.raises(TypeError, match="abstract"):
        sw.Environment()  # pyright: ignore[reportAbstractUsage]
