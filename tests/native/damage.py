"""Restore damaged learners and continue with those that are accepted, in a separate process.

``python -m tests.native.damage FIRST COUNT FILE`` tries the inputs of COUNT seeds. It prints
those that cause a NaN or an exception, and then fails. FILE has the current seed, also after a
crash or an endless loop.
"""

import faulthandler
import math
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import stopwise as sw
from stopwise import research
from tests.helpers import archive
from tests.helpers.labels import label_of

EXPENSIVE = sw.Cascade([0.05, 0.4, 0.3])
TWO_ARMS, THREE_ARMS = sw.Cascade([0.05, 0.3]), sw.Cascade([0.05, 0.2, 0.15])
STAGES = {"features": sw.Polynomial(1), "context_dim": 1, "reveals": [0, 1]}
POLICIES: dict[str, Callable[[], Any]] = {
    "uss-pd": lambda: sw.USSPD(THREE_ARMS, context_dim=2, forced_rounds=4, sigma=0.02),
    "one feature": lambda: sw.USSPD(TWO_ARMS, context_dim=1, forced_rounds=0, sigma=0.02),
    "until explored": lambda: sw.USSPD(TWO_ARMS, context_dim=2, forced_rounds="auto"),
    "uss-pd-ridge": lambda: sw.USSPDRidge(TWO_ARMS, sw.Polynomial(2), 2, lam=0.3, sigma=0.02),
    "thompson": lambda: sw.Thompson(THREE_ARMS, context_dim=2, forced_rounds=4),
    "supervised": lambda: research.Supervised(TWO_ARMS, context_dim=2, forced_rounds=4, sigma=0.02),
    "labels": lambda: sw.USSPD(THREE_ARMS, context_dim=2, forced_rounds=4, sigma=0.02, labels=0.5),
    "missing labels": lambda: sw.USSLaplace(THREE_ARMS, sw.Polynomial(1), 2, labels=0.9),
    "explored rounds": lambda: sw.USSPD(
        THREE_ARMS, **STAGES, forced_rounds=4, sigma=0.02, explore=0.3
    ),
    "uss-laplace": lambda: sw.USSLaplace(EXPENSIVE, sw.Polynomial(1), 2),
    "uss-anchor": lambda: sw.USSAnchor(EXPENSIVE, **STAGES),
}
ROUNDS = {
    "uss-pd": 90,
    "labels": 30,
    "missing labels": 40,
}  # 20 for the others; 90 is more than a block

# values that are often invalid
INTEGERS = (0, 1, 2, 3, 63, 64, 65, 4096, 4097, -1, -(2**63), 2**63 - 1, 2**31, 2**53)
REALS = (0.25, 1.0, -1.0, 1.5, 100.0, 1e-18, 5e-324, 1e9, 1e150, -1e300, math.inf, math.nan)
WORDS = [np.int64(n).tobytes() for n in INTEGERS] + [np.float64(x).tobytes() for x in REALS]


Inspect = Callable[[Any, sw.Decision], None]


def play(
    name: str, policy: Any, rng: np.random.Generator, rounds: int, inspect: Inspect | None = None
) -> list[int]:
    """Decide, read the evidence, observe and label; return the stops."""
    d, n_arms = policy.features.context_dim, policy.cascade.n_arms
    stops: list[int] = []
    for t in range(rounds):
        x = rng.uniform(-1, 1, d)
        answers = (rng.random(n_arms) < (0.5 + 0.3 * x[0]) / (1 + np.arange(n_arms))).tolist()
        staged = policy.features.stages is not None
        if isinstance(policy, research.Supervised):
            decision = policy.decide(x)
        elif staged:
            current = policy.start(x[:1])
            while (arm := current.next()) is not None:
                current.give(answers[arm], x[1:].tolist() if arm == 1 else ())
            decision = current.decision
        else:
            decision = policy.decide(x)
        stops.append(decision.stop)
        if inspect is not None:
            inspect(policy, decision)
        outputs = tuple(answers[: decision.stop + 1])
        request = None
        if isinstance(policy, research.Supervised):
            policy.observe(x, outputs, research.Truth(label=False))
            continue
        if staged:
            current.learn()
        else:
            request = policy.observe(x, outputs, rule_stop=decision.rule_stop)
        answers_request = name == "missing labels" and request is not None and t % 3 > 0
        if answers_request or (name == "labels" and (request or t % 2 == 0)):
            rule_stop = decision.rule_stop
            policy.learn_label(label_of(x, outputs, False, rule_stop=rule_stop, request=request))
    return stops


