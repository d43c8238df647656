"""Comparison of model degrees on held-out rows."""

import math
from collections.abc import Sequence

import numpy as np

from stopwise.arrays import Bytes, Floats
from stopwise.cascade import Cascade
from stopwise.intervals import normal_mean
from stopwise.logs.diagnosis.models import Disagreement
from stopwise.logs.diagnosis.sampling import Sample

MAX_DEGREE = 4  # higher degrees have more features than a log can determine
MAX_ROWS, MAX_FEATURES = 20_000, 500  # so that comparing models takes seconds
MIN_PROBABILITY = 1e-9  # probabilities are clipped to this distance from 0 and 1


def better_degree(
    cascade: Cascade,
    rows: Sample,
    degree: int,
    *,
    sees: Sequence[int] | None,
) -> int | None:
    """Return ``degree + 1`` if it predicts held-out rows better than ``degree``, else None.

    Each half of the rows is predicted by models fitted to the other half. The higher degree is
    better if the mean log-likelihood of a row, summed over pairs, is higher, and the paired 95 %
    interval of the difference excludes 0. ``sees`` is as in `Disagreement`. None is also returned
    without contexts, and if the higher degree is above the maximum or has too many features.
    """
    higher = degree + 1
    features = math.comb(rows.contexts.shape[1] + higher, higher)
    if higher > MAX_DEGREE or not rows.contexts.shape[1] or features > MAX_FEATURES:
        return None
    rows = rows.take(slice(MAX_ROWS))  # a sample: rows are in random order

    def score(candidate: int) -> Floats:
        model = Disagreement(cascade, rows.contexts, rows.differ, degree=candidate, sees=sees)
        return _log_likelihood(model.out_of_sample, rows.differ)

    return higher if normal_mean(score(higher) - score(degree)).low > 0 else None


def _log_likelihood(predicted: Floats, differ: Bytes) -> Floats:
    """Return the log-likelihood of the observed disagreement of each row, summed over pairs."""
    p = np.clip(predicted, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.log(np.where(differ > 0, p, 1 - p)).sum(axis=1)
