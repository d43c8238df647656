"""Tests of contextual policies against small independent computations."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

import stopwise as sw
from stopwise.policies.validation import MAX_ARMS

pytestmark = pytest.mark.filterwarnings("ignore::stopwise.errors.CostUnitWarning")  # round numbers

Array = NDArray[np.float64]
TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
PAIRWISE = [sw.USSPD, sw.USSPDRidge, sw.Thompson, sw.USSLaplace, sw.USSAnchor]
NAN, INF = math.nan, math.inf
MAPS = {
    "shared": sw.Polynomial(degree=1),
    "per stage": sw.PerStage([sw.Identity(), sw.Polynomial()]),
    "per pair": sw.PerPair(
        {(0, 1): sw.Polynomial(1), (0, 2): sw.Identity(), (1, 2): sw.Polynomial()}
    ),
}


def world(
    seed: int, n: int, d: int = 2, k: int = 3, differ: float = 0.3
) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, d)), (rng.random((n, k)) < differ).astype(np.int64)


def mu(z: float) -> float:
    return 0.5 * (1 + math.tanh(0.5 * z))


# --------------------------------------------------------------------------------- parameters

INVALID_PARAMETERS: list[tuple[str, str, list[Any]]] = [
    ("uss-pd", "delta", [0, 1, NAN, "x", None]),
    ("uss-pd-ridge", "sigma", [0, -1, INF, None, 10**400]),
    ("uss-pd", "kappa", [0, 0.26, NAN]),
    ("uss-pd", "ridge", [0, 1e-10, NAN]),
    ("uss-pd-ridge", "lam", [0, -1, INF]),
    ("uss-pd-ridge", "S", [-0.1, NAN]),
    ("thompson", "scale", [-0.1, INF]),
    ("thompson", "forced_rounds", [-1, 1.5, "always", NAN, None, [3]]),
    ("uss-pd", "explore", [-0.1, 1.1, NAN, "x"]),
    ("uss-laplace", "labels", [-1, 1.5, NAN, "x"]),
    ("uss-laplace", "z", [-0.1, INF, None]),
    ("uss-anchor", "z", [-0.1, NAN]),
    ("uss-ucb", "a", [0, -1, NAN, INF]),
    *(
        (name, "seed", [-1, 1.5, "a", 2**70, None])
        for name in ("thompson", "uss-ts", "random-depth")
    ),
    *((kind.name, "context_dim", [None, -1]) for kind in PAIRWISE),
]


@pytest.mark.parametrize(("policy", "name", "values"), INVALID_PARAMETERS)
def test_an_invalid_parameter_is_rejected_by_name(
    policy: str, name: str, values: list[Any]
) -> None:
    for value in values:
        with pytest.raises(sw.errors.InvalidParameterError, match=rf"\b{name}\b"):
            sw.make(policy, TWO, **{"context_dim": 2, name: value})


def test_forced_rounds_must_be_a_number_or_auto() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match='"auto"'):
        sw.USSPD(TWO, context_dim=2, forced_rounds="always")


def test_transitive_cannot_be_combined_with_reveals() -> None:
    with pytest.raises(
        sw.errors.InvalidParameterError, match="transitive=True cannot be combined with reveals="
    ):
        sw.USSPD(THREE, context_dim=2, reveals=1, transitive=True)


def test_the_largest_cascade_distinguishes_all_its_outputs() -> None:
    policy = sw.USSPD(sw.Cascade([0.01] * MAX_ARMS), context_dim=1, forced_rounds=0)
    for _ in range(5):
        policy.observe(np.array([1.0]), list(range(MAX_ARMS)))
    for _ in range(20):
        policy.observe(np.array([1.0]), [7] * MAX_ARMS)
    theta = [policy.theta(i, j)[0] for i, j in policy.cascade.pairs()]
    np.testing.assert_allclose(theta, math.log(5 / 20), rtol=1e-3)


@pytest.mark.parametrize("pair", [(1, 0), (0, 0), (0, 3), (-1, 1)])
@pytest.mark.parametrize("method", ["theta", "gram", "observations", "radius"])
def test_an_invalid_pair_is_rejected(pair: tuple[int, int], method: str) -> None:
    policy = sw.USSPDRidge(THREE, context_dim=2)
    with pytest.raises(sw.errors.InvalidParameterError, match="invalid pair"):
        getattr(policy, method)(*pair)


def test_contexts_may_have_any_numeric_type_and_memory_layout() -> None:
    forms: list[Callable[[Array], Any]] = [
        lambda x: x,
        lambda x: x.tolist(),
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x.astype(">f8"),
    ]
    x_all, y_all = world(0, 30, k=2)
    states: list[Any] = []
    for form in forms:
        policy = sw.USSPD(TWO, context_dim=2, forced_rounds=0)
        for x, y in zip(x_all, y_all, strict=True):
            policy.decide(form(x))
            policy.observe(form(x), y.tolist())
        states.append(policy.state()["learner"].tolist())
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize("kind", PAIRWISE)
@pytest.mark.parametrize("forced", [1, 7, 7.0])
def test_the_first_rounds_go_to_the_last_arm(kind: Any, forced: Any) -> None:
    policy = kind(sw.Cascade([0, 2.0, 2.0]), context_dim=2, forced_rounds=forced)
    contexts, outputs = world(1, 20)
    assert policy.decide(contexts[0]).evidence == ()
    stops = policy.run(contexts, outputs)
    assert stops.tolist() == [2] * int(forced) + [0] * (20 - int(forced))


@pytest.mark.parametrize("bounds", [(1, 2), (2, 1)])  # V = 1 after one round, and after four
def test_auto_stops_forcing_once_the_smallest_eigenvalue_of_all_pairs_is_one(
    bounds: tuple[int, int],
) -> None:
    maps = [sw.Identity(bound=bound) for bound in bounds]
    policy = sw.USSPD(
        sw.Cascade([0, 2.0, 2.0]), sw.PerStage(maps), context_dim=1, forced_rounds="auto"
    )
    assert policy.run(np.ones((6, 1)), np.zeros((6, 3))).tolist() == [2, 2, 2, 2, 0, 0]


def test_a_policy_without_rounds_runs_every_arm() -> None:
    policy = sw.USSPD(sw.Cascade([0.1, 0.8, 0.9]), context_dim=2, forced_rounds=0)
    assert policy.decide([0.5, 0.5]).stop == 2


@pytest.mark.parametrize("kind", PAIRWISE)
def test_a_free_arm_always_runs_and_an_arm_above_the_cost_of_an_error_never_does(kind: Any) -> None:
    contexts, _ = world(3, 300)
    policy = kind(sw.Cascade([0.1, 0.0, 0.9]), context_dim=2, forced_rounds=2)
    assert set(policy.run(contexts, np.ones((300, 3)))) == {1, 2}  # they always agree
    policy = kind(sw.Cascade([0.1, 1.5]), context_dim=2, forced_rounds=0)
    policy.run(contexts, np.tile([0, 1], (300, 1)))
    assert set(policy.decide_many(contexts)) == {0}  # although they always disagree


DEGENERATE: dict[str, Callable[[Array, NDArray[np.int64]], tuple[Any, Any]]] = {
    "agree": lambda x, y: (x, np.ones_like(y)),
    "disagree": lambda x, y: (x, np.tile(np.arange(3), (len(y), 1))),
    "separable": lambda x, y: (x, np.stack([y[:, 0], y[:, 0] ^ (x[:, 0] > 0), y[:, 0]], axis=1)),
    "constant": lambda x, y: (np.tile([0.5, -0.5], (len(x), 1)), y),
    "collinear": lambda x, y: (x[:, :1] / [1, 3], y),
    "zero": lambda x, y: (0 * x, y),
}


@pytest.mark.parametrize("data", DEGENERATE)
@pytest.mark.parametrize("kind", PAIRWISE)
def test_degenerate_data_give_finite_estimates(kind: Any, data: str) -> None:
    features = sw.Identity() if data == "zero" else sw.Polynomial(degree=1)
    policy = kind(sw.Cascade([0.05, 0.3, 0.3]), features, 2, forced_rounds=5)
    contexts, outputs = DEGENERATE[data](*world(5, 250))
    policy.run(contexts, outputs)
    low, high = (-INF, INF) if kind is sw.USSAnchor else (0.0, 1.0)
    for x in (*contexts[:10], [1.0, -1.0], [0.0, 0.0]):  # the last two are new
        decision = policy.decide(x)
        for e in decision.evidence:
            for value in (e.disagreement, e.disagreement_ucb):
                assert math.isfinite(value)
                assert low <= value <= high
            assert e.gap_won or e.first < decision.stop
    if data == "agree":
        assert policy.decide(contexts[0]).stop == 0
    if data == "disagree":
        assert policy.decide(contexts[0]).stop == 2


def test_observations_counts_the_rounds_in_which_both_arms_ran() -> None:
    policy = sw.USSPDRidge(THREE, context_dim=2)
    contexts, outputs = world(11, 30)
    for n in range(30):
        policy.observe(contexts[n], outputs[n, : 1 + n % 3].tolist())
    for (i, j), count in {(0, 1): 20, (0, 2): 10, (1, 2): 10}.items():
        assert policy.observations(i, j) == count


@pytest.mark.parametrize("features", MAPS)
@pytest.mark.parametrize("kind", [sw.USSPD, sw.USSPDRidge])
def test_evidence_matches_theta_gram_and_radius(kind: Any, features: str) -> None:
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
            radius = policy.radius(*pair)
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


@pytest.mark.parametrize(
    "name", ["uss-laplace", "uss-anchor", "uss-pd", "uss-pd-ridge", "thompson", "uss-ucb", "uss-ts"]
)
def test_evidence_supports_the_decision_after_further_learning(name: str) -> None:
    options = {"explore": 0} if name == "uss-anchor" else {}
    policy: Any = sw.make(name, THREE, context_dim=2, **options)
    contexts, outputs = world(14, 300, differ=0.1)
    policy.run(contexts, outputs)
    for t, x in enumerate(contexts[:50]):
        decision = policy.decide(x)
        before = decision.evidence if t % 2 else None  # otherwise computed only after learning
        policy.observe(x, [1, 0, 1])
        evidence = decision.evidence
        assert before in (None, evidence)
        at_stop = [e for e in evidence if e.first == decision.stop]
        assert len(at_stop) == 2 - decision.stop
        assert all(e.gap_won for e in at_stop)
        for i in range(decision.stop):
            assert not all(e.gap_won for e in evidence if e.first == i)


@pytest.mark.parametrize(("cost", "stop"), [(0.0, 1), (1.0, 1), (2.0, 0)])
def test_evidence_covers_gaps_outside_the_range_of_probabilities(cost: float, stop: int) -> None:
    policy = sw.USSPD(sw.Cascade([0.1, cost]), context_dim=2, forced_rounds=0)
    policy.observe([1.0, 0.0], [1, 1])
    decision = policy.decide([0.0, 1.0])  # in an unobserved direction the bound is 1
    (e,) = decision.evidence
    assert (decision.stop, e.gap, e.gap_won) == (stop, cost, stop == 0)


def test_many_features_issue_a_warning_and_are_not_estimated_from_fewer_rounds() -> None:
    sw.USSPD(TWO, context_dim=250)  # pytest turns warnings into errors
    with pytest.warns(sw.errors.WideFeaturesWarning, match="400 features"):
        policy = sw.USSPD(THREE, context_dim=400, forced_rounds=10)
    contexts = np.random.default_rng(0).uniform(-1, 1, (60, 400))
    stops = policy.run(contexts, np.zeros((60, 3), dtype=np.int64))
    assert (stops == 2).all()  # every context has unobserved directions
    assert policy.effort["passes"] == 0


def test_a_function_may_return_fewer_features_than_the_context_has_values() -> None:
    policy = sw.USSLaplace(TWO, lambda x: x[:2] / 3, context_dim=8, labels=5)
    x = np.linspace(0, 1, 8)
    policy.observe(x, [0, 1])
    policy.observe_disagreements(x, 1, {(0, 1): True})
    observation = sw.Observation(x, 1, 1, np.ones((2, 2), dtype=np.bool_))
    policy.label(observation, right=[True, False])
    assert (policy.rounds, policy.labels.received) == (2, 1)


def test_a_policy_can_be_copied_after_outputs_that_cannot_be_pickled() -> None:
    policy, output = sw.USSLaplace(TWO, context_dim=1), lambda: None
    policy.observe([0.5], [output, output])
    assert copy.deepcopy(policy).rounds == 1


def test_a_pickled_policy_contains_no_outputs() -> None:
    policy = sw.USSLaplace(TWO, context_dim=1)
    policy.observe([0.5], ["a secret answer", "another"])
    assert b"secret" not in pickle.dumps(policy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop": 7}, "stop must be an integer from 0 to 1"),
        ({"rule_stop": -1}, "rule_stop"),
        ({"differ": np.ones((1, 1), dtype=np.bool_)}, "a row and a column for each of the 2 arms"),
    ],
)
def test_learn_rejects_an_invalid_observation(changes: dict[str, Any], message: str) -> None:
    policy = sw.USSLaplace(TWO, context_dim=1)
    observation = replace(sw.Observation([0.5], 1, 1, np.ones((2, 2), dtype=np.bool_)), **changes)
    with pytest.raises(sw.errors.InvalidInputError, match=message):
        policy.learn(observation)
    assert policy.rounds == 0


@pytest.mark.parametrize("kind", [sw.USSAnchor, sw.USSLaplace])
def test_labels_of_a_record_are_ignored_by_a_policy_that_requests_none(kind: Any) -> None:
    record = sw.RecordedRounds(
        contexts=np.zeros((5, 1)),
        differ=np.zeros((5, 1), dtype=np.uint8),
        answered=np.full(5, 2),
        failed=np.zeros(5, dtype=np.bool_),
        right=np.ones((5, 2), dtype=np.bool_),
        labelled=np.ones(5, dtype=np.bool_),
    )
    policy = kind(TWO, context_dim=1)
    policy.run_recorded(record)
    assert (policy.rounds, policy.labels.received) == (5, 0)


def test_rounds_are_learned_before_a_callback_raises() -> None:
    policy = sw.USSPD(TWO, sw.Polynomial(1), context_dim=1, forced_rounds=1000)
    policy.watch(lambda change: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        policy.run([[0.5]] * 1000, [[1, 1]] * 640 + [[1, 2]] * 360)
    assert policy.rounds == 1000


def test_restore_keeps_the_callback() -> None:
    policy, changes = sw.USSPD(TWO, sw.Polynomial(1), 1, forced_rounds=1000), list[sw.Change]()
    policy.watch(changes.append)
    policy.restore(sw.USSPD(TWO, sw.Polynomial(1), 1, forced_rounds=1000).state())
    policy.run([[0.5]] * 1000, [[1, 1]] * 640 + [[1, 2]] * 360)
    assert len(changes) == 1
