"""Feature maps and their binding to a cascade: values, norms, slots, specs and errors."""

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

import stopwise as sw
from stopwise.features import (
    BoundFeatures,
    Custom,
    Identity,
    PerPair,
    PerStage,
    Polynomial,
    Scaled,
    Shared,
    Standard,
    bind,
    stages_of,
)

RNG = np.random.default_rng(20240607)


def half(x: np.ndarray) -> np.ndarray:
    """A custom map that can be pickled."""
    return x[:1] / 2


@pytest.mark.parametrize(
    ("d", "degree", "bias", "bound"), [(1, 4, True, 0.3), (2, 3, False, 7.0), (5, 2, True, 1.0)]
)
def test_polynomial_is_proportional_to_scikit_learn(
    d: int, degree: int, bias: bool, bound: float
) -> None:
    X = RNG.uniform(-bound, bound, (20, d))
    oracle = PolynomialFeatures(degree, include_bias=bias)
    raw = oracle.fit_transform(X)
    corner = oracle.transform(np.full((1, d), bound))
    rows = bind(Polynomial(degree, bias, bound), d, 2).rows(X)
    np.testing.assert_allclose(rows, raw / np.linalg.norm(corner), rtol=1e-13)


@pytest.mark.parametrize(
    "features",
    [Identity(0.2), Polynomial(3, False, 2.5), Polynomial(2, True, 3, ((0, 0), (1, 2), ()))],
)
def test_the_largest_norm_within_the_bound_is_one(features: Identity | Polynomial) -> None:
    corners = np.array(list(itertools.product([-features.bound, features.bound], repeat=3)))
    inside = RNG.uniform(-features.bound, features.bound, (1000, 3))
    norms = np.linalg.norm(bind(features, 3, 2).rows(np.vstack([corners, inside])), axis=1)
    assert norms.max() == pytest.approx(1, abs=1e-14)
    assert norms[8:].max() < 1


def test_scaled_shifts_scales_and_clips_contexts() -> None:
    center, scale = np.array([5.0, -2.0]), np.array([10.0, 0.5])
    Z = RNG.uniform(-2, 2, (20, 2))
    scaled = bind(Scaled(Polynomial(2, bound=2), center, scale), 2, 2)
    plain = bind(Polynomial(2, bound=2), 2, 2)
    np.testing.assert_allclose(scaled.rows(center + scale * Z), plain.rows(Z), atol=1e-14)
    clip = bind(Scaled(Identity(2), [0, 10], [1, 5], outside="clip"), 2, 2)
    assert np.array_equal(clip.row([-9, 100]), clip.row([-2, 20]))
    assert np.array_equal(clip.row([1.7e308, -1.7e308]), clip.row([2, 0]))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_clipping_rejects_a_value_that_is_not_finite(value: float) -> None:
    features = bind(Scaled(Identity(2), [0, 10], [1, 5], outside="clip"), 2, 2)
    with pytest.raises(sw.errors.InvalidContextError, match="finite"):
        features.row([value, 0])


@st.composite
def maps_and_contexts(draw: st.DrawFn) -> tuple[Any, np.ndarray]:
    """A built-in map, and a table of contexts within its bound."""
    d, n, bound = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.floats(1e-3, 1e3))
    degree, bias = draw(st.integers(1, 4)), draw(st.booleans())
    inner = Identity(bound) if draw(st.booleans()) else Polynomial(degree, bias, bound)
    unit = draw(hnp.arrays(np.float64, (n, d), elements=st.floats(-1, 1)))
    if draw(st.booleans()):
        return inner, unit * bound
    center = draw(hnp.arrays(np.float64, d, elements=st.floats(-100, 100)))
    scale = draw(hnp.arrays(np.float64, d, elements=st.floats(0.1, 100)))
    outside = draw(st.sampled_from(["error", "clip"]))
    # z stays off the bound, because center + scale·z is rounded
    return Scaled(inner, center, scale, outside), center + scale * unit * bound * (1 - 1e-6)


