"""The logistic link μ(z) = 1/(1 + e⁻ᶻ) and its relatives, accurate at any finite argument.

Scalar functions, compiled, so that kernels can inline them; none uses ``fastmath``, because
the same arguments must give the same bits by every road into the engine.
"""

import math

from stopwise.engine.compiled import compiled


@compiled
def sigmoid(z: float) -> float:
    """Return μ(z) without overflow: the exponential is only ever taken of −|z|."""
    e = math.exp(-abs(z))
    if z >= 0.0:
        return 1.0 / (1.0 + e)
    return e / (1.0 + e)


@compiled
def slope(z: float) -> float:
    """Return μ'(z) = μ(z)(1 − μ(z)), which stays positive where 1 − μ(z) would round to 0."""
    e = math.exp(-abs(z))
    return e / ((1.0 + e) * (1.0 + e))


@compiled
def logit(p: float) -> float:
    """Return μ⁻¹(p), extended to −∞ for p ≤ 0 and +∞ for p ≥ 1.

    Cost gaps may lie outside (0, 1); the extension makes "gap > μ(z)" and
    "logit(gap) > z" the same test for every finite z.
    """
    if p <= 0.0:
        return -math.inf
    if p >= 1.0:
        return math.inf
    return math.log(p) - math.log1p(-p)


@compiled
def log_loss(z: float, d: float) -> float:
    """Return −d·ln μ(z) − (1 − d)·ln(1 − μ(z)) for d in [0, 1]."""
    return max(z, 0.0) - d * z + math.log1p(math.exp(-abs(z)))
