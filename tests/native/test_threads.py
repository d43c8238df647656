"""Threads that share a policy: calls are serialised, and waiting threads release the GIL."""

import math
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stopwise as sw
from tests.helpers import archive

CASCADE = sw.Cascade([0.05, 0.2, 0.15])
SETTINGS: dict[str, Any] = {"features": sw.Polynomial(1), "context_dim": 2}
POLICIES: dict[str, Callable[[], Any]] = {
    "uss-pd": lambda: sw.USSPD(CASCADE, forced_rounds=20, sigma=0.03, **SETTINGS),
    "uss-pd-ridge": lambda: sw.USSPDRidge(CASCADE, lam=0.5, sigma=0.03, **SETTINGS),
    "thompson": lambda: sw.Thompson(CASCADE, forced_rounds=20, **SETTINGS),
    "explored rounds": lambda: sw.USSPD(
        CASCADE, forced_rounds=20, sigma=0.03, explore=0.5, **SETTINGS
    ),
    "self-scaling features": lambda: sw.USSLaplace(CASCADE, context_dim=2, labels=200),
    "uss-ucb": lambda: sw.USSUCB(CASCADE),
    "uss-ts": lambda: sw.USSTS(CASCADE),
}
THREADS = 4
ROUNDS = 60  # observed by each thread, in single calls
AT_ONCE = 200  # run by each thread in a single call


def world(seed: int, n: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    wrong = rng.random((n, 3)) < (0.25 + 0.2 * x[:, :1]) / [1, 2, 3]
    return x, rng.integers(0, 2, (n, 1)) ^ wrong


def run_in_threads(work: Callable[[int], object], threads: int = THREADS) -> None:
    """Run ``work(0)``, ``work(1)`` … in threads that start together; re-raise their exceptions."""
    ready = threading.Barrier(threads)

    def run_when_ready(k: int) -> None:
        ready.wait()
        work(k)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(run_when_ready, k) for k in range(threads)]:
            future.result()


@pytest.mark.parametrize("name", POLICIES)
def test_concurrent_calls_learn_every_round(name: str, tmp_path: Path) -> None:
    policy = POLICIES[name]()

    def work(k: int) -> None:
        x, outputs = world(k, ROUNDS)
        batch, batch_outputs = world(100 + k, AT_ONCE)
        for t in range(ROUNDS):
            decision = policy.decide(x[t])
            assert not any(math.isnan(e.disagreement_ucb) for e in decision.evidence)
            policy.observe(x[t], outputs[t, : decision.stop + 1].tolist())
            if t % 50 == 10:
                labels = {"labels": batch_outputs[:, 2]} if policy.asks_for_labels else {}
                policy.run(batch, batch_outputs, **labels)
            elif t % 50 == 20:
                assert set(policy.decide_many(batch).tolist()) <= {0, 1, 2}
            elif t % 50 == 30:
                policy.save(tmp_path / str(k))
                loaded: Any = sw.load(tmp_path / str(k))
                assert 0 < loaded.rounds <= THREADS * (ROUNDS + AT_ONCE)
            elif t % 50 == 40 and hasattr(policy, "theta"):
                assert np.isfinite(policy.theta(0, 1)).all()
                assert policy.nbytes > 0
                assert policy.effort["passes"] >= 0

    run_in_threads(work)
    assert policy.rounds == THREADS * (ROUNDS + AT_ONCE)
    policy.save(tmp_path / "end")
    loaded = sw.load(tmp_path / "end")
    x, _ = world(9, 200)
    assert policy.decide_many(x).tolist() == loaded.decide_many(x).tolist()


def test_rounds_in_progress_continue_while_features_are_fitted() -> None:
    policy = sw.USSLaplace(CASCADE, context_dim=1, reveals=1, labels=0.5)

    def work(k: int) -> None:
        x, outputs = world(k, 400)
        for t in range(400):
            current = policy.start(x[t, :1])
            while (arm := current.next()) is not None:
                current.give(int(outputs[t, arm]), x[t, :1].tolist() if arm < 2 else ())
            current.learn()
            if current.wants_label:
                policy.label(current, 0)
            assert current.decision is not None
            assert all(e.gain <= 1 for e in current.decision.evidence)

    run_in_threads(work)
    assert policy.rounds == THREADS * 400
    assert policy.labels.received == policy.labels.requested > 0