@given(maps_and_contexts())
def test_row_rows_and_transform_agree_bitwise_and_do_not_modify_the_input(
    case: tuple[Any, np.ndarray],
) -> None:
    features, X = case
    before = X.copy()
    bound = bind(features, X.shape[1], 3)
    rows = bound.rows(X)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-14
    assert np.array_equal(rows, bound.transform(X, 1, 2))
    assert np.array_equal(rows, bound.rows(np.asfortranarray(X)))
    strided = np.repeat(X, 2, axis=1)[:, ::2]
    X.flags.writeable = False
    for r in range(len(X)):
        for x in (X[r], strided[r], X[r].tolist()):
            assert np.array_equal(bound.row(x), rows[r])
    assert np.array_equal(X, before)


def test_a_context_may_have_any_real_number_type() -> None:
    features, values = bind(Polynomial(), 3, 2), [1.0, 0.0, 1.0]
    expected = features.row(np.array(values))
    dtypes = ("i2", ">f8", np.longdouble, "O", "?")
    contexts: list[Any] = [np.array(values, dtype) for dtype in dtypes]
    contexts += [tuple(values), [Decimal(int(v)) for v in values]]
    contexts += [np.frombuffer(b"\0" + np.array(values).tobytes(), np.float64, offset=1)]
    assert features.rows(np.empty((0, 3))).shape == (0, 10)
    for x in contexts:
        assert np.array_equal(features.row(x), expected)
        assert np.array_equal(features.rows([x])[0], expected)


PAIRS = list(itertools.combinations(range(4), 2))
SHARED = Identity()
STAGE_MAPS = [Identity(), half, Polynomial()]
# Reversed, because the order of the dictionary must not matter; bounds differ.
PAIR_MAPS = {(i, j): Identity(1 + i + 10 * j) for i, j in reversed(PAIRS)}


@pytest.mark.parametrize(
    ("features", "dims", "slots", "map_of_pair"),
    [
        (SHARED, (2,), [0] * 6, dict.fromkeys(PAIRS, SHARED)),
        (Shared(SHARED), (2,), [0] * 6, dict.fromkeys(PAIRS, SHARED)),
        (
            PerStage(STAGE_MAPS),
            (2, 1, 6),
            [0, 0, 0, 1, 1, 2],
            {(i, j): STAGE_MAPS[i] for i, j in PAIRS},
        ),
        (PerPair(PAIR_MAPS), (2,) * 6, list(range(6)), PAIR_MAPS),
    ],
    ids=["identity", "shared", "per stage", "per pair"],
)
def test_pairs_have_slots_in_row_major_order(
    features: Any, dims: tuple[int, ...], slots: list[int], map_of_pair: dict[Any, Any]
) -> None:
    bound = bind(features, 2, 4)
    assert bind(bound, 2, 4) == bound
    assert bound.dims == dims
    assert (bound.width, bound.n_features) == (sum(dims), max(dims))
    assert (len(bound.maps) == 1) == (dims == (2,))
    assert [bound.slot_of(i, j) for i, j in PAIRS] == slots
    for i, j in PAIRS:
        expected = bind(map_of_pair[i, j], 2, 2).rows([[1, -0.5]])
        assert np.array_equal(bound.transform([1, -0.5], i, j), expected)


def test_maps_per_pair_keep_their_order_for_twelve_arms() -> None:
    many = {pair: Identity(1 + sum(pair)) for pair in itertools.combinations(range(12), 2)}
    assert bind(PerPair(many), 1, 12).maps == tuple(many.values())


@pytest.mark.parametrize("features", [Identity(), Custom(half)])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([0, 0], r"flat list of context_dim=3 numbers, got shape \(2,\)"),
        ([0, math.nan, 0], "coordinate 1 is nan; contexts must be finite"),
        (np.array([0, 0, -math.inf]), "coordinate 2 is -inf"),
        (np.array([0, "1", 0], object), "must contain only numbers"),
        ([0, 1j, 0], "must contain only numbers"),
        ([[0], [0, 0], 0], "must contain only numbers"),
    ],
)
def test_an_invalid_context_is_rejected(features: Any, x: Any, message: str) -> None:
    with pytest.raises(sw.errors.InvalidContextError, match=message):
        bind(features, 3, 2).row(x)


