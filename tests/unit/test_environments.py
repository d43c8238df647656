"""The worlds of experiments: what they refuse, and their formulas."""

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise.data import load_table
from stopwise.environments.tabular import standardised
from stopwise.environments.training import fit_logistic

TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.1, 0.2, 0.2])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mu(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


# ------------------------------------------------------------------------------------ logistic arms


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


def test_an_environment_is_a_class_that_samples() -> None:
    with pytest.raises(TypeError, match="abstract"):
        sw.Environment()  # pyright: ignore[reportAbstractUsage]
    with pytest.raises(TypeError, match="abstract"):
        sw.BinaryArms()  # pyright: ignore[reportAbstractUsage]


# --------------------------------------------------------------------------------------- realizable


@pytest.mark.parametrize(
    "pairs", [[], [(0, 1), (0, 2)], [(0, 1), (0, 2), (1, 2), (2, 3)], [(0, 1), (0, 2), (2, 1)]]
)
def test_realizable_needs_a_vector_for_each_pair(pairs: list[tuple[int, int]]) -> None:
    with pytest.raises(sw.InvalidParameterError, match="each of the pairs"):
        sw.Realizable(THREE, {pair: [1.0, 2.0] for pair in pairs})
    if len(pairs) != 3:
        with pytest.raises(sw.InvalidParameterError, match="each of the pairs"):
            sw.Realizable(THREE, [[1.0, 2.0] for _ in pairs])


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


def test_realizable_takes_a_list_in_the_order_of_the_pairs() -> None:
    theta = {(1, 2): [1.0, 0.0], (0, 1): [-1.0, 2.0], (0, 2): [0.0, 1.0]}
    listed = sw.Realizable(THREE, [theta[pair] for pair in THREE.pairs()])
    np.testing.assert_array_equal(
        listed.sample(20, generator()).disagreement,
        sw.Realizable(THREE, theta).sample(20, generator()).disagreement,
    )


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


@pytest.mark.parametrize(
    "parameters",
    [{"degree": 2}, {"degree": 2, "context_dim": 2}, {"context_dim": 4}],
    ids=["no such polynomial", "another polynomial", "another context"],
)
def test_theta_must_be_as_long_as_the_features(parameters: dict[str, Any]) -> None:
    with pytest.raises(sw.InvalidParameterError, match="theta needs vectors of"):
        sw.Realizable(TWO, [[1.0] * 5], **parameters)


def test_the_degree_is_checked() -> None:
    with pytest.raises(sw.InvalidParameterError, match="degree"):
        sw.Realizable(TWO, [[1.0] * 5], degree=0)


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


@pytest.mark.parametrize("margin", [-0.1, np.nan, np.inf])
def test_a_margin_is_a_number_from_zero(margin: float) -> None:
    with pytest.raises(sw.InvalidParameterError, match="margin"):
        sw.Realizable(TWO, [[1.0, 1.0]], margin=margin)


def test_a_margin_that_hardly_any_context_has_is_refused() -> None:
    # p = μ(−1.4) ≈ 0.2 < 0.3 everywhere: ξ(x) is about 0.1
    with pytest.raises(sw.InvalidParameterError, match="only 0 of 1000 contexts"):
        sw.Realizable(TWO, [[-2.0, 0.0]], margin=0.2).sample(5, generator())


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


# ----------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("X", "y", "C", "message"),
    [
        ([[1.0], [2.0]], [1, 1], 1.0, "every label is 1"),
        ([[1.0], [2.0]], [0, 2], 1.0, "label of row 1 is 2"),
        ([[1.0], [np.nan]], [0, 1], 1.0, "row 1, column 0 is nan"),
        ([[1.0], [2.0]], [0, 1, 1], 1.0, "2 rows need as many labels"),
        ([1.0, 2.0], [0, 1], 1.0, "form a table"),
        ([["a"], ["b"]], [0, 1], 1.0, "must be numbers"),
        ([[1.0], [2.0]], [0, 1], 0.0, "C must be"),
        ([[1.0], [2.0]], [0, 1], np.inf, "C must be"),
    ],
)
def test_training_says_what_is_wrong(X: Any, y: Any, C: float, message: str) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        fit_logistic(X, y, C)


def test_one_class_can_be_trained_without_an_intercept() -> None:
    w = fit_logistic([[1.0], [2.0]], [1, 1], 1.0, intercept=False)
    assert w[0] > 0
    assert w[1] == 0


# -------------------------------------------------------------------------------- synthetic, tables


@pytest.mark.parametrize(("last", "paper"), [(0.55, 0.997), (0.6, 1.0), (0.65, 1.0), (0.7, 1.0)])
def test_synthetic_is_dominated_as_in_the_paper(last: float, paper: float) -> None:
    environment = sw.Synthetic(sw.Cascade([0.01, 0.02, 0.032, 0.05, last]))
    batch = environment.sample(5000, generator())
    assert abs(batch.dominant.mean() - paper) <= 0.002


