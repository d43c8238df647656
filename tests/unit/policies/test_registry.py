"""Policies by name: lazy, extensible, and in step with their classes."""

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


def test_names_are_those_of_the_classes() -> None:
    for name, kind in sw.POLICIES.items():
        assert kind.name == name
        assert issubclass(kind, sw.Policy)
        assert getattr(sw, kind.__name__) is kind


def test_listing_names_imports_no_policy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, check=True
    )
    names, before, loaded = json.loads(done.stdout)
    assert names == list(sw.POLICIES)
    assert before == ["stopwise.policies.registry"]
    assert not loaded


def test_a_policy_is_registered_and_removed() -> None:
    registry = Registry({"fixed-depth": "stopwise.policies.baselines:FixedDepth"})
    registry["averaging"] = Averaging
    assert list(registry) == ["fixed-depth", "averaging"]
    assert len(registry) == 2
    assert registry["averaging"] is Averaging
    del registry["averaging"]
    assert "averaging" not in registry
    with pytest.raises(KeyError):
        registry["averaging"]


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    for call in (policy_class, lambda name: sw.make(name, sw.Cascade([0.1, 0.2]))):
        with pytest.raises(sw.errors.UnknownPolicyError, match=r"'usspd'; did you mean 'uss-pd'"):
            call("usspd")
        with pytest.raises(sw.errors.UnknownPolicyError, match=r"'x'; choose from uss-laplace, "):
            call("x")


def test_make_passes_contexts_only_to_policies_that_take_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cascade, given = sw.Cascade([0.1, 0.2]), {"features": sw.Polynomial(1), "context_dim": 3}
    assert isinstance(sw.make("uss-ucb", cascade, **given), sw.USSUCB)
    monkeypatch.setitem(sw.POLICIES, "averaging", Averaging)
    policy: Any = sw.make("averaging", cascade, explore=0.5, **given)
    assert (policy.features.n_features, policy.explore) == (4, 0.5)
    assert takes(Averaging, "explore")
    assert not takes(Averaging, "delta")
    with pytest.raises(TypeError, match="delta"):
        sw.make("averaging", cascade, delta=0.1)
