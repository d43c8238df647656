"""Feature maps: values against scikit-learn, norms against brute force, and every refusal."""

# Wrong arguments are half of what is tested here.
# pyright: reportArgumentType=false

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import PolynomialFeatures

from stopwise.errors import InvalidContextError, InvalidFeaturesError, InvalidParameterError
from stopwise.features import Custom, Identity, Polynomial, Scaled, bind
from stopwise.features.maps import monomial_name

RNG = np.random.default_rng(20240607)


def half(x: np.ndarray) -> np.ndarray:
    return x[:1] / 2


@pytest.mark.parametrize(
    ("d", "degree", "bias", "bound"), [(1, 4, True, 0.3), (2, 3, False, 7.0), (5, 2, True, 1.0)]
)
def test_polynomial_is_scikit_learns_over_one_number(
    d: int, degree: int, bias: bool, bound: float
) -> None:
    X = RNG.uniform(-bound, bound, (20, d))
    oracle = PolynomialFeatures(degree, include_bias=bias)
    raw = oracle.fit_transform(X)
    corner = oracle.transform(np.full((1, d), bound))
    rows = bind(Polynomial(degree, bias, bound), d, 2).rows(X)
    np.testing.assert_allclose(rows, raw / np.linalg.norm(corner), rtol=1e-13)


@pytest.mark.parametrize(
    "one",
    [
        Identity(0.2),
        Polynomial(3, False, 2.5),
        Polynomial(2, True, 3, without=((0, 0), (1, 2), ())),
    ],
)
def test_the_largest_norm_in_the_box_is_one(one: Identity | Polynomial) -> None:
    corners = np.array(list(itertools.product([-one.bound, one.bound], repeat=3)))
    inside = RNG.uniform(-one.bound, one.bound, (1000, 3))
    norms = np.linalg.norm(bind(one, 3, 2).rows(np.vstack([corners, inside])), axis=1)
    assert norms.max() == pytest.approx(1, abs=1e-14)
    assert norms[8:].max() < 1


def test_scaled_shifts_and_stretches_before_the_inner_map() -> None:
    center, scale = np.array([5.0, -2.0]), np.array([10.0, 0.5])
    Z = RNG.uniform(-2, 2, (20, 2))
    scaled = bind(Scaled(Polynomial(2, bound=2), center, scale), 2, 2)
    plain = bind(Polynomial(2, bound=2), 2, 2)
    np.testing.assert_allclose(scaled.rows(center + scale * Z), plain.rows(Z), atol=1e-14)


