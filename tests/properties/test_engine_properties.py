"""What must hold for any data: inverses, monotonicity, innocence of inputs, all or nothing."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.errors import StopwiseError
from stopwise.features import Identity, PerPair, Polynomial
from stopwise.policies.supervised import Supervised
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD, USSPDRidge
from stopwise.records import Truth

Array = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)
# No deadline: a busy machine may keep any example waiting.
lasting = settings(deadline=None, max_examples=60)


def world(
    seed: int, n: int, d: int, k: int, levels: int | None = None
) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (n, d))
    if levels:
        contexts = np.round(contexts * levels) / levels
    return contexts, (rng.random((n, k)) < rng.random(k)).astype(np.int64)


# -------------------------------------------------------------------------------------- V · V⁻¹


@lasting
@given(
    seed=seeds,
    d=st.integers(1, 12),
    n=st.integers(1, 300),
    lam=st.floats(1e-6, 1e4),
    asked=st.integers(1, 40),
    levels=st.none() | st.integers(1, 3),
)
def test_v_times_its_inverse_is_one_for_any_lambda(
    seed: int, d: int, n: int, lam: float, asked: int, levels: int | None
) -> None:
    contexts, outputs = world(seed, n, d, 3, levels)
    policy = USSPDRidge(Cascade([0.1] * 3), context_dim=d, lam=lam)
    reached = np.zeros(3, dtype=np.int64)
    for t, (x, y) in enumerate(zip(contexts, outputs, strict=True)):
        if t % asked == 0:
            policy.decide(x)  # from then on the inverse is in use and moves by rank-one steps
        stop = t % 3
        policy.observe(x, y[: stop + 1].tolist())
        reached[: stop + 1] += 1
    for i, j in policy.cascade.pairs():
        v, inverse = policy.gram(i, j)
        phi = contexts[np.arange(n) % 3 >= j] / np.sqrt(d)
        np.testing.assert_allclose(v, lam * np.eye(d) + phi.T @ phi, rtol=1e-9, atol=1e-9)
        assert np.linalg.norm(v @ inverse - np.eye(d)) < 1e-6
        assert policy.observations(i, j) == reached[j]


@lasting
@given(seed=seeds, d=st.integers(1, 10), n=st.integers(1, 200), levels=st.none() | st.just(1))
def test_without_lambda_v_and_its_inverse_agree_even_when_v_is_singular(
    seed: int, d: int, n: int, levels: int | None
) -> None:
    contexts, outputs = world(seed, n, d, 2, levels)
    contexts[:, 0] = 0.5
    policy = USSPD(Cascade([0.1, 0.1]), context_dim=d, forced_rounds=0)
    for x, y in zip(contexts, outputs, strict=True):
        policy.decide(x)
        policy.observe(x, y.tolist())
    v, inverse = policy.gram(0, 1)
    phi = contexts / np.sqrt(d)
    np.testing.assert_allclose(v, phi.T @ phi, rtol=1e-9, atol=1e-6 * n)
    assert np.linalg.norm(v @ inverse - np.eye(d)) < 1e-6


# --------------------------------------------------------------------------------- monotonicity


@lasting
@given(
    seed=seeds,
    k=st.integers(2, 5),
    n=st.integers(20, 200),
    sigmas=st.lists(st.floats(1e-4, 2.0), min_size=2, max_size=4, unique=True),
    ridged=st.booleans(),
)
def test_a_larger_radius_never_stops_earlier(
    seed: int, k: int, n: int, sigmas: list[float], ridged: bool
) -> None:
    contexts, outputs = world(seed, n, 3, k)
    costs = np.random.default_rng(seed).uniform(0.05, 0.5, k)
    asked, _ = world(seed + 1, 50, 3, k)
    earlier = np.zeros(50, dtype=np.int64)
    for sigma in sorted(sigmas):
        kind = USSPDRidge if ridged else USSPD
        policy = kind(Cascade(costs), context_dim=3, sigma=sigma, forced_rounds=0)
        for x, y in zip(contexts, outputs, strict=True):
            policy.observe(x, y.tolist())
        stops = policy.decide_many(asked)
        assert (stops >= earlier).all()
        earlier = stops


def test_radii_of_the_monotonicity_test_do_change_decisions() -> None:
    contexts, outputs = world(3, 200, 3, 4)
    asked, _ = world(4, 50, 3, 4)
    deep = []
    for sigma in (1e-4, 0.1, 2.0):
        policy = USSPD(Cascade([0.49] * 4), context_dim=3, sigma=sigma, forced_rounds=0)
        for x, y in zip(contexts, outputs, strict=True):
            policy.observe(x, y.tolist())
        deep.append(int(policy.decide_many(asked).sum()))
    assert deep[0] < deep[1] < deep[2]


# ------------------------------------------------------------------------- inputs stay untouched


def scribbler(x: Array) -> Array:
    result = np.array([1.0, x[0]]) / 2
    x[:] = 99.0  # a rude map; the caller's context must survive it
    return result


@lasting
@given(seed=seeds, rude=st.booleans())
def test_inputs_are_never_mutated(seed: int, rude: bool) -> None:
    contexts, outputs = world(seed, 60, 2, 3)
    kept, kept_outputs = contexts.copy(), outputs.copy()
    features: Any = scribbler if rude else Polynomial()
    policy = USSPD(Cascade([0.1] * 3), features, 2, forced_rounds=10)
    policy.run(contexts, outputs)
    policy.decide_many(contexts)
    differ = np.array(outputs[:, [0, 0, 1]] != outputs[:, [1, 2, 2]])
    kept_differ = differ.copy()
    policy.run_disagreements(contexts, differ)
    said = [1, 0]
    told = {(0, 1): True}
    policy.decide(contexts[0])
    policy.observe(contexts[0], said)
    policy.observe_disagreements(contexts[0], 1, told)
    np.testing.assert_array_equal(contexts, kept)
    np.testing.assert_array_equal(outputs, kept_outputs)
    np.testing.assert_array_equal(differ, kept_differ)
    assert (said, told) == ([1, 0], {(0, 1): True})


# ----------------------------------------------------------------------------- copies are copies


def live(policy: Any, contexts: Array, outputs: NDArray[np.int64]) -> list[int]:
    """Play round by round; the last arm is held to be right."""
    stops: list[int] = []
    for x, y in zip(contexts, outputs, strict=True):
        stops.append(policy.decide(x).stop)
        told = (Truth(label=y[-1]),) if policy.needs_truth else ()
        policy.observe(x, y[: stops[-1] + 1].tolist(), *told)
    return stops


@pytest.mark.parametrize("name", ["uss-pd", "uss-pd-ridge", "thompson", "supervised"])
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_lives_its_own_life(how: str, name: str) -> None:
    first, twin = POLICIES[name](), POLICIES[name]()
    live(first, *world(2, 100, 2, 3))
    live(twin, *world(2, 100, 2, 3))
    kept = copy.deepcopy(first.state())
    second = copy.deepcopy(first) if how == "deepcopy" else pickle.loads(pickle.dumps(first))
    assert live(second, *world(3, 300, 2, 3)) == live(twin, *world(3, 300, 2, 3))
    assert (first.rounds, second.rounds) == (100, 400)
    for part, array in kept.items():
        np.testing.assert_array_equal(array, first.state()[part], err_msg=part)


# ------------------------------------------------------------------- a failing call changes nothing

X = [0.5, -0.5]
NAN = float("nan")
COMMON: dict[str, Callable[[Any], object]] = {
    "decide: a long context": lambda p: p.decide([0.1, 0.2, 0.3]),
    "decide: NaN": lambda p: p.decide([NAN, 0.2]),
    "decide: beyond the bound": lambda p: p.decide([0.5, 7.0]),
    "decide: words": lambda p: p.decide("ab"),
    "decide_many: a bad row": lambda p: p.decide_many([X, [0.1, NAN]]),
    "run: a bad last context": lambda p: p.run(
        [X, X, [2.0, 0.0]], np.zeros((3, 3)), **labels(p, 3)
    ),
    "run: outputs of another length": lambda p: p.run([X, X], np.zeros((3, 3)), **labels(p, 2)),
    "run: too few arms": lambda p: p.run([X, X], np.zeros((2, 2)), **labels(p, 2)),
}
UNSUPERVISED: dict[str, Callable[[Any], object]] = {
    "observe: a bad context": lambda p: p.observe([0.1, NAN], [0, 1]),
    "observe: no outputs": lambda p: p.observe(X, []),
    "observe: too many outputs": lambda p: p.observe(X, [0, 0, 0, 0]),
    "observe: NaN": lambda p: p.observe(X, [0, NAN]),
    "observe: unhashable": lambda p: p.observe(X, [[0], [1]]),
    "observe: not a sequence": lambda p: p.observe(X, 3),
    "run: NaN": lambda p: p.run([X, X], np.array([[0, 0, 0], [0, NAN, 0]])),
    "pairs: stop 3 of 3 arms": lambda p: p.observe_disagreements(X, 3, {}),
    "pairs: negative stop": lambda p: p.observe_disagreements(X, -1, {}),
    "pairs: stop 1.5": lambda p: p.observe_disagreements(X, 1.5, {(0, 1): True}),
    "pairs: one missing": lambda p: p.observe_disagreements(X, 2, {(0, 1): True, (0, 2): True}),
    "pairs: one too many": lambda p: p.observe_disagreements(X, 0, {(0, 1): True}),
    "pairs: neither 0 nor 1": lambda p: p.observe_disagreements(X, 1, {(0, 1): 2}),
    "pairs: a small table": lambda p: p.observe_disagreements(X, 2, [[0, 1], [0, 0]]),
    "pairs: a bad context": lambda p: p.observe_disagreements([0.1], 1, {(0, 1): True}),
    "run of pairs: a bad shape": lambda p: p.run_disagreements([X, X], np.zeros((2, 2))),
    "run of pairs: neither 0 nor 1": lambda p: p.run_disagreements([X], [[0, 1, 2]]),
    "run of pairs: a bad context": lambda p: p.run_disagreements([X, [3.0, 0]], np.ones((2, 3))),
}
SUPERVISED: dict[str, Callable[[Any], object]] = {
    "observe: a bad context": lambda p: p.observe([0.1, NAN], [0, 1], Truth(label=0)),
    "observe: too many outputs": lambda p: p.observe(X, [0, 0, 0, 0], Truth(label=0)),
    "observe: no truth": lambda p: p.observe(X, [0, 0]),
    "observe: no label": lambda p: p.observe(X, [0, 0], Truth(optimal=1)),
    "disagreements": lambda p: p.observe_disagreements(X, 1, {(0, 1): True}),
    "run: no labels": lambda p: p.run([X], [[0, 0, 0]]),
    "run: fewer rounds told than contexts": lambda p: p.run([X] * 9, np.zeros((3, 3)), [0] * 3),
    "run: fewer labels than rounds": lambda p: p.run([X] * 3, np.zeros((3, 3)), [0] * 2),
    "run of pairs": lambda p: p.run_disagreements([X] * 2, np.zeros((2, 3))),
}
MAPS = PerPair({(0, 1): Identity(), (0, 2): Polynomial(), (1, 2): Identity()})
POLICIES: dict[str, Callable[[], Any]] = {
    "uss-pd": lambda: USSPD(Cascade([0.1] * 3), context_dim=2, forced_rounds=5),
    "uss-pd-ridge": lambda: USSPDRidge(Cascade([0.1] * 3), MAPS, 2),
    "thompson": lambda: Thompson(Cascade([0.1] * 3), context_dim=2, forced_rounds=5),
    "supervised": lambda: Supervised(Cascade([0.1] * 3), context_dim=2, forced_rounds=5),
}
FAILURES = [
    pytest.param(name, call, id=f"{name} {what}")
    for name in POLICIES
    for what, call in (COMMON | (SUPERVISED if name == "supervised" else UNSUPERVISED)).items()
]


def labels(policy: Any, n: int) -> dict[str, Any]:
    return {"labels": np.zeros(n)} if policy.needs_truth else {}


@pytest.mark.parametrize(("name", "call"), FAILURES)
def test_a_failing_call_leaves_the_policy_as_it_was(
    name: str, call: Callable[[Any], object]
) -> None:
    policy = POLICIES[name]()
    contexts, outputs = world(1, 40, 2, 3)
    policy.run(contexts, outputs, **labels(policy, 40))
    before = copy.deepcopy(policy.state())
    with pytest.raises((StopwiseError, TypeError)):
        call(policy)
    after = policy.state()
    assert before.keys() == after.keys()
    for part, array in before.items():
        np.testing.assert_array_equal(array, after[part], err_msg=part)