@pytest.mark.parametrize(
    ("features", "X", "message"),
    [
        (Identity(2), [[2, 0], [0, -2.5]], r"^row 1, coordinate 1 is -2.5, outside .*\[-2, 2\]"),
        (Identity(2), [[2 * (1 + 2e-9), 0]], r"coordinate 0 is 2\.000000004, outside"),
        (Identity(), [[0, 0], [2, 0], [math.nan, 0]], "^row 1, coordinate 0 is 2"),
        (Identity(), [[0, 0], [math.inf, 0], [2, 0]], "^row 1, coordinate 0 is inf"),
        (Identity(), np.zeros((5, 3)), r"table of 2 columns.*\(5, 3\)"),
        (
            Scaled(Polynomial(bound=2), [10, 0], [5, 1]),
            [[21, 0]],
            r"is 21, outside the range \[0, 20\].*clip",
        ),
        (PerStage([half, Identity(5), Identity(3)]), [[0, 4]], r"coordinate 1 is 4, .*\[-3, 3\]"),
    ],
)
@pytest.mark.parametrize("method", ["rows", "transform"])
def test_the_error_names_the_first_context_outside_the_bound(
    features: Any, X: Any, message: str, method: str
) -> None:
    bound = bind(features, 2, 4)
    with pytest.raises(sw.errors.InvalidContextError, match=message):
        getattr(bound, method)(X)


