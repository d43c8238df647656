"""The hint from agreement, against the truth that drew the answers."""

import numpy as np
import pytest

from stopwise.logs.diagnosis.agreement import accuracies, read_hint, strata
from tests.helpers.cascades import Simulated, bad_cascade, error_rates, good_cascade, simulated

BAD = (0.25, 0.15, 0.08, 0.35)


def hint(drawn: Simulated, errors, classes: int | None = 2):
    """Read with the true chances of disagreement, so that only the agreement is in question."""
    e = error_rates(drawn.contexts, errors)
    p = [e[:, i] + e[:, j] - 2 * e[:, i] * e[:, j] for i, j in drawn.cascade.pairs()]
    return read_hint(drawn.cascade, np.column_stack(p), drawn.outputs.astype(np.int16), classes)


@pytest.mark.parametrize(
    ("right", "prior"),
    [
        # a rare class that cheap arms hardly ever output: their agreement is no accuracy
        ([[0.99, 0.1], [0.98, 0.3], [0.96, 0.9]], [0.9, 0.1]),
        ([[0.6, 0.7, 0.8], [0.9, 0.7, 0.8], [0.7, 0.7, 0.5], [0.8, 0.9, 0.9]], [0.5, 0.3, 0.2]),
    ],
)
def test_accuracies_are_found(right, prior):
    """Standard errors are below 0.006: a false alarm needs five of them."""
    random, right, classes = np.random.default_rng(1), np.asarray(right), len(prior)
    truth = random.choice(classes, 40_000, p=prior)
    correct = random.random((40_000, len(right))) < right[:, truth].T
    shift = random.integers(1, classes, correct.shape)
    outputs = np.where(correct, truth[:, None], (truth[:, None] + shift) % classes)
    found = accuracies(outputs, np.zeros(40_000, dtype=np.int64), classes)
    assert found == pytest.approx(correct.mean(axis=0), abs=0.03)


def test_hard_cases_are_hard_for_all_and_strata_undo_it():
    drawn = good_cascade(30_000, 0)
    truth = (drawn.outputs == drawn.labels[:, None]).mean(axis=0)
    cut = accuracies(drawn.outputs, strata(error_rates(drawn.contexts, (0.2,))), 2)
    uncut = accuracies(drawn.outputs, np.zeros(30_000, dtype=np.int64), 2)
    assert np.abs(cut - truth).max() < 0.015
    assert np.abs(uncut - truth).max() > 0.02
    assert strata(np.zeros((9000, 3))).max() == 0  # ties share a stratum


def test_the_worst_and_most_expensive_arm_raises_a_question():
    found = hint(bad_cascade(8000, 0), BAD)
    assert found is not None
    assert (found.worse, found.better) == (3, 2)
    good = hint(good_cascade(8000, 0), (0.35, 0.25, 0.15, 0.04))
    assert good is not None
    assert good.worse is None


def test_an_arm_that_the_rule_never_reaches_raises_no_question():
    found = hint(simulated(8000, 0, (0.01, 0.05, 1.0), (0.2, 0.1, 0.3)), (0.2, 0.1, 0.3))
    assert found is not None
    assert found.accuracies[2] < found.accuracies[1] - 0.1
    assert found.worse is None


def test_two_arms_few_rows_and_free_text_give_no_hint():
    assert hint(simulated(2000, 0, (0.1, 0.1), (0.3, 0.2)), (0.3, 0.2)) is None
    assert hint(bad_cascade(900, 0), BAD) is None
    assert hint(bad_cascade(2000, 0), BAD, classes=None) is None
