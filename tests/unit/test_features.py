"""Feature maps: values against scikit-learn, norms against brute force, and every refusal."""

# Wrong arguments are half of what is tested here.
# pyright: reportArgumentType=false

import itertools
import json
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import PolynomialFeatures

from stopwise.errors import (
    CorruptFileError,
    FeaturesMismatchError,
    InvalidContextError,
    InvalidFeaturesError,
    InvalidParameterError,
)
from stopwise.features import (
    BoundFeatures,
    Custom,
    Identity,
    PerPair,
    PerStage,
    Polynomial,
    Scaled,
    Shared,
    bind,
    monomial_name,
)

RNG = np.random.default_rng(20240607)
BOUNDS = st.floats(1e-3, 1e3)


def half(x: np.ndarray) -> np.ndarray:
    """Give the first coordinate, halved: a custom map that pickles."""
    return x[:1] / 2


@st.composite
def plain_maps(draw: st.DrawFn) -> Identity | Polynomial:
    bound = draw(BOUNDS)
    if draw(st.booleans()):
        return Identity(bound)
    return Polynomial(draw(st.integers(1, 4)), draw(st.booleans()), bound)


@st.composite
def maps_and_contexts(draw: st.DrawFn) -> tuple[Any, np.ndarray]:
    """A built-in map, and a table of contexts that keep its promise."""
    d = draw(st.integers(1, 4))
    inner = draw(plain_maps())
    n = draw(st.integers(1, 6))
    unit = draw(hnp.arrays(np.float64, (n, d), elements=st.floats(-1, 1)))
    if draw(st.booleans()):
        return inner, unit * inner.bound
    center = draw(hnp.arrays(np.float64, d, elements=st.floats(-100, 100)))
    scale = draw(hnp.arrays(np.float64, d, elements=st.floats(0.1, 100)))
    outside = draw(st.sampled_from(["error", "clip"]))
    # The slack of the promise must absorb the rounding of center + scale·z, so z keeps off it.
    return Scaled(inner, center, scale, outside), center + scale * unit * inner.bound * (1 - 1e-6)


# -------------------------------------------------------------------------------- what maps compute


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bound", [0.3, 1.0, 7.0])
def test_polynomial_is_scikit_learns_over_one_number(
    d: int, degree: int, bias: bool, bound: float
) -> None:
    X = RNG.uniform(-bound, bound, (20, d))
    oracle = PolynomialFeatures(degree, include_bias=bias)
    raw = oracle.fit_transform(X)
    corner = oracle.transform(np.full((1, d), bound))
    features = bind(Polynomial(degree, bias, bound), d, 2)
    np.testing.assert_allclose(features.rows(X), raw / np.linalg.norm(corner), rtol=1e-13)
    assert features.n_features == raw.shape[1]


def test_identity_is_the_context_over_bound_root_d() -> None:
    X = RNG.uniform(-3, 3, (20, 5))
    np.testing.assert_allclose(bind(Identity(3), 5, 2).rows(X), X / (3 * math.sqrt(5)), rtol=1e-15)


