"""The question from agreement, against the truth that drew the answers."""

import numpy as np
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.agreement import read_hint
from tests.helpers.cascades import Simulated, bad_cascade, good_cascade, shared_mistakes, simulated

BAD = (0.25, 0.15, 0.08, 0.35)


def hint(drawn: Simulated):
    """Read with how often the arms disagree as predictions, which go to the last arm if cheap."""
    outputs, pairs = drawn.outputs, drawn.cascade.pairs()
    differ = np.column_stack([outputs[:, i] != outputs[:, j] for i, j in pairs]).astype(np.uint8)
    return read_hint(drawn.cascade, np.tile(differ.mean(axis=0), (len(differ), 1)), differ)


@pytest.mark.parametrize("classes", [2, 5])
def test_the_arm_that_agrees_less_is_less_accurate_if_arms_err_independently(classes):
    """P(i, k agree) − P(j, k agree) = (a_i − a_j)·(a_k − (1 − a_k)/(L − 1)).

    Of 200,000 rows the difference has a standard error below 0.0015; a false alarm needs five.
    """
    random, n, right = np.random.default_rng(1), 200_000, (0.8, 0.75, 0.6)
    labels = random.integers(0, classes, n)
    wrong = random.random((n, 3)) > right
    shift = random.integers(1, classes, (n, 3))
    outputs = (labels[:, None] + wrong * shift) % classes
    cascade = sw.Cascade([0.01, 0.01, 0.01])
    found = hint(Simulated(cascade, np.zeros((n, 1)), outputs, labels))
    assert found is not None
    assert (found.worse, found.better) == (2, 0)
    agree = [(outputs[:, 0] == outputs[:, j]).mean() for j in (1, 2)]
    expected = (0.75 - 0.6) * (0.8 - 0.2 / (classes - 1))
    assert agree[0] - agree[1] == pytest.approx(expected, abs=0.0075)
    mirrored = (labels[:, None] + ~wrong * shift) % classes  # right and wrong exchanged
    same = hint(Simulated(cascade, np.zeros((n, 1)), mirrored, labels))
    if classes == 2:  # every agreement is as it was
        assert same == found


def test_the_worst_and_most_expensive_arm_raises_a_question():
    found = hint(bad_cascade(8000, 0))
    assert found is not None
    assert (found.worse, found.better) == (3, 2)
    outputs = bad_cascade(8000, 0).outputs
    agrees = [np.mean([(outputs[:, a] == outputs[:, k]).mean() for k in (0, 1)]) for a in (3, 2)]
    assert found.agrees == pytest.approx(agrees)
    assert hint(good_cascade(8000, 0)) is None


def test_shared_mistakes_raise_it_about_the_best_arm():
    """Which is why it is a question."""
    drawn = shared_mistakes(8000, 0)
    right = (drawn.outputs == drawn.labels[:, None]).mean(axis=0)
    assert right == pytest.approx([0.69, 0.76, 0.90], abs=0.01)
    found = hint(drawn)
    assert found is not None
    assert (found.worse, found.better) == (2, 1)


def test_an_arm_that_the_rule_never_reaches_raises_no_question():
    costs, errors = (0.01, 0.05, 1.0), (0.2, 0.1, 0.3)
    assert hint(simulated(8000, 0, costs, errors)) is None
    assert hint(simulated(8000, 0, (*costs[:2], 0.1), errors)) is not None


def test_two_arms_and_few_rows_give_no_hint():
    assert hint(simulated(2000, 0, (0.1, 0.1), (0.3, 0.2))) is None
    assert hint(bad_cascade(900, 0)) is None
