"""Policies that forget, and policies whose memory is bounded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw

CASCADE = sw.Cascade([0.02, 0.1, 0.15])


def world(n: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, 2))
    chance = np.array([0.35, 0.2, 0.1]) * (0.5 + (x[:, :1] > 0))
    return x, (random.random((n, 3)) < chance).astype(np.int64)


def made(name: str, **settings: Any) -> Any:
    return sw.make(name, CASCADE, features=sw.Polynomial(1), context_dim=2, **settings)


FORGETFUL = ["uss-laplace", "uss-anchor", "thompson", "uss-pd", "uss-pd-ridge"]


@pytest.mark.parametrize(
    "settings", [{"half_life": 40}, {"half_life": 1300}, {"memory": "1.2 MB"}], ids=str
)
@pytest.mark.parametrize("name", FORGETFUL)
def test_rounds_one_by_one_at_once_and_after_loading_are_the_same(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    x, outputs = world(10 * settings["half_life"] if "half_life" in settings else 24_000)
    at_once, saved = made(name, **settings), made(name, **settings)
    stops = at_once.run(x, outputs)
    half = len(x) // 2
    first = saved.run(x[:half], outputs[:half])
    saved.save(tmp_path / "policy")
    loaded: Any = sw.load(tmp_path / "policy")
    assert loaded.parameters() == at_once.parameters()
    second = []
    for case, given in zip(x[half : half + 200], outputs[half : half + 200], strict=True):
        decision = loaded.decide(case)
        second.append(decision.stop)
        loaded.observe(case, given[: decision.stop + 1].tolist(), rule_stop=decision.rule_stop)
        assert all(np.isfinite(e.disagreement_ucb) for e in decision.evidence)
    assert [*first, *second] == stops[: half + 200].tolist()


def test_a_half_life_bounds_what_is_stored_and_nothing_overflows() -> None:
    """50,000 rounds are 1,000 half-lives: weights far below the smallest number."""
    x, outputs = world(50_000)
    outputs[1000:49_000, 1] = outputs[1000:49_000, 0]  # arm 1 agrees: the last arm is not run then
    policy = made("uss-laplace", half_life=50, z=0.01)
    stops = policy.run(x, outputs)
    assert policy.effort["rows_stored"] <= 32 * 50 + 3 * 64
    assert np.isfinite(policy.theta(0, 2)).all()
    assert set(stops.tolist()) == {0, 1, 2}


def test_a_bounded_memory_is_kept_and_changes_hardly_a_decision() -> None:
    x, outputs = world(60_000)
    every, some = made("uss-pd", sigma=0.02), made("uss-pd", sigma=0.02, memory="1500 KB")
    same = every.run(x, outputs) == some.run(x, outputs)
    assert some.nbytes < 1_500_000 < every.nbytes
    assert some.theta(0, 2) == pytest.approx(every.theta(0, 2), abs=0.01)
    assert same.mean() > 0.999


def test_enough_memory_changes_nothing(tmp_path: Path) -> None:
    x, outputs = world(3000)
    one, other = made("uss-laplace"), made("uss-laplace", memory="1 GB")
    assert one.run(x, outputs).tolist() == other.run(x, outputs).tolist()
    assert "half_life" not in one.parameters()


def test_what_stopped_early_becomes_uncertain_again_and_a_change_is_seen() -> None:
    """Arms agree, so everything stops at once. When they begin to disagree, only rounds that go on
    could show it: within two half-lives some have, and the rule goes on."""
    half_life, before, after = 500, 6000, 1000
    x = np.random.default_rng(1).uniform(-1, 1, (before + after, 2))
    outputs = np.zeros((before + after, 3), dtype=np.int64)
    outputs[before:, 1:] = np.random.default_rng(2).random((after, 1)) < 0.6
    forgets, remembers = made("uss-laplace", half_life=half_life), made("uss-laplace")
    late = slice(before + after // 2, None)
    assert (forgets.run(x, outputs)[late] > 0).mean() > 0.9
    assert (remembers.run(x, outputs)[late] > 0).mean() < 0.1


@pytest.mark.parametrize("half_life", [1, 1.5, 30, 500])
def test_a_policy_whose_deep_rounds_are_all_forgotten_is_saved(
    half_life: float, tmp_path: Path
) -> None:
    """Also with a rare level among the contexts, of which the prior is all that is known."""
    x = np.eye(6)[np.random.default_rng(0).choice(6, 1500, p=[0.3, 0.3, 0.2, 0.1, 0.099, 0.001])]
    policy = sw.USSLaplace(CASCADE, context_dim=6, half_life=half_life, forced_rounds=64)
    policy.run(x, np.zeros((1500, 3), dtype=np.int64))
    policy.save(tmp_path / "policy")
    loaded = sw.load(tmp_path / "policy")
    assert loaded.decide_many(x).tolist() == policy.decide_many(x).tolist()


def test_an_enormous_half_life_changes_nothing_and_memory_is_checked_for_features_to_come() -> None:
    x, outputs = world(600)
    assert made("uss-pd", half_life=1e15).run(x, outputs).tolist() == (
        made("uss-pd").run(x, outputs).tolist()
    )
    with pytest.raises(sw.errors.InvalidParameterError, match="memory must be at least"):
        sw.USSLaplace(CASCADE, context_dim=1, memory=900_000)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="may never end with a half_life"):
        made("uss-pd", half_life=10, forced_rounds="auto")
    with pytest.raises(
        sw.errors.InvalidParameterError, match="half_life must be a number at least 1"
    ):
        made("uss-pd", half_life=0)
    with pytest.raises(
        sw.errors.InvalidParameterError, match='memory is a text like "256 MB", not'
    ):
        made("uss-pd", memory="much")
    with pytest.raises(sw.errors.InvalidParameterError, match=r"memory must be at least 1\.\d MB"):
        made("uss-pd", memory="1 KB")
    with pytest.raises(sw.errors.InvalidParameterError, match="give half_life or memory"):
        made("uss-pd", half_life=10, memory="1 GB")


def test_a_policy_whose_arms_no_longer_disagree_can_be_loaded(tmp_path: Path) -> None:
    """A feature disappears, and with it most of the Hessian that was known while it was seen."""
    half_life, random = 800, np.random.default_rng(4)
    n = half_life * int(random.choice([14, 24]))
    x = (random.random((n, 1)) < 0.03) * (np.arange(n) < 4 * half_life)[:, None].astype(float)
    outputs = np.zeros((n, 3), dtype=np.int64)
    outputs[:, 2] = random.random(n) < np.where(np.arange(n) < 4.5 * half_life, 0.9, 0.0)
    cascade, features = sw.Cascade([0.02, 0.1, 0.6]), sw.Polynomial(1)
    settings = {"half_life": half_life, "ridge": 0.5, "sigma": 0.003}
    policy = sw.USSPD(cascade, features, 1, **settings)
    random.choice([0.02, 0.1, 0.5])
    policy.run(x[:3600], outputs[:3600])
    for start in range(3600, 8500, 23):
        policy.run(x[start : start + 23], outputs[start : start + 23])
        policy.decide([float(random.random() < 0.5)])
        if start > 8200:
            policy.save(tmp_path / "policy")
            loaded: Any = sw.load(tmp_path / "policy")
            assert loaded.rounds == policy.rounds