def check(policy: Any, decision: sw.Decision) -> None:
    """Check that no comparison is missing because of a NaN."""
    n_arms = policy.cascade.n_arms
    assert 0 <= decision.rule_stop <= decision.stop < n_arms
    try:
        evidence = decision.evidence
        forced = getattr(policy, "options", policy).forced_rounds
    except sw.errors.StopwiseError as error:
        if "has not converged" not in str(error):
            raise
        return  # for some damaged data, no estimate converges
    exploring = archive.parts(policy)["explored"] == 0
    if decision.fixed_by_labels or (exploring if forced == "auto" else policy.rounds < forced):
        assert not evidence
        return
    pairs = [(i, j) for i in range(decision.rule_stop + 1) for j in range(i + 1, n_arms)]
    assert [(e.first, e.second) for e in evidence] == pairs
    for e in evidence:
        numbers = np.array([e.disagreement, e.disagreement_ucb, e.gain])
        assert (np.abs(numbers) <= 1.0).all(), e


@cache
def saved(name: str) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the state of a learner and the byte offsets of its parts."""
    policy = POLICIES[name]()
    play(name, policy, np.random.default_rng(len(name)), ROUNDS.get(name, 20), check)
    sizes = [part.nbytes for part in archive.parts(policy).values()]
    return policy.state(), tuple(np.cumsum([0, *sizes]).tolist())


def damaged(name: str, rng: np.random.Generator) -> bytes:
    """Return the bytes of a learner, damaged in one of many ways."""
    state, begins = saved(name)
    content = bytearray(state["learner"].tobytes())

    def random_offset() -> int:
        """Return a random position: first a random part, then a random byte in it."""
        if rng.random() < 0.5:
            return int(rng.choice(begins[:-1]))
        return int(rng.integers(len(content)))

    kind = rng.integers(8)
    if kind <= 1:  # one to three bits or bytes
        for _ in range(rng.integers(1, 4)):
            offset = random_offset()
            changed = (
                content[offset] ^ 1 << int(rng.integers(8)) if kind else int(rng.integers(256))
            )
            content[offset] = changed
    elif kind <= 4:  # one or two numbers
        for _ in range(rng.integers(1, 3)):
            offset = random_offset() // 4 * 4
            word = WORDS[rng.integers(len(WORDS))]
            content[offset : offset + 8] = word[: max(0, len(content) - offset)]
    elif kind == 5:  # truncated or too long
        offset = int(rng.integers(len(content)))
        content = content[:offset] if rng.random() < 0.5 else content + content[:offset]
    elif kind == 6:  # bytes of some learner, sometimes fewer than they replace
        other = bytes(saved(str(rng.choice(list(POLICIES))))[0]["learner"].tobytes())
        size, offset = int(2 ** rng.integers(3, 10)), random_offset() // 8 * 8
        source = int(rng.integers(len(other))) // 8 * 8
        end = source + (size if rng.random() < 0.7 else size // 2)
        content[offset : offset + size] = other[source:end]
    else:  # random bytes or a repeated byte, up to the end
        offset = random_offset() if rng.random() < 0.7 else 0
        fill = (b"\0", b"\xff", b"\x01", None, None, None)[rng.integers(6)]
        content[offset:] = (
            rng.bytes(len(content) - offset) if fill is None else fill * (len(content) - offset)
        )
    return bytes(content)


def restore_damaged(seed: int) -> bool:
    """Restore the damaged bytes of a seed; return whether they were accepted."""
    rng = np.random.default_rng(seed)
    name = list(POLICIES)[seed % len(POLICIES)]
    state = saved(name)[0] | {"learner": np.frombuffer(damaged(name, rng), dtype=np.uint8)}
    policy = POLICIES[name]()
    try:
        policy.restore(state)
    except ValueError:
        assert policy.rounds == 0
        return False
    play(name, policy, rng, 4, check)
    for part, array in archive.numbers(policy).items():
        assert np.isfinite(array).all(), part
    POLICIES[name]().restore(policy.state())
    return True


def main(first: int, count: int, seed_file: str) -> None:
    faulthandler.enable()
    accepted = failed = 0
    with open(seed_file, "wb", buffering=0) as file:  # noqa: PTH123 (unbuffered, to survive a crash)
        for seed in range(first, first + count):
            os.pwrite(file.fileno(), b"%-12d" % seed, 0)
            try:
                accepted += restore_damaged(seed)
            except Exception as error:
                failed += 1
                if failed <= 20:
                    name = list(POLICIES)[seed % len(POLICIES)]
                    print(f"seed {seed} ({name}): {type(error).__name__}: {error}")
    print(f"{accepted} accepted, {failed} failed of {count}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