@pytest.mark.parametrize(
    "one",
    [
        Identity(),
        Identity(0.2),
        Polynomial(2),
        Polynomial(3, False, 2.5),
        Polynomial(2, True, 3, without=((0, 0), (1, 2), ())),
        Polynomial(2, False, without=((0,), (1,), (2,))),
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


def test_clipping_moves_a_context_to_the_edge_of_the_promise() -> None:
    clip = bind(Scaled(Identity(2), [0, 10], [1, 5], outside="clip"), 2, 2)
    assert np.array_equal(clip.row([-9, 100]), clip.row([-2, 20]))
    assert np.array_equal(clip.row([1.7e308, -1.7e308]), clip.row([2, 0]))
    assert np.linalg.norm(clip.row([1e9, 1e9])) == pytest.approx(1)


@given(maps_and_contexts())
def test_norms_are_at_most_one_within_the_promise(case: tuple[Any, np.ndarray]) -> None:
    features, X = case
    norms = np.linalg.norm(bind(features, X.shape[1], 2).rows(X), axis=1)
    assert norms.max() <= 1 + 1e-14


@given(maps_and_contexts())
def test_every_road_gives_the_same_bits_and_leaves_the_input_alone(
    case: tuple[Any, np.ndarray],
) -> None:
    features, X = case
    before = X.copy()
    bound = bind(features, X.shape[1], 3)
    rows = bound.rows(X)
    assert np.array_equal(rows, bound.transform(X, 1, 2))
    assert np.array_equal(rows, bound.rows(np.asfortranarray(X)))
    wide = np.repeat(X, 2, axis=1)[:, ::2]  # strided
    X.flags.writeable = False
    for r in range(len(X)):
        assert np.array_equal(bound.row(X[r]), rows[r])
        assert np.array_equal(bound.row(wide[r]), rows[r])
        assert np.array_equal(bound.row(X[r].tolist()), rows[r])
        assert np.array_equal(bound.transform(X[r]), rows[r : r + 1])
    assert np.array_equal(X, before)


def test_a_row_is_fresh() -> None:
    features = bind(Identity(), 2, 2)
    first = features.row([1, 1])
    kept = first.copy()
    features.row([-1, 0])
    assert np.array_equal(first, kept)


def unaligned(values: list[float]) -> np.ndarray:
    return np.frombuffer(b"\0" + np.array(values).tobytes(), dtype=np.float64, offset=1)


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        lambda v: np.array(v, "f4"),
        lambda v: np.array(v, "i2"),
        lambda v: np.array(v, ">f8"),
        lambda v: np.array(v, np.longdouble),
        lambda v: np.array(v, object),
        lambda v: [Decimal(int(c)) for c in v],
        lambda v: np.array(v, bool),
        unaligned,
    ],
)
def test_a_context_may_be_any_real_numbers(convert: Callable[[list[float]], Any]) -> None:
    features = bind(Polynomial(), 3, 2)
    values = [1.0, 0.0, 1.0]
    expected = features.row(np.array(values))
    assert np.array_equal(features.row(convert(values)), expected)
    assert np.array_equal(features.rows([convert(values)])[0], expected)
    context = features.context(convert(values))
    assert context.dtype == np.float64
    assert context.flags.c_contiguous
    assert context.tolist() == values


def test_no_contexts_give_no_rows() -> None:
    assert bind(Polynomial(), 3, 2).rows(np.empty((0, 3))).shape == (0, 10)


# ---------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("good", [Identity(), Polynomial(), Custom(half)])
@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([0, 0], r"flat list of 3 numbers; this has shape \(2,\)"),
        (np.zeros(4), r"shape \(4,\)"),
        (np.zeros((1, 3)), r"shape \(1, 3\)"),
        (0.5, r"shape \(\)"),
        ([0, math.nan, 0], "coordinate 1 is nan; contexts must be finite"),
        (np.array([0, 0, -math.inf]), "coordinate 2 is -inf"),
        ([0, None, 0], "real numbers|coordinate 1 is nan"),
        ([0, "1", 0], "real numbers"),
        (np.array([0, "1", 0], object), "real numbers"),
        ([0, 1j, 0], "real numbers"),
        ([[0], [0, 0], 0], "real numbers"),
    ],
)
def test_a_context_that_is_none_is_refused(good: Any, x: Any, words: str) -> None:
    features = bind(good, 3, 2)
    for take in (features.row, features.context):
        with pytest.raises(InvalidContextError, match=words):
            take(x)


def test_a_broken_promise_is_refused_and_the_way_out_told() -> None:
    features = bind(Identity(2), 3, 2)
    with pytest.raises(
        InvalidContextError, match=r"^coordinate 2 is -2.5, outside the promised \[-2, 2\]; .*bound"
    ):
        features.row([2, 0, -2.5])
    scaled = bind(Scaled(Polynomial(bound=2), [10, 0, 0], [5, 1, 1]), 3, 2)
    with pytest.raises(InvalidContextError, match=r'coordinate 0 is 21, outside \[0, 20\].*"clip"'):
        scaled.row([21, 0, 0])


def test_clipping_does_not_hide_what_is_not_finite() -> None:
    clip = bind(Scaled(Identity(), [0], [1], outside="clip"), 1, 2)
    for bad in (math.inf, -math.inf, math.nan):
        with pytest.raises(InvalidContextError, match="finite"):
            clip.row([bad])


def test_a_rounding_error_beyond_the_promise_is_forgiven_and_adds_nothing() -> None:
    features = bind(Identity(2), 1, 2)
    assert features.row([2 * (1 + 5e-10)]) == features.row([2])
    with pytest.raises(InvalidContextError, match=r"coordinate 0 is 2\.000000004, outside"):
        features.row([2 * (1 + 2e-9)])


