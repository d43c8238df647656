"""Tests of half-lives and bounded memory."""

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


def make(name: str, **options: Any) -> Any:
    return sw.make(name, CASCADE, features=sw.Polynomial(1), context_dim=2, **options)


CONTEXTUAL = ["uss-laplace", "uss-anchor", "thompson", "uss-pd", "uss-pd-ridge"]


@pytest.mark.parametrize(
    "options", [{"half_life": 40}, {"half_life": 1300}, {"memory": "1.2 MB"}], ids=str
)
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_a_run_equals_single_rounds_of_a_loaded_policy(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    x, outputs = world(10 * options["half_life"] if "half_life" in options else 24_000)
    at_once, saved = make(name, **options), make(name, **options)
    stops = at_once.run(x, outputs)
    half = len(x) // 2
    first = saved.run(x[:half], outputs[:half])
    saved.save(tmp_path / "policy")
    loaded: Any = sw.load(tmp_path / "policy")
    assert loaded.parameters() == at_once.parameters()
    second = []
    for case, answers in zip(x[half : half + 200], outputs[half : half + 200], strict=True):
        decision = loaded.decide(case)
        second.append(decision.stop)
        loaded.observe(case, answers[: decision.stop + 1].tolist(), rule_stop=decision.rule_stop)
        assert all(np.isfinite(e.disagreement_ucb) for e in decision.evidence)
    assert [*first, *second] == stops[: half + 200].tolist()


def test_a_half_life_bounds_the_stored_rows_without_underflow() -> None:
    """50,000 rounds are 1,000 half-lives, so weights are far below the smallest float."""
    x, outputs = world(50_000)
    outputs[1000:49_000, 1] = outputs[1000:49_000, 0]  # so the last arm does not run
    policy = make("uss-laplace", half_life=50, z=0.01)
    stops = policy.run(x, outputs)
    assert policy.effort["rows_stored"] <= 32 * 50 + 3 * 64
    assert np.isfinite(policy.theta(0, 2)).all()
    assert set(stops.tolist()) == {0, 1, 2}


def test_bounded_memory_changes_hardly_any_decisions() -> None:
    x, outputs = world(60_000)
    complete, bounded = make("uss-pd", sigma=0.02), make("uss-pd", sigma=0.02, memory="1500 KB")
    same = complete.run(x, outputs) == bounded.run(x, outputs)
    assert bounded.nbytes < 1_500_000 < complete.nbytes
    assert bounded.theta(0, 2) == pytest.approx(complete.theta(0, 2), abs=0.01)
    assert same.mean() > 0.999


def test_sufficient_memory_changes_no_decision() -> None:
    x, outputs = world(3000)
    complete, bounded = make("uss-laplace"), make("uss-laplace", memory="1 GB")
    assert complete.run(x, outputs).tolist() == bounded.run(x, outputs).tolist()
    assert "half_life" not in complete.parameters()


def test_early_stops_become_uncertain_again_so_that_a_change_is_learned() -> None:
    """While the arms agree, all rounds stop at the first. When they begin to disagree, only deeper
    rounds reveal it: within two half-lives there are some, and the rule goes deeper."""
    half_life, before, after = 500, 6000, 1000
    x = np.random.default_rng(1).uniform(-1, 1, (before + after, 2))
    outputs = np.zeros((before + after, 3), dtype=np.int64)
    outputs[before:, 1:] = np.random.default_rng(2).random((after, 1)) < 0.6
    forgetting, stationary = make("uss-laplace", half_life=half_life), make("uss-laplace")
    late = slice(before + after // 2, None)
    assert (forgetting.run(x, outputs)[late] > 0).mean() > 0.9
    assert (stationary.run(x, outputs)[late] > 0).mean() < 0.1


@pytest.mark.parametrize("half_life", [1, 1.5, 30, 500])
def test_a_policy_without_remaining_deep_rounds_can_be_saved(
    half_life: float, tmp_path: Path
) -> None:
    """Including a rare level of the context, for which only the prior remains."""
    x = np.eye(6)[np.random.default_rng(0).choice(6, 1500, p=[0.3, 0.3, 0.2, 0.1, 0.099, 0.001])]
    policy = sw.USSLaplace(CASCADE, context_dim=6, half_life=half_life, forced_rounds=64)
    policy.run(x, np.zeros((1500, 3), dtype=np.int64))
    policy.save(tmp_path / "policy")
    loaded = sw.load(tmp_path / "policy")
    assert loaded.decide_many(x).tolist() == policy.decide_many(x).tolist()


def test_an_enormous_half_life_changes_no_decision() -> None:
    x, outputs = world(600)
    forgetting, stationary = make("uss-pd", half_life=1e15), make("uss-pd")
    assert forgetting.run(x, outputs).tolist() == stationary.run(x, outputs).tolist()


def test_memory_must_suffice_for_features_that_are_fitted_later() -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match="memory must be at least"):
        sw.USSLaplace(CASCADE, context_dim=1, memory=900_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"half_life": 10, "forced_rounds": "auto"},
            'forced_rounds="auto" cannot be combined with half_life',
        ),
        ({"half_life": 0}, r"half_life must be a number in \[1, 1e\+15\], got 0"),
        ({"memory": "much"}, 'memory must be a size such as "256 MB" or a number of bytes, got'),
        ({"memory": "1 KB"}, r"memory must be at least 1\.\d MB"),
        ({"half_life": 10, "memory": "1 GB"}, "half_life and memory cannot be combined"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sw.errors.InvalidParameterError, match=message):
        make("uss-pd", **options)


def test_a_policy_whose_arms_no_longer_disagree_can_be_loaded(tmp_path: Path) -> None:
    """A feature disappears, and with it most of the Hessian."""
    half_life, random = 800, np.random.default_rng(4)
    n = half_life * int(random.choice([14, 24]))
    x = (random.random((n, 1)) < 0.03) * (np.arange(n) < 4 * half_life)[:, None].astype(float)
    outputs = np.zeros((n, 3), dtype=np.int64)
    outputs[:, 2] = random.random(n) < np.where(np.arange(n) < 4.5 * half_life, 0.9, 0.0)
    cascade, features = sw.Cascade([0.02, 0.1, 0.6]), sw.Polynomial(1)
    options = {"half_life": half_life, "ridge": 0.5, "sigma": 0.003}
    policy = sw.USSPD(cascade, features, 1, **options)
    random.choice([0.02, 0.1, 0.5])
    policy.run(x[:3600], outputs[:3600])
    for start in range(3600, 8500, 23):
        policy.run(x[start : start + 23], outputs[start : start + 23])
        policy.decide([float(random.random() < 0.5)])
        if start > 8200:
            policy.save(tmp_path / "policy")
            loaded: Any = sw.load(tmp_path / "policy")
            assert loaded.rounds == policy.rounds
