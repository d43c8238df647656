"""Who is right, by agreement alone: latent classes (Dawid and Skene), one accuracy a class.

The right answer y of a row is unknown. Given y the arms err independently; arm i is right with
chance a_i(y) and a wrong arm says each of the L − 1 wrong classes alike:

    P(o) = Σ_y π(y) · Π_i a_i(y)^[o_i = y] · ((1 − a_i(y))/(L − 1))^[o_i ≠ y]

The accuracy of arm i is Σ_y π(y)·a_i(y). An accuracy for each class, not one for all: where one
class is rare, cheap arms tend to say the common one, and one accuracy for both would take their
agreement for knowledge.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Rows that every class and arm is taken to have seen beforehand, at the arm's mean accuracy: keeps
# estimates off 0 and 1 (heuristic: far fewer than a class must have to matter).
PRIOR_ROWS = 2.0
FIRST_STEPS, MAX_STEPS = 30, 1000
TOLERANCE = 1e-8  # of the log-likelihood of a row, in one step


class Latent(NamedTuple):
    """A fitted model.

    ``accuracy`` (K,) and its ``covariance`` (K, K); ``agreement`` (K, K), the chance that two
    arms agree by the model; ``log_likelihood`` of all rows.
    """

    accuracy: Floats
    covariance: Floats
    agreement: Floats
    log_likelihood: float


def fit_latent(outputs: Ints, classes: int) -> Latent:
    """Fit the model to outputs of shape (n, K), codes 0 … L − 1.

    The likelihood may have several tops: the search starts from the majority's answers and from
    those of each arm, and the highest top counts.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> right = random.random((20000, 3)) < [0.7, 0.8, 0.9]
    >>> truth = random.integers(0, 2, 20000)
    >>> fit_latent(np.where(right, truth[:, None], 1 - truth[:, None]), 2).accuracy.round(1)
    array([0.7, 0.8, 0.9])
    """
    patterns, counts = np.unique(outputs, axis=0, return_counts=True)
    counts = counts.astype(np.float64)
    says = patterns[:, :, None] == np.arange(classes)  # (P, K, L)
    votes = says.mean(axis=1)
    starts = [votes, *(0.5 * says[:, i] + 0.5 * votes for i in range(patterns.shape[1]))]
    tries = [_climb(says, counts, start, FIRST_STEPS) for start in starts]
    best = max(tries, key=lambda climbed: climbed.top)
    prior, right, _, top = _climb(says, counts, best.belief, MAX_STEPS)
    return Latent(
        accuracy=right @ prior,
        covariance=_covariance(says, counts, prior, right),
        agreement=_agreement(prior, right),
        log_likelihood=top,
    )


class _Climbed(NamedTuple):
    prior: Floats  # π(y), (L,)
    right: Floats  # a_i(y), (K, L)
    belief: Floats  # of each pattern, which answer is right, (P, L)
    top: float  # the log-likelihood


def _climb(says: Bools, counts: Floats, belief: Floats, steps: int) -> _Climbed:
    """Expectation and maximisation in turn, from beliefs about the right answers."""
    n, classes = float(counts.sum()), says.shape[2]
    hit = (says * counts[:, None, None]).transpose(1, 2, 0)  # (K, L, P)
    now = _Climbed(np.empty(0), np.empty(0), belief, -np.inf)
    for _ in range(steps):
        rows = counts @ now.belief  # of each class, as believed
        prior = (rows + 1.0) / (n + classes)
        hits = (hit * now.belief.T).sum(axis=2)
        mean = (hits.sum(axis=1) + 1.0) / (n + 2.0)
        right = (hits + PRIOR_ROWS * mean[:, None]) / (rows + PRIOR_ROWS)
        joint = _log_joint(says, prior, right)
        peak = joint.max(axis=1)
        total = peak + np.log(np.exp(joint - peak[:, None]).sum(axis=1))
        belief, top = np.exp(joint - total[:, None]), float(counts @ total)
        settled = abs(top - now.top) < TOLERANCE * n
        now = _Climbed(prior, right, belief, top)
        if settled:
            break
    return now


def _log_joint(says: Bools, prior: Floats, right: Floats) -> Floats:
    """Return ln π(y)·P(o | y) of every pattern and class: (P, L)."""
    wrong = np.log((1 - right) / (says.shape[2] - 1))
    return np.log(prior) + wrong.sum(axis=0) + (says * (np.log(right) - wrong)).sum(axis=1)


def _covariance(says: Bools, counts: Floats, prior: Floats, right: Floats) -> Floats:
    """Return the covariance of the accuracies: delta method on the inverse of the information.

    The information is the sum of squared scores over the rows; the score of a parameter is the
    believed share of its class times the score it would have if the class were known.
    """
    arms, classes = right.shape
    joint = _log_joint(says, prior, right)
    belief = np.exp(joint - joint.max(axis=1, keepdims=True))
    belief /= belief.sum(axis=1, keepdims=True)
    of_right = belief[:, None, :] * np.where(says, 1 / right, -1 / (1 - right))
    # π(y) sums to one: the last class takes what the others leave.
    of_prior = belief[:, :-1] / prior[:-1] - belief[:, -1:] / prior[-1]
    score = np.hstack([of_right.reshape(len(says), -1), of_prior])
    information = (score * counts[:, None]).T @ score
    # what the prior rows know
    known = PRIOR_ROWS / (right * (1 - right))
    information[np.diag_indices_from(information)] += np.concatenate(
        [known.ravel(), 1 / prior[:-1]]
    )
    slope = np.zeros((arms, information.shape[0]))
    for i in range(arms):
        slope[i, i * classes : (i + 1) * classes] = prior
        slope[i, arms * classes :] = right[i, :-1] - right[i, -1]
    return slope @ np.linalg.solve(information, slope.T)


def _agreement(prior: Floats, right: Floats) -> Floats:
    """Return the chance by the model that two arms say the same: (K, K), one on the diagonal."""
    classes = right.shape[1]
    both = np.einsum("y,iy,jy->ij", prior, right, right)
    neither = np.einsum("y,iy,jy->ij", prior, 1 - right, 1 - right) / (classes - 1)
    table = both + neither
    np.fill_diagonal(table, 1.0)
    return table