def test_the_first_bad_row_is_named() -> None:
    features = bind(Identity(), 2, 2)
    X = np.zeros((5, 2))
    X[3, 1], X[4, 0] = 2, math.nan
    with pytest.raises(InvalidContextError, match=r"^row 3, coordinate 1 is 2, outside"):
        features.rows(X)
    X[1, 0] = math.inf
    with pytest.raises(InvalidContextError, match=r"^row 1, coordinate 0 is inf"):
        features.transform(X)
    with pytest.raises(InvalidContextError, match=r"table of 2 columns.*\(5, 3\)"):
        features.rows(np.zeros((5, 3)))
    with pytest.raises(InvalidContextError, match=r"table of 2 columns.*\(2,\)"):
        features.rows([0, 0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Identity(0), "bound must be a finite number above zero, not 0"),
        (lambda: Identity(math.inf), "bound"),
        (lambda: Polynomial(bound=math.nan), "bound"),
        (lambda: Identity("wide"), "not 'wide'"),
        (lambda: Polynomial(0), "degree must be a whole number, 1 or more, not 0"),
        (lambda: Polynomial(1.5), "degree"),
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
        (lambda: Scaled(Identity(), [[0]], [1]), "center must be a flat list"),
        (lambda: Scaled(Identity(), ["a"], [1]), "center must be real numbers"),
        (lambda: bind(Scaled(Identity(), [0], [1]), 2, 2), "of 1 coordinates, not 2"),
        (lambda: Scaled.fit([[0]], method="rank"), "not 'rank'"),
        (lambda: Scaled.fit([[0]], margin=-0.1), "margin"),
        (lambda: Scaled.fit([[0]]).independent([[0]]), "only a Polynomial"),
        (lambda: Custom(3), "function, not 3"),
        (lambda: Custom(half, n_features=0), "n_features"),
        (lambda: bind(Polynomial, 2, 2), r"Polynomial is a class; .*Polynomial\(…\)"),
        (lambda: bind(None, 2, 2), "function, not None"),
        (lambda: bind(Identity(), 0, 2), "context_dim"),
        (lambda: bind(Identity(), 2.0, 2), "context_dim"),
        (lambda: bind(Identity(), 2, 1), "n_arms"),
        (lambda: bind(bind(Identity(), 2, 2), 2, 3), "bound to contexts of 2 .* and 2 arms"),
        (lambda: bind(PerStage([half]), 2, 3), "2 for 3 arms; there are 1"),
        (lambda: bind(PerPair({(0, 1): half, (1, 2): half}), 2, 3), r"missing: \[\(0, 2\)\]"),
        (lambda: bind(PerPair({(0, 1): half, (0, 2): half}), 2, 2), r"no such pair: \[\(0, 2\)\]"),
        (lambda: PerPair({(1, 0): half}), r"0 ≤ i < j, not \(1, 0\)"),
        (lambda: bind(Identity(), 2, 3).slot_of(1, 1), "no pair of the 3 arms"),
        (lambda: bind(Identity(), 2, 3).transform([[0, 0]], 0, 3), "no pair of the 3 arms"),
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
    plain_maps(),
    st.sampled_from(["range", "standard"]),
    st.floats(0, 1),
)
def test_data_a_scale_was_fitted_on_keep_the_promise(
    X: np.ndarray, inner: Any, method: Any, margin: float
) -> None:
    scaled = Scaled.fit(X, inner, method=method, margin=margin)
    Z = (X - scaled.center) / scaled.scale
    assert np.abs(Z).max() <= inner.bound / (1 + margin) * (1 + 1e-9)
    bind(scaled, X.shape[1], 2).rows(X)  # does not raise


def test_range_fills_the_box_and_margin_leaves_room() -> None:
    X = np.array([[0.0, -4.0], [10.0, 4.0], [3.0, 0.0]])
    scaled = Scaled.fit(X, Identity(2))
    assert (scaled.center, scaled.scale) == ((5.0, 0.0), (2.5, 2.0))
    roomy = Scaled.fit(X, Identity(2), margin=0.5)
    assert roomy.scale == (3.75, 3.0)
    assert np.isfinite(bind(roomy, 2, 2).row([12.5, -6])).all()


def test_standard_gives_all_columns_the_same_spread() -> None:
    X = RNG.normal(size=(200, 3)) * [1, 10, 1000] + [0, 5, -70]
    scaled = Scaled.fit(X, Identity(2), method="standard")
    Z = (X - scaled.center) / scaled.scale
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), Z.std(axis=0)[0], rtol=1e-12)
    assert np.abs(Z).max() == pytest.approx(2)


