"""Bound features: rows, slots of pairs, descriptions, and contexts that are refused."""

# Wrong arguments are half of what is tested here.
# pyright: reportArgumentType=false

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

from stopwise.errors import (
    CorruptFileError,
    FeaturesMismatchError,
    InvalidContextError,
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
)

RNG = np.random.default_rng(20240607)


def half(x: np.ndarray) -> np.ndarray:
    """Give the first coordinate, halved: a custom map that pickles."""
    return x[:1] / 2


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
    # The slack must absorb the rounding of center + scale·z, so z stays off the bound.
    return Scaled(inner, center, scale, outside), center + scale * unit * bound * (1 - 1e-6)


@given(maps_and_contexts())
def test_every_way_gives_the_same_bits_of_norm_at_most_one_and_leaves_the_input_alone(
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


@pytest.mark.parametrize(
    "convert",
    [
        tuple,
        lambda v: np.array(v, "i2"),
        lambda v: np.array(v, ">f8"),
        lambda v: np.array(v, np.longdouble),
        lambda v: np.array(v, object),
        lambda v: [Decimal(int(c)) for c in v],
        lambda v: np.array(v, bool),
        lambda v: np.frombuffer(b"\0" + np.array(v).tobytes(), dtype=np.float64, offset=1),
    ],
)
def test_a_context_may_be_any_real_numbers(convert: Callable[[list[float]], Any]) -> None:
    features = bind(Polynomial(), 3, 2)
    values = [1.0, 0.0, 1.0]
    expected = features.row(np.array(values))
    assert np.array_equal(features.row(convert(values)), expected)
    assert np.array_equal(features.rows([convert(values)])[0], expected)


def test_a_row_is_fresh_and_no_contexts_give_no_rows() -> None:
    features = bind(Identity(), 2, 2)
    first = features.row([1, 1])
    before = first.copy()
    features.row([-1, 0])
    assert np.array_equal(first, before)
    assert features.rows(np.empty((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("good", [Identity(), Custom(half)])
@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([0, 0], r"flat list of 3 numbers; this has shape \(2,\)"),
        (np.zeros((1, 3)), r"shape \(1, 3\)"),
        (0.5, r"shape \(\)"),
        ([0, math.nan, 0], "coordinate 1 is nan; contexts must be finite"),
        (np.array([0, 0, -math.inf]), "coordinate 2 is -inf"),
        (np.array([0, "1", 0], object), "real numbers"),
        ([0, 1j, 0], "real numbers"),
        ([[0], [0, 0], 0], "real numbers"),
    ],
)
def test_what_is_no_context_is_refused(good: Any, x: Any, words: str) -> None:
    with pytest.raises(InvalidContextError, match=words):
        bind(good, 3, 2).row(x)


def test_a_context_outside_the_bound_is_refused_and_the_message_says_what_to_do() -> None:
    with pytest.raises(
        InvalidContextError, match=r"^coordinate 2 is -2.5, outside the promised \[-2, 2\]; .*bound"
    ):
        bind(Identity(2), 3, 2).row([2, 0, -2.5])
    scaled = bind(Scaled(Polynomial(bound=2), [10, 0, 0], [5, 1, 1]), 3, 2)
    with pytest.raises(InvalidContextError, match=r'coordinate 0 is 21, outside \[0, 20\].*"clip"'):
        scaled.row([21, 0, 0])
    stages = bind(PerStage([half, Identity(5), Identity(3)]), 2, 4)
    with pytest.raises(InvalidContextError, match=r"coordinate 1 is 4, .*\[-3, 3\]"):
        stages.row([0, 4])


def test_a_rounding_error_beyond_the_bound_is_accepted_and_adds_nothing() -> None:
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bind(None, 2, 2), "function, not None"),
        (lambda: bind(Identity(), 0, 2), "context_dim"),
        (lambda: bind(Identity(), 2, 1), "n_arms"),
        (lambda: bind(bind(Identity(), 2, 2), 2, 3), "bound to contexts of 2 .* and 2 arms"),
        (lambda: bind(PerStage([half]), 2, 3), "2 for 3 arms; there are 1"),
        (lambda: PerStage([half, half], sees=[2, 1]), "none smaller than the one before"),
        (lambda: bind(PerStage([half, half], sees=[1, 2]), 3, 3), "context_dim must be 2, not 3"),
        (lambda: bind(PerPair({(0, 1): half, (1, 2): half}), 2, 3), r"missing: \[\(0, 2\)\]"),
        (lambda: bind(PerPair({(0, 1): half, (0, 2): half}), 2, 2), r"no such pair: \[\(0, 2\)\]"),
        (lambda: PerPair({(1, 0): half}), r"0 ≤ i < j, not \(1, 0\)"),
        (lambda: bind(Identity(), 2, 3).slot_of(1, 1), "no pair of the 3 arms"),
        (lambda: bind(Identity(), 2, 3).transform([[0, 0]], 0, 3), "no pair of the 3 arms"),
    ],
)
def test_features_that_do_not_fit_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidParameterError, match=words):
        make()


