"""What every environment promises: shapes, seeds, and outputs that follow the stated truth."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stopwise as sw

CASCADE = sw.Cascade([0.05, 0.15, 0.2])
ARMS: dict[str, Any] = {"arms": [[1, 0, -1], [3, 2, 0], [6, 6, 0]], "label": [9, 9, 0]}
THETA = [[-2.0, 2.0], [-1.0, 3.0], [-4.0, 1.0]]
QUADRATIC = [[-3, 2, 0, 1, 0, 0], [-2, 3, 1, 0, 2, 0], [-6, 1, 0, 0, 0, 2]]

_past = sw.LogisticArms(CASCADE, **ARMS).sample(700, np.random.default_rng(9))
assert _past.outputs is not None
assert _past.labels is not None
LOG: dict[str, Any] = {
    "contexts": _past.contexts.tolist(),
    "outputs": _past.outputs.tolist(),
    "labels": _past.labels.tolist(),
}

# name of the case: (name of the environment, cascade, parameters)
CASES: dict[str, tuple[str, sw.Cascade, dict[str, Any]]] = {
    "logistic arms": ("logistic-arms", CASCADE, ARMS),
    "realizable": ("realizable", CASCADE, {"theta": THETA}),
    "realizable, degree two": ("realizable", CASCADE, {"theta": QUADRATIC, "degree": 2}),
    "realizable, margin": ("realizable", CASCADE, {"theta": THETA, "margin": 0.03}),
    "synthetic": ("synthetic", sw.Cascade([0.01, 0.02, 0.032, 0.05, 0.6]), {}),
    "pima": ("pima", sw.Cascade([0.01, 0.05, 0.02]), {}),
    "heart": ("heart", sw.Cascade([0.01, 0.1, 0.1]), {}),
    "logged": ("logged", CASCADE, LOG),
    "logged, shuffled": ("logged", CASCADE, {**LOG, "shuffle": True}),
    "logged, no labels": ("logged", CASCADE, {**LOG, "labels": None}),
}
ORDERED = {"pima", "heart", "logged", "logged, no labels"}  # the order of contexts is given
HINDSIGHT = {"logged", "logged, no labels"}  # nothing is random at all


def make(case: str) -> sw.Environment:
    name, cascade, parameters = CASES[case]
    return sw.make_environment(name, cascade, **parameters)


def draw(case: str, rounds: int = 400, seed: int = 0) -> sw.Batch:
    return make(case).sample(rounds, np.random.default_rng(seed))


def differ(batch: sw.Batch, cascade: sw.Cascade) -> np.ndarray:
    if batch.differ is not None:
        return batch.differ
    assert batch.outputs is not None
    return np.stack(
        [batch.outputs[:, i] != batch.outputs[:, j] for i, j in cascade.pairs()], axis=1
    )


def test_every_environment_of_the_registry_is_checked_here() -> None:
    assert {name for name, _, _ in CASES.values()} == set(sw.ENVIRONMENTS)
    assert all(environment.name == name for name, environment in sw.ENVIRONMENTS.items())


def check_shapes(case: str) -> None:
    environment, batch = make(case), draw(case)
    n, k = 400, environment.cascade.n_arms
    assert environment.cascade == CASES[case][1]
    assert batch.contexts.shape == (n, environment.context_dim)
    assert batch.disagreement.shape == (n, k, k)
    assert batch.optimal.shape == batch.margins.shape == batch.dominant.shape == (n,)
    assert batch.optimal.dtype == np.int64
    assert (batch.outputs is None) != (batch.differ is None)
    for part, shape in {
        "outputs": (n, k),
        "differ": (n, k * (k - 1) // 2),
        "labels": (n,),
        "error_rates": (n, k),
    }.items():
        value = getattr(batch, part)
        assert value is None or value.shape == shape
    assert draw(case, rounds=1).contexts.shape == (1, environment.context_dim)


def check_a_seed_says_it_all(case: str) -> None:
    environment = make(case)
    one = environment.sample(400, np.random.default_rng(0))
    other = environment.sample(400, np.random.default_rng(1))
    for same in (draw(case), environment.sample(400, np.random.default_rng(0))):
        for part in sw.Batch.__struct_fields__:
            np.testing.assert_array_equal(getattr(one, part), getattr(same, part), err_msg=part)
    assert np.array_equal(one.contexts, other.contexts) == (case in ORDERED)
    cascade = environment.cascade
    assert np.array_equal(differ(one, cascade), differ(other, cascade)) == (case in HINDSIGHT)


def check_a_batch_is_the_callers_to_change(case: str) -> None:
    environment = make(case)
    batch = environment.sample(50, np.random.default_rng(0))
    for part in sw.Batch.__struct_fields__:
        if (array := getattr(batch, part)) is not None:
            array[:] = 7
    again, fresh = environment.sample(50, np.random.default_rng(0)), draw(case, 50)
    for part in sw.Batch.__struct_fields__:
        np.testing.assert_array_equal(getattr(again, part), getattr(fresh, part), err_msg=part)


def check_values_are_in_range(case: str) -> None:
    batch, k = draw(case), CASES[case][1].n_arms
    assert (np.abs(batch.contexts) <= 1).all()
    assert (batch.disagreement >= 0).all()
    assert (batch.disagreement <= 1).all()
    assert ((batch.optimal >= 0) & (batch.optimal < k)).all()
    assert len(set(batch.optimal.tolist())) > 1  # a world in which depth matters
    if batch.error_rates is not None:
        assert ((batch.error_rates >= 0) & (batch.error_rates <= 1)).all()


def check_disagreement_is_as_stated(case: str) -> None:
    """Arms disagree as often as stated: overall, and where it is stated to be likely.

    Hoeffding: |mean(d − p)| > 0.0125 over n rounds has chance ≤ 2·exp(−2·n·0.0125²): below
    1e-13 for all 1e5 rounds, below 2e-6 for a third of them or more; 37 pairs in all: < 1e-4.
    """
    cascade = CASES[case][1]
    batch = draw(case, 100_000, seed=2)
    stated = np.stack([batch.disagreement[:, i, j] for i, j in cascade.pairs()], axis=1)
    off = differ(batch, cascade) - stated
    assert np.abs(off.mean(axis=0)).max() < 0.0125
    for pair in range(stated.shape[1]):
        likely = stated[:, pair] > np.median(stated[:, pair])
        if likely.sum() > 45_000:
            assert abs(off[likely, pair].mean()) < 0.0125
    if case.startswith("logged"):
        assert (off == 0).all()  # hindsight is never wrong


def check_errors_are_as_stated(case: str) -> None:
    """Arms err as often as stated. Hoeffding, 16 arms: chance of a false alarm < 1e-4, as above."""
    batch = draw(case, 100_000, seed=3)
    if batch.error_rates is None:
        return
    assert batch.outputs is not None
    assert batch.labels is not None
    off = (batch.outputs != batch.labels[:, None]) - batch.error_rates
    assert np.abs(off.mean(axis=0)).max() < 0.0125
    for arm in range(off.shape[1]):
        likely = batch.error_rates[:, arm] > np.median(batch.error_rates[:, arm])
        if likely.sum() > 45_000:
            assert abs(off[likely, arm].mean()) < 0.0125
    if case.startswith("logged"):
        assert (off == 0).all()


def check_the_optimal_arm_is_that_of_a_brute_force_search(case: str) -> None:
    """max argmin of γ_i + C_i; where there are no error rates, Lemma 2's first arm that holds."""
    batch, cascade = draw(case), CASES[case][1]
    k = cascade.n_arms
    for t, optimal in enumerate(batch.optimal):
        if batch.error_rates is not None:
            losses = [batch.error_rates[t, i] + sum(cascade.costs[: i + 1]) for i in range(k)]
            arms = [i for i in range(k) if losses[i] <= min(losses) + 1e-12]
            assert optimal == arms[-1]
        else:
            arms = [
                i
                for i in range(k)
                if all(
                    sum(cascade.costs[i + 1 : j + 1]) > batch.disagreement[t, i, j]
                    for j in range(i + 1, k)
                )
            ]
            assert optimal == arms[0]


def check_margins_are_those_of_the_definition(case: str) -> None:
    batch, cascade = draw(case), CASES[case][1]
    for t, best in enumerate(batch.optimal):
        margin = min(
            (
                sum(cascade.costs[best + 1 : j + 1]) - batch.disagreement[t, best, j]
                for j in range(best + 1, cascade.n_arms)
            ),
            default=math.inf,
        )
        assert batch.margins[t] == pytest.approx(margin, abs=1e-11)
        assert batch.dominant[t] == (margin > 1e-12)


CHECKS = [
    check_shapes,
    check_a_seed_says_it_all,
    check_a_batch_is_the_callers_to_change,
    check_values_are_in_range,
    check_disagreement_is_as_stated,
    check_errors_are_as_stated,
    check_the_optimal_arm_is_that_of_a_brute_force_search,
    check_margins_are_those_of_the_definition,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES)
def test_environment(case: str, check: Callable[[str], None]) -> None:
    check(case)