def test_a_rounding_error_beyond_the_bound_is_clipped() -> None:
    features = bind(Identity(2), 1, 2)
    assert features.row([2 * (1 + 5e-10)]) == features.row([2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Identity(0), "bound must be a number > 0, got 0"),
        (lambda: Polynomial(0), "degree must be an integer >= 1, got 0"),
        (
            lambda: bind(Polynomial(9), 50, 2),
            r"gives [\d,]+ features, but the maximum .*reduce the degree",
        ),
        (lambda: bind(Polynomial(4, bound=1e100), 2, 2), "overflow or underflow.*Scaled.fit"),
        (lambda: bind(Polynomial(without=((2, 2),)), 2, 2), r"unknown monomial \(2, 2\)"),
        (
            lambda: bind(Polynomial(bias=False, without=((),)), 2, 2),
            r"monomial \(\) in without=.*no bias",
        ),
        (lambda: bind(Polynomial(1, False, 1, ((0,),)), 1, 2), "keep at least one"),
        (lambda: Scaled(Custom(half), [0], [1]), "Identity or a Polynomial"),
        (lambda: Scaled(Identity(), [0], [1], "wrap"), "got 'wrap'"),
        (lambda: Scaled(Identity(), [0, 0], [1]), "number of coordinates, got 2 and 1"),
        (lambda: Scaled(Identity(), [0, 0], [1, 0]), r"scale\[1\] must be a number > 0"),
        (lambda: Scaled(Identity(), [math.nan], [1]), r"center\[0\] .* got nan"),
        (lambda: bind(Scaled(Identity(), [0], [1]), 2, 2), "to 1 coordinates, .* context has 2"),
        (lambda: Scaled.fit([[0]]).independent([[0]]), "needs a Polynomial"),
        (lambda: Polynomial(bias=False).independent(np.zeros((3, 2))), "all monomials are zero"),
        (lambda: Custom(half, n_features=0), "n_features"),
        (lambda: bind(Polynomial, 2, 2), r"got the class Polynomial; .*Polynomial\(…\)"),
        (lambda: bind(None, 2, 2), "function, got None"),
        (lambda: bind(Identity(), 0, 2), "context_dim"),
        (lambda: bind(Identity(), 2, 1), "n_arms"),
        (
            lambda: bind(bind(Identity(), 2, 2), 2, 3),
            "cannot be used with context_dim=2 and 3 arms",
        ),
        (lambda: bind(PerStage([half]), 2, 3), "needs 2 maps for 3 arms .* got 1"),
        (lambda: stages_of([0, -1], None, 3), "each count in reveals must be an integer"),
        (
            lambda: bind(Standard(), 2, 3, stages_of([1, 2, 3], None, 3)),
            "needs 2 counts for 3 arms .* got 3",
        ),
        (lambda: bind(PerStage([Standard()]), 2, 3, stages_of(1, None, 3)), "2 maps .* got 1"),
        (lambda: bind(half, 2, 3, stages_of(1, None, 3)), "does not allow custom feature maps"),
        (lambda: bind(PerPair({}), 2, 3, stages_of(1, None, 3)), "last, got PerPair"),
        (lambda: Standard(degree=3), "degree must be an integer from 0 to 2"),
        (lambda: Standard(center=[0.0], scale=[0.0]), r"scale\[0\] must be a number > 0"),
        (lambda: Standard(center=[0.0]), "number of coordinates, got 1 and 0"),
        (lambda: Standard(size=math.nan), "size must be a number > 0"),
        (lambda: bind(Standard(size=50), 2, 2), r"size must be at most 0\.\d+ so .*, got 50"),
        (lambda: bind(Standard(2, [0.0], [1.0]), 2, 2), "Standard map .* 1 coordinates, .* has 2"),
        (
            lambda: bind(PerPair({(0, 1): half, (1, 2): half}), 2, 3),
            r"j < 3: missing pair \(0, 2\)$",
        ),
        (
            lambda: bind(PerPair({(1, 0): half, "01": half}), 2, 2),
            r"invalid pair '01', invalid pair \(1, 0\), missing pair \(0, 1\)",
        ),
        (
            lambda: bind(Identity(), 2, 3).slot_of(1, 1),
            r"invalid pair \(1, 1\): need 0 ≤ i < j < 3",
        ),
    ],
)
def test_an_invalid_parameter_is_rejected(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match=message):
        make()


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 1e6 + 1e-4]),
    ),
    st.floats(1e-3, 1e3),
    st.floats(0, 1),
)
def test_scaled_fit_maps_the_data_into_the_bound(
    X: np.ndarray, bound: float, margin: float
) -> None:
    scaled = Scaled.fit(X, Identity(bound), margin=margin)
    Z = (X - scaled.center) / scaled.scale
    assert np.abs(Z).max() <= bound / (1 + margin) * (1 + 1e-9)
    assert np.linalg.norm(bind(scaled, X.shape[1], 2).rows(X), axis=1).max() <= 1 + 1e-14


def test_scaled_fit_uses_the_full_range_and_the_margin() -> None:
    X = np.array([[0.0, -4.0, 0.1], [10.0, 4.0, 0.1], [3.0, 0.0, 0.1]])
    scaled = Scaled.fit(X, Identity(2))
    assert (scaled.center, scaled.scale) == ((5.0, 0.0, 0.1), (2.5, 2.0, 1.0))
    assert Scaled.fit(X, Identity(2), margin=0.5).scale == (3.75, 3.0, 1.0)


@pytest.mark.parametrize("X", [[[0.0], [1e-308]], [[0.0], [1.5e-323]], [[1e9], [1e9 + 3e-7]]])
def test_scaled_fit_of_a_narrow_range_stays_within_the_bound(X: list[list[float]]) -> None:
    assert np.abs(bind(Scaled.fit(X, Identity(1.5)), 1, 2).rows(X)).max() <= 1


@pytest.mark.parametrize("fit", [Scaled.fit, Polynomial().independent])
@pytest.mark.parametrize(
    ("X", "message"),
    [([1, 2], r"table.*\(2,\)"), ([[0, 1], [math.nan, 0]], "row 1, column 0")],
)
def test_fitting_rejects_invalid_data(fit: Callable[[Any], Any], X: Any, message: str) -> None:
    with pytest.raises(sw.errors.InvalidContextError, match=message):
        fit(X)