# ---------------------------------------------------------------------------------- slots and specs


def test_shared_fills_one_slot_for_all_pairs() -> None:
    for features in (Identity(), Shared(Identity())):
        bound = bind(features, 3, 4)
        assert (bound.dims, bound.width, bound.offsets, bound.shared) == ((3,), 3, (0,), True)
        assert {bound.slot_of(i, j) for i in range(4) for j in range(i + 1, 4)} == {0}
    assert bind(bound, 3, 4) is bound


def test_stages_have_maps_of_their_own() -> None:
    bound = bind(PerStage([Identity(), half, Polynomial()]), 2, 4)
    assert (bound.dims, bound.offsets, bound.width) == ((2, 1, 6), (0, 2, 3), 9)
    assert (bound.n_features, bound.shared) == (6, False)
    X = RNG.uniform(-1, 1, (5, 2))
    for i, alone in enumerate([Identity(), half, Polynomial()]):
        assert bound.slot_of(i, 3) == i
        assert np.array_equal(bound.transform(X, i, 3), bind(alone, 2, 2).rows(X))


def test_pairs_have_maps_of_their_own_in_row_major_order() -> None:
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    # Backwards, to show that the order in the dictionary does not matter; bounds tell them apart.
    maps = {(i, j): Identity(1 + i + 10 * j) for i, j in reversed(pairs)}
    bound = bind(PerPair(maps), 2, 5)
    assert [bound.slot_of(i, j) for i, j in pairs] == list(range(10))
    for i, j in pairs:
        expected = bind(maps[i, j], 2, 2).rows([[1, -1]])
        assert np.array_equal(bound.transform([1, -1], i, j), expected)


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
    spec = json.loads(json.dumps(bound.to_spec()))
    twin = BoundFeatures.from_spec(spec)
    assert twin == bound
    assert twin.to_spec() == spec == bound.to_spec()
    assert np.array_equal(twin.rows(X), bound.rows(X))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Identity(), Identity(2)),
        (Polynomial(2), Polynomial(2, bias=False)),
        (Polynomial(2), Polynomial(2, without=((0, 0),))),
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
    assert one == Polynomial(without=((3, 3), (0, 4)))
    assert one.to_spec() == Polynomial(without=((3, 3), (0, 4))).to_spec()


def test_a_custom_map_is_named_in_the_spec_and_asked_for_on_loading() -> None:
    spec = bind(Custom(half, name="halves"), 3, 2).to_spec()
    assert spec["maps"] == [{"kind": "custom", "name": "halves", "n_features": 1}]
    with pytest.raises(FeaturesMismatchError, match=r"'halves' \(1 features\).*features="):
        BoundFeatures.from_spec(spec)


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
def test_a_spec_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    spec = bind(Identity(), 2, 2).to_spec()
    for wrong in (spec | change, {key: spec[key] for key in spec if key not in change}):
        with pytest.raises(CorruptFileError, match="makes no sense"):
            BoundFeatures.from_spec(wrong)


@pytest.mark.parametrize("features", [Polynomial(), PerStage([Identity(), Custom(half)])])
def test_bound_features_go_through_a_pickle(features: Any) -> None:
    bound = bind(features, 2, 3)
    twin = pickle.loads(pickle.dumps(bound))
    assert twin == bound
    assert np.array_equal(twin.row([0.5, 1]), bound.row([0.5, 1]))
