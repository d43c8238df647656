"""Environments of tables: training, the data sets and their order of rows."""

import hashlib
from importlib.resources import files
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


# ----------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("X", "y", "C", "message"),
    [
        ([[1.0], [2.0]], [1, 1], 1.0, "every label is 1"),
        ([[1.0], [2.0]], [0, 2], 1.0, "label of row 1 is 2"),
        ([[1.0], [np.nan]], [0, 1], 1.0, "row 1, column 0 is nan"),
        ([[1.0], [2.0]], [0, 1, 1], 1.0, "2 rows need as many labels"),
        ([1.0, 2.0], [0, 1], 1.0, "must be a table"),
        ([["a"], ["b"]], [0, 1], 1.0, "must be real numbers"),
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