def test_clipping_moves_a_context_to_the_bound_but_hides_nothing_that_is_not_finite() -> None:
    clip = bind(Scaled(Identity(2), [0, 10], [1, 5], outside="clip"), 2, 2)
    assert np.array_equal(clip.row([-9, 100]), clip.row([-2, 20]))
    assert np.array_equal(clip.row([1.7e308, -1.7e308]), clip.row([2, 0]))
    for bad in (math.inf, -math.inf, math.nan):
        with pytest.raises(InvalidContextError, match="finite"):
            clip.row([bad, 0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Identity(0), "bound must be a number above 0, not 0"),
        (lambda: Polynomial(bound=math.nan), "bound"),
        (lambda: Polynomial(0), "degree must be a whole number, 1 or more, not 0"),
        (lambda: Polynomial(True), "degree"),
        (lambda: bind(Polynomial(9), 50, 2), r"makes [\d,]+ features.*lower the degree"),
        (lambda: bind(Polynomial(4, bound=1e100), 2, 2), "range of floats.*Scaled.fit"),
        (lambda: bind(Identity(1e-200), 2, 2), "range of floats"),
        (lambda: bind(Polynomial(without=((2, 2),)), 2, 2), "cannot leave out x2²"),
        (lambda: bind(Polynomial(bias=False, without=((),)), 2, 2), "leave out 1:.*without bias"),
        (lambda: bind(Polynomial(1, False, 1, ((0,),)), 1, 2), "keep at least one"),
        (lambda: Scaled(Custom(half), [0], [1]), "Identity or a Polynomial"),
        (lambda: Scaled(Identity(), [0], [1], "wrap"), "not 'wrap'"),
        (lambda: Scaled(Identity(), [0, 0], [1]), "center has 2 coordinates but scale has 1"),
        (lambda: Scaled(Identity(), [0, 0], [1, 0]), "scale of coordinate 1 is 0"),
        (lambda: Scaled(Identity(), [math.nan], [1]), "center must be .* finite"),
        (lambda: bind(Scaled(Identity(), [0], [1]), 2, 2), "of 1 coordinates, not 2"),
        (lambda: Scaled.fit([[0]], margin=-0.1), "margin"),
        (lambda: Scaled.fit([[0]]).independent([[0]]), "only a Polynomial"),
        (lambda: Polynomial(bias=False).independent(np.zeros((3, 2))), "none is left"),
        (lambda: Custom(3), "function, not 3"),
        (lambda: Custom(half, n_features=0), "n_features"),
        (lambda: bind(Polynomial, 2, 2), r"Polynomial is a class; .*Polynomial\(…\)"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        make()


# ------------------------------------------------------------------------------------------ fitting


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 1e6 + 1e-4]),
    ),
    st.floats(1e-3, 1e3),
    st.floats(0, 1),
)
def test_fitted_data_lie_within_the_bound(X: np.ndarray, bound: float, margin: float) -> None:
    scaled = Scaled.fit(X, Identity(bound), margin=margin)
    Z = (X - scaled.center) / scaled.scale
    assert np.abs(Z).max() <= bound / (1 + margin) * (1 + 1e-9)
    assert np.linalg.norm(bind(scaled, X.shape[1], 2).rows(X), axis=1).max() <= 1 + 1e-14


def test_fitting_fills_the_box_and_a_margin_leaves_room() -> None:
    X = np.array([[0.0, -4.0, 0.1], [10.0, 4.0, 0.1], [3.0, 0.0, 0.1]])
    scaled = Scaled.fit(X, Identity(2))
    assert (scaled.center, scaled.scale) == ((5.0, 0.0, 0.1), (2.5, 2.0, 1.0))
    assert not bind(scaled, 3, 2).rows(X)[:, 2].any()  # a constant column maps to zero
    assert Scaled.fit(X, Identity(2), margin=0.5).scale == (3.75, 3.0, 1.0)


@pytest.mark.parametrize("X", [[[0.0], [1e-308]], [[0.0], [1.5e-323]], [[1e9], [1e9 + 3e-7]]])
def test_a_narrow_range_fits_its_own_data(X: list[list[float]]) -> None:
    assert np.abs(bind(Scaled.fit(X, Identity(1.5)), 1, 2).rows(X)).max() <= 1


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([1, 2], r"table.*\(2,\)"),
        (np.empty((0, 2)), "at least one row"),
        ([[0, 1], [math.nan, 0]], "row 1, column 0 is nan"),
        ([["a"]], "real numbers"),
    ],
)
def test_data_that_cannot_be_fitted_on_are_refused(X: Any, words: str) -> None:
    for fit in (Scaled.fit, Polynomial().independent):
        with pytest.raises(InvalidContextError, match=words):
            fit(X)


# ---------------------------------------------------------------------------- independent monomials


@pytest.mark.parametrize(("degree", "bias"), [(1, True), (2, True), (3, False)])
def test_what_remains_is_a_maximal_independent_set(degree: int, bias: bool) -> None:
    X = RNG.uniform(-1, 1, (300, 5))
    X[:, 1] = np.sign(X[:, 1])  # two values
    X[:, 3] = X[:, 0] / 2 - X[:, 2] / 3  # collinear
    full = Polynomial(degree, bias)
    small = full.independent(X)
    rank = np.linalg.matrix_rank(bind(full, 5, 2).rows(X), tol=1e-9)
    remaining = bind(small, 5, 2)
    assert remaining.n_features == rank == len(full.monomials(5)) - len(small.dropped)
    assert np.linalg.matrix_rank(remaining.rows(X), tol=1e-9) == rank
    assert small.independent(X) == small