@pytest.mark.parametrize("method", ["range", "standard"])
def test_a_constant_column_maps_to_zero(method: Any) -> None:
    X = np.column_stack([np.linspace(0, 1, 7), np.full(7, 0.1)])  # the mean of 0.1s is not 0.1
    scaled = Scaled.fit(X, method=method)
    assert scaled.scale[1] == 1
    assert not bind(scaled, 2, 2).rows(X)[:, 1].any()


@pytest.mark.parametrize("method", ["range", "standard"])
@pytest.mark.parametrize("width", [1e-200, 1e-308, 5e-324])
def test_a_range_whose_square_underflows_still_fits(method: Any, width: float) -> None:
    X = np.array([[0.0], [width]])
    assert np.abs(bind(Scaled.fit(X, method=method), 1, 2).rows(X)).max() <= 1


def test_a_scale_too_small_to_be_accurate_is_not_divided_by() -> None:
    X = np.array([[0.0], [1.5e-323]])  # three times the smallest float: 2/1.5 of it rounds to 1
    assert np.abs(bind(Scaled.fit(X, Identity(1.5)), 1, 2).rows(X)).max() <= 1


def test_a_narrow_range_far_from_zero_still_fits_its_own_data() -> None:
    X = np.array([[1e9], [1e9 + 3e-7]])
    assert np.abs(bind(Scaled.fit(X), 1, 2).rows(X)).max() == pytest.approx(1)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ([1, 2], r"table.*\(2,\)"),
        (np.empty((0, 2)), "at least one row"),
        ([[0, 1], [math.nan, 0]], "row 1, coordinate 0 is nan"),
        ([["a"]], "real numbers"),
    ],
)
def test_data_that_cannot_be_fitted_on_are_refused(X: Any, words: str) -> None:
    with pytest.raises(InvalidContextError, match=words):
        Scaled.fit(X)
    with pytest.raises(InvalidContextError, match=words):
        Polynomial().independent(X)


# ---------------------------------------------------------------------------- independent monomials


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_kept_is_a_maximal_independent_set(degree: int, bias: bool) -> None:
    X = RNG.uniform(-1, 1, (300, 5))
    X[:, 1] = np.sign(X[:, 1])  # two values
    X[:, 3] = X[:, 0] / 2 - X[:, 2] / 3  # collinear
    full = Polynomial(degree, bias)
    small = full.independent(X)
    rank = np.linalg.matrix_rank(bind(full, 5, 2).rows(X), tol=1e-9)
    kept = bind(small, 5, 2)
    assert kept.n_features == rank
    assert np.linalg.matrix_rank(kept.rows(X), tol=1e-9) == rank
    assert len(small.dropped) == len(full.monomials(5)) - rank
    assert small.independent(X) == small


def test_the_first_of_dependent_monomials_is_kept_and_the_others_named() -> None:
    X = RNG.uniform(-1, 1, (100, 3))
    X[:, 1] = X[:, 1] > 0
    small = Polynomial(2).independent(X)
    assert small.dropped == ("x1²",)
    kept = bind(small, 3, 2)
    assert kept.n_features == 9
    names = [monomial_name(m) for m in small.monomials(3)]
    assert names == ["1", "x0", "x1", "x2", "x0²", "x0·x1", "x0·x2", "x1·x2", "x2²"]
    assert np.linalg.norm(kept.row([1, 1, 1])) == pytest.approx(1)


def test_scaled_data_find_the_same_dependence() -> None:
    X = np.column_stack([RNG.normal(60, 10, 200), RNG.integers(0, 2, 200), np.full(200, 3)])
    small = Scaled.fit(X, Polynomial(2)).independent(X)
    assert small.dropped == ("x2", "x0·x2", "x1²", "x1·x2", "x2²")
    phi = bind(small, 3, 2).rows(X)
    assert np.linalg.matrix_rank(phi) == phi.shape[1] == 5


def test_nearly_dependent_is_judged_at_one_part_in_a_billion() -> None:
    X = RNG.uniform(-0.5, 0.5, (100, 2))
    noise = RNG.uniform(-1, 1, 100)
    for share, gone in ((1e-11, ("x1",)), (1e-7, ())):
        X[:, 1] = X[:, 0] + share * noise
        assert Polynomial(1).independent(X).dropped == gone


def test_nearly_parallel_monomials_are_told_apart_as_finely_as_any() -> None:
    # On so narrow a range, about 1e-8 of x² and 1e-12 of x³ is new. A single pass of Gram–Schmidt
    # loses that much and would keep x³ for its rounding errors.
    X = 0.5 + 1e-4 * RNG.uniform(-1, 1, (200, 1))
    assert Polynomial(3).independent(X).dropped == ("x0³",)


