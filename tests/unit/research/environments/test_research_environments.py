"""Research environments: formulas, data and validation."""

import hashlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.research.data import load_table
from stopwise.research.environments.tabular import standardised
from stopwise.research.environments.training import fit_logistic

TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.1, 0.2, 0.2])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mu(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def drawing(*drawn: Any) -> research.Environment:
    """Return an environment whose `draw` returns these arrays."""

    class Fixed(research.BinaryArms):
        cascade, context_dim = TWO, 1

        def draw(self, rounds: int, random: np.random.Generator) -> Any:
            return tuple(np.array(part, dtype=float) for part in drawn)

    return Fixed()


def tabular(columns: Any) -> research.Environment:
    return research.Tabular(TWO, [[0.0, 1.0], [1.0, 0.5]], [0, 1], columns_per_arm=columns)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: research.LogisticArms(TWO, [[1.0, 2.0]], [1.0, 2.0]), r"arms must have 2 rows"),
        (lambda: research.LogisticArms(TWO, [[1.0, 0.0]] * 2, [1.0]), "label must be"),
        (lambda: research.LogisticArms(TWO, [[1.0, 0.0], [np.inf, 0.0]], [1.0, 0.0]), "finite"),
        (
            lambda: research.Realizable(THREE, {(0, 1): [1.0], (0, 2): [1.0]}),
            "one vector for each of the pairs",
        ),
        (
            lambda: research.Realizable(THREE, [[1.0, 0.0], [1.0], [1.0]]),
            "theta must contain only numbers",
        ),
        (lambda: research.Realizable(TWO, [[0.0, np.nan]]), "finite"),
        (
            lambda: research.Realizable(TWO, [[1.0] * 5], degree=2),
            "6 numbers per pair",
        ),
        (lambda: research.Realizable(TWO, [[1.0] * 5], degree=0), "degree"),
        (lambda: research.Realizable(TWO, [[1.0, 1.0]], margin=-0.1), "margin"),
        (lambda: research.Synthetic(TWO), "C must be a flat list of 2 numbers"),
        (lambda: research.Synthetic(TWO, C=(1.0, 1.0), samples=0), "samples"),
        (lambda: load_table("iris"), "choose from pima, heart"),
        (lambda: tabular([0, 1]), "columns_per_arm"),
        (lambda: tabular([1, 3]), "columns_per_arm"),
        (lambda: tabular([1.5, 2]), "columns_per_arm"),
        (lambda: tabular("ab"), "columns_per_arm"),
        (
            lambda: fit_logistic([[1.0], [2.0]], [1, 1]),
            "y must contain both labels to fit an intercept, got only 1",
        ),
        (
            lambda: fit_logistic([[1.0], [2.0]], [0, 2]),
            "y must contain only 0 and 1, got 2 in row 1",
        ),
        (lambda: fit_logistic([[1.0], [np.nan]], [0, 1]), "got nan in row 1, column 0"),
        (lambda: fit_logistic([[1.0], [2.0]], [0, 1, 1]), "y must have 2 labels"),
        (lambda: fit_logistic([[1.0], [2.0]], [0, 1], C=0.0), "C must be"),
        (lambda: drawing([[0], [0]], [[0, 1]], [1]), r"contexts of shape \(1, 1\)"),
        (lambda: drawing([[0]], [[0, 1, 0]], [1]), r"arm_probabilities of shape \(1, 2\)"),
        (lambda: drawing([[0]], [[0, 1.1]], [1]), r"arm_probabilities in \[0, 1\]"),
        (lambda: drawing([[0]], [[0, 1]], [-0.1]), r"label_probability in \[0, 1\]"),
        # p = 0.1, 0.1 and 0.5: p₁₂ > p₀₁ + p₀₂
        (lambda: research.Realizable(THREE, [[-3.1, 0], [-3.1, 0], [0, 0]]), r"1 of 1 .*0\.5\]"),
        # p = μ(−1.4) ≈ 0.2 < 0.3 everywhere: ξ(x) is about 0.1
        (lambda: research.Realizable(TWO, [[-2.0, 0.0]], margin=0.2), "only 0 of 1000 contexts"),
    ],
)
def test_invalid_environments_are_rejected(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match=message):
        build().sample(1, generator())


