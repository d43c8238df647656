"""Tests of the registry of policies and of `make`."""

import json
import subprocess
import sys
from typing import Any

import pytest

import stopwise as sw
from stopwise.policies.registry import Registry, policy_class, takes
from tests.helpers.own_policies import Averaging

LISTING = """
import json, sys
import stopwise as sw
names = list(sw.POLICIES)
assert "uss-pd" in sw.POLICIES and "averaging" not in sw.POLICIES
before = [name for name in sys.modules if name.startswith("stopwise.policies.")]
sw.POLICIES["fixed-depth"]
json.dump([names, before, "stopwise.policies.uss_pd" in sys.modules], sys.stdout)
"""


def test_registered_names_match_the_classes() -> None:
    for name, kind in sw.POLICIES.items():
        assert kind.name == name
        assert issubclass(kind, sw.Policy)
        assert getattr(sw, kind.__name__) is kind


def test_listing_names_imports_no_policies() -> None:
    process = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, check=True
    )
    names, before, loaded = json.loads(process.stdout)
    assert names == list(sw.POLICIES)
    assert before == ["stopwise.policies.registry"]
    assert not loaded


def test_policies_can_be_registered_and_removed() -> None:
    registry = Registry({"fixed-depth": "stopwise.policies.baselines:FixedDepth"})
    registry["averaging"] = Averaging
    assert list(registry) == ["fixed-depth", "averaging"]
    assert len(registry) == 2
    assert registry["averaging"] is Averaging
    del registry["averaging"]
    assert "averaging" not in registry
    with pytest.raises(KeyError):
        registry["averaging"]


@pytest.mark.parametrize(
    "lookup", [policy_class, lambda name: sw.make(name, sw.Cascade([0.1, 0.2]))]
)
def test_an_unknown_name_is_rejected_with_a_suggestion(lookup: Any) -> None:
    with pytest.raises(
        sw.errors.UnknownPolicyError, match=r"unknown policy 'usspd'; did you mean 'uss-pd'"
    ):
        lookup("usspd")
    with pytest.raises(sw.errors.UnknownPolicyError, match=r"'x'; choose from uss-laplace, "):
        lookup("x")


def test_make_passes_contexts_only_to_policies_that_take_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cascade, options = sw.Cascade([0.1, 0.2]), {"features": sw.Polynomial(1), "context_dim": 3}
    assert isinstance(sw.make("uss-ucb", cascade, **options), sw.USSUCB)
    monkeypatch.setitem(sw.POLICIES, "averaging", Averaging)
    policy: Any = sw.make("averaging", cascade, explore=0.5, **options)
    assert (policy.features.n_features, policy.explore) == (4, 0.5)
    assert takes(Averaging, "explore")
    assert not takes(Averaging, "delta")
    with pytest.raises(TypeError, match="delta"):
        sw.make("averaging", cascade, delta=0.1)
