"""A hint at who is right, from agreement alone: latent classes (Dawid and Skene).

The right answer y of a row is unknown. Given y, arms are assumed to err independently; arm i is
right with chance a_i(y), and a wrong arm outputs each of the L − 1 wrong classes alike:

    P(o) = Σ_y π(y) · Π_i a_i(y)^[o_i = y] · ((1 − a_i(y))/(L − 1))^[o_i ≠ y]

The accuracy of arm i is Σ_y π(y)·a_i(y). Hard cases are hard for all arms, so rows are cut into
strata by predicted disagreement, and the estimates are averaged. Mistakes that arms share look like
accuracy, so this is only ever a hint. docs/diagnosis-method.md explains the choices.
"""

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.chunk import Bools, Floats, Ints
from stopwise.logs.diagnosis.findings import Hint
from stopwise.logs.diagnosis.plug_in import plug_in_stops

# All heuristic. Fewer rows give no hint; more only sharpen an estimate whose assumption is the
# larger error.
LEAST_ROWS, MOST_ROWS = 1000, 50_000
ROWS_PER_STRATUM, MOST_STRATA = 1500, 5
# An arm seems worse if both halves of the rows say so, by more than this.
WORSE_BY = 0.03
OFTEN = 0.01  # the share of rows in which the rule must reach an arm for it to matter
# Rows that every class and arm is taken to have seen beforehand: keeps estimates off 0 and 1.
PRIOR_ROWS = 2.0
STEPS, TOLERANCE = 300, 1e-7


def read_hint(
    cascade: Cascade, predicted: Floats, outputs: NDArray[np.int16], classes: int | None
) -> Hint | None:
    """Return what agreement suggests about who is right; None if there is too little of it.

    ``predicted`` is p̂ (n, pairs) of rows in random order, ``outputs`` (n, K) codes 0 … L − 1,
    ``classes`` L, or None for free text.
    """
    if cascade.n_arms < 3 or classes is None or len(outputs) < LEAST_ROWS:
        return None
    predicted, codes = predicted[:MOST_ROWS], outputs[:MOST_ROWS].astype(np.int64)
    stratum, classes = strata(predicted), max(classes, 2)
    right = accuracies(codes, stratum, classes)
    halves = [accuracies(codes[k::2], stratum[k::2], classes) for k in (0, 1)]
    reached = plug_in_stops(cascade, predicted)
    worse, better, most = None, None, WORSE_BY
    for arm in range(1, cascade.n_arms):
        cheaper = int(np.argmax(right[:arm]))
        difference = min(float(half[cheaper] - half[arm]) for half in halves)
        if difference > most and (reached >= arm).mean() >= OFTEN:
            worse, better, most = arm, cheaper, difference
    return Hint(tuple(right.tolist()), worse, better)


def strata(predicted: Floats) -> Ints:
    """Return the stratum of every row, by its predicted disagreement averaged over pairs."""
    difficulty = np.asarray(predicted.mean(axis=1), dtype=np.float64)
    count = int(np.clip(len(predicted) // ROWS_PER_STRATUM, 1, MOST_STRATA))
    edges = np.quantile(difficulty, np.arange(1, count) / count)
    return np.searchsorted(edges, difficulty).astype(np.int64)


def accuracies(outputs: Ints, stratum: Ints, classes: int) -> Floats:
    """Return how often each arm is right (K,), estimated in each stratum and averaged.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> truth, right = random.integers(0, 2, 20000), random.random((20000, 3)) < [0.7, 0.8, 0.9]
    >>> outputs = np.where(right, truth[:, None], 1 - truth[:, None])
    >>> accuracies(outputs, np.zeros(20000, int), 2).round(1)
    array([0.7, 0.8, 0.9])
    """
    total = np.zeros(outputs.shape[1])
    for s in np.unique(stratum):
        mine = stratum == s
        total += mine.mean() * _fit(outputs[mine], classes)
    return total


def _fit(outputs: Ints, classes: int) -> Floats:
    """Return the accuracies of one stratum: the likeliest of fits from several starts."""
    patterns, counts = np.unique(outputs, axis=0, return_counts=True)
    says = patterns[:, :, None] == np.arange(classes)  # (P, K, L)
    votes = says.mean(axis=1)
    starts = [votes, *(0.5 * says[:, i] + 0.5 * votes for i in range(patterns.shape[1]))]
    fits = [_expectation_maximisation(says, counts.astype(np.float64), start) for start in starts]
    return max(fits, key=lambda fit: fit[1])[0]


def _expectation_maximisation(says: Bools, counts: Floats, belief: Floats) -> tuple[Floats, float]:
    """Return the accuracies (K,) and the log-likelihood, from beliefs (P, L) about the truth."""
    n, classes = float(counts.sum()), says.shape[2]
    hit = (says * counts[:, None, None]).transpose(1, 2, 0)  # (K, L, P)
    accuracy, top = np.zeros(says.shape[1]), -np.inf
    for _ in range(STEPS):
        rows = counts @ belief  # of each class, as believed
        prior = (rows + 1.0) / (n + classes)
        hits = (hit * belief.T).sum(axis=2)
        mean = (hits.sum(axis=1) + 1.0) / (n + 2.0)
        right = (hits + PRIOR_ROWS * mean[:, None]) / (rows + PRIOR_ROWS)  # (K, L)
        accuracy = right @ prior
        wrong = np.log((1 - right) / (classes - 1))
        joint = np.log(prior) + wrong.sum(axis=0) + (says * (np.log(right) - wrong)).sum(axis=1)
        evidence = np.logaddexp.reduce(joint, axis=1)
        belief, before, top = np.exp(joint - evidence[:, None]), top, float(counts @ evidence)
        if abs(top - before) < TOLERANCE * n:
            break
    return accuracy, top
