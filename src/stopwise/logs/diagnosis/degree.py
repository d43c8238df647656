"""Whether models of a higher degree predict disagreement better on held-out rows."""

import math
from collections.abc import Sequence

import numpy as np

from stopwise.arrays import Bytes, Floats
from stopwise.cascade import Cascade
from stopwise.intervals import normal_mean
from stopwise.logs.diagnosis.models import Disagreement
from stopwise.logs.diagnosis.sampling import Sample

MOST_DEGREE = 4  # beyond, there are more features than any log could determine
MOST_ROWS, MOST_FEATURES = 20_000, 500  # of the models that are compared, so that they take seconds
CERTAIN = 1e-9  # probabilities are at least so far from 0 and 1


def better_degree(
    cascade: Cascade,
    rows: Sample,
    degree: int,
    *,
    sees: Sequence[int] | None,
) -> int | None:
    """Return the next degree if it predicts held-out rows better, by cross-validation.

    Each half of the rows is predicted by models fitted to the other half. The next degree is better
    if it raises the mean log-likelihood of a row, all pairs together, and the paired 95 % interval
    excludes 0.
    """
    higher = degree + 1
    features = math.comb(rows.contexts.shape[1] + higher, higher)
    if higher > MOST_DEGREE or not rows.contexts.shape[1] or features > MOST_FEATURES:
        return None
    some = rows.take(slice(MOST_ROWS))  # which are in random order
    likely = [
        _log_likelihood(
            Disagreement(cascade, some.contexts, some.differ, degree=one, sees=sees).out_of_sample,
            some.differ,
        )
        for one in (degree, higher)
    ]
    return higher if normal_mean(likely[1] - likely[0]).low > 0 else None


def _log_likelihood(predicted: Floats, differ: Bytes) -> Floats:
    """Return ln P(observed disagreement) of each row, all pairs together."""
    p = np.clip(predicted, CERTAIN, 1 - CERTAIN)
    return np.log(np.where(differ > 0, p, 1 - p)).sum(axis=1)
