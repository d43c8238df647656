"""The paper's bounds: forced rounds and regret. Its radii α and β are in `stopwise.reference`.

They show how things grow, not values: the paper gives no value for its universal constants C, C1
and C2 (arguments here, 1 by default), and two proofs have gaps (``docs/theory-regret.md``). That
arguments are within their ranges is not checked.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.checks import table
from stopwise.errors import InvalidParameterError
from stopwise.reference import radius

LIPSCHITZ = 0.25  # k_μ of the logistic function: its steepest slope, at even odds


def forced_rounds_bound(
    *,
    n_features: int,
    n_arms: int,
    delta: float,
    min_eigenvalue: float,
    lam: float = 0.5,
    C: float = 1.0,
) -> float:
    """Return after how many forced rounds λ_min(V) ≥ 2λ for every pair with high probability.

        m = C·(d' + ln(K²/2δ))/λ_Σ² + 4λ/λ_Σ

    With λ = ½, the default, it is the paper's m for USS-PD (before Theorem 2), else the m' of
    USS-PD-λI (appendix). `USSPD` with ``forced_rounds="auto"`` checks λ_min(V) itself instead.

    ``min_eigenvalue`` is λ_Σ, the least eigenvalue of E[Φ_ij(X)Φ_ij(X)ᵀ] over the pairs; at most
    1/d'. C is a universal constant of unknown value; 1 is a placeholder.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, min_eigenvalue=0.25)
    >>> round(forced_rounds_bound(**constants), 2)
    112.0
    """
    # Printed with d and a small k in places; d' and K are meant.
    rounds = C * (n_features + _union(n_arms, delta)) / min_eigenvalue**2
    return rounds + 4.0 * lam / min_eigenvalue


def largest_regret(cascade: Cascade, error_rates: ArrayLike) -> float:
    """Return R_max: the most a single round can lose, over all arms and the contexts given.

        R_max = max_{i, x} [C_i + γ_i(x) − (C_i* + γ_i*(x))]      (the paper, before Theorem 2)

    Examples
    --------
    >>> round(largest_regret(Cascade(costs=[0.1, 0.2]), [[0.5, 0.1], [0.2, 0.1]]), 3)
    0.2
    """
    rates = table("error rates", error_rates)
    if rates.shape[1] != cascade.n_arms:
        raise InvalidParameterError(f"each context needs {cascade.n_arms} error rates")
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
    """Return the paper's bound on the regret of USS-PD, or of USS-PD-λI if ``lam`` is given.

        R_max·[m + Σ_{h=2..K} (((C₁√d' + C₂√ln(K²/2δ))/λ_Σ)² + 8/λ_Σ·(k_μ·radius_T/ξ_h)²)]

    Claimed with probability at least 1 − 2δ under contextual weak dominance (Theorem 2; appendix).
    The radius is α or, with λI, β; k_μ = ¼ is the steepest slope of μ. This is the form that the
    proofs lead to; the paper prints another (``docs/theory-regret.md``). The proofs have gaps: use
    it for the growth of regret, not for values.

    Parameters
    ----------
    rounds, n_features, n_arms, delta, sigma, kappa, lam, S
        T; the others are those of `USSPD` and `USSPDRidge`.
    min_eigenvalue, C : float
        As in `forced_rounds_bound`.
    dominance_margin : float or array_like of shape (K−1,)
        ξ for all arms, or ξ_h for h = 2 … K, as from `arm_margins`.
        Above zero; infinite for an arm never deeper than the best.
    R_max : float
        The largest regret of a round, see `largest_regret`.
    C1, C2 : float
        Universal constants of unknown value, too.

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
    settled = (root / min_eigenvalue) ** 2  # observations until λ_min(V) grows with their number
    reach = radius(rounds, n_features, n_arms, delta, sigma, kappa, lam or 0.0, S)
    margins: Floats = np.broadcast_to(np.asarray(dominance_margin, dtype=np.float64), n_arms - 1)
    if not (margins > 0).all():
        raise InvalidParameterError(
            "dominance_margin must be above zero: without weak dominance there is no such bound"
        )
    deep = 8.0 / min_eigenvalue * (LIPSCHITZ * reach / margins) ** 2
    return R_max * (m + float((settled + deep).sum()))


def _union(n_arms: int, delta: float) -> float:
    """Return ln(K²/2δ), which makes a bound hold for all pairs at once."""
    return math.log(n_arms**2 / (2.0 * delta))
