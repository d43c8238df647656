"""The paper's bounds on forced rounds and regret; the radii α and β are in `stopwise.reference`.

Use the bounds for growth rates, not for values: the paper gives no values for its universal
constants C, C1 and C2 (1 by default), and two proofs have gaps (``docs/theory-regret.md``). The
ranges of arguments are not checked.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.checks import table
from stopwise.errors import InvalidParameterError
from stopwise.reference import radius

LIPSCHITZ = 0.25  # k_μ of the logistic function, its maximum slope


def forced_rounds_bound(
    *,
    n_features: int,
    n_arms: int,
    delta: float,
    min_eigenvalue: float,
    lam: float = 0.5,
    C: float = 1.0,
) -> float:
    """Return how many forced rounds make λ_min(V) ≥ 2λ for all pairs with high probability.

        m = C·(d' + ln(K²/(2δ)))/λ_Σ² + 4λ/λ_Σ

    With the default λ = ½, this is the paper's m for USS-PD (before Theorem 2); with other values,
    it is the m' of USS-PD-λI (appendix). `USSPD` with ``forced_rounds="auto"`` checks λ_min(V)
    directly instead.

    ``min_eigenvalue`` is λ_Σ, the smallest eigenvalue of E[Φ_ij(X)Φ_ij(X)ᵀ] over all pairs; λ_Σ is
    at most 1/d'. C is a universal constant whose value is unknown; 1 is a placeholder.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, min_eigenvalue=0.25)
    >>> round(forced_rounds_bound(**constants), 2)
    112.0
    """
    # In some places, the paper has d and k where d' and K are meant.
    rounds = C * (n_features + _union(n_arms, delta)) / min_eigenvalue**2
    return rounds + 4.0 * lam / min_eigenvalue


def largest_regret(cascade: Cascade, error_rates: ArrayLike) -> float:
    """Return R_max, the largest regret of any arm in any of these contexts.

        R_max = max_{i, x} [C_i + γ_i(x) − (C_i* + γ_i*(x))]      (the paper, before Theorem 2)

    Examples
    --------
    >>> round(largest_regret(Cascade(costs=[0.1, 0.2]), [[0.5, 0.1], [0.2, 0.1]]), 3)
    0.2
    """
    rates = table("error_rates", error_rates)
    if rates.shape[1] != cascade.n_arms:
        raise InvalidParameterError(
            f"error_rates must have {cascade.n_arms} columns, one per arm, got {rates.shape[1]}"
        )
    return float(np.ptp(rates + cascade.cumulative, axis=1).max())


def regret_bound(
    rounds: float,
    *,
    n_features: int,
    n_arms: int,
    delta: float,
    sigma: float,
    kappa: float,
    min_eigenvalue: float,
    dominance_margin: ArrayLike,
    R_max: float,
    lam: float | None = None,
    S: float = 0.0,
    C: float = 1.0,
    C1: float = 1.0,
    C2: float = 1.0,
) -> float:
    """Return the paper's bound on the regret of USS-PD, or of USS-PD-λI if ``lam`` is passed.

        R_max·[m + Σ_{h=2..K} (((C₁√d' + C₂√(ln(K²/(2δ))))/λ_Σ)² + (8/λ_Σ)·(k_μ·r_T/ξ_h)²)]

    According to the paper, the bound holds with probability at least 1 − 2δ under contextual weak
    dominance (Theorem 2; appendix). r_T is the radius after T rounds, which is α for USS-PD and β
    for USS-PD-λI; k_μ = ¼ is the maximum slope of μ. The formula is the one that the proofs derive;
    the theorem states a different one (``docs/theory-regret.md``). The proofs have gaps, so use the
    bound for growth rates, not for values.

    Parameters
    ----------
    rounds : float
        T, the number of rounds.
    n_features, n_arms, delta, sigma, kappa, lam, S
        As in `USSPD` and `USSPDRidge`.
    min_eigenvalue, C : float
        As in `forced_rounds_bound`.
    dominance_margin : float or array_like of shape (K−1,)
        ξ for all arms, or one ξ_h for every arm except the first, as returned by `arm_margins`.
        Must be positive; infinite for an arm that is never deeper than the best.
    R_max : float
        The largest possible regret of a round (see `largest_regret`).
    C1, C2 : float
        Universal constants whose values are unknown; 1 is a placeholder.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, sigma=0.1, kappa=0.25)
    >>> instance = dict(min_eigenvalue=0.25, dominance_margin=[0.1, 0.2], R_max=0.5)
    >>> round(regret_bound(1000, **constants, **instance), 2)
    1168.68
    >>> round(regret_bound(1000, **constants, **instance, lam=0.1, S=1.0), 2)
    1800.54
    """
    m = forced_rounds_bound(
        n_features=n_features,
        n_arms=n_arms,
        delta=delta,
        min_eigenvalue=min_eigenvalue,
        lam=0.5 if lam is None else lam,
        C=C,
    )
    root = C1 * math.sqrt(n_features) + C2 * math.sqrt(_union(n_arms, delta))
    burn_in = (root / min_eigenvalue) ** 2  # observations until λ_min(V) grows linearly
    final_radius = radius(rounds, n_features, n_arms, delta, sigma, kappa, lam or 0.0, S)
    margins: Floats = np.broadcast_to(np.asarray(dominance_margin, dtype=np.float64), n_arms - 1)
    if not (margins > 0).all():
        raise InvalidParameterError(
            f"dominance_margin must be positive, got {margins.min():g}; the bound requires weak "
            "dominance"
        )
    deep_rounds = 8.0 / min_eigenvalue * (LIPSCHITZ * final_radius / margins) ** 2
    return R_max * (m + float((burn_in + deep_rounds).sum()))


def _union(n_arms: int, delta: float) -> float:
    """Return ln(K²/(2δ)), the term of a union bound over all pairs."""
    return math.log(n_arms**2 / (2.0 * delta))
