"""Experiment specs: canonical form, stable keys, early errors."""

import copy
import hashlib
import json
import pickle
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stopwise as sw
from stopwise import research
from stopwise.errors import InvalidParameterError
from stopwise.research.experiments.runs import execute
from stopwise.research.experiments.spec import (
    EnvironmentSpec,
    ExperimentSpec,
    PolicySpec,
    environment_rng,
    policy_seed,
)
from tests.research.campaigns import PAIR

CASCADE = sw.Cascade(costs=[0.1, 0.2])

# Written by hand: the text whose hash must stay the key of EXAMPLE.
TEXT = (
    '{"format":6,"spec":{"checkpoints":50,"environment":{"costs":[0.1,1,0.25],'
    '"name":"logistic-arms","parameters":{"arms":[[1,0.5,-2e-7],[10000000000000000000000,0,3]],'
    '"label":[8,0,0.3333333333333333]}},"policy":{"features":{"bias":true,"bound":1,"degree":2,'
    '"kind":"polynomial","without":[[0,0]]},"name":"uss-pd","parameters":{"forced_rounds":"auto",'
    '"sigma":0.2}},"rounds":5000}}'
)
KEY = "e071c407db7688ca"
EXAMPLE = ExperimentSpec(
    EnvironmentSpec(
        "logistic-arms",
        (0.1, 1, 0.25),
        {"arms": [[1, 0.5, -2e-7], [1e22, 0, 3]], "label": [8, 0, 1 / 3]},
    ),
    PolicySpec(
        "uss-pd",
        {"sigma": 0.2, "forced_rounds": "auto"},
        sw.Polynomial(degree=2, without=((0, 0),)).to_spec(),
    ),
    rounds=5000,
)


def simple(policy: PolicySpec | None = None, **changes: Any) -> ExperimentSpec:
    fields = {"environment": PAIR, "policy": policy or PolicySpec("uss-ucb"), "rounds": 100}
    return ExperimentSpec(**fields | changes)


def test_the_key_of_a_spec_is_pinned() -> None:
    assert hashlib.sha256(TEXT.encode()).hexdigest()[:16] == EXAMPLE.key == KEY
    assert msgspec.json.decode(EXAMPLE.to_json(), type=ExperimentSpec).key == KEY


def test_equal_specs_compare_equal_in_any_notation() -> None:
    left = simple(rounds=5e3, checkpoints=np.int64(10))
    theta = {"theta": (np.array([-3.0, 2.0]),)}
    where = EnvironmentSpec("realizable", [0.1, 0.2], theta)  # pyright: ignore[reportArgumentType] (a list for a tuple)
    right = ExperimentSpec(where, PolicySpec("uss-ucb"), rounds=5000, checkpoints=10)
    assert (left, hash(left), left.key) == (right, hash(right), right.key)
    in_order = PolicySpec("uss-pd", {"sigma": 1, "delta": 0.5})
    assert in_order == PolicySpec("uss-pd", {"delta": 0.5, "sigma": 1.0})
    by_hand = PolicySpec("uss-pd", features={"kind": "polynomial", "degree": 2.0, "bound": 1})
    assert by_hand == PolicySpec("uss-pd", features=sw.Polynomial(2).to_spec())
    assert simple(rounds=5, checkpoints=50) == simple(rounds=5, checkpoints=5)


def test_different_experiments_have_different_keys() -> None:
    changes: list[dict[str, Any]] = [
        {"rounds": 101},
        {"checkpoints": 49},
        {"policy": PolicySpec("uss-ts")},
        {"policy": PolicySpec("uss-ucb", {"a": 1})},
        {"policy": PolicySpec("uss-ucb", {"a": True})},
        {"environment": EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[-3, 2.5]]})},
        {"environment": EnvironmentSpec("realizable", (0.1, 0.25), {"theta": [[-3, 2]]})},
    ]
    specs = [simple(), *(simple(**change) for change in changes)]
    assert len({spec.key for spec in specs}) == len(set(specs)) == len(specs)


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text().filter(lambda name: name != "seed"), plain, max_size=4))
def test_specs_round_trip_through_json_and_pickle(parameters: dict[str, Any]) -> None:
    original = copy.deepcopy(parameters)
    spec = EnvironmentSpec("any", (0.5, 1), original)
    for value in original.values():  # mutating the arguments must not change the spec
        if isinstance(value, list | dict):
            value.clear()
    from_json = msgspec.convert(json.loads(spec.to_json()), EnvironmentSpec)
    for twin in (from_json, pickle.loads(pickle.dumps(spec))):
        assert twin == spec
        assert twin.parameters == parameters
    assert json.loads(spec.to_json())["costs"] == [0.5, 1.0]


