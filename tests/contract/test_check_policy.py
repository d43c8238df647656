"""Tests of `check_policy` with built-in, own and broken policies."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise.errors import PolicyCheckError
from tests.helpers.own_policies import Averaging, Cautious, Shallow

CASCADE = sw.Cascade([0.05, 0.15, 0.2], names=["rule", "model", "expert"])
CONTEXTS = np.random.default_rng(0).uniform(-1, 1, (20, 2))

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "uss-pd": [
        {"forced_rounds": 10, "sigma": 0.002},
        {"forced_rounds": 10, "sigma": 0.002, "explore": 0.4},
        {"forced_rounds": 5, "sigma": 0.01, "labels": 30},
    ],
    "uss-laplace": [{}, {"labels": 30}, {"features": sw.Polynomial(2)}],
    "uss-pd-ridge": [{"lam": 0.5, "S": 0.1}],
    "fixed-depth": [{"depth": 1}],
    "uss-ucb": [{"a": 0.1}],
}
CASES = [(name, options) for name in sw.POLICIES for options in OPTIONS.get(name, [{}])]


@pytest.mark.parametrize("n_arms", [2, 4])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_registered_policy_passes_and_stays_unchanged(
    name: str, options: dict[str, Any], n_arms: int
) -> None:
    policy = sw.make(name, sw.Cascade([0.1] * n_arms), context_dim=2, **options)
    before = copy.deepcopy(policy.state())
    sw.check_policy(policy)
    for key, array in policy.state().items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize(
    "policy",
    [
        Averaging(CASCADE),
        Averaging(CASCADE, sw.Polynomial(1), explore=0),
        Averaging(CASCADE, labels=10),
        Cautious(sw.USSLaplace(CASCADE, context_dim=2)),
        Cautious(Averaging(CASCADE)),
    ],
    ids=repr,
)
def test_own_policies_pass(policy: sw.Policy) -> None:
    sw.check_policy(policy)


def test_contexts_are_required_without_suitable_features() -> None:
    sw.check_policy(Shallow(CASCADE), CONTEXTS)
    with pytest.raises(sw.errors.InvalidParameterError, match="pass valid contexts as contexts="):
        sw.check_policy(Shallow(CASCADE))
    small = Averaging(CASCADE, sw.Identity(bound=0.1))
    with pytest.raises(sw.errors.InvalidParameterError, match="pass valid contexts as contexts="):
        sw.check_policy(small)
    sw.check_policy(small, CONTEXTS / 10)
    with pytest.raises(sw.errors.InvalidContextError, match="must be a table"):
        sw.check_policy(small, [0.05, 0.05])


def test_a_policy_with_revealed_context_is_rejected() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="without reveals"):
        sw.check_policy(sw.USSLaplace(CASCADE, context_dim=2, reveals=0))


# -- broken policies ----------------------------------------------------------------------------

COUNTER = [0]  # shared by the copies of a policy


class DecidesAnInt(Averaging):
    def decide(self, x: Any) -> Any:
        return super().decide(x).stop


class FloatStop(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        return sw.Decision(1.0, "model", self.cascade.cost(1))  # pyright: ignore[reportArgumentType]


class TooDeep(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        return sw.Decision(3, "other", 1.0)


class RuleTooDeep(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        return sw.Decision(1, "model", self.cascade.cost(1), explored_from=2)


class WrongCost(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        return sw.Decision(1, "model", 0.15)


class Raising(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        raise KeyError("x")


class LearnsInDecide(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        self._ran += 0.5
        return super().decide(x)


class GlobalRandomness(Averaging):
    random = np.random.default_rng(0)

    def decide(self, x: Any) -> sw.Decision:
        return self.cascade.decision(int(self.random.integers(3)))


class SharedState(Averaging):
    def __deepcopy__(self, memo: Any) -> Any:
        return self


class CountsRoundsTogether(Averaging):
    def decide(self, x: Any) -> sw.Decision:
        return self.cascade.decision(COUNTER[0] // 7 % 3)

    def learn(self, observation: sw.Observation) -> None:
        COUNTER[0] += 1


class ChangesContexts(Averaging):
    def learn(self, observation: sw.Observation) -> sw.LabelRequest | None:
        request = super().learn(observation)
        np.asarray(observation.context)[:] = 0
        return request


class ChangesDisagreements(Averaging):
    def learn(self, observation: sw.Observation) -> sw.LabelRequest | None:
        request = super().learn(observation)
        observation.differ[:] = False
        return request


class LooksAtOutputs(Averaging):
    def observe(self, x: Any, outputs: Any, *, rule_stop: int | None = None) -> Any:
        if outputs[0] == "spam":
            self._ran += 1
        return super().observe(x, outputs, rule_stop=rule_stop)


class IgnoresOutputs(Averaging):
    def observe(self, x: Any, outputs: Any, *, rule_stop: int | None = None) -> Any:
        return None


class OwnRun(Averaging):
    def run(self, contexts: Any, outputs: Any, **more: Any) -> Any:
        return np.zeros(len(contexts), dtype=np.int64)


class OwnBatch(Averaging):
    def decide_many(self, X: Any) -> Any:
        return np.arange(len(X)) % 3


class NoRequests(Averaging):
    def learn(self, observation: sw.Observation) -> Any:
        super().learn(observation)
        return True


class UnannouncedRequests(Averaging):
    asks_for_labels = False  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]


class RefusesLabels(Averaging):
    def learn_label(self, label: sw.Label) -> None:
        raise ValueError("no labels today")


class StateOnly(Shallow):
    def state(self) -> dict[str, NDArray[Any]]:
        return {}


class StateOfLists(Averaging):
    def state(self) -> Any:
        return {name: array.tolist() for name, array in super().state().items()}


class StateOfText(Averaging):
    def state(self) -> Any:
        return {**super().state(), "name": np.array(["averaging"])}


class SharesItsState(Averaging):
    def state(self) -> dict[str, NDArray[Any]]:
        return {**super().state(), "ran": self._ran}


class ForgetsRounds(Averaging):
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().restore(state)
        self._rounds = 0


class RestoresAnything(Averaging):
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        if state:
            super().restore(state)


class HidesAParameter(Averaging):
    def __init__(self, cascade: sw.Cascade, *, strength: float = 1.0) -> None:
        super().__init__(cascade)


class ForgetsAParameter(Averaging):
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "colour": "red"}


BROKEN: list[tuple[type[Averaging] | type[Shallow], dict[str, Any], str]] = [
    (DecidesAnInt, {}, "decide must return a Decision, got int; use self.cascade.decision"),
    (FloatStop, {}, "Decision.stop must be an int, got float"),
    (TooDeep, {}, "Decision.stop must be an arm, 0 to 2, got 3"),
    (RuleTooDeep, {}, "Decision.rule_stop must be an arm from 0 to the stop (1), got 2"),
    (WrongCost, {}, "Decision.arm and Decision.cost must be 'model' and 0.2 for stop 1"),
    (Raising, {}, "decide raised KeyError: 'x'"),
    (LearnsInDecide, {}, "decide must not learn, but it changed _ran"),
    (GlobalRandomness, {}, "draw from a generator stored in the policy"),
    (SharedState, {}, "a deep copy must not share its state"),
    (CountsRoundsTogether, {}, "a deep copy must not share its state"),
    (ChangesContexts, {}, "learn must not change its arguments"),
    (ChangesDisagreements, {}, "learn must not change its arguments"),
    (LooksAtOutputs, {}, "outputs must be compared only by equality"),
    (IgnoresOutputs, {}, "observe_disagreements must learn the same as observe"),
    (OwnRun, {}, "run must return the same stops as single rounds"),
    (OwnBatch, {}, "decide_many must return the same rule_stop as decide"),
    (NoRequests, {}, "learn must return None or a LabelRequest, got bool"),
    (UnannouncedRequests, {"labels": 5}, "asks_for_labels is False"),
    (RefusesLabels, {}, "label(round, answer) raised ValueError: no labels today"),
    (StateOnly, {}, "implement both state and restore"),
    (StateOfLists, {}, "state must map names to arrays, got list"),
    (StateOfText, {}, "must have dtype float64, int64, int32 or uint8"),
    (SharesItsState, {}, "state must return copies"),
    (ForgetsRounds, {}, "restore(state()) must restore the policy; state differs in counts"),
    (RestoresAnything, {}, "restore must raise ValueError for an invalid state"),
    (HidesAParameter, {}, "parameters raised AttributeError"),
    (ForgetsAParameter, {}, "(cascade, **parameters()) raised TypeError"),
]


@pytest.mark.parametrize(("kind", "options", "message"), BROKEN)
def test_a_broken_policy_fails_with_the_expected_behaviour(
    kind: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolicyCheckError) as caught:
        sw.check_policy(kind(CASCADE, **options), CONTEXTS)
    assert message in str(caught.value)
    assert isinstance(caught.value, AssertionError)


def test_an_object_that_is_not_a_policy_is_rejected() -> None:
    with pytest.raises(PolicyCheckError, match="expected a Policy, got dict"):
        sw.check_policy({})  # pyright: ignore[reportArgumentType]