def test_concurrent_observations_are_all_stored() -> None:
    policy, sequential = POLICIES["uss-pd"](), POLICIES["uss-pd"]()

    def train(learner: Any, k: int) -> None:
        x, outputs = world(k, 400)
        x = np.round(x, 1)  # so that threads sometimes share a context
        for t in range(400):
            learner.observe(x[t], outputs[t, : 1 + t % 3].tolist())
            if t % 100 == 0:
                learner.decide(x[t])

    run_in_threads(lambda k: train(policy, k))
    for k in range(THREADS):
        train(sequential, k)
    assert Counter(archive.rows(policy)) == Counter(archive.rows(sequential))
    for i, j in CASCADE.pairs():
        np.testing.assert_allclose(policy.theta(i, j), sequential.theta(i, j), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            policy.gram(i, j)[0], sequential.gram(i, j)[0], rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("kind", ["thompson", "uss-ts", "explored rounds"])
def test_threads_share_a_stream_of_random_numbers(kind: str) -> None:
    """Every draw is used exactly once."""
    shared, sequential = POLICIES[kind](), POLICIES[kind]()
    run_in_threads(lambda _: [shared.decide([0.1, 0.2]) for _ in range(200)])
    for _ in range(THREADS * 200):
        sequential.decide([0.1, 0.2])
    if kind == "uss-ts":
        np.testing.assert_array_equal(shared.state()["random"], sequential.state()["random"])
    else:
        assert (
            archive.parts(shared)["decisions"]
            == archive.parts(sequential)["decisions"]
            == THREADS * 200
        )


# ----------------------------------------------------------------------- the GIL is released


def eventually(attempt: Callable[[], bool], attempts: int = 50) -> bool:
    """Retry, because the system may not schedule the other thread in time."""
    return any(attempt() for _ in range(attempts))


def test_a_long_run_of_counts_releases_the_gil() -> None:
    """This thread observes partial results, which a run that held the GIL would hide."""
    n = 300_000
    differ = np.ascontiguousarray(np.random.default_rng(6).integers(0, 2, (n, 3)), np.uint8)

    def attempt() -> bool:
        stops = np.full(n, -1, dtype=np.int64)
        worker = threading.Thread(target=sw.USSTS(CASCADE)._counts.run, args=[None, differ, stops])
        worker.start()
        partial = False
        while worker.is_alive() and not partial:
            partial = bool(stops[0] >= 0 and stops[-1] < 0)
        worker.join()
        assert stops.min() >= 0
        return partial

    assert eventually(attempt)


CALLS: dict[str, Callable[[Any, sw.Decision], object]] = {
    "decide": lambda policy, _: policy.decide(np.array([0.1, 0.2])),
    "observe": lambda policy, _: policy.observe(np.array([0.1, 0.2]), [0, 1]),
    "rounds": lambda policy, _: policy.rounds,
    "state": lambda policy, _: policy.state(),
    "evidence": lambda policy, decision: decision.evidence,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_thread_waiting_for_the_lock_releases_the_gil(call: str) -> None:
    """While another thread waits, this one observes the middle and nearly the end of the run.

    If the waiting thread held the GIL, this thread would not run until the call has returned.
    """
    n = 100_000
    x, outputs = world(3, n)
    answers = np.stack([outputs[:, i] != outputs[:, j] for i, j in CASCADE.pairs()], axis=1)
    differ = np.ascontiguousarray(answers, dtype=np.uint8)
    ran, failed = np.full(n, 3), np.zeros(n, dtype=np.uint8)

    def attempt() -> bool:
        policy = POLICIES["uss-pd"]()
        policy.run(*world(4, 500))
        decision = policy.decide(np.array([0.1, 0.2]))
        stops = np.full(n, -1)
        calling, answered = threading.Event(), threading.Event()

        def call_policy() -> None:
            calling.set()
            CALLS[call](policy, decision)
            answered.set()

        play = (x, differ, ran, failed, None, None, stops)
        worker = threading.Thread(target=policy._learner.run, args=play)
        waiter = threading.Thread(target=call_policy)
        worker.start()
        while stops[0] < 0 and worker.is_alive():  # until the run has begun
            pass
        waiter.start()
        calling.wait()
        called_early, observed_late = bool(stops[n // 2] < 0), False
        while worker.is_alive() and not observed_late:
            observed_late = bool(
                stops[n - n // 10] >= 0 and stops[-1] < 0 and not answered.is_set()
            )
        worker.join()
        waiter.join()
        return called_early and observed_late

    assert eventually(attempt)