@pytest.mark.parametrize(("degree", "bias"), [(1, True), (2, True), (3, False)])
def test_independent_keeps_a_maximal_independent_set(degree: int, bias: bool) -> None:
    X = RNG.uniform(-1, 1, (300, 5))
    X[:, 1] = np.sign(X[:, 1])  # two values
    X[:, 3] = X[:, 0] / 2 - X[:, 2] / 3  # collinear
    full = Polynomial(degree, bias)
    small = full.independent(X)
    rank = np.linalg.matrix_rank(bind(full, 5, 2).rows(X), tol=1e-9)
    remaining = bind(small, 5, 2)
    assert remaining.n_features == rank == len(full.monomials(5)) - len(small.without)
    assert np.linalg.matrix_rank(remaining.rows(X), tol=1e-9) == rank
    assert small.independent(X) == small


def test_independent_keeps_the_first_of_dependent_monomials() -> None:
    X = np.column_stack([RNG.normal(60, 10, 200), RNG.integers(0, 2, 200), np.full(200, 3)])
    small = Scaled.fit(X, Polynomial(2)).independent(X)
    assert isinstance(small.inner, Polynomial)
    assert small.inner.without == ((2,), (0, 2), (1, 1), (1, 2), (2, 2))
    assert np.linalg.norm(bind(small, 3, 2).row(X.max(axis=0))) <= 1
    assert small.inner.monomials(3) == [(), (0,), (1,), (0, 0), (0, 1)]


def test_the_tolerance_of_dependence_is_1e_9() -> None:
    X = RNG.uniform(-0.5, 0.5, (100, 2))
    noise = RNG.uniform(-1, 1, 100)
    for share, dropped in ((1e-11, ((1,),)), (1e-7, ())):
        X[:, 1] = X[:, 0] + share * noise
        assert Polynomial(1).independent(X).without == dropped
    # In this narrow range, only about 1e-8 of x² and 1e-12 of x³ is independent. A single pass of
    # Gram–Schmidt has larger rounding errors and would keep x³.
    narrow = 0.5 + 1e-4 * RNG.uniform(-1, 1, (200, 1))
    assert Polynomial(3).independent(narrow).without == ((0, 0, 0),)
    few = RNG.uniform(-1, 1, (4, 3))  # fewer rows than monomials: one monomial per row remains
    assert bind(Polynomial(2).independent(few), 3, 2).n_features == 4


def test_a_function_is_a_map_and_may_modify_its_argument() -> None:
    def tenth(x: np.ndarray) -> np.ndarray:
        x /= 1e7
        return x

    x = np.array([0.3, -4.0, 1e6])  # a custom map has no bound
    features = bind(tenth, 3, 4)
    assert features.dims == (3,)
    assert features.row(x).tolist() == features.transform([x])[0].tolist() == (x / 1e7).tolist()
    assert x.tolist() == [0.3, -4.0, 1e6]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.1, 0.2], r"'bad' must return an array of shape \(1,\), got shape \(2,\)"),
        ([math.nan], "'bad' must return only finite values, got"),
        (["a"], "'bad' must contain only numbers"),
        ([1 + 2e-9], r"must be at most 1, got 1.000000002; divide .*at least 1.000000002"),
    ],
)
def test_invalid_features_of_a_function_are_rejected(values: Any, message: str) -> None:
    features = bind(Custom(lambda x: values, n_features=1, name="bad"), 2, 2)
    with pytest.raises(sw.errors.InvalidFeaturesError, match=message):
        features.row([0, 0])
    with pytest.raises(sw.errors.InvalidFeaturesError, match=f"^row 0: .*{message}"):
        features.rows([[0, 0]])