def test_synthetic_shows_each_sample_once_a_pass() -> None:
    environment = sw.Synthetic(TWO, C=(0.1, 10.0), samples=40, data_seed=3)
    batch = environment.sample(100, generator())
    first, second, rest = batch.contexts[:40], batch.contexts[40:80], batch.contexts[80:]
    assert sorted(first.tolist()) == sorted(second.tolist())
    assert first.tolist() != second.tolist()
    assert len({tuple(x) for x in rest.tolist()}) == 20


def test_synthetic_labels_follow_the_rule() -> None:
    batch = sw.Synthetic(TWO, C=(0.1, 10.0), samples=500).sample(500, generator())
    x1, x2, x3 = batch.contexts.T
    np.testing.assert_array_equal(batch.labels, np.where(x1 + x1 * x2 + x3**2 < 0, 0, 1))


def test_synthetic_arms_are_classifiers_of_the_monomials() -> None:
    environment = sw.Synthetic(TWO, C=(0.1, 10.0), samples=300)
    batch = environment.sample(300, generator())
    assert batch.labels is not None
    assert batch.error_rates is not None
    x1, x2, x3 = batch.contexts.T
    phi = np.column_stack([x1, x2, x3, x1 * x1, x1 * x2, x1 * x3, x2 * x2, x2 * x3, x3 * x3])
    for arm, C in enumerate((0.1, 10.0)):
        one = mu(phi @ fit_logistic(phi, batch.labels, C, intercept=False)[:-1])
        wrong = np.where(batch.labels == 1, 1 - one, one)
        np.testing.assert_allclose(batch.error_rates[:, arm], wrong, atol=1e-9)


def test_the_data_seed_alone_decides_the_data_set() -> None:
    def contexts(data_seed: int, seed: int) -> list[Any]:
        environment = sw.Synthetic(TWO, C=(0.1, 1.0), samples=20, data_seed=data_seed)
        return sorted(environment.sample(20, generator(seed)).contexts.tolist())

    assert contexts(0, 0) == contexts(0, 1)
    assert contexts(0, 0) != contexts(1, 0)


def test_synthetic_needs_a_regularisation_for_each_arm() -> None:
    with pytest.raises(sw.InvalidParameterError, match="C needs one number for each of 2 arms"):
        sw.Synthetic(TWO)
    with pytest.raises(sw.InvalidParameterError, match="samples"):
        sw.Synthetic(TWO, C=(1.0, 1.0), samples=0)


COSTS = [(0.01, 0.25, 0.5), (0.01, 0.3, 0.5), (0.01, 0.35, 0.5)]


# In rounds of 5,000, as the paper gives four digits: within 0.005, and 0.010 for Heart.
@pytest.mark.parametrize(("costs", "paper"), list(zip(COSTS, (346, 596, 1102), strict=True)))
def test_pima_is_dominated_as_in_the_paper(costs: tuple[float, ...], paper: int) -> None:
    batch = sw.Pima(sw.Cascade(costs)).sample(5000, generator())
    assert abs(int(batch.dominant.sum()) - paper) <= 25


@pytest.mark.parametrize(("costs", "paper"), list(zip(COSTS, (692, 727, 1213), strict=True)))
def test_heart_is_dominated_as_in_the_paper(costs: tuple[float, ...], paper: int) -> None:
    batch = sw.Heart(sw.Cascade(costs)).sample(5000, generator())
    assert abs(int(batch.dominant.sum()) - paper) <= 50


@pytest.mark.parametrize(("kind", "table", "used"), [(sw.Pima, "pima", 8), (sw.Heart, "heart", 12)])
def test_rows_come_in_the_order_of_the_file(kind: Any, table: str, used: int) -> None:
    _, X, y = load_table(table)
    batch = kind(THREE).sample(2 * len(X) + 5, generator())
    scaled = standardised(X[:, :used])
    np.testing.assert_array_equal(batch.contexts[: len(X)], scaled)
    np.testing.assert_array_equal(batch.contexts[len(X) : 2 * len(X)], scaled)
    np.testing.assert_array_equal(batch.contexts[2 * len(X) :], scaled[:5])
    np.testing.assert_array_equal(batch.labels[: len(X)], y)


@pytest.mark.parametrize(("kind", "seen"), [(sw.Pima, (6, 7, 8)), (sw.Heart, (7, 10, 12))])
def test_a_deeper_arm_sees_more_columns(kind: Any, seen: tuple[int, ...]) -> None:
    environment = kind(THREE)
    assert [int(np.flatnonzero(w[:-1])[-1]) + 1 for w in environment.weights] == list(seen)


