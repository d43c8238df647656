"""Accuracy from agreement, against the truth that drew the answers."""

import itertools

import numpy as np
import pytest

from stopwise.logs.diagnosis.latent import fit_latent
from stopwise.logs.diagnosis.rank_one import fit_rank_one


def drawn(n, seed, right, prior):
    """Answers of arms with accuracy right[arm, class]."""
    random = np.random.default_rng(seed)
    right = np.asarray(right)
    classes = len(prior)
    truth = random.choice(classes, n, p=prior)
    correct = random.random((n, len(right))) < right[:, truth].T
    shift = random.integers(1, classes, correct.shape)
    return np.where(correct, truth[:, None], (truth[:, None] + shift) % classes), truth


@pytest.mark.parametrize(
    ("right", "prior"),
    [
        ([[0.7, 0.7], [0.8, 0.8], [0.9, 0.9]], [0.5, 0.5]),
        # a rare class that cheap arms hardly ever name
        ([[0.99, 0.1], [0.98, 0.2], [0.97, 0.5], [0.96, 0.9]], [0.9, 0.1]),
        ([[0.6, 0.7, 0.8], [0.9, 0.7, 0.8], [0.7, 0.7, 0.5], [0.8, 0.9, 0.9]], [0.5, 0.3, 0.2]),
    ],
)
def test_accuracies_are_found_within_their_errors(right, prior):
    """Four standard errors: false alarms below one in a thousand."""
    outputs, truth = drawn(40_000, 1, right, prior)
    found = fit_latent(outputs, len(prior))
    off = found.accuracy - (outputs == truth[:, None]).mean(axis=0)
    assert np.abs(off / np.sqrt(np.diag(found.covariance))).max() < 4
    assert np.abs(off).max() < 0.03


def test_one_accuracy_for_all_classes_would_mislead():
    # why there is one for each class: the best arm would come out worst
    outputs, _ = drawn(40_000, 2, [[0.99, 0.1], [0.98, 0.3], [0.96, 0.9]], [0.9, 0.1])
    agree = 2 * (outputs[:, :, None] == outputs[:, None, :]).mean(axis=0) - 1
    alike = [
        (1 + np.sqrt(agree[i, j] * agree[i, k] / agree[j, k])) / 2
        for i, j, k in ((0, 1, 2), (1, 0, 2), (2, 0, 1))
    ]
    assert np.argmin(alike) == 2
    assert np.argmax(fit_latent(outputs, 2).accuracy) == 2


def test_errors_are_as_large_as_they_say():
    """The spread over 100 draws, known to 7 %: false alarms below one in a thousand."""
    right, prior = [[0.75, 0.7], [0.8, 0.9], [0.9, 0.85], [0.6, 0.7]], [0.6, 0.4]
    fits = [fit_latent(drawn(3000, seed, right, prior)[0], 2) for seed in range(100)]
    spread = np.std([f.accuracy for f in fits], axis=0)
    said = np.sqrt(np.mean([np.diag(f.covariance) for f in fits], axis=0))
    assert said == pytest.approx(spread, rel=0.25)
    difference = np.std([f.accuracy[2] - f.accuracy[3] for f in fits])
    c = np.mean([f.covariance for f in fits], axis=0)
    assert np.sqrt(c[2, 2] + c[3, 3] - 2 * c[2, 3]) == pytest.approx(difference, rel=0.25)


def test_no_neighbour_is_more_likely():
    """The top of the likelihood, computed here by plain enumeration."""
    outputs, _ = drawn(5000, 3, [[0.7, 0.8], [0.8, 0.7], [0.9, 0.85]], [0.5, 0.5])
    found = fit_latent(outputs, 2)

    def likelihood(prior, right):
        total = 0.0
        for pattern in itertools.product((0, 1), repeat=3):
            rows = (outputs == pattern).all(axis=1).sum()
            chance = sum(
                prior[y]
                * np.prod(
                    [right[i][y] if o == y else 1 - right[i][y] for i, o in enumerate(pattern)]
                )
                for y in (0, 1)
            )
            total += rows * np.log(chance)
        return total

    truth = likelihood([0.5, 0.5], [[0.7, 0.8], [0.8, 0.7], [0.9, 0.85]])
    assert found.log_likelihood >= truth
    # three binary arms have seven free chances and the model seven parameters: nothing is left
    saturated = sum(
        rows * np.log(rows / 5000)
        for rows in np.unique(outputs, axis=0, return_counts=True)[1].tolist()
    )
    assert found.log_likelihood == pytest.approx(saturated, abs=0.5)


def test_agreement_by_the_model_is_that_of_the_rows():
    outputs, _ = drawn(20_000, 4, [[0.7] * 3, [0.8] * 3, [0.9] * 3], [0.3, 0.3, 0.4])
    observed = (outputs[:, :, None] == outputs[:, None, :]).mean(axis=0)
    assert fit_latent(outputs, 3).agreement == pytest.approx(observed, abs=0.01)


@pytest.mark.parametrize("classes", [2, 5])
def test_arms_that_always_say_the_same(classes):
    found = fit_latent(np.zeros((500, 3), dtype=np.int64), classes)
    assert np.isfinite(found.covariance).all()
    assert (found.accuracy > 0.9).all()


def free_text(n, seed, accuracy):
    random = np.random.default_rng(seed)
    right = random.random((n, len(accuracy))) < accuracy
    pairs = itertools.combinations(range(len(accuracy)), 2)
    return np.column_stack([~(right[:, i] & right[:, j]) for i, j in pairs]).astype(np.uint8)


@pytest.mark.parametrize("accuracy", [(0.5, 0.7, 0.9), (0.4, 0.9, 0.8, 0.6, 0.95)])
def test_free_text_accuracies_and_their_errors(accuracy):
    """Spread over 300 draws, known to 4 %; the mean to 1/17 of it."""
    fits = [fit_rank_one(free_text(2000, seed, accuracy), len(accuracy)) for seed in range(300)]
    found = np.array([f.accuracy for f in fits])
    said = np.sqrt(np.mean([np.diag(f.covariance) for f in fits], axis=0))
    assert found.mean(axis=0) == pytest.approx(accuracy, abs=0.005)
    assert said == pytest.approx(found.std(axis=0), rel=0.2)


@pytest.mark.parametrize("mark", [0, 1])
def test_free_text_that_never_or_always_differs(mark):
    found = fit_rank_one(np.full((200, 3), mark, dtype=np.uint8), 3)
    assert np.isfinite(found.accuracy).all()
    assert np.isfinite(found.covariance).all()
