"""Missing labels never lower a gain, for any order of arrival."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import stopwise as sw
from tests.helpers.labels import label_of

ROUNDS = 30


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0, 1),
    shuffled=st.booleans(),
    transitive=st.booleans(),
    half_life=st.sampled_from([None, 20.0]),
)
def test_missing_labels_never_lower_a_gain(
    seed: int, share: float, shuffled: bool, transitive: bool, half_life: float | None
) -> None:
    """Compared with a policy that has the same labels but no requests."""
    rng = np.random.default_rng(seed)
    more: dict[str, Any] = {"transitive": transitive, "half_life": half_life, "explore": 0}
    cascade = sw.Cascade([0.02, 0.05, 0.1])
    requesting, plain = (
        sw.USSLaplace(cascade, sw.Polynomial(1), 2, forced_rounds=ROUNDS, labels=labels, **more)
        for labels in (1000, 0)
    )
    contexts, outputs = rng.uniform(-1, 1, (ROUNDS, 2)), rng.integers(0, 2, (ROUNDS, 3))
    answered: list[sw.Label] = []
    for x, y in zip(contexts, outputs.tolist(), strict=True):
        request = requesting.observe(x, y)
        plain.observe(x, y)
        assert (request is None) == (len(set(y)) == 1)
        if request is not None and rng.random() < share:
            answered.append(label_of(x, y, 1, request=request))
    if shuffled:
        rng.shuffle(answered)  # pyright: ignore[reportArgumentType] (a list is fine)
    for label in answered:
        requesting.learn_label(label)
        plain.learn_label(replace(label, request=None))
    assert requesting.labels.received == plain.labels.received == len(answered)
    assert requesting.labels.missing <= requesting.labels.requested - requesting.labels.received
    for x in contexts:
        plain_gains = {(e.first, e.second): e.gain for e in plain.decide(x).evidence}
        for e in requesting.decide(x).evidence:
            plain_gain = plain_gains.get((e.first, e.second), e.gain)
            assert e.gain >= plain_gain
            if requesting.labels.missing == 0:
                assert (e.gain, e.response) == (plain_gain, 1.0)
            if e.response < 1:
                assert e.gain > plain_gain or not answered or e.gain == pytest.approx(plain_gain)