def test_standardised_columns_have_one_spread_and_rows_fit_the_unit_ball() -> None:
    X = np.column_stack([generator(4).normal(5, 3, (50, 3)), np.full(50, 0.1)])
    scaled = standardised(X)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-15)
    spread = scaled.std(axis=0)
    np.testing.assert_allclose(spread[:3], spread[0])
    assert spread[3] == 0
    assert np.linalg.norm(scaled, axis=1).max() == pytest.approx(1, abs=1e-15)


def test_tabular_arms_are_classifiers_of_what_they_see() -> None:
    X = generator(5).uniform(-1, 1, (80, 4))
    y = (X.sum(axis=1) + generator(6).normal(size=80) > 0).astype(int)
    environment = sw.Tabular(THREE, X, y, columns_per_arm=[1, 3, 4], C=[0.5, 1, 2], intercept=False)
    errors = environment.sample(80, generator()).error_rates
    assert errors is not None
    for arm, (columns, C) in enumerate([(1, 0.5), (3, 1.0), (4, 2.0)]):
        one = mu(X[:, :columns] @ fit_logistic(X[:, :columns], y, C, intercept=False)[:-1])
        np.testing.assert_allclose(errors[:, arm], np.where(y == 1, 1 - one, one), rtol=1e-9)


@pytest.mark.parametrize("columns", [[0, 1], [1, 3], [1.5, 2], [1], [1, 2, 2], "ab"])
def test_tabular_says_which_columns_there_are(columns: Any) -> None:
    with pytest.raises(sw.InvalidParameterError, match=r"columns_per_arm"):
        sw.Tabular(TWO, [[0.0, 1.0], [1.0, 0.5]], [0, 1], columns_per_arm=columns)


def test_tabular_keeps_a_table_of_its_own() -> None:
    X = np.array([[0.0, 1.0], [1.0, 0.5]])
    environment = sw.Tabular(TWO, X, [0, 1], columns_per_arm=[1, 2])
    X[:] = 9
    assert environment.sample(2, generator()).contexts.max() == 1


# --------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize(
    ("name", "shape", "positives", "checksum"),
    [
        (
            "pima",
            (768, 8),
            268,
            "5bae004c4257d05127d84c1ba074c81286b7e8a645b60e41aa5921efc53606e0",
        ),
        (
            "heart",
            (297, 13),
            137,
            "0ecd9cededc4a7173438c90766669d044507b805ec53148b8e325bca1928ea30",
        ),
    ],
)
def test_a_table_is_what_its_readme_says(
    name: str, shape: tuple[int, int], positives: int, checksum: str
) -> None:
    columns, X, y = load_table(name)
    assert X.shape == shape
    assert len(columns) == shape[1]
    assert np.isin(y, (0, 1)).all()
    assert y.sum() == positives
    folder = files("stopwise.data")
    assert hashlib.sha256(folder.joinpath(f"{name}.csv").read_bytes()).hexdigest() == checksum
    readme = folder.joinpath("README.md").read_text(encoding="utf-8")
    assert checksum in readme
    assert all(f"| `{column}` |" in readme for column in columns)


def test_known_facts_of_the_tables() -> None:
    columns, X, y = load_table("pima")
    assert X[:, columns.index("glucose")].mean() == pytest.approx(120.8945, abs=5e-5)
    assert columns[6:] == ("glucose", "insulin")
    assert X[0].tolist() == [6, 72, 35, 33.6, 0.627, 50, 148, 0]
    assert y[0] == 1
    columns, X, y = load_table("heart")
    assert columns[-1] == "thal"
    assert X[0].tolist() == [63, 1, 1, 145, 233, 1, 2, 150, 0, 2.3, 3, 0, 6]
    assert y[:2].tolist() == [0, 1]


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(sw.InvalidParameterError, match="there are pima, heart"):
        load_table("iris")


# ------------------------------------------------------------------------------------------- logged


def test_a_log_with_labels_knows_who_was_wrong() -> None:
    outputs = [["a", "a", "b"], ["a", "b", "b"], ["c", "b", "a"]]
    batch = sw.Logged(THREE, [[0.0], [0.5], [1.0]], outputs, ["a", "b", "d"]).sample(3, generator())
    assert batch.error_rates is not None
    assert batch.error_rates.tolist() == [[0, 0, 1], [1, 0, 0], [1, 1, 1]]
    assert np.triu(batch.disagreement[0], 1).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert np.triu(batch.disagreement[2], 1).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    # the cheapest right arm; where none is right, the cheapest
    assert batch.optimal.tolist() == [0, 1, 0]