def test_the_first_of_dependent_monomials_remains_and_the_others_are_named() -> None:
    X = np.column_stack([RNG.normal(60, 10, 200), RNG.integers(0, 2, 200), np.full(200, 3)])
    small = Scaled.fit(X, Polynomial(2)).independent(X)
    assert small.dropped == ("x2", "x0·x2", "x1²", "x1·x2", "x2²")
    assert np.linalg.norm(bind(small, 3, 2).row(X.max(axis=0))) <= 1
    assert [monomial_name(m) for m in small.inner.monomials(3)] == ["1", "x0", "x1", "x0²", "x0·x1"]


def test_near_dependence_is_judged_at_one_part_in_a_billion() -> None:
    X = RNG.uniform(-0.5, 0.5, (100, 2))
    noise = RNG.uniform(-1, 1, 100)
    for share, gone in ((1e-11, ("x1",)), (1e-7, ())):
        X[:, 1] = X[:, 0] + share * noise
        assert Polynomial(1).independent(X).dropped == gone
    # On so narrow a range, about 1e-8 of x² and 1e-12 of x³ is new. A single pass of Gram–Schmidt
    # loses that much and would retain x³ for its rounding errors.
    narrow = 0.5 + 1e-4 * RNG.uniform(-1, 1, (200, 1))
    assert Polynomial(3).independent(narrow).dropped == ("x0³",)


def test_fewer_rows_than_monomials_leave_as_many_as_rows() -> None:
    assert bind(Polynomial(2).independent(RNG.uniform(-1, 1, (4, 3))), 3, 2).n_features == 4


# -------------------------------------------------------------------------------------- custom maps


def test_a_function_is_a_map_and_may_write_to_its_copy_of_the_context() -> None:
    def tenth(x: np.ndarray) -> np.ndarray:
        x /= 1e7
        return x

    x = np.array([0.3, -4.0, 1e6])  # a custom map has no bound
    features = bind(tenth, 3, 4)
    assert features.dims == (3,)
    assert features.row(x).tolist() == features.transform([x])[0].tolist() == (x / 1e7).tolist()
    assert x.tolist() == [0.3, -4.0, 1e6]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: [0.1, 0.2], r"'bad' gave an array of shape \(2,\), not \(1,\)"),
        (lambda x: 0.1, r"shape \(\), not \(1,\)"),
        (lambda x: [math.nan], "'bad' gave a value that is not finite"),
        (lambda x: ["a"], "'bad' must be real numbers"),
        (lambda x: [2.5], "norm 2.5, and at most 1 is allowed; divide .* at least 2.5"),
        (lambda x: [1 + 2e-9], "norm 1.000000002"),
    ],
)
def test_what_a_function_gives_is_checked_each_time(function: Any, words: str) -> None:
    features = bind(Custom(function, n_features=1, name="bad"), 2, 2)
    with pytest.raises(InvalidFeaturesError, match=words):
        features.row([0, 0])
    with pytest.raises(InvalidFeaturesError, match=f"^row 0: .*{words}"):
        features.rows([[0, 0]])


def test_a_norm_of_one_and_a_rounding_error_is_allowed() -> None:
    assert bind(Custom(lambda x: [1 + 5e-10]), 1, 2).row([0])[0] == 1 + 5e-10


def test_counting_features_needs_a_function_that_takes_zeros() -> None:
    def ratio(x: np.ndarray) -> list[float]:
        return [1 / int(x[0])]

    with pytest.raises(InvalidFeaturesError, match=r"'ratio' failed .*ZeroDivision.*n_features"):
        bind(Custom(ratio, name="ratio"), 1, 2)
    assert bind(Custom(ratio, n_features=1), 1, 2).row([4])[0] == 0.25