def test_unknown_environment_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(sw.errors.UnknownEnvironmentError, match="did you mean 'pima'"):
        research.make_environment("pimas", TWO)
    with pytest.raises(sw.errors.UnknownEnvironmentError) as caught:
        research.make_environment("lake", TWO)
    assert all(name in str(caught.value) for name in research.ENVIRONMENTS)


def test_logistic_arms_draw_contexts_then_independent_answers_then_labels() -> None:
    arms, right = np.array([[1.0, 2, 0], [-3, 1, 1], [0, 0, -2]]), np.array([5, 0, 0.5])
    weights = arms.copy()
    environment = research.LogisticArms(THREE, weights, right)
    weights[:] = 0  # the environment must keep a copy
    batch, same = environment.sample(50, generator(1)), generator(1)
    assert batch.error_rates is not None
    x = same.uniform(-1, 1, (50, 2))
    np.testing.assert_array_equal(batch.contexts, x)  # recorded results depend on the order
    x = np.column_stack([x, np.ones(50)])
    answers, labels = mu(x @ arms.T), mu(x @ right)
    np.testing.assert_array_equal(batch.outputs, same.random((50, 3)) < answers)
    np.testing.assert_array_equal(batch.labels, same.random(50) < labels)
    for i in range(3):
        errors = answers[:, i] * (1 - labels) + (1 - answers[:, i]) * labels
        np.testing.assert_allclose(batch.error_rates[:, i], errors, rtol=1e-12)
        for j in range(i + 1, 3):
            p = answers[:, i] * (1 - answers[:, j]) + (1 - answers[:, i]) * answers[:, j]
            np.testing.assert_allclose(batch.disagreement[:, i, j], p, rtol=1e-12)


def test_extreme_weights_do_not_overflow() -> None:
    arms = research.LogisticArms(TWO, [[1e6, 1e6], [-1e6, -1e6]], [1e6, 1e6]).sample(
        50, generator()
    )
    assert np.isfinite(arms.disagreement).all()
    pairs = research.Realizable(TWO, {(0, 1): [-3000.0, 1.0]}).sample(50, generator())
    assert (pairs.disagreement[:, 0, 1] < 1e-300).all()
    assert (pairs.optimal == 0).all()


@pytest.mark.parametrize("degree", [None, 1, 3])
def test_realizable_is_logistic_in_the_features_of_a_policy(degree: int | None) -> None:
    map_ = sw.Identity() if degree is None else sw.Polynomial(degree)
    features = sw.USSPD(THREE, features=map_, context_dim=2).features
    theta = generator(1).normal(size=(3, features.n_features)) * 0.5
    environment = research.Realizable(
        THREE, dict(zip(THREE.pairs(), theta, strict=True)), degree=degree
    )
    assert environment.context_dim == 2
    batch = environment.sample(60, generator(2))
    assert np.abs(batch.contexts).max() <= 1
    intercept = bool((batch.contexts[:, 0] == 1).all())
    assert intercept == (degree is None)
    p = mu(features.transform(batch.contexts) @ theta.T)
    for k, (i, j) in enumerate(THREE.pairs()):
        np.testing.assert_allclose(batch.disagreement[:, i, j], p[:, k], rtol=1e-12, atol=1e-15)
    assert (np.tril(batch.disagreement) == 0).all()


def test_margin_rejects_contexts_and_changes_nothing_else() -> None:
    theta = [[-2.5, 3.0], [-2.5, 3.5], [-2.0, 3.0]]
    unrestricted = research.Realizable(THREE, theta).sample(4000, generator())
    restricted = research.Realizable(THREE, theta, margin=0.1).sample(4000, generator())
    margins = np.array([_test_margin(p) for p in unrestricted.disagreement])
    assert 0.2 < np.mean(margins >= 0.1) < 0.9
    assert min(_test_margin(p) for p in restricted.disagreement) >= 0.1
    assert restricted.margins.min() >= 0.1
    # the first contexts are those of the unrestricted draw that pass
    passing = unrestricted.contexts[margins >= 0.1]
    np.testing.assert_array_equal(restricted.contexts[: len(passing)], passing)
    assert len(restricted.contexts) == 4000