def test_a_log_without_labels_falls_back_on_lemma_2() -> None:
    outputs = [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    batch = sw.Logged(THREE, [[0.0]] * 3, outputs).sample(3, generator())
    assert batch.error_rates is None
    assert batch.labels is None
    assert batch.optimal.tolist() == [0, 1, 2]
    assert batch.margins.tolist() == pytest.approx([0.2, 0.2, np.inf])


def test_whole_numbers_of_a_log_stay_what_they_are() -> None:
    batch = sw.Logged(TWO, [[0.0]], [[7, -3]], [7]).sample(1, generator())
    assert batch.outputs is not None
    assert batch.labels is not None
    assert (batch.outputs.tolist(), batch.labels.tolist()) == ([[7, -3]], [7])


def test_values_of_a_log_are_compared_as_python_does() -> None:
    """1 and "1" differ; 1 and 1.0 and True do not."""
    batch = sw.Logged(TWO, [[0.0]] * 3, [[1, "1"], [1, 1.0], [True, 1]]).sample(3, generator())
    assert batch.disagreement[:, 0, 1].tolist() == [1, 0, 0]


def test_a_shuffled_log_shows_each_round_once_a_pass() -> None:
    log = sw.Logged(TWO, [[t] for t in range(10)], [[t, t + 1] for t in range(10)], shuffle=True)
    batch = log.sample(25, generator())
    order = batch.contexts[:, 0].astype(int)
    assert sorted(order[:10]) == sorted(order[10:20]) == list(range(10))
    assert order[:10].tolist() not in (order[10:20].tolist(), list(range(10)))
    assert batch.outputs is not None
    np.testing.assert_array_equal(batch.outputs[:, 0], order)  # a round stays together


@pytest.mark.parametrize(
    ("contexts", "outputs", "labels", "message"),
    [
        ([[0.0]], [[1, 2, 3]], None, "outputs needs one of each of 2 arms"),
        ([[0.0]], [[1, 2], [1, 2]], None, "outputs needs"),
        ([[0.0], [0.0]], [[1, 2], [1]], None, "outputs needs"),
        ([[0.0]], [[1, 2]], [1, 2], "labels needs one for each round"),
        ([[0.0], [np.nan]], [[1, 2]] * 2, None, "coordinate 0 of round 1 is nan"),
        ([0.0], [[1, 2]], None, "contexts form a table"),
        ([["x"]], [[1, 2]], None, "contexts must be numbers"),
        ([[0.0]] * 2, [[1, 2], [1, None]], None, "outputs of round 1 has None"),
        ([[0.0]] * 2, [[1, 2]] * 2, [1, np.nan], "labels of round 1 has nan"),
    ],
)
def test_an_incomplete_log_is_refused(
    contexts: Any, outputs: Any, labels: Any, message: str
) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        sw.Logged(TWO, contexts, outputs, labels)


def write(path: Path, text: str) -> Path:
    file = path / "log.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_log_is_read_from_csv(tmp_path: Path) -> None:
    text = 'id,x,y,first,second,truth\n1,0.5,-1,"no, sir",yes,yes\n2,1e-1,2, yes ,yes,no\n'
    log = sw.Logged.from_csv(
        write(tmp_path, text), TWO, context=["y", "x"], outputs=["first", "second"], label="truth"
    )
    batch = log.sample(2, generator())
    assert batch.contexts.tolist() == [[-1, 0.5], [2, 0.1]]
    assert batch.error_rates is not None
    assert batch.error_rates.tolist() == [[1, 0], [1, 1]]
    assert batch.disagreement[:, 0, 1].tolist() == [1, 0]


def test_numbers_in_a_csv_are_compared_as_numbers(tmp_path: Path) -> None:
    text = "\ufeffx,a,b,truth\n0,1,1.0,1\n0,0,1,0.0\n"  # as spreadsheets write it
    log = sw.Logged.from_csv(
        write(tmp_path, text), TWO, context=["x"], outputs=["a", "b"], label="truth"
    )
    errors = log.sample(2, generator()).error_rates
    assert errors is not None
    assert errors.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,a\n0,1\n", r"no column 'b'; its columns are x, a"),
        ("x,a,b\n0,1,1\nfar,1,1\n", r"line 3: x is 'far', which is not a number"),
        ("x,a,b\n0,1,1\n0,,1\n", "line 3: a is empty"),
        ("x,a,b\n0,1\n", "line 2: b is empty"),
        ("x,a,b\n", "no rows"),
        ("", "no column 'x'"),
        ("x,a,b\ninf,1,1\n", "must be finite"),
    ],
)
def test_a_bad_csv_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        sw.Logged.from_csv(write(tmp_path, text), TWO, context=["x"], outputs=["a", "b"])


def test_a_csv_needs_a_column_for_each_arm(tmp_path: Path) -> None:
    path = write(tmp_path, "x,a\n0,1\n")
    with pytest.raises(sw.InvalidParameterError, match="each of 2 arms, not 1"):
        sw.Logged.from_csv(path, TWO, context=["x"], outputs=["a"])


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