def test_a_norm_within_rounding_of_one_is_accepted() -> None:
    assert bind(Custom(lambda x: [1 + 5e-10]), 1, 2).row([0])[0] == 1 + 5e-10


def test_n_features_is_required_if_the_function_fails_on_zeros() -> None:
    def ratio(x: np.ndarray) -> list[float]:
        return [1 / int(x[0])]

    with pytest.raises(
        sw.errors.InvalidFeaturesError, match=r"'ratio'.* failed .*ZeroDivision.*n_features"
    ):
        bind(Custom(ratio, name="ratio"), 1, 2)
    assert bind(Custom(ratio, n_features=1), 1, 2).row([4])[0] == 0.25


@given(maps_and_contexts(), st.sampled_from(["shared", "stage", "pair"]))
def test_features_survive_json_and_pickle(case: tuple[Any, np.ndarray], kind: str) -> None:
    feature_map, X = case
    features = {
        "shared": feature_map,
        "stage": PerStage([feature_map, Identity(1e7)]),
        "pair": PerPair({(0, 1): Identity(1e7), (0, 2): feature_map, (1, 2): feature_map}),
    }[kind]
    bound = bind(features, X.shape[1], 3)
    spec = json.loads(json.dumps(bound.to_spec()))
    for restored in (BoundFeatures.from_spec(spec), pickle.loads(pickle.dumps(bound))):
        assert restored == bound
        assert restored.to_spec() == spec == bound.to_spec()
        assert np.array_equal(restored.rows(X), bound.rows(X))


def test_specs_are_equal_if_and_only_if_features_are() -> None:
    scaled = [Scaled(Identity(), [0, 0], [1, 1], outside) for outside in ("error", "clip")]
    polynomials = [Polynomial(), Polynomial(bias=False), Polynomial(without=((0, 0),))]
    custom = [Custom(half, name="a"), Custom(half, name="b")]
    stages = PerStage([Identity(), Identity()])
    distinct = [Identity(), Identity(2), *polynomials, *scaled, *custom, stages]
    bound = [bind(features, 2, 3) for features in distinct]
    assert len({json.dumps(features.to_spec()) for features in bound}) == len(set(bound)) == 10
    unsorted = Polynomial(np.int64(2), bound=1, without=[[4, 0], (3, 3), (3, 3)])
    assert unsorted == Polynomial(without=((3, 3), (0, 4)))
    assert unsorted.to_spec() == Polynomial(without=((3, 3), (0, 4))).to_spec()


def test_a_custom_map_can_be_pickled() -> None:
    bound = bind(Custom(half, name="halves"), 3, 2)
    assert pickle.loads(pickle.dumps(bound)).row([0.5, 1, 1]) == bound.row([0.5, 1, 1])


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "per_moon"},
        {"maps": [{"kind": "fourier"}]},
        {"maps": [{"kind": "identity", "bound": -1}]},
        {"maps": [{"kind": "identity", "width": 1}]},
        {"n_arms": "two"},
        {"context_dim": None},
        {"kind": "per_pair", "n_arms": 3},
    ],
)
@pytest.mark.parametrize("missing", [False, True], ids=["invalid", "missing"])
def test_an_invalid_spec_is_rejected(change: dict[str, Any], missing: bool) -> None:
    valid = bind(Identity(), 2, 2).to_spec()
    without = {key: valid[key] for key in valid if key not in change}
    spec = without if missing else valid | change
    with pytest.raises(sw.errors.CorruptFileError, match="invalid features in the file"):
        BoundFeatures.from_spec(spec)


def test_standard_features_of_many_coordinates_have_degree_one() -> None:
    policy = sw.USSLaplace(sw.Cascade([0.1, 0.2]), context_dim=220)
    for k in range(8):
        policy.observe([float(k)] * 220, ["a", "b"])
    assert policy.features.n_features == 221


def test_standard_cannot_be_combined_with_other_maps() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="cannot be combined"):
        sw.bind(sw.PerStage([sw.Standard(), sw.Identity()]), 2, 3)
