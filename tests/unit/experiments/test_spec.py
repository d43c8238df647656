"""Specs: one spelling, one key, and mistakes found before anything is run."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stopwise as sw
from stopwise.errors import InvalidParameterError, UnknownEnvironmentError, UnknownPolicyError
from stopwise.experiments.runs import execute
from stopwise.experiments.spec import (
    EnvironmentSpec,
    ExperimentSpec,
    PolicySpec,
    environment_random,
    policy_seed,
)

CASCADE = sw.Cascade(costs=[0.1, 0.2])

# Written by hand: what the key of `example()` is the hash of, for good.
TEXT = (
    '{"format":2,"spec":{"checkpoints":50,"environment":{"costs":[0.1,1.0,0.25],'
    '"name":"logistic-arms","parameters":{"arms":[[1,0.5,-2e-07],[10000000000000000000000,0,3]],'
    '"label":[8,0,0.3333333333333333]}},"policy":{"features":{"bias":true,"bound":1,"degree":2,'
    '"kind":"polynomial","without":[[0,0]]},"name":"uss-pd","parameters":{"forced_rounds":"auto",'
    '"sigma":0.2}},"rounds":5000}}'
)
KEY = "2f07f2fbfb83e734"


def example() -> ExperimentSpec:
    return ExperimentSpec(
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


def simple(policy: str | PolicySpec = "uss-ucb", **changes: Any) -> ExperimentSpec:
    if isinstance(policy, str):
        policy = PolicySpec(policy)
    where = EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[-3, 2]]})
    return ExperimentSpec(**{"environment": where, "policy": policy, "rounds": 100} | changes)


def test_the_key_never_changes() -> None:
    assert hashlib.sha256(TEXT.encode()).hexdigest()[:16] == KEY
    assert example().key == KEY


def test_the_key_is_that_of_any_process() -> None:
    code = (
        "import sys; from stopwise.experiments.spec import ExperimentSpec;"
        "print(ExperimentSpec.from_json(sys.stdin.read()).key)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        input=example().to_json(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == KEY


def test_the_way_a_spec_is_written_does_not_show() -> None:
    one = simple(rounds=5e3, checkpoints=np.int64(10))
    other = ExperimentSpec(
        EnvironmentSpec("realizable", [0.1, 0.2], {"theta": (np.array([-3.0, 2.0]),)}),  # pyright: ignore[reportArgumentType]
        PolicySpec("uss-ucb"),
        rounds=5000,
        checkpoints=10,
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one.key == other.key
    flipped = PolicySpec("uss-pd", {"sigma": 1, "delta": 0.5})
    assert flipped == PolicySpec("uss-pd", {"delta": 0.5, "sigma": 1.0})


def test_equal_feature_maps_have_equal_specs() -> None:
    one = PolicySpec("uss-pd", features={"kind": "polynomial", "degree": 2.0, "bound": 1})
    assert one == PolicySpec("uss-pd", features=sw.Polynomial(2).to_spec())


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 101},
        {"checkpoints": 49},
        {"policy": PolicySpec("uss-ts")},
        {"policy": PolicySpec("uss-ucb", {"a": 0.5})},
        {"policy": PolicySpec("uss-ucb", {"a": True})},
        {"environment": EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[-3, 2.5]]})},
        {"environment": EnvironmentSpec("realizable", (0.1, 0.25), {"theta": [[-3, 2]]})},
    ],
)
def test_another_experiment_has_another_key(change: dict[str, Any]) -> None:
    assert simple(**change).key != simple().key
    assert simple(**change) != simple()


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text().filter(lambda name: name != "seed"), plain, max_size=4))
def test_a_spec_survives_json_and_pickle(parameters: dict[str, Any]) -> None:
    spec = EnvironmentSpec("any", (0.5, 1), parameters)
    for twin in (EnvironmentSpec.from_json(spec.to_json()), pickle.loads(pickle.dumps(spec))):
        assert twin == spec
        assert twin.parameters == parameters  # the values are those given, to the last bit
    assert json.loads(spec.to_json())["costs"] == [0.5, 1.0]


def test_a_spec_does_not_change_with_the_dict_it_was_made_of() -> None:
    parameters = {"theta": [[-3, 2]]}
    spec = EnvironmentSpec("realizable", (0.1, 0.2), parameters)
    before = spec.to_json()
    parameters["theta"][0][0] = 99
    assert spec.to_json() == before


@pytest.mark.parametrize(
    ("rounds", "checkpoints"), [(1, 1), (7, 3), (1000, 50), (50, 50), (101, 100)]
)
def test_checkpoints_are_spread_evenly_and_end_at_the_last_round(
    rounds: int, checkpoints: int
) -> None:
    kept = simple(rounds=rounds, checkpoints=checkpoints).kept
    steps = np.diff(kept, prepend=0)
    assert len(kept) == checkpoints
    assert kept[-1] == rounds
    assert steps.min() >= 1
    assert steps.max() - steps.min() <= 1


def test_more_checkpoints_than_rounds_keep_every_round() -> None:
    assert simple(rounds=5, checkpoints=50).kept.tolist() == [1, 2, 3, 4, 5]
    assert simple(rounds=5, checkpoints=50) == simple(rounds=5, checkpoints=5)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, float("nan"), float("inf"), "many", None])
@pytest.mark.parametrize("field", ["rounds", "checkpoints"])
def test_counts_are_whole_numbers(field: str, wrong: Any) -> None:
    with pytest.raises(InvalidParameterError, match=f"{field} must be a whole number, 1 or more"):
        simple(**{field: wrong})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"a": float("nan")}, "finite"),
        ({"a": [1, float("inf")]}, "finite"),
        ({"a": {1: 2}}, "strings, not 1"),
        ({"a": {1, 2}}, "not set"),
        ({"a": b"bytes"}, "not bytes"),
        ([("a", 1)], "dict by name"),
        ({"seed": 3}, "seed is no parameter"),
        ({"context_dim": 3}, "context_dim is no parameter"),
    ],
)
def test_parameters_are_plain_values(parameters: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        PolicySpec("uss-ucb", parameters)


@pytest.mark.parametrize("costs", [[0.1], [0.1, -1], ["a", "b"], [0.1, float("nan")]])
def test_costs_are_those_of_a_cascade(costs: Any) -> None:
    with pytest.raises(sw.InvalidCascadeError):
        EnvironmentSpec("pima", costs)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"name": "pima"}',
        '{"name": "pima", "costs": [1], "parameters": {}}',
        '{"name": "pima", "costs": [1, 2], "kosts": 3}',
    ],
)
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="describes no EnvironmentSpec"):
        EnvironmentSpec.from_json(text)


def test_unknown_names_and_parameters_are_found_when_it_is_built() -> None:
    with pytest.raises(UnknownEnvironmentError, match="'mars'"):
        EnvironmentSpec("mars", (0.1, 0.2)).build()
    with pytest.raises(InvalidParameterError, match=r"'realizable'.*'gravity'"):
        EnvironmentSpec("realizable", (0.1, 0.2), {"theta": [[1, 2]], "gravity": 3}).build()
    with pytest.raises(InvalidParameterError, match=r"'realizable'.*theta"):
        EnvironmentSpec("realizable", (0.1, 0.2)).build()
    with pytest.raises(UnknownPolicyError, match="'guess'"):
        PolicySpec("guess").build(CASCADE, 2, seed=0)
    with pytest.raises(InvalidParameterError, match=r"'uss-pd'.*'luck'"):
        PolicySpec("uss-pd", {"luck": 1}).build(CASCADE, 2, seed=0)
    with pytest.raises(InvalidParameterError, match="delta must be"):
        PolicySpec("uss-pd", {"delta": 2}).build(CASCADE, 2, seed=0)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"kind": "fourier"}, "describes no feature map"),
        ({"degree": 2}, "describes no feature map"),
        ({"kind": "identity", "bound": -1}, "bound"),
        ({"kind": "custom", "name": "mine", "n_features": 2}, "cannot be part of a spec"),
    ],
)
def test_features_are_one_map_that_can_be_written_down(
    features: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        PolicySpec("uss-pd", features=features)


def test_features_are_not_for_a_policy_that_looks_at_no_context() -> None:
    spec = PolicySpec("uss-ucb", features=sw.Identity().to_spec())
    with pytest.raises(InvalidParameterError, match="looks at no context"):
        spec.build(CASCADE, 2, seed=0)


class Own(sw.Policy):
    """A policy from outside the package, as little as one can be."""

    rounds = property(lambda self: self.learned)  # pyright: ignore[reportAssignmentType]
    learned = 0

    def __init__(self, cascade: sw.Cascade, features: Any, context_dim: int, seed: int) -> None:
        super().__init__(cascade)
        self.features, self.seed = sw.bind(features, context_dim, cascade.n_arms), seed

    def decide(self, x: Any) -> sw.Decision:
        return self._decision(int(self.features.row(x)[0] > 0))

    def _learn_pairs(self, x: Any, stop: int, differ: Any) -> None:
        self.learned += 1

    def parameters(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None:
        pass


class HandsOn(Own):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class Sized(Own):
    def __init__(self, cascade: sw.Cascade, context_dim: int) -> None:
        super().__init__(cascade, sw.Identity(), context_dim, 0)


class Blind(Own):
    def __init__(self, cascade: sw.Cascade) -> None:
        super().__init__(cascade, sw.Identity(), 1, 0)


@pytest.mark.parametrize("kind", [Own, HandsOn])
def test_a_policy_from_outside_gets_what_its_constructor_takes(
    kind: type[Own], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sw.POLICIES, "own", kind)
    spec = PolicySpec("own", features=sw.Polynomial(degree=2).to_spec())
    policy = spec.build(CASCADE, 3, seed=4)
    assert isinstance(policy, kind)
    assert (policy.features.context_dim, policy.features.n_features) == (3, 10)
    assert policy.seed == policy_seed(4)
    trace = execute(simple(PolicySpec("own", features=sw.Identity().to_spec())), seed=1)
    assert trace.depths.sum() == 100
    with pytest.raises(InvalidParameterError, match=r"'own'.*features"):
        PolicySpec("own").build(CASCADE, 3, seed=4)


def test_a_policy_from_outside_may_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sw.POLICIES, "sized", Sized)
    monkeypatch.setitem(sw.POLICIES, "blind", Blind)
    for name, dim in (("sized", 3), ("blind", 1)):
        policy = PolicySpec(name).build(CASCADE, 3, seed=0)
        assert isinstance(policy, Own)
        assert policy.features.context_dim == dim
        with pytest.raises(InvalidParameterError, match="leave its features out"):
            PolicySpec(name, features=sw.Identity().to_spec()).build(CASCADE, 3, seed=0)


@pytest.mark.parametrize("name", sorted(sw.POLICIES))
def test_every_policy_can_be_built(name: str) -> None:
    needed = {"uss-pd-ridge": {"lam": 1, "S": 2}}
    policy = PolicySpec(name, needed.get(name, {})).build(CASCADE, 3, seed=4)
    assert policy.name == name
    assert policy.rounds == 0


@pytest.mark.parametrize("name", ["thompson", "uss-ts", "random-depth"])
def test_a_policy_that_draws_is_seeded_by_the_run(name: str) -> None:
    first, second = (PolicySpec(name).build(CASCADE, 2, seed).parameters() for seed in (1, 2))
    assert first["seed"] == policy_seed(1)
    assert second["seed"] == policy_seed(2)
    assert policy_seed(1) != policy_seed(2)


def test_the_streams_of_a_run_never_change_and_differ_from_each_other() -> None:
    # numpy promises SeedSequence and PCG64 for good; these numbers would tell if we left them.
    assert environment_random(7).random() == np.random.default_rng([7, 0]).random()
    assert [policy_seed(0), policy_seed(7)] == [2918264622725855778, 3317731564112288844]
    assert environment_random(7).random() != np.random.default_rng(policy_seed(7)).random()


@pytest.mark.parametrize("seed", [-1, 0.5, "one", None])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(InvalidParameterError, match="seed must be a whole number"):
        environment_random(seed)
    with pytest.raises(InvalidParameterError, match="seed must be a whole number"):
        policy_seed(seed)


@pytest.mark.parametrize("name", [sw.Pima, None, 3])
def test_a_name_is_a_string(name: Any) -> None:
    with pytest.raises(InvalidParameterError, match="by a string"):
        EnvironmentSpec(name, (0.1, 0.2))
    with pytest.raises(InvalidParameterError, match="by a string"):
        PolicySpec(name)
