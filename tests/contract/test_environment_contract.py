"""Contract tests for every environment: shapes, seeds and probabilities."""

import math
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from stopwise import research

CASCADE = sw.Cascade([0.05, 0.15, 0.2])
ARMS: dict[str, Any] = {"arms": [[1, 0, -1], [3, 2, 0], [6, 6, 0]], "label": [9, 9, 0]}
THETA = [[-2.0, 2.0], [-1.6, 2.0], [-2.0, 1.5]]
QUADRATIC = [[-3, 2, 0, 1, 0, 0], [-2.5, 2, 0, 0, 1, 0], [-3, 2, 0, 0, 0, 1]]

# case: (environment, cascade, parameters)
CASES: dict[str, tuple[str, sw.Cascade, dict[str, Any]]] = {
    "logistic arms": ("logistic-arms", CASCADE, ARMS),
    "realizable": ("realizable", CASCADE, {"theta": THETA}),
    "realizable, degree two": ("realizable", CASCADE, {"theta": QUADRATIC, "degree": 2}),
    "realizable, margin": ("realizable", CASCADE, {"theta": THETA, "margin": 0.03}),
    "synthetic": ("synthetic", sw.Cascade([0.01, 0.02, 0.032, 0.05, 0.6]), {}),
    "pima": ("pima", sw.Cascade([0.01, 0.05, 0.02]), {}),
    "heart": ("heart", sw.Cascade([0.01, 0.1, 0.1]), {}),
}
every_case = pytest.mark.parametrize("case", CASES)


def make(case: str) -> research.Environment:
    name, cascade, parameters = CASES[case]
    return research.make_environment(name, cascade, **parameters)


def draw(case: str, rounds: int = 400, seed: int = 0) -> research.Batch:
    return make(case).sample(rounds, np.random.default_rng(seed))


def differ(batch: research.Batch, cascade: sw.Cascade) -> np.ndarray:
    assert batch.outputs is not None
    return np.stack(
        [batch.outputs[:, i] != batch.outputs[:, j] for i, j in cascade.pairs()], axis=1
    )


def test_all_registered_environments_are_tested() -> None:
    assert {name for name, _, _ in CASES.values()} == set(research.ENVIRONMENTS)
    assert all(environment.name == name for name, environment in research.ENVIRONMENTS.items())


@every_case
def test_batches_have_the_expected_shapes_and_ranges(case: str) -> None:
    environment, batch = make(case), draw(case)
    n, k = 400, environment.cascade.n_arms
    assert environment.cascade == CASES[case][1]
    assert batch.outputs is not None
    for part, shape in {
        "contexts": (n, environment.context_dim),
        "disagreement": (n, k, k),
        "optimal": (n,),
        "margins": (n,),
        "outputs": (n, k),
        "labels": (n,),
        "error_rates": (n, k),
    }.items():
        value = getattr(batch, part)
        assert value is None or value.shape == shape
        if part in ("disagreement", "error_rates") and value is not None:
            assert ((value >= 0) & (value <= 1)).all()
    assert draw(case, rounds=1).contexts.shape == (1, environment.context_dim)
    assert (np.abs(batch.contexts) <= 1).all()
    assert batch.optimal.dtype == np.int64
    assert len(set(batch.optimal.tolist())) > 1  # otherwise depth would not matter
    assert set(batch.optimal.tolist()) <= set(range(k))


@every_case
def test_a_seed_determines_a_batch_even_after_changes_to_another(case: str) -> None:
    environment = make(case)
    first, second = (environment.sample(400, np.random.default_rng(seed)) for seed in (0, 1))
    modified = environment.sample(400, np.random.default_rng(0))
    for part in research.Batch.__struct_fields__:
        if (array := getattr(modified, part)) is not None:
            array[:] = 7
    for same in (draw(case), environment.sample(400, np.random.default_rng(0))):
        for part in research.Batch.__struct_fields__:
            np.testing.assert_array_equal(getattr(first, part), getattr(same, part), err_msg=part)
    assert np.array_equal(first.contexts, second.contexts) == (case in ("pima", "heart"))
    cascade = environment.cascade
    assert not np.array_equal(differ(first, cascade), differ(second, cascade))


@every_case
def test_disagreements_and_errors_have_the_stated_probabilities(case: str) -> None:
    """Checked overall and for the half of the rounds with higher probabilities.

    By Hoeffding, P(|mean(d − p)| > 0.0125) over n rounds ≤ 2·exp(−2·n·0.0125²): below 1e-13 for all
    1e5 rounds and 2e-6 for a third of them; with 42 comparisons below 1e-4.
    """
    cascade = CASES[case][1]
    batch = draw(case, 100_000, seed=2)
    stated = np.stack([batch.disagreement[:, i, j] for i, j in cascade.pairs()], axis=1)
    compared = [(differ(batch, cascade), stated)]
    if batch.error_rates is not None:
        assert batch.outputs is not None
        assert batch.labels is not None
        compared.append((batch.outputs != batch.labels[:, None], batch.error_rates))
    for observed, probability in compared:
        off = observed - probability
        assert np.abs(off.mean(axis=0)).max() < 0.0125
        for column in range(off.shape[1]):
            likely = probability[:, column] > np.median(probability[:, column])
            if likely.sum() > 45_000:
                assert abs(off[likely, column].mean()) < 0.0125


@every_case
def test_the_optimal_arm_and_the_margin_match_a_brute_force_search(case: str) -> None:
    """The last argmin of γ_i + C_i, or Lemma 2's first passing arm without error rates."""
    batch, cascade = draw(case), CASES[case][1]
    k = cascade.n_arms
    for t, optimal in enumerate(batch.optimal):
        spare = [
            [
                sum(cascade.costs[i + 1 : j + 1]) - batch.disagreement[t, i, j]
                for j in range(i + 1, k)
            ]
            for i in range(k)
        ]
        if batch.error_rates is not None:
            losses = [batch.error_rates[t, i] + sum(cascade.costs[: i + 1]) for i in range(k)]
            assert optimal == max(i for i in range(k) if losses[i] <= min(losses) + 1e-12)
        else:
            assert optimal == min(i for i in range(k) if all(s > 0 for s in spare[i]))
        margin = min(spare[optimal], default=math.inf)
        assert batch.margins[t] == pytest.approx(margin, abs=1e-11)
        assert batch.dominant[t] == (margin > 1e-12)