@pytest.mark.parametrize(("rounds", "checkpoints"), [(1, 1), (7, 3), (101, 100), (5, 50)])
def test_checkpoints_are_evenly_spaced_and_end_at_the_last_round(
    rounds: int, checkpoints: int
) -> None:
    at = simple(rounds=rounds, checkpoints=checkpoints).checkpoint_rounds
    steps = np.diff(at, prepend=0)
    assert len(at) == min(checkpoints, rounds)
    assert at[-1] == rounds
    assert steps.min() >= 1
    assert steps.max() - steps.min() <= 1


NAN = float("nan")
IDENTITY = sw.Identity().to_spec()
REFUSED = {
    "rounds": lambda: simple(rounds=0),
    "finite": lambda: PolicySpec("uss-ucb", {"a": [1, NAN]}),
    "string keys, got {1: 2}": lambda: PolicySpec("uss-ucb", {"a": {1: 2}}),
    "got {1, 2}": lambda: PolicySpec("uss-ucb", {"a": {1, 2}}),
    "parameters must not contain 'seed'": lambda: PolicySpec("uss-ucb", {"seed": 3}),
    "unknown policy or comparator": lambda: PolicySpec(research.Pima).build(CASCADE, 2, 0),  # pyright: ignore[reportArgumentType] (wrong on purpose)
    "unknown feature map 'fourier'; choose from": lambda: PolicySpec(
        "uss-pd", features={"kind": "fourier"}
    ),
    "but not its code; pass the function": lambda: PolicySpec(
        "uss-pd", features={"kind": "custom", "name": "mine", "n_features": 2}
    ),
    "features must be omitted for 'uss-ucb'": lambda: PolicySpec(
        "uss-ucb", features=IDENTITY
    ).build(CASCADE, 2, 0),
    "'gravity'": lambda: EnvironmentSpec("pima", (0.1, 0.2, 0.3), {"gravity": 3}).build(),
    "'mars'": lambda: EnvironmentSpec("mars", (0.1, 0.2)).build(),
    "'guess'": lambda: PolicySpec("guess").build(CASCADE, 2, seed=0),
    "cost": lambda: EnvironmentSpec("pima", (0.1, -1)),
    "'luck'": lambda: PolicySpec("uss-pd", {"luck": 1}).build(CASCADE, 2, seed=0),
    "delta must be": lambda: PolicySpec("uss-pd", {"delta": 2}).build(CASCADE, 2, seed=0),
    "seed must be": lambda: environment_rng(-1),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_specs_are_rejected(message: str) -> None:
    with pytest.raises((sw.errors.StopwiseError, TypeError), match=re.escape(message)):
        REFUSED[message]()


class OnlyDimension(sw.Policy):
    features: Any

    def __init__(self, cascade: sw.Cascade, context_dim: int) -> None:
        super().__init__(cascade)
        self.features = sw.bind(sw.Identity(), context_dim, cascade.n_arms)

    def decide(self, x: Any) -> sw.Decision:
        return self.cascade.decision(0)

    def learn(self, observation: sw.Observation) -> None:
        """Learn nothing."""


class Own(OnlyDimension):
    def __init__(self, cascade: sw.Cascade, features: Any, context_dim: int, seed: int) -> None:
        super().__init__(cascade, context_dim)
        self.features = sw.bind(features, context_dim, cascade.n_arms)
        self.seed = seed


def test_custom_policy_gets_the_arguments_of_its_constructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sw.POLICIES, "own", Own)
    spec = PolicySpec("own", features=sw.Polynomial(degree=2).to_spec())
    policy = spec.build(CASCADE, 3, seed=4)
    assert isinstance(policy, Own)
    assert (policy.features.context_dim, policy.features.n_features) == (3, 10)
    assert policy.parameters()["seed"] == policy_seed(4)
    assert execute(simple(PolicySpec("own", features=IDENTITY)), seed=1).depths.sum() == 100
    with pytest.raises(TypeError, match="features"):
        PolicySpec("own").build(CASCADE, 3, seed=4)
    monkeypatch.setitem(sw.POLICIES, "own", OnlyDimension)
    policy = PolicySpec("own").build(CASCADE, 3, seed=0)
    assert isinstance(policy, OnlyDimension)
    assert policy.features.context_dim == 3
    with pytest.raises(InvalidParameterError, match="features must be omitted"):
        PolicySpec("own", features=IDENTITY).build(CASCADE, 3, seed=0)


def test_random_streams_of_a_run_are_stable_and_independent() -> None:
    # numpy guarantees SeedSequence and PCG64; these numbers change if the generator does.
    assert environment_rng(7).random() == np.random.default_rng([7, 0]).random()
    assert [policy_seed(0), policy_seed(7)] == [2918264622725855778, 3317731564112288844]
    assert environment_rng(7).random() != np.random.default_rng(policy_seed(7)).random()


@pytest.mark.parametrize("name", ["thompson", "uss-ts", "random-depth"])
def test_a_random_policy_gets_the_seed_of_its_run(name: str) -> None:
    policy = PolicySpec(name).build(CASCADE, 2, 7)
    assert isinstance(policy, sw.Policy)
    assert policy.parameters()["seed"] == policy_seed(7)
