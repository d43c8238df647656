"""Which monomials of a polynomial are linearly independent on data."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from stopwise.checks import Floats, table
from stopwise.errors import InvalidContextError, InvalidParameterError
from stopwise.features.binding import bind
from stopwise.features.maps import Identity, Polynomial, Scaled

# A monomial is dropped when less than this share of it lies outside the span of those before it.
DEPENDENT = 1e-9


def independent(
    features: Identity | Polynomial | Scaled, X: ArrayLike
) -> Identity | Polynomial | Scaled:
    """Return a map with its polynomial reduced to the monomials that are independent on ``X``."""
    polynomial = features.inner if isinstance(features, Scaled) else features
    if not isinstance(polynomial, Polynomial):
        raise InvalidParameterError("only a Polynomial has monomials to drop")
    contexts = table("contexts to fit on", X, InvalidContextError)
    remaining = _independent_columns(bind(features, contexts.shape[1], 2).rows(contexts))
    if not remaining:
        raise InvalidParameterError(
            "every monomial is zero on these data, so none is left; give data that vary"
        )
    monomials = enumerate(polynomial.monomials(contexts.shape[1]))
    dropped = [m for k, m in monomials if k not in remaining]
    smaller = replace(polynomial, without=(*polynomial.without, *dropped))
    if isinstance(features, Scaled):
        return Scaled(smaller, features.center, features.scale, features.outside)
    return smaller


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