def test_fewer_rows_than_monomials_leave_as_many_as_rows() -> None:
    assert bind(Polynomial(2).independent(RNG.uniform(-1, 1, (4, 3))), 3, 2).n_features == 4


def test_data_that_are_all_zero_leave_nothing() -> None:
    with pytest.raises(InvalidParameterError, match="none is left"):
        Polynomial(bias=False).independent(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("monomial", "name"),
    [((), "1"), ((3,), "x3"), ((3, 3), "x3²"), ((0, 4), "x0·x4"), ((0, 0, 12), "x0²·x12")],
)
def test_monomials_have_names(monomial: tuple[int, ...], name: str) -> None:
    assert monomial_name(monomial) == name


# -------------------------------------------------------------------------------------- custom maps


def test_a_function_is_a_map() -> None:
    features = bind(lambda x: np.tanh(x) / 2, 3, 4)
    x = np.array([0.3, -4.0, 1e6])  # no promise is asked of a custom map's contexts
    assert features.dims == (3,)
    assert features.shared
    assert np.array_equal(features.row(x), np.tanh(x) / 2)
    assert np.array_equal(features.transform([x, x / 2])[1], np.tanh(x / 2) / 2)


def test_a_function_may_scribble_on_its_copy_of_the_context() -> None:
    def scribble(x: np.ndarray) -> np.ndarray:
        x /= 10
        return x

    x = np.ones(2)
    features = bind(scribble, 2, 2)
    assert features.row(x).tolist() == features.rows(x[None])[0].tolist() == [0.1, 0.1]
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: [0.1, 0.2], r"'bad' gave an array of shape \(2,\), not \(1,\)"),
        (lambda x: [[0.1]], r"shape \(1, 1\), not \(1,\)"),
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


def test_the_row_a_function_failed_on_is_named() -> None:
    features = bind(lambda x: x, 1, 2)
    with pytest.raises(InvalidFeaturesError, match=r"^row 2: .* norm 3,"):
        features.rows([[0], [1], [3], [4]])


def test_a_norm_of_one_and_a_rounding_error_is_allowed() -> None:
    assert bind(Custom(lambda x: [1 + 5e-10]), 1, 2).row([0])[0] == 1 + 5e-10


def test_counting_features_needs_a_function_that_takes_zeros() -> None:
    def ratio(x: np.ndarray) -> list[float]:
        return [1 / float(x[0]).__trunc__()]

    with pytest.raises(InvalidFeaturesError, match=r"'ratio' failed .*ZeroDivision.*n_features"):
        bind(Custom(ratio, name="ratio"), 1, 2)
    assert bind(Custom(ratio, n_features=1), 1, 2).row([4])[0] == 0.25


# ---------------------------------------------------------------------------------- slots and specs


def test_shared_fills_one_slot_for_all_pairs() -> None:
    for features in (Identity(), Shared(Identity())):
        bound = bind(features, 3, 4)
        assert (bound.n_slots, bound.dims, bound.width, bound.offsets) == (1, (3,), 3, (0,))
        assert bound.shared
        assert {bound.slot_of(i, j) for i in range(4) for j in range(i + 1, 4)} == {0}


def test_stages_have_maps_of_their_own() -> None:
    bound = bind(PerStage([Identity(), half, Polynomial()]), 2, 4)
    assert (bound.n_slots, bound.dims, bound.offsets) == (3, (2, 1, 6), (0, 2, 3))
    assert (bound.width, bound.n_features, bound.shared) == (9, 6, False)
    assert [bound.slot_of(i, 3) for i in range(3)] == [0, 1, 2]
    X = RNG.uniform(-1, 1, (5, 2))
    for i, alone in enumerate([Identity(), half, Polynomial()]):
        expected = bind(alone, 2, 2).rows(X)
        assert np.array_equal(bound.transform(X, i, 3), expected)
        start = bound.offsets[i]
        for x, phi in zip(X, expected, strict=True):
            assert np.array_equal(bound.row(x)[start : start + bound.dims[i]], phi)


