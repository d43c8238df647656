"""Comparators: decisions, learning from labels, and validation."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research
from stopwise.research.experiments.simulate import measure
from stopwise.research.theory.dominance import first_candidates

THREE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
WORLD = research.LogisticArms(THREE, [[1, 0, -1], [3, 2, 0], [6, 6, 0]], [9, 9, 0]).sample(
    300, np.random.default_rng(11)
)
assert WORLD.outputs is not None
assert WORLD.labels is not None
OUTPUTS, LABELS = WORLD.outputs, WORLD.labels
NAN = math.nan


def supervised(**parameters: Any) -> research.Supervised:
    return research.Supervised(THREE, context_dim=2, forced_rounds=20, **parameters)


# -- the oracle and the clairvoyant -------------------------------------------------------------


def test_oracle_stops_at_the_optimal_arm() -> None:
    oracle = research.Oracle(THREE)
    assert oracle.run(WORLD.contexts, optimal=WORLD.optimal).tolist() == WORLD.optimal.tolist()
    assert oracle.decide(None, research.Truth(optimal=1)) == sw.Decision(1, "model", THREE.cost(1))


def test_clairvoyant_continues_at_a_tie() -> None:
    clairvoyant, p = research.Clairvoyant(THREE), np.zeros((3, 3))
    p[0, 1] = THREE.gaps[0, 1]
    assert clairvoyant.decide(None, research.Truth(disagreement=p)).stop == 1
    p[0, 1] -= 1e-11
    assert clairvoyant.decide(None, research.Truth(disagreement=p)).stop == 0
    p[0, 2] = p[1, 2] = 1.0
    assert clairvoyant.decide(None, research.Truth(disagreement=p)).stop == 2


def test_clairvoyant_and_optimal_arm_agree_on_ties() -> None:
    cascade = sw.Cascade([0.2, 0.4, 0.6])  # 0.4 + 0.6 is 1 up to rounding
    p = np.array([[[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    clairvoyant = research.Clairvoyant(cascade)
    assert first_candidates(cascade, p).tolist() == [2]
    assert clairvoyant.decide(None, research.Truth(disagreement=p[0])).stop == 2
    assert clairvoyant.run([[0.0]], disagreement=p).tolist() == [2]


TRUTHS: list[tuple[str, Any, str]] = [
    ("optimal", [0, 1], "3 entries"),
    *(
        ("optimal", invalid, r"optimal must have one arm index .0 to 2. per round, got")
        for invalid in (["0", "1", "2"], [0, 1, 3], [0, -1, 2], [0.5, 1, 2], [0, 1, NAN])
    ),
    ("disagreement", np.zeros((3, 3)), r"shape \(3, 3\)"),
    ("disagreement", np.zeros((3, 2, 2)), r"shape \(3, 2, 2\)"),
    ("disagreement", np.diag([0, 0, NAN])[:, None] * np.ones((1, 3, 1)), "NaN"),
]


@pytest.mark.parametrize(("name", "truth", "message"), TRUTHS)
def test_run_rejects_an_invalid_truth(name: str, truth: Any, message: str) -> None:
    comparator: Any = {"optimal": research.Oracle, "disagreement": research.Clairvoyant}[name](
        THREE
    )
    with pytest.raises(sw.errors.InvalidInputError, match=message):
        comparator.run(np.zeros((3, 1)), **{name: truth})


@pytest.mark.parametrize("arm", [3, 0.5])
def test_the_oracle_rejects_an_invalid_arm(arm: Any) -> None:
    oracle = research.Oracle(THREE)
    with pytest.raises(sw.errors.InvalidStopError):
        oracle.decide(None, research.Truth(optimal=arm))


def test_the_clairvoyant_rejects_a_disagreement_of_the_wrong_shape() -> None:
    clairvoyant = research.Clairvoyant(THREE)
    with pytest.raises(sw.errors.InvalidParameterError):
        clairvoyant.decide(None, research.Truth(disagreement=np.eye(2)))


def test_outputs_are_optional_and_validated() -> None:
    oracle, clairvoyant = research.Oracle(THREE), research.Clairvoyant(THREE)
    contexts, p = np.zeros((3, 1)), np.zeros((3, 3, 3))
    assert oracle.run(contexts, optimal=np.array([2.0, 0.0, 1.0])).tolist() == [2, 0, 1]
    with pytest.raises(sw.errors.InvalidOutputsError):
        oracle.run(contexts, np.zeros((3, 2)), optimal=[0, 0, 0])
    with pytest.raises(sw.errors.InvalidOutputsError):
        clairvoyant.run(contexts, np.zeros((3, 2)), disagreement=p)


# -- the supervised comparator ------------------------------------------------------------------


def test_supervised_estimates_error_rates_of_arms() -> None:
    policy = research.Supervised(sw.Cascade([0.1, 0.3]), context_dim=1, forced_rounds=0, ridge=1e-9)
    for t in range(40):
        policy.observe([1.0], [t % 4 == 0, True], research.Truth(label=True))
    first, second = policy.theta(0), policy.theta(1)
    assert first is not None
    assert second is not None
    assert first[0] == pytest.approx(math.log(3), abs=1e-5)  # 0.75 of them wrong
    assert second[0] < -7


@pytest.mark.parametrize(
    "features", [sw.PerStage([sw.Identity(), sw.Identity()]), sw.Standard()], ids=repr
)
def test_supervised_needs_one_feature_map_for_all_arms(features: Any) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="one map for all arms"):
        research.Supervised(THREE, features, 2)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("delta", [0, 1, NAN]),
        ("sigma", [0, -1]),
        ("kappa", [0, 0.26]),
        ("ridge", [0, NAN]),
        ("explore", [-0.1, 1.1]),
        ("forced_rounds", [-1, "always"]),
        ("half_life", [0.5]),
        ("seed", [-1]),
        ("context_dim", [-1]),
    ],
)
def test_parameters_out_of_range_are_rejected_by_name(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(sw.errors.InvalidParameterError, match=rf"\b{name}\b"):
            research.Supervised(THREE, **{"context_dim": 2, name: value})


@pytest.mark.parametrize("explore", [0.0, 0.4])
def test_run_equals_single_rounds(explore: float) -> None:
    single, batched = supervised(explore=explore), supervised(explore=explore)
    stops: list[int] = []
    for t in range(300):
        decision = single.decide(WORLD.contexts[t])
        stops.append(decision.stop)
        single.observe(
            WORLD.contexts[t],
            OUTPUTS[t, : decision.stop + 1].tolist(),
            research.Truth(label=int(LABELS[t])),
            rule_stop=decision.rule_stop,
        )
    batch_stops: list[int] = []
    for rows in (slice(0, 71), slice(71, 300)):
        batch_stops += batched.run(
            WORLD.contexts[rows], OUTPUTS[rows], labels=LABELS[rows]
        ).tolist()
    assert batch_stops == stops
    assert single.rounds == batched.rounds == 300
    np.testing.assert_array_equal(single.state()["learner"], batched.state()["learner"])


@pytest.mark.parametrize("data", ["agree", "disagree", "separable", "constant"])
def test_degenerate_data_give_finite_evidence(data: str) -> None:
    policy = research.Supervised(sw.Cascade([0.05, 0.3, 0.3]), sw.Polynomial(1), 2, forced_rounds=5)
    contexts, outputs = WORLD.contexts, OUTPUTS.copy()
    if data == "agree":
        outputs = np.ones_like(outputs)
    if data == "disagree":
        outputs = np.tile(np.arange(3), (len(outputs), 1))
    if data == "separable":
        outputs[:, 0] = outputs[:, 2] ^ (contexts[:, 0] > 0)
    if data == "constant":
        contexts = np.tile([0.5, -0.5], (len(contexts), 1))
    policy.run(contexts, outputs, labels=outputs[:, 2])
    for x in (*contexts[:10], [1.0, -1.0], [0.0, 0.0]):  # the last two are new
        decision = policy.decide(x)
        for e in decision.evidence:
            assert math.isfinite(e.disagreement)
            assert math.isfinite(e.disagreement_ucb)
            assert e.gap_won or e.first < decision.stop
    if data == "agree":
        assert policy.decide(contexts[0]).stop == 0


def test_copies_continue_identically_and_are_independent() -> None:
    policy = supervised(explore=0.2)
    policy.run(WORLD.contexts[:100], OUTPUTS[:100], labels=LABELS[:100])
    before = policy.state()["learner"]
    restored = supervised(explore=0.2)
    restored.restore(policy.state())
    stops = [
        twin.run(WORLD.contexts[100:], OUTPUTS[100:], labels=LABELS[100:]).tolist()
        for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), restored)
    ]
    assert stops[0] == stops[1] == stops[2]
    np.testing.assert_array_equal(policy.state()["learner"], before)


def test_failed_calls_change_nothing() -> None:
    policy = supervised()
    policy.run(WORLD.contexts[:40], OUTPUTS[:40], labels=LABELS[:40])
    before = policy.state()["learner"]
    label, x, table = research.Truth(label=1), [0.5, -0.5], np.zeros((2, 3))
    calls: list[tuple[type[Exception], Any]] = [
        (sw.errors.InvalidOutputsError, lambda: policy.observe(x, [], label)),
        (sw.errors.InvalidOutputsError, lambda: policy.observe(x, "yes", label)),
        (sw.errors.InvalidContextError, lambda: policy.observe([0.5, NAN], [1], label)),
        (sw.errors.InvalidStopError, lambda: policy.observe(x, [1], label, rule_stop=3)),
        (sw.errors.TruthRequiredError, lambda: policy.observe(x, [1], research.Truth())),
        (sw.errors.TruthRequiredError, lambda: policy.observe(x, [1], research.Truth(label=NAN))),
        (sw.errors.TruthRequiredError, lambda: policy.run([x, x], table)),
        (sw.errors.InvalidOutputsError, lambda: policy.run([x, x], table[:, :2], labels=[0, 0])),
        (sw.errors.InvalidOutputsError, lambda: policy.run([x, x], table, labels=[0, NAN])),
        (sw.errors.InvalidParameterError, lambda: policy.run([x, x], table, labels=[0])),
        (sw.errors.InvalidParameterError, lambda: policy.run([x, x], table, labels=table)),
        (sw.errors.InvalidContextError, lambda: policy.run([x, [2, 0]], table, labels=[0, 0])),
    ]
    for error, call in calls:
        with pytest.raises(error):
            call()
    np.testing.assert_array_equal(policy.state()["learner"], before)


# -- in an environment --------------------------------------------------------------------------


def test_comparators_have_less_regret_than_a_fixed_depth() -> None:
    fixed = measure(sw.FixedDepth(THREE), WORLD).regret[-1]
    assert 0 < measure(supervised(), WORLD).regret[-1] < fixed
    assert 0 < measure(research.Clairvoyant(THREE), WORLD).regret[-1] < fixed
    assert measure(research.Oracle(THREE), WORLD).regret[-1] == 0
