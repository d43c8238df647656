"""Which monomials of a polynomial are linearly independent on data."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from stopwise.checks import Floats, table
from stopwise.errors import InvalidContextError, InvalidParameterError
from stopwise.features.binding import bind
from stopwise.features.maps import Polynomial, Scaled

# A monomial is dropped when less than this share of it lies outside the span of those before it.
DEPENDENT = 1e-9


def reduce_polynomial(features: Polynomial | Scaled, inner: Polynomial, X: ArrayLike) -> Polynomial:
    """Reduce ``inner``, the monomials of ``features``, to those independent on ``X``."""
    contexts = table("contexts to fit on", X, InvalidContextError)
    remaining = _independent_columns(bind(features, contexts.shape[1], 2).rows(contexts))
    if not remaining:
        raise InvalidParameterError(
            "every monomial is zero on these data, so none is left; give data that vary"
        )
    monomials = inner.monomials(contexts.shape[1])
    dropped = tuple(m for k, m in enumerate(monomials) if k not in remaining)
    return replace(inner, without=(*inner.without, *dropped))


def _independent_columns(columns: Floats) -> set[int]:
    """Return the columns not in the span of those chosen before them, by Gram–Schmidt.

    Each column is orthogonalised twice, which is as good as exactly ("twice is enough", Kahan).
    """
    n, k = columns.shape
    basis = np.empty((n, min(n, k)), order="F")
    chosen: set[int] = set()
    for c in range(k):
        norm = math.sqrt(columns[:, c] @ columns[:, c])
        if norm == 0 or len(chosen) == n:
            continue
        span = basis[:, : len(chosen)]
        rest = columns[:, c] / norm
        for _ in range(2):
            rest = rest - span @ (span.T @ rest)
        left = math.sqrt(rest @ rest)
        if left > DEPENDENT:
            basis[:, len(chosen)] = rest / left
            chosen.add(c)
    return chosen