def test_pairs_have_maps_of_their_own_in_row_major_order() -> None:
    n_arms = 5
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    # Backwards, to show that the order in the dictionary does not matter; bounds tell them apart.
    maps = {(i, j): Identity(1 + i + 10 * j) for i, j in reversed(pairs)}
    bound = bind(PerPair(maps), 2, n_arms)
    assert bound.n_slots == 10
    assert [bound.slot_of(i, j) for i, j in pairs] == list(range(10))
    for i, j in pairs:
        assert bound.maps[bound.slot_of(i, j)] == maps[i, j]
        expected = bind(maps[i, j], 2, 2).rows([[1, -1]])
        assert np.array_equal(bound.transform([1, -1], i, j), expected)


def test_the_map_whose_promise_is_broken_is_the_one_reported() -> None:
    bound = bind(PerStage([half, Identity(5), Identity(3)]), 2, 4)
    with pytest.raises(InvalidContextError, match=r"coordinate 1 is 4, .*\[-3, 3\]"):
        bound.row([0, 4])


@given(maps_and_contexts(), st.sampled_from(["shared", "stage", "pair"]))
def test_specs_survive_json_and_rebuild_the_same_features(
    case: tuple[Any, np.ndarray], kind: str
) -> None:
    one, X = case
    features = {
        "shared": one,
        "stage": PerStage([one, Identity(1e7)]),
        "pair": PerPair({(0, 1): Identity(1e7), (0, 2): one, (1, 2): one}),
    }[kind]
    bound = bind(features, X.shape[1], 3)
    spec = bound.to_spec()
    assert json.loads(json.dumps(spec)) == spec
    twin = BoundFeatures.from_spec(json.loads(json.dumps(spec)))
    assert twin == bound
    assert twin.to_spec() == spec
    assert np.array_equal(twin.rows(X), bound.rows(X))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Identity(), Identity(2)),
        (Polynomial(2), Polynomial(3)),
        (Polynomial(2), Polynomial(2, bias=False)),
        (Polynomial(2), Polynomial(2, without=((0, 0),))),
        (Polynomial(1, bias=False), Identity()),
        (Identity(), Scaled(Identity(), [0, 0], [1, 1])),
        (Scaled(Identity(), [0, 0], [1, 1]), Scaled(Identity(), [0, 0], [1, 1], "clip")),
        (Identity(), PerStage([Identity(), Identity()])),
        (Custom(half, name="a"), Custom(half, name="b")),
    ],
)
def test_other_features_have_other_specs(one: Any, other: Any) -> None:
    assert bind(one, 2, 3).to_spec() != bind(other, 2, 3).to_spec()
    assert bind(one, 2, 3) != bind(other, 2, 3)


def test_the_way_a_map_is_written_does_not_show_in_its_spec() -> None:
    one = Polynomial(np.int64(2), bound=1, without=[[4, 0], (3, 3), (3, 3)])
    other = Polynomial(without=((3, 3), (0, 4)))
    assert one == other
    assert bind(one, 5, 2).to_spec() == bind(other, 5, 2).to_spec()


def test_a_custom_map_is_named_in_the_spec_and_asked_for_on_loading() -> None:
    spec = bind(Custom(half, name="halves"), 3, 2).to_spec()
    assert spec["maps"] == [{"kind": "custom", "name": "halves", "n_features": 1}]
    with pytest.raises(FeaturesMismatchError, match=r"'halves' \(1 features\).*features="):
        BoundFeatures.from_spec(spec)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "per_moon"},
        {"maps": []},
        {"maps": [{"kind": "fourier"}]},
        {"maps": [{"kind": "identity", "bound": -1}]},
        {"maps": [{"kind": "identity", "width": 1}]},
        {"maps": 3},
        {"n_arms": "two"},
        {"context_dim": None},
        {"kind": "per_pair", "n_arms": 3},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    spec = bind(Identity(), 2, 2).to_spec()
    with pytest.raises(CorruptFileError, match="makes no sense"):
        BoundFeatures.from_spec(spec | change)
    with pytest.raises(CorruptFileError, match="makes no sense"):
        BoundFeatures.from_spec({key: spec[key] for key in spec if key not in change})


@pytest.mark.parametrize(
    "features", [Polynomial(), Custom(half), PerStage([Identity(), Custom(half)])]
)
def test_bound_features_go_through_a_pickle(features: Any) -> None:
    bound = bind(features, 2, 3)
    twin = pickle.loads(pickle.dumps(bound))
    assert twin == bound
    assert np.array_equal(twin.row([0.5, 1]), bound.row([0.5, 1]))


def test_binding_what_is_bound_changes_nothing() -> None:
    bound = bind(Polynomial(), 2, 3)
    assert bind(bound, 2, 3) is bound
