"""Policies: what they refuse, and what they decide, against small independent computations."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.engine import native
from stopwise.policies.base import MAX_ARMS
from tests import archive

Array = NDArray[np.float64]
TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
CONTEXTUAL = [sw.USSPD, sw.USSPDRidge, sw.Thompson, sw.Supervised]
PAIRWISE = [sw.USSPD, sw.USSPDRidge, sw.Thompson]
NAN, INF = math.nan, math.inf


def world(
    seed: int, n: int, d: int = 2, k: int = 3, differ: float = 0.3
) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, d)), (rng.random((n, k)) < differ).astype(np.int64)


def mu(z: float) -> float:
    return 0.5 * (1 + math.tanh(0.5 * z))


# --------------------------------------------------------------------------- parameters, refused

CONFIDENCE: list[tuple[str, list[Any], str]] = [
    ("delta", [0, 1, -1, NAN, "x", None], "above 0 and below 1"),
    ("sigma", [0, -1, INF, NAN, None, 10**400], "above 0"),
    ("kappa", [0, 0.26, NAN], "above 0 and at most 0.25"),
    ("ridge", [0, 1e-10, -1, NAN], "at least 1e-09"),
]
PARAMETERS: list[tuple[Any, str, list[Any], str]] = [
    *((kind, *row) for kind in (sw.USSPD, sw.USSPDRidge, sw.Supervised) for row in CONFIDENCE),
    (sw.USSPDRidge, "lam", [0, -1, NAN, INF], "at least 1e-09"),
    (sw.USSPDRidge, "S", [-0.1, NAN], "at least 0"),
    (sw.Thompson, "scale", [-0.1, NAN, INF], "at least 0"),
    (sw.Thompson, "ridge", [0, NAN], "at least 1e-09"),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        pytest.param(kind, name, value, wanted, id=f"{kind.__name__} {name} {str(value)[:9]}")
        for kind, name, values, wanted in PARAMETERS
        for value in values
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(
    kind: Any, name: str, value: Any, wanted: str
) -> None:
    with pytest.raises(sw.InvalidParameterError, match=f"^{name} must be a number {wanted}, not"):
        kind(TWO, context_dim=2, **{name: value})


@pytest.mark.parametrize("a", [0, -1, NAN, INF])
def test_uss_ucb_needs_a_positive_strength(a: float) -> None:
    with pytest.raises(sw.InvalidParameterError, match="a must be a number above 0"):
        sw.USSUCB(TWO, a=a)


@pytest.mark.parametrize("forced", [-1, 1.5, 7.0, "always", NAN, INF, None, [3]], ids=str)
@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_forced_rounds_is_a_whole_number_or_auto(kind: Any, forced: Any) -> None:
    with pytest.raises(sw.InvalidParameterError, match="forced_rounds must be a whole number"):
        kind(TWO, context_dim=2, forced_rounds=forced)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", 2**70, None])
@pytest.mark.parametrize("name", ["thompson", "uss-ts", "random-depth"])
def test_a_seed_is_a_whole_number(name: str, seed: Any) -> None:
    with pytest.raises(sw.InvalidParameterError, match="seed must be a whole number"):
        sw.make(name, TWO, context_dim=2, seed=seed)


@pytest.mark.parametrize("name", sw.POLICIES)
def test_a_policy_needs_a_cascade(name: str) -> None:
    with pytest.raises(sw.InvalidParameterError, match="needs a Cascade first, not list"):
        sw.make(name, [0.1, 0.2], context_dim=2)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_contextual_policies_need_the_size_of_a_context(kind: Any) -> None:
    with pytest.raises(sw.InvalidParameterError, match="context_dim=8"):
        kind(TWO)
    with pytest.raises(sw.InvalidParameterError, match="context_dim must be a whole number"):
        kind(TWO, context_dim=0)


def test_one_arm_is_no_cascade() -> None:
    with pytest.raises(sw.InvalidCascadeError, match="one arm leaves nothing to decide"):
        sw.USSPD(sw.Cascade([0.1]), context_dim=2)


@pytest.mark.parametrize("name", sw.POLICIES)
def test_there_is_a_largest_cascade(name: str) -> None:
    assert sw.make(name, sw.Cascade([0.1] * MAX_ARMS), context_dim=2).rounds == 0
    with pytest.raises(
        sw.InvalidParameterError, match=f"16 arms; policies take at most {MAX_ARMS}"
    ):
        sw.make(name, sw.Cascade([0.1] * (MAX_ARMS + 1)), context_dim=2)


def test_the_largest_cascade_tells_all_its_outputs_apart() -> None:
    policy = sw.USSPD(sw.Cascade([0.01] * MAX_ARMS), context_dim=1, forced_rounds=0)
    for _ in range(5):
        policy.observe(np.array([1.0]), list(range(MAX_ARMS)))
    theta = [policy.theta(i, j)[0] for i, j in policy.cascade.pairs()]
    assert min(theta) > 2  # every pair disagreed each time
    for _ in range(20):
        policy.observe(np.array([1.0]), [7] * MAX_ARMS)
    theta = [policy.theta(i, j)[0] for i, j in policy.cascade.pairs()]
    np.testing.assert_allclose(theta, math.log(5 / 20), rtol=1e-3)


def test_the_supervised_comparator_takes_one_map() -> None:
    maps = sw.PerStage([sw.Identity(), sw.Identity()])
    with pytest.raises(sw.InvalidParameterError, match="one feature map"):
        sw.Supervised(THREE, maps, 2)
    with pytest.raises(sw.InvalidParameterError, match="models arms, not pairs"):
        sw.Supervised(THREE, context_dim=2).theta(0, 1)


@pytest.mark.parametrize("pair", [(1, 0), (0, 0), (0, 3), (-1, 1)])
def test_a_pair_that_is_none_is_refused(pair: tuple[int, int]) -> None:
    policy = sw.USSPDRidge(THREE, context_dim=2)
    for ask in (policy.theta, policy.gram, policy.observations, policy.radius):
        with pytest.raises(sw.InvalidParameterError, match="is no pair"):
            ask(*pair)


# ----------------------------------------------------------------------------- contexts, refused

CONTEXTS: dict[str, tuple[Any, str]] = {
    "NaN": ([0.1, NAN], "coordinate 1 is nan; contexts must be finite"),
    "infinite": ([-INF, 0.1], "coordinate 0 is -inf; contexts must be finite"),
    "too short": ([0.1], "flat list of 2 numbers"),
    "too long": ([0.1, 0.2, 0.3], "flat list of 2 numbers"),
    "a table": ([[0.1, 0.2]], "flat list of 2 numbers"),
    "a number": (0.1, "flat list of 2 numbers"),
    "outside": ([0.1, 1.5], r"coordinate 1 is 1.5, outside the promised \[-1, 1\]"),
    "words": (["a", "b"], "real numbers"),
    "nothing": (None, "real numbers|flat list"),
}


@pytest.mark.parametrize("what", CONTEXTS)
@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_a_bad_context_is_refused_in_words(kind: Any, what: str) -> None:
    context, message = CONTEXTS[what]
    policy = kind(THREE, context_dim=2)
    told = [sw.Truth(label=1)] if kind is sw.Supervised else []
    given = [context]
    if isinstance(context, list) and not isinstance(context[0], str):
        given.append(np.array(context))  # the fast road refuses the same
    for x in given:
        with pytest.raises(sw.InvalidContextError, match=message):
            policy.decide(x)
        with pytest.raises(sw.InvalidContextError, match=message):
            policy.observe(x, [1, 1], *told)
    assert policy.rounds == 0


def test_contexts_may_be_any_numbers_in_any_memory() -> None:
    policies = [sw.USSPD(TWO, context_dim=2, forced_rounds=0) for _ in range(5)]
    forms: list[Callable[[Array], Any]] = [
        lambda x: x,
        lambda x: x.tolist(),
        lambda x: tuple(x),
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x.astype(">f8"),
    ]
    x_all, y_all = world(0, 30, k=2)
    for policy, form in zip(policies, forms, strict=True):
        for x, y in zip(x_all, y_all, strict=True):
            policy.decide(form(x))
            policy.observe(form(x), y.tolist())
    for policy in policies[1:]:
        for part, array in policies[0].state().items():
            np.testing.assert_array_equal(array, policy.state()[part], err_msg=part)


# ------------------------------------------------------------------------------ outputs, refused

OUTPUTS: dict[str, tuple[Any, str]] = {
    "none": ([], "^0 outputs for a cascade of 3 arms"),
    "too many": ([1, 1, 1, 1], "^4 outputs for a cascade of 3 arms"),
    "NaN": ([1, NAN], "output of arm 1 is NaN"),
    "numpy NaN": (np.array([NAN, 1.0]), "output of arm 0 is NaN"),
    "lists": ([[1], [2]], "hashable"),
    "a number": (1, "hashable"),
    "one text": ("yes", "not one text"),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_bad_outputs_are_refused_in_words(what: str) -> None:
    outputs, message = OUTPUTS[what]
    for policy in (sw.USSPD(THREE, context_dim=2), sw.USSUCB(THREE)):
        with pytest.raises(sw.InvalidOutputsError, match=message):
            policy.observe([0.1, 0.2], outputs)
        assert policy.rounds == 0


@pytest.mark.parametrize("stop", [-1, 3, 0.5, NAN, INF, "1", None])
def test_a_stop_that_is_no_arm_is_refused(stop: Any) -> None:
    for policy in (sw.USSPD(THREE, context_dim=2), sw.USSUCB(THREE)):
        with pytest.raises(sw.InvalidStopError, match="arms are 0 to 2"):
            policy.observe_disagreements([0.1, 0.2], stop, {})


PAIRS: dict[str, tuple[int, Any, str]] = {
    "missing": (2, {(0, 1): 1, (1, 2): 0}, r"missing: \[\(0, 2\)\]"),
    "extra": (1, {(0, 1): 1, (1, 2): 0}, r"not among them: \[\(1, 2\)\]"),
    "reversed": (1, {(1, 0): 1}, r"missing: \[\(0, 1\)\]. not among them: \[\(1, 0\)\]"),
    "two": (1, {(0, 1): 2}, r"pair \(0, 1\).* not 2"),
    "NaN": (1, [[0, NAN], [0, 0]], r"pair \(0, 1\).* not nan"),
    "a chance": (1, {(0, 1): 0.5}, r"pair \(0, 1\).* not 0.5"),
    "flat": (1, [0, 1, 0], "must be square"),
    "oblong": (1, [[0, 1, 0], [0, 0, 1]], "must be square"),
    "small": (2, [[0, 1], [0, 0]], "reach arm 2"),
}


@pytest.mark.parametrize("what", PAIRS)
def test_bad_pairs_are_refused_in_words(what: str) -> None:
    stop, pairs, message = PAIRS[what]
    for policy in (sw.USSPD(THREE, context_dim=2), sw.USSUCB(THREE)):
        with pytest.raises(sw.InvalidOutputsError, match=message):
            policy.observe_disagreements([0.1, 0.2], stop, pairs)
        assert policy.rounds == 0


def test_what_is_wrong_with_a_table_is_said_with_its_round() -> None:
    policy, contexts = sw.USSUCB(THREE), np.zeros((2, 1))
    with pytest.raises(sw.InvalidOutputsError, match="arm 2 in round 1 is NaN"):
        policy.run(contexts, np.array([[0, 0, 0], [0, 0, NAN]]))
    unhashable = np.zeros((2, 3), dtype=object)
    unhashable[1, 2] = {}
    with pytest.raises(sw.InvalidOutputsError, match=r"arm 2 in round 1 said \{\}"):
        policy.run(contexts, unhashable)
    with pytest.raises(sw.InvalidOutputsError, match=r"pair \(0, 2\) in round 1.* not 2$"):
        policy.run_disagreements(contexts, [[0, 1, 0], [1, 2, 0]])
    with pytest.raises(sw.InvalidOutputsError, match="2 rounds by 3 pairs, not"):
        policy.run_disagreements(contexts, np.zeros((2, 3, 3)))
    with pytest.raises(sw.InvalidContextError, match="one row a round"):
        policy.run(1.0, [[0, 0, 0]])
    assert policy.rounds == 0


@pytest.mark.parametrize("kind", [np.bool_, np.int64, np.float64, object])
def test_disagreements_may_be_of_any_kind_that_holds_0_and_1(kind: Any) -> None:
    marks = np.random.default_rng(1).integers(2, size=(50, 3)).astype(np.uint8)
    one, other = sw.USSUCB(THREE), sw.USSUCB(THREE)
    given = marks.astype(kind)
    given.flags.writeable = False
    np.testing.assert_array_equal(
        one.run_disagreements(np.zeros((50, 1)), marks),
        other.run_disagreements(np.zeros((50, 1)), given[::-1][::-1]),
    )
    np.testing.assert_array_equal(one.disagreement(), other.disagreement())


def test_a_run_compares_outputs_as_they_are_not_as_numpy_would_convert_them() -> None:
    mixed = [["1", 1, 1.0], ["1", 1, 2]]

    def taught(policy: Any) -> tuple[Any, Any]:
        single = copy.deepcopy(policy)
        policy.run([[0.1, 0.2]] * 2, mixed)
        for said in mixed:
            single.observe([0.1, 0.2], said)
        return policy, single

    whole, single = taught(sw.USSUCB(THREE))
    np.testing.assert_array_equal(single.state()["disagreed"], whole.state()["disagreed"])
    whole, single = taught(sw.USSPD(THREE, context_dim=2))
    assert archive.rows(single) == archive.rows(whole)
    assert [(row.count, row.positives) for row in archive.rows(whole)] == [(2, (2, 2, 1))]


# --------------------------------------------------------------------------------- exploration


@pytest.mark.parametrize("kind", PAIRWISE)
@pytest.mark.parametrize("forced", [1, 7, np.int64(7)])
def test_the_first_rounds_go_to_the_last_arm(kind: Any, forced: Any) -> None:
    policy = kind(sw.Cascade([0, 2.0, 2.0]), context_dim=2, forced_rounds=forced)
    contexts, outputs = world(1, 20)
    stops = policy.run(contexts, outputs)
    assert stops.tolist() == [2] * int(forced) + [0] * (20 - int(forced))


@pytest.mark.parametrize(
    "features", [sw.Identity(), sw.PerStage([sw.Identity(), sw.Polynomial(1)])]
)
def test_auto_goes_on_until_every_gram_matrix_has_eigenvalues_of_one(features: Any) -> None:
    policy = sw.USSPD(sw.Cascade([0, 2.0, 2.0]), features, 2, forced_rounds="auto")
    contexts, outputs = world(2, 60)
    pairs = policy.cascade.pairs()
    exploring, ended = True, 0
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        if t:
            phi = {p: policy.features.transform(contexts[:t], *p) for p in pairs}
            least = min(np.linalg.eigvalsh(f.T @ f)[0] for f in phi.values())
            if exploring and least >= 1:
                exploring, ended = False, t
        stop = policy.decide(x).stop
        assert stop == (2 if exploring else 0)
        policy.observe(x, y.tolist())
    assert 4 < ended < 55


def test_auto_ends_when_the_eigenvalue_is_one_exactly() -> None:
    policy = sw.USSPD(sw.Cascade([0, 2.0]), context_dim=1, forced_rounds="auto")
    policy.observe([1.0], [0, 0])
    assert np.linalg.eigvalsh(policy.gram(0, 1)[0])[0] == pytest.approx(1.0, rel=1e-12)
    assert policy.decide([1.0]).stop == 0


@pytest.mark.parametrize("kind", [sw.USSPD, sw.Supervised])
def test_without_forced_rounds_one_who_has_seen_nothing_goes_deep(kind: Any) -> None:
    policy = kind(sw.Cascade([0.1, 0.8, 0.9]), context_dim=2, forced_rounds=0)
    assert policy.decide([0.5, 0.5]).stop == 2


# ------------------------------------------------------------------------------- gaps and limits


@pytest.mark.parametrize("kind", PAIRWISE)
def test_an_arm_followed_by_a_free_one_is_never_the_stop(kind: Any) -> None:
    policy = kind(sw.Cascade([0.1, 0.0, 0.9]), context_dim=2, forced_rounds=2)
    contexts, _ = world(3, 300)
    stops = policy.run(contexts, np.ones((300, 3)))  # they always agree
    assert 0 not in stops
    assert 1 in stops


@pytest.mark.parametrize("kind", PAIRWISE)
def test_a_gap_above_one_always_stops(kind: Any) -> None:
    policy = kind(sw.Cascade([0.1, 1.5]), context_dim=2, forced_rounds=0)
    contexts, _ = world(4, 50)
    stops = policy.run(contexts, np.tile([0, 1], (50, 1)))  # they always disagree
    assert (stops == 0).all()


def degenerate(name: str) -> tuple[Array, NDArray[np.int64]]:
    contexts, outputs = world(5, 250)
    if name == "separable":
        outputs[:, 1] = outputs[:, 0] ^ (contexts[:, 0] > 0)
        outputs[:, 2] = outputs[:, 0]
    if name == "constant contexts":
        contexts[:] = [0.5, -0.5]
    if name == "collinear contexts":
        contexts[:, 1] = contexts[:, 0] / 3
    if name == "zero contexts":
        contexts[:] = 0.0
    if name == "always agree":
        outputs[:] = 1
    if name == "always disagree":
        outputs[:] = np.arange(3)
    return contexts, outputs


@pytest.mark.parametrize(
    "name",
    [
        "separable",
        "constant contexts",
        "collinear contexts",
        "zero contexts",
        "always agree",
        "always disagree",
    ],
)
@pytest.mark.parametrize("kind", CONTEXTUAL)
def test_degenerate_data_give_finite_answers(kind: Any, name: str) -> None:
    features = sw.Identity() if name == "zero contexts" else sw.Polynomial(degree=1)
    policy = kind(sw.Cascade([0.05, 0.3, 0.3]), features, 2, forced_rounds=5)
    contexts, outputs = degenerate(name)
    more = {"labels": outputs[:, 2]} if kind is sw.Supervised else {}
    policy.run(contexts, outputs, **more)
    unseen = np.array([[1.0, -1.0], [0.0, 0.0]])
    for x in (*contexts[:20], *unseen):
        decision = policy.decide(x)
        for e in decision.evidence:
            assert math.isfinite(e.disagreement)
            assert math.isfinite(e.disagreement_ucb)
            if kind is not sw.Supervised:
                assert 0 <= e.disagreement <= 1
                assert 0 <= e.disagreement_ucb <= 1
            assert e.gap_won or e.first < decision.stop
    if kind is not sw.Supervised:
        assert all(np.isfinite(policy.theta(i, j)).all() for i, j in policy.cascade.pairs())
    if name == "always agree":
        assert policy.decide(contexts[0]).stop == 0
    if name == "always disagree" and kind is not sw.Supervised:
        assert policy.decide(contexts[0]).stop == 2


# --------------------------------------------------------------- against small re-implementations


def count_rule(cascade: sw.Cascade, upper: Array) -> int:
    k = cascade.n_arms
    for i in range(k - 1):
        if all(
            cascade.cumulative[j] - cascade.cumulative[i] > upper[i, j] for j in range(i + 1, k)
        ):
            return i
    return k - 1


def by_counts(
    cascade: sw.Cascade,
    outputs: NDArray[np.int64],
    upper: Callable[[int, float, float], float],
) -> list[int]:
    """Play in plain Python: ``upper(round, n_j, disagreements_ij)``, asked pair by pair."""
    k = cascade.n_arms
    n, d = [0.0] * k, np.zeros((k, k))
    stops: list[int] = []
    for t, y in enumerate(outputs.tolist()):
        uppers = np.full((k, k), NAN)
        for i in range(k):
            for j in range(i + 1, k):
                uppers[i, j] = upper(t + 1, n[j], d[i, j])
        stop = count_rule(cascade, uppers)
        stops.append(stop)
        for j in range(stop + 1):
            n[j] += 1
            for i in range(j):
                d[i, j] += y[i] != y[j]
    return stops


@pytest.mark.parametrize("n_arms", [2, 3, 6])
@pytest.mark.parametrize("a", [0.5, 0.05])
def test_uss_ucb_is_its_formula(a: float, n_arms: int) -> None:
    cascade = sw.Cascade([0.2] * n_arms)
    contexts, outputs = world(6, 1500, k=n_arms, differ=0.05)

    def index(t: int, n: float, d: float) -> float:
        return d / n + math.sqrt(a * math.log(t) / n) if n else INF

    stops = by_counts(cascade, outputs, index)
    assert len(set(stops)) > 1
    single, whole = sw.USSUCB(cascade, a=a), sw.USSUCB(cascade, a=a)
    for x, y, stop in zip(contexts, outputs, stops, strict=True):
        assert single.decide(x).stop == stop
        single.observe(x, y[: stop + 1].tolist())
    assert whole.run(contexts, outputs).tolist() == stops


def test_uss_ucb_goes_on_at_a_tie() -> None:
    policy = sw.USSUCB(sw.Cascade([0.25, 0.5]), a=1e-300)  # the bonus is lost in rounding
    policy.observe(0.0, [0, 1])
    policy.observe(0.0, [0, 0])
    (e,) = policy.decide(0.0).evidence
    assert (e.gap, e.disagreement_ucb, e.gap_won) == (0.5, 0.5, False)
    assert policy.decide(0.0).stop == 1
    assert policy.run(np.zeros((2, 1)), np.zeros((2, 2))).tolist() == [1, 0]


@pytest.mark.parametrize("n_arms", [2, 3, 6])
def test_uss_ts_is_its_formula(n_arms: int) -> None:
    cascade = sw.Cascade([0.15] * n_arms)
    contexts, outputs = world(7, 800, k=n_arms, differ=0.05)
    random = native.Random(8)
    stops = by_counts(cascade, outputs, lambda _, n, d: random.beta(1 + d, 1 + n - d))
    assert len(set(stops)) > 1
    single, whole = sw.USSTS(cascade, seed=8), sw.USSTS(cascade, seed=8)
    for y, stop in zip(outputs, stops, strict=True):
        assert single.decide(0.0).stop == stop
        single.observe(0.0, y[: stop + 1].tolist())
    assert whole.run(contexts, outputs).tolist() == stops


@pytest.mark.parametrize("kind", [sw.USSUCB, sw.USSTS])
def test_what_was_counted_can_be_looked_at(kind: Any) -> None:
    policy = kind(THREE)
    assert np.isnan(policy.disagreement()).all()
    for said in ([0, 1, 1], [0, 0, 1], [0, 1], [0]):
        policy.observe(None, said)
    p = policy.disagreement()
    assert p[0, 1] == pytest.approx(2 / 3)
    assert (p[0, 2], p[1, 2]) == (1.0, 0.5)
    for e in policy.decide(None).evidence:
        assert e.disagreement == p[e.first, e.second]


def test_every_decision_of_uss_ts_draws_all_pairs_wherever_it_stops() -> None:
    shallow, deep = (
        sw.USSTS(sw.Cascade([0.1, 2, 2]), seed=3),
        sw.USSTS(sw.Cascade([0, 0, 0]), seed=3),
    )
    random = native.Random(3)
    for _ in range(5):
        assert (shallow.decide(0.0).stop, deep.decide(0.0).stop) == (0, 2)
        draws = [e.disagreement_ucb for e in deep.decide(0.0).evidence]
        shallow.decide(0.0)
        for _ in range(3):
            random.beta(1, 1)
        assert draws == [random.beta(1, 1) for _ in range(3)]
    np.testing.assert_array_equal(shallow.state()["random"], deep.state()["random"])
    draws = [e.disagreement_ucb for e in deep.decide(0.0).evidence]
    assert draws == [random.beta(1, 1) for _ in range(3)]


def test_thompson_without_noise_is_the_greedy_rule() -> None:
    policy = sw.Thompson(THREE, context_dim=2, scale=0, forced_rounds=10, seed=1)
    contexts, outputs = world(8, 200, differ=0.2)
    seen: set[int] = set()
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        stop = policy.decide(x).stop
        if t >= 10:
            phi = policy.features.transform(x)[0]
            p = np.zeros((3, 3))
            for i, j in THREE.pairs():
                p[i, j] = mu(phi @ policy.theta(i, j))
            assert stop == count_rule(THREE, p)
            seen.add(stop)
        policy.observe(x, y[: stop + 1].tolist())
    assert len(seen) > 1


def test_thompson_draws_another_way_with_another_seed() -> None:
    contexts, outputs = world(9, 300)
    stops = [
        sw.Thompson(THREE, context_dim=2, forced_rounds=5, seed=s).run(contexts, outputs).tolist()
        for s in (1, 1, 2)
    ]
    assert stops[0] == stops[1] != stops[2]


def test_random_depth_takes_every_depth_alike() -> None:
    """Hoeffding: a share off by 0.05 in 3000 draws has chance ≤ 6·exp(−2·3000·0.05²) < 2e-6."""
    policy = sw.RandomDepth(THREE, seed=1)
    stops = policy.decide_many(np.zeros((3000, 1)))
    np.testing.assert_allclose(np.bincount(stops) / 3000, 1 / 3, atol=0.05)


@pytest.mark.parametrize(("depth", "stop"), [("model", 1), (0, 0), (np.int64(2), 2), (None, 2)])
def test_fixed_depth_by_name_or_number(depth: Any, stop: int) -> None:
    policy = sw.FixedDepth(THREE, depth=depth)
    assert policy.decide(0.0) == sw.Decision(stop, THREE.names[stop], THREE.cost(stop))
    assert policy.decide(0.0).evidence == ()
    assert policy.parameters() == {"depth": stop}


@pytest.mark.parametrize("depth", ["tree", 3, -1, 1.5, True])
def test_a_fixed_depth_that_is_no_arm_is_refused(depth: Any) -> None:
    with pytest.raises(sw.InvalidStopError):
        sw.FixedDepth(THREE, depth=depth)


@pytest.mark.parametrize("optimal", [-1, 3, 0.5])
def test_the_oracle_believes_only_arms(optimal: Any) -> None:
    with pytest.raises(sw.InvalidStopError):
        sw.Oracle(THREE).decide(0.0, sw.Truth(optimal=optimal))


def test_the_clairvoyant_is_strict() -> None:
    p = np.zeros((3, 3))
    p[0, 1] = THREE.gaps[0, 1]  # a tie goes on
    assert sw.Clairvoyant(THREE).decide(0.0, sw.Truth(disagreement=p)).stop == 1
    p[0, 1] -= 1e-11
    assert sw.Clairvoyant(THREE).decide(0.0, sw.Truth(disagreement=p)).stop == 0
    p[0, 2] = p[1, 2] = 1.0
    assert sw.Clairvoyant(THREE).decide(0.0, sw.Truth(disagreement=p)).stop == 2


def test_a_tie_for_the_optimal_arm_is_one_for_the_clairvoyant() -> None:
    cascade = sw.Cascade([0.2, 0.4, 0.6])  # 0.4 + 0.6 is 1 but for rounding
    batch = sw.Logged(cascade, [[0.0]], [[0, 0, 1]]).sample(1, np.random.default_rng(0))
    clairvoyant = sw.Clairvoyant(cascade)
    told = sw.Truth(disagreement=batch.disagreement[0])
    assert batch.optimal.tolist() == [2]
    assert clairvoyant.decide(0.0, told).stop == 2
    assert clairvoyant.run(batch.contexts, disagreement=batch.disagreement).tolist() == [2]


TRUTHS: dict[str, tuple[Any, Any, str]] = {
    "oracle: a round too few": ([0, 1], None, r"must be 3 arms.*shape \(2,\)"),
    "oracle: words": (["0", "1", "2"], None, "must be 3 arms"),
    "oracle: no such arm": ([0, 1, 3], None, "round 2 is 3, but this cascade's arms are 0 to 2"),
    "oracle: negative": ([0, -1, 2], None, "round 1 is -1"),
    "oracle: half": ([0.5, 1, 2], None, "round 0 is 0.5"),
    "oracle: NaN": ([0, 1, NAN], None, "round 2 is nan"),
    "clairvoyant: one table": (None, np.zeros((3, 3)), r"3 tables of 3 by 3.*shape \(3, 3\)"),
    "clairvoyant: other arms": (None, np.zeros((3, 2, 2)), "3 tables of 3 by 3"),
    "clairvoyant: NaN": (None, np.diag([0, 0, NAN])[:, None] * np.ones((1, 3, 1)), "round 2 holds"),
}


@pytest.mark.parametrize("what", TRUTHS)
def test_a_truth_that_cannot_be_is_refused_and_its_round_named(what: str) -> None:
    optimal, disagreement, message = TRUTHS[what]
    policy: Any = sw.make(what.partition(":")[0], THREE)
    with pytest.raises(sw.InvalidInputError, match=message):
        policy.run(np.zeros((3, 1)), optimal=optimal, disagreement=disagreement)
    assert policy.rounds == 0


def test_told_comparators_need_no_outputs_and_check_those_they_get() -> None:
    oracle = sw.Oracle(THREE)
    assert oracle.run(np.zeros((3, 1)), optimal=np.array([2.0, 0.0, 1.0])).tolist() == [2, 0, 1]
    assert oracle.rounds == 3
    with pytest.raises(sw.InvalidOutputsError, match="3 rounds by 3 arms"):
        oracle.run(np.zeros((3, 1)), np.zeros((3, 2)), optimal=[0, 0, 0])
    with pytest.raises(sw.InvalidOutputsError, match="3 rounds by 3 pairs"):
        oracle.run_disagreements(np.zeros((3, 1)), np.zeros((3, 2)), optimal=[0, 0, 0])
    assert oracle.rounds == 3


@pytest.mark.parametrize("p", [np.full((3, 3), NAN), np.zeros((2, 2)), 0.1], ids=["NaN", "2", "0"])
def test_the_clairvoyant_needs_a_table_of_chances(p: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="3 by 3"):
        sw.Clairvoyant(THREE).decide(0.0, sw.Truth(disagreement=p))


def test_the_supervised_comparator_estimates_errors() -> None:
    policy = sw.Supervised(TWO, context_dim=1, forced_rounds=0, ridge=1e-9)
    for t in range(40):
        policy.observe([1.0], [t % 4 == 0, True], sw.Truth(label=True))
    assert mu(policy.error_theta(0)[0]) == pytest.approx(0.75, abs=1e-6)
    assert mu(policy.error_theta(1)[0]) < 1e-3


# ------------------------------------------------------------------------------- radii, evidence


def test_the_radius_of_uss_pd_is_alpha() -> None:
    policy = sw.USSPD(THREE, sw.Polynomial(), 2, delta=0.01, sigma=0.3, kappa=0.2, forced_rounds=3)
    contexts, outputs = world(10, 40)
    for n in range(40):
        inside = 6 / 2 * math.log(1 + 2 * n / 6) + math.log(9 / (2 * 0.01))
        assert policy.radius == pytest.approx(2 * 0.3 / 0.2 * math.sqrt(inside), rel=1e-13)
        policy.observe(contexts[n], outputs[n].tolist())


def test_the_radius_of_uss_pd_ridge_is_beta_of_the_pairs_own_count() -> None:
    policy = sw.USSPDRidge(THREE, context_dim=2, delta=0.1, sigma=0.2, kappa=0.1, lam=0.3, S=1.7)
    contexts, outputs = world(11, 30)
    for n in range(30):
        policy.observe(contexts[n], outputs[n, : 1 + n % 3].tolist())
    for (i, j), count in {(0, 1): 20, (0, 2): 10, (1, 2): 10}.items():
        assert policy.observations(i, j) == count
        inside = 2 / 2 * math.log(1 + count / (2 * 0.3)) + math.log(9 / (2 * 0.1))
        beta = 2 * 0.2 / 0.1 * math.sqrt(inside) + 2 * math.sqrt(0.3) * 1.7
        assert policy.radius(i, j) == pytest.approx(beta, rel=1e-13)


MAPS = {
    "shared": sw.Polynomial(degree=1),
    "per stage": sw.PerStage([sw.Identity(), sw.Polynomial()]),
    "per pair": sw.PerPair(
        {(0, 1): sw.Polynomial(1), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}
    ),
}


@pytest.mark.parametrize("features", MAPS)
@pytest.mark.parametrize("kind", [sw.USSPD, sw.USSPDRidge])
def test_evidence_is_what_theta_gram_and_radius_say(kind: Any, features: str) -> None:
    policy = kind(sw.Cascade([0.05, 0.35, 0.45]), MAPS[features], 2, forced_rounds=10)
    contexts, outputs = world(12, 300, differ=0.15)
    policy.run(contexts[:250], outputs[:250])
    seen: set[int] = set()
    for x in contexts[250:]:
        decision = policy.decide(x)
        evidence = decision.evidence
        seen.add(decision.stop)
        assert [(e.first, e.second) for e in evidence] == [
            (i, j) for i, j in policy.cascade.pairs() if i <= decision.stop
        ]
        for e in evidence:
            pair = e.first, e.second
            phi = policy.features.transform(x, *pair)[0]
            _, inverse = policy.gram(*pair)
            radius = policy.radius if kind is sw.USSPD else policy.radius(*pair)
            z = phi @ policy.theta(*pair)
            assert e.gap == policy.cascade.gaps[pair]
            assert e.disagreement == pytest.approx(mu(z), rel=1e-9)
            upper = mu(z + radius * math.sqrt(phi @ inverse @ phi))
            assert e.disagreement_ucb == pytest.approx(upper, rel=1e-9)
            assert e.gap_won == (e.gap > e.disagreement_ucb)
        for i in range(min(decision.stop, 1) + 1):
            wins = all(e.gap_won for e in evidence if e.first == i)
            assert wins == (i == decision.stop)
    assert len(seen) > 1


@pytest.mark.parametrize("name", ["uss-pd", "uss-pd-ridge", "thompson", "uss-ucb", "uss-ts"])
def test_evidence_once_given_does_not_change_when_more_is_learned(name: str) -> None:
    policy: Any = sw.make(name, THREE, context_dim=2)
    contexts, outputs = world(13, 200, differ=0.1)
    policy.run(contexts, outputs)
    for x in contexts[:20]:
        decision = policy.decide(x)
        before = decision.evidence
        policy.observe(x, [1, 0, 1])
        assert before
        assert decision.evidence == before


@pytest.mark.parametrize("name", ["uss-pd", "uss-pd-ridge", "thompson", "uss-ucb", "uss-ts"])
def test_evidence_first_asked_for_after_learning_still_supports_the_decision(name: str) -> None:
    policy: Any = sw.make(name, THREE, context_dim=2)
    contexts, outputs = world(14, 300, differ=0.1)
    policy.run(contexts, outputs)
    for x in contexts[:50]:
        decision = policy.decide(x)
        policy.observe(x, [1, 0, 1])
        here = [e for e in decision.evidence if e.first == decision.stop]
        assert len(here) == 2 - decision.stop
        assert all(e.gap_won for e in here)
        for i in range(decision.stop):
            assert not all(e.gap_won for e in decision.evidence if e.first == i)


def test_a_decision_reads_as_a_sentence_when_it_stops_when_it_is_last_and_when_forced() -> None:
    policy = sw.USSPD(sw.Cascade([0.05, 0.3], names=["rule", "model"]), context_dim=1)
    x = [1.0]
    assert "not decided by evidence" in str(policy.decide(x))
    assert policy.decide(x).evidence == ()
    for _ in range(200):
        policy.observe(x, [1, 1])
    assert str(policy.decide(x)).startswith(
        "Stop at arm 0 (rule), cost 0.05: going on to arm 1 would cost 0.3 more"
    )
    for _ in range(400):
        policy.observe(x, [1, 0])
    assert str(policy.decide(x)).startswith(
        "Stop at arm 1 (model), cost 0.35, the last: stopping at arm 0 would save 0.3"
    )


def test_a_gap_of_one_wins_against_every_chance_and_evidence_says_so() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 1.0]), context_dim=2, forced_rounds=0)
    policy.observe([1.0, 0.0], [1, 1])
    decision = policy.decide([0.0, 1.0])  # a direction never seen: p̃ rounds to 1
    assert decision.stop == 0
    assert [e.gap_won for e in decision.evidence] == [True]


@pytest.mark.parametrize(("cost", "stop"), [(0.0, 1), (2.0, 0)])
def test_a_gap_beyond_all_chances_is_evidence_too(cost: float, stop: int) -> None:
    policy = sw.USSPD(sw.Cascade([0.1, cost]), context_dim=1, forced_rounds=0)
    policy.observe([1.0], [1, 1])
    decision = policy.decide([1.0])
    assert decision.stop == stop
    (e,) = decision.evidence
    assert (e.gap, e.gap_won) == (cost, stop == 0)
    assert "not decided by evidence" not in str(decision)


def test_slots_of_different_sizes_do_not_mix() -> None:
    contexts, outputs = world(15, 150)
    apart = sw.USSPD(THREE, MAPS["per pair"], 2, forced_rounds=150)
    apart.run(contexts, outputs)
    for (i, j), d in {(0, 1): 3, (0, 2): 2, (1, 2): 6}.items():
        phi = apart.features.transform(contexts, i, j)
        assert phi.shape == (150, d)
        v, inverse = apart.gram(i, j)
        np.testing.assert_allclose(v, phi.T @ phi, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(v @ inverse, np.eye(d), atol=1e-6)
        theta = apart.theta(i, j)
        assert theta.shape == (d,)
        told = outputs[:, i] != outputs[:, j]
        residual = phi.T @ (told - 1 / (1 + np.exp(-phi @ theta))) - apart.ridge * theta
        np.testing.assert_allclose(residual, 0, atol=1e-8)


# ------------------------------------------------------------------------------------------- width


def test_a_map_that_makes_rounds_slow_says_so() -> None:
    with pytest.warns(sw.WideFeaturesWarning, match="384 features are many"):
        sw.USSPD(sw.Cascade([0.1, 0.2]), context_dim=384)
    sw.USSPD(sw.Cascade([0.1, 0.2]), context_dim=250)  # a warning would be an error here


def test_more_features_than_rounds_need_no_estimate() -> None:
    with pytest.warns(sw.WideFeaturesWarning):
        policy = sw.USSPD(THREE, context_dim=400, forced_rounds=10)
    contexts = np.random.default_rng(0).uniform(-1, 1, (60, 400))
    stops = policy.run(contexts, np.zeros((60, 3), dtype=np.int64))
    assert (stops == 2).all()  # every context has directions that were never seen
    assert policy.effort["passes"] == 0
