"""Audit labels: the sharpened rule, solved every round by plain numpy and scipy."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from stopwise import reference
from tests.helpers.archive import assert_same
from tests.oracles.solve_every_round import hessian, mu, ridge_mle

Array = NDArray[np.float64]
CASCADE = sw.Cascade([0.02, 0.1, 0.08])
RIDGE = 0.01
SETTINGS: dict[str, Any] = {"forced_rounds": 20, "sigma": 0.05, "kappa": 0.2, "ridge": RIDGE}


def world(n: int, seed: int, classes: int) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Contexts, outputs and labels; the last arm is the worst."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    labels = rng.integers(0, classes, n)
    errors = np.clip(np.array([0.2, 0.08, 0.4]) + 0.1 * x[:, :1], 0, 1)
    shift = rng.integers(1, classes, (n, 3))
    wrong = rng.random((n, 3)) < errors
    return x, np.where(wrong, (labels[:, None] + shift) % classes, labels[:, None]), labels


def referee(x: Array, outputs: Any, labels: Any, audited: Any) -> list[int]:
    """The rule as docs/audit.md writes it; nothing is stored but the history itself."""
    phi = np.column_stack([np.ones(len(x)), x]) / math.sqrt(3)
    total = CASCADE.cumulative
    stops: list[int] = []
    for t in range(len(x)):
        tried = range(2) if t >= SETTINGS["forced_rounds"] else []
        wins = (
            i
            for i in tried
            if all(
                total[j] - total[i] > upper(phi, outputs, labels, audited, stops, t, i, j)
                for j in range(i + 1, 3)
            )
        )
        stops.append(next(wins, 2))
    return stops


def upper(
    phi: Array, outputs: Any, labels: Any, audited: Any, stops: list[int], t: int, i: int, j: int
) -> float:
    seen = np.flatnonzero(np.array(stops) >= j)
    differ = outputs[seen, i] != outputs[seen, j]
    logit = phi[t] @ ridge_mle(phi[seen], differ.astype(float), RIDGE)
    alpha = reference.radius(t, 3, 3, 0.05, SETTINGS["sigma"], SETTINGS["kappa"], lam=0, S=0)
    bonus = alpha * reference.norm(phi[t], phi[seen].T @ phi[seen])
    high, low = float(mu(logit + bonus)), float(mu(logit - bonus))
    known = seen[audited[seen] & differ]
    if len(known) == 0:
        return high
    # q: a constant and the features shrunk, a ridge that is the precision of a prior, Laplace
    psi = np.column_stack([np.ones(len(phi)), 0.5 * math.sqrt(RIDGE) * phi])
    right = outputs[known, i] == labels[known]
    omega = ridge_mle(psi[known], right.astype(float), RIDGE)
    size = math.sqrt(psi[t] @ np.linalg.solve(hessian(psi[known], omega, RIDGE), psi[t]))
    gain = 1 - 2 * float(mu(psi[t] @ omega - math.sqrt(2 * math.log(1 / 0.05)) * size))
    return gain * (high if gain > 0 else low)


def new() -> sw.USSPD:
    return sw.USSPD(CASCADE, features=sw.Polynomial(degree=1), context_dim=2, **SETTINGS)


@pytest.mark.parametrize(("classes", "seed"), [(2, 0), (4, 1)])
def test_decisions_are_those_of_the_rule_as_written(classes: int, seed: int) -> None:
    n = 200
    x, outputs, labels = world(n, seed, classes)
    audited = np.random.default_rng(seed).random(n) < 0.4
    audited[: SETTINGS["forced_rounds"]] = True
    policy = new()
    stops: list[int] = []
    for t in range(n):
        descent = policy.start(x[t])
        while (arm := descent.next()) is not None:
            descent.give(int(outputs[t, arm]))
        descent.learn()
        assert descent.decision is not None
        stops.append(descent.decision.stop)
        if audited[t]:
            policy.audit(_round(x[t], descent.outputs), int(labels[t]))
    assert stops == referee(x, outputs, labels, audited)
    assert len(set(stops)) > 1
    assert policy.audits == audited.sum()

    # a recorded run takes the same decisions
    differ = np.array([[o[i] != o[j] for i, j in CASCADE.pairs()] for o in outputs], np.uint8)
    wrong = (outputs != labels[:, None]).astype(np.uint8)
    failed = np.zeros(n, dtype=np.bool_)
    again = new()
    rounds = sw.Rounds(x, differ, np.full(n, 2), failed, wrong, audited)
    assert again.run_recorded(rounds).tolist() == stops
    assert_same(policy.state(), again.state())


def _round(x: Array, outputs: Any) -> sw.Round:
    stop = len(outputs) - 1
    return sw.Round("", 0.0, tuple(x.tolist()), tuple(outputs), tuple(outputs), stop, stop)


def test_evidence_adds_up() -> None:
    x, outputs, labels = world(300, 7, 2)
    policy = new()
    for t in range(300):
        stop = policy.decide(x[t]).stop
        policy.observe(x[t], outputs[t, : stop + 1].tolist())
        policy.audit(_round(x[t], outputs[t, : stop + 1].tolist()), int(labels[t]))
    harmed = 0
    for t in range(50):
        for e in policy.decide(x[t]).evidence:
            assert e.gap_won == (e.gap > e.repair)
            assert e.repair == pytest.approx(e.disagreement_ucb - 2 * e.harm)
            harmed += e.harm > 0
            assert ("labels show harm" in str(e)) == (e.harm > 0)
    assert harmed > 10


def test_what_is_no_label_is_refused_and_so_are_labels_without_use() -> None:
    done = _round(np.array([0.1, 0.2]), [1, 0])
    for name in ("thompson", "uss-ucb", "fixed-depth"):
        with pytest.raises(sw.AuditNotSupportedError, match="USSPD"):
            sw.make(name, CASCADE, context_dim=2).audit(done, 1)
    policy = sw.USSPD(CASCADE, context_dim=2)
    for label in (None, float("nan"), ["ham"]):
        with pytest.raises(sw.InvalidOutputsError, match="label"):
            policy.audit(done, label)  # pyright: ignore[reportArgumentType] (the point)
    assert policy.audits == 0
