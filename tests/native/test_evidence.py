"""Looking at the evidence changes nothing: not what is saved, not a later decision."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw

CASCADE = sw.Cascade([0.05, 0.2, 0.15])
N = 150
RNG = np.random.default_rng(8)
CONTEXTS = RNG.uniform(-1, 1, (N, 2))
LABELS = RNG.integers(0, 2, N)
WRONG = RNG.random((N, 3)) < (0.25 + 0.2 * CONTEXTS[:, :1]) / [1, 2, 3]
OUTPUTS = LABELS[:, None] ^ WRONG
STAGES = sw.PerStage([sw.Polynomial(1), sw.Polynomial(2)], sees=[1, 2])
SETTINGS: dict[str, Any] = {
    "features": sw.Polynomial(1),
    "context_dim": 2,
    "forced_rounds": 20,
    "ridge": 1e-4,
}
STAGED: dict[str, Any] = SETTINGS | {"features": STAGES}
POLICIES: dict[str, Callable[[], Any]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, sigma=0.03, **SETTINGS),
    "uss-pd-ridge": lambda: sw.USSPDRidge(CASCADE, lam=0.5, sigma=0.03, **SETTINGS),
    "thompson": lambda: sw.Thompson(CASCADE, seed=3, **SETTINGS),
    "supervised": lambda: sw.Supervised(CASCADE, sigma=0.03, **SETTINGS),
    "rounds sent on": lambda: sw.USSPD(CASCADE, sigma=0.03, full_depth_every=5, **SETTINGS),
    "labels": lambda: sw.USSPD(CASCADE, sigma=0.03, **SETTINGS),
    "stages that reveal": lambda: sw.USSPD(CASCADE, sigma=0.03, full_depth_every=5, **STAGED),
}


def begin(name: str, policy: Any, t: int) -> tuple[sw.Decision, Callable[[], None]]:
    """Decide a round; return the decision, and what has the policy learn from the round."""
    x, outputs, label = CONTEXTS[t], OUTPUTS[t].tolist(), int(LABELS[t])
    if name == "stages that reveal":
        descent = policy.start(x[:1])
        while (arm := descent.next()) is not None:
            descent.give(outputs[arm], x[1:].tolist() if arm == 1 else ())
        return descent.decision, descent.learn
    decision = policy.decide(x)
    said = tuple(outputs[: decision.stop + 1])

    def learn() -> None:
        if name == "supervised":
            policy.observe(x, said, sw.Truth(label=label))
            return
        policy.observe(x, said, rule_stop=decision.rule_stop)
        if name == "labels" and t % 3 == 0:
            done = sw.Round("", 0.0, tuple(x), said, said, decision.stop, decision.rule_stop)
            policy.audit(done, label)

    return decision, learn


def look(name: str, policy: Any, decision: sw.Decision) -> int:
    """Look at everything there is to see; return how many comparisons there were."""
    found = decision.evidence
    for e in found:
        assert np.isfinite([e.gap, e.disagreement, e.disagreement_ucb, e.harm]).all()
    str(decision)
    if name == "supervised":
        policy.error_theta(0)
    else:
        policy.theta(0, 2)
        policy.gram(0, 2)
        policy.condition(0, 1)
    assert policy.effort["passes"] >= 0
    assert policy.nbytes > 0
    return len(found)


@pytest.mark.parametrize("name", POLICIES)
def test_reading_the_evidence_changes_no_state_and_no_decision(name: str, tmp_path: Path) -> None:
    read, unread = POLICIES[name](), POLICIES[name]()
    seen, stops = 0, []
    for t in range(N):
        (decision, learn), (other, learn_too) = begin(name, read, t), begin(name, unread, t)
        assert (decision.stop, decision.rule_stop) == (other.stop, other.rule_stop)
        stops.append(decision.stop)
        before = read.state()
        seen += look(name, read, decision)
        for part, array in read.state().items():
            np.testing.assert_array_equal(array, before[part], err_msg=part)
        learn()
        learn_too()
        if t % 50 == 0:
            seen += look(name, read, decision)  # of a round that has been learned since
    assert seen > N / 2
    assert len(set(stops)) > 1
    read.save(tmp_path / "read")
    unread.save(tmp_path / "unread")
    assert (tmp_path / "read").read_bytes() == (tmp_path / "unread").read_bytes()