def _test_margin(p: np.ndarray) -> float:
    """Return the margin by which the stopping test is decided in a context."""
    smallest = np.inf
    for i in range(THREE.n_arms - 1):
        margin = min(THREE.gaps[i, j] - p[i, j] for j in range(i + 1, THREE.n_arms))
        smallest = min(smallest, abs(margin))
        if margin > 0:
            break
    return smallest


def test_synthetic_arms_classify_monomials_and_each_pass_has_every_row() -> None:
    environment = research.Synthetic(TWO, C=(0.1, 10.0), samples=300)
    batch = environment.sample(700, generator())
    assert batch.labels is not None
    assert batch.error_rates is not None
    x1, x2, x3 = batch.contexts.T
    phi = np.column_stack([x1, x2, x3, x1 * x1, x1 * x2, x1 * x3, x2 * x2, x2 * x3, x3 * x3])
    for arm, C in enumerate((0.1, 10.0)):
        p = mu(phi @ fit_logistic(phi[:300], batch.labels[:300], C, intercept=False)[:-1])
        error_rates = np.where(batch.labels == 1, 1 - p, p)
        np.testing.assert_allclose(batch.error_rates[:, arm], error_rates, atol=1e-9)
    first, second, third = (rows.tolist() for rows in np.split(batch.contexts, [300, 600]))
    assert sorted(first) == sorted(second)
    assert first != second
    assert len(set(map(tuple, third))) == 100


@pytest.mark.parametrize(
    ("kind", "table", "columns"),
    [(research.Pima, "pima", [6, 7, 8]), (research.Heart, "heart", [7, 10, 12])],
)
def test_rows_are_in_file_order_and_deeper_arms_see_more_columns(
    kind: Any, table: str, columns: list[int]
) -> None:
    _, X, y = load_table(table)
    environment, n = kind(THREE), len(X)
    batch = environment.sample(2 * n + 5, generator())
    scaled = standardised(X[:, : columns[-1]])
    np.testing.assert_array_equal(batch.contexts, np.vstack([scaled, scaled, scaled[:5]]))
    np.testing.assert_array_equal(batch.labels[:n], y)
    assert [int(np.flatnonzero(w[:-1])[-1]) + 1 for w in environment.weights] == columns


def test_standardised_columns_have_equal_spread_and_rows_fit_the_unit_ball() -> None:
    X = np.column_stack([generator(4).normal(5, 3, (50, 3)), np.full(50, 0.1)])
    scaled = standardised(X)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-15)
    spread = scaled.std(axis=0)
    np.testing.assert_allclose(spread[:3], spread[0])
    assert spread[3] == 0
    assert np.linalg.norm(scaled, axis=1).max() == pytest.approx(1, abs=1e-15)


def test_tabular_arms_classify_their_leading_columns() -> None:
    X = generator(5).uniform(-1, 1, (80, 4))
    y = (X.sum(axis=1) + generator(6).normal(size=80) > 0).astype(int)
    environment = research.Tabular(
        THREE, X, y, columns_per_arm=[1, 3, 4], C=[0.5, 1, 2], intercept=False
    )
    errors = environment.sample(80, generator()).error_rates
    assert errors is not None
    for arm, (columns, C) in enumerate([(1, 0.5), (3, 1.0), (4, 2.0)]):
        p = mu(X[:, :columns] @ fit_logistic(X[:, :columns], y, C, intercept=False)[:-1])
        np.testing.assert_allclose(errors[:, arm], np.where(y == 1, 1 - p, p), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "shape", "positives"), [("pima", (768, 8), 268), ("heart", (297, 13), 137)]
)
def test_included_tables_match_the_data_page(
    name: str, shape: tuple[int, int], positives: int
) -> None:
    columns, X, y = load_table(name)
    assert (X.shape, len(columns), sorted(set(y)), y.sum()) == (shape, shape[1], [0, 1], positives)
    folder = files("stopwise.research.data")
    page = Path(__file__).parents[4].joinpath("docs", "data.md").read_text(encoding="utf-8")
    assert hashlib.sha256(folder.joinpath(f"{name}.csv").read_bytes()).hexdigest() in page
    assert all(f"| `{column}` |" in page for column in columns)
    assert f"**{name}.csv**" in folder.joinpath("README.md").read_text(encoding="utf-8")
