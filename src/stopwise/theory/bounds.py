"""The paper's bounds: confidence radii, forced rounds and regret.

They show how things grow, not values: the paper gives no value for its universal constants C, C1
and C2 (arguments here, 1 by default), and two proofs have gaps (``docs/theory.md``).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import integer, real, table
from stopwise.engine.native import Ellipsoid
from stopwise.errors import InvalidParameterError

LIPSCHITZ = 0.25  # k_μ of the logistic function: its steepest slope, at even odds


def alpha(
    n: float, *, n_features: int, n_arms: int, delta: float, sigma: float, kappa: float
) -> float:
    """Return the radius of USS-PD's confidence ellipsoid after n rounds.

        α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ))      (the paper, Lemma "Confidence Ellipsoid")

    ‖θ̂_ij − θ*_ij‖_V ≤ α with probability at least 1 − 2δ/K² for one pair, and so 1 − δ for all,
    once λ_min(V_ij) ≥ 1.

    Examples
    --------
    >>> round(alpha(100, n_features=2, n_arms=3, delta=0.05, sigma=0.1, kappa=0.25), 4)
    2.4153
    """
    n = real("n", n, least=0)
    return _ellipsoid(n_features, n_arms, delta, sigma, kappa).alpha(n)


def beta(
    n: float,
    *,
    n_features: int,
    n_arms: int,
    delta: float,
    sigma: float,
    kappa: float,
    lam: float,
    S: float,
) -> float:
    """Return the radius of USS-PD-λI's ellipsoid after n observations of the pair.

        β_ij = (2σ/κ)·√(d'/2·ln(1 + n_ij/(d'λ)) + ln(K²/2δ)) + 2√λ·S      (appendix, its Lemma)

    ‖θ̂_ij − θ*_ij‖_{V+λI} ≤ β_ij, once λ_min(V_ij) ≥ 2λ. ``lam`` is λ, ``S`` bounds ‖θ*_ij‖.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, sigma=0.1, kappa=0.25)
    >>> round(beta(100, **constants, lam=0.5, S=2.0), 4)
    5.2437
    """
    n, lam = real("n", n, least=0), real("lam", lam, above=0)
    return _ellipsoid(n_features, n_arms, delta, sigma, kappa).beta(n, lam, real("S", S, least=0))


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
    n_features = integer("n_features", n_features, least=1)
    spread, union = _spread(min_eigenvalue, n_features), _union(n_arms, delta)
    rounds = real("C", C, above=0) * (n_features + union) / spread**2
    return rounds + 4.0 * real("lam", lam, above=0) / spread


def largest_regret(cascade: Cascade, error_rates: ArrayLike) -> float:
    """Return R_max: the most a single round can lose, over all arms and the contexts given.

        R_max = max_{i, x} [C_i + γ_i(x) − (C_i* + γ_i*(x))]      (the paper, before Theorem 2)

    Examples
    --------
    >>> round(largest_regret(Cascade(costs=[0.1, 0.2]), [[0.5, 0.1], [0.2, 0.1]]), 3)
    0.2
    """
    rates = table("error rates", error_rates)
    if rates.shape[1] != cascade.n_arms or not ((rates >= 0) & (rates <= 1)).all():
        raise InvalidParameterError(
            f"error rates must be {cascade.n_arms} numbers from 0 to 1 for each context"
        )
    losses = rates + cascade.cumulative
    return float((losses.max(axis=1) - losses.min(axis=1)).max())


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
    lipschitz: float = LIPSCHITZ,
    C: float = 1.0,
    C1: float = 1.0,
    C2: float = 1.0,
    as_proved: bool = False,
) -> float:
    """Return the paper's bound on the regret of USS-PD, or of USS-PD-λI if ``lam`` is given.

        R_max·[m + Σ_{h=2..K} (((C₁√d' + C₂√ln(K²/2δ))/λ_Σ)² + D_h)]      (Theorem 2; appendix)

        D_h = 16/λ_Σ·(k_μσ/(ξ_h κ))²·(d'/2·ln(1 + 2T/d') + ln(K²/2δ))
        D_h = 32λ/λ_Σ·(k_μσ/(ξ_h κ))²·(√(d'/2·ln(1 + T/(d'λ)) + ln(K²/2δ)) + 2√λ·S)²  with λI

    Claimed with probability at least 1 − 2δ under contextual weak dominance. That is how they
    are printed; the proofs lead to 8/λ_Σ·(k_μ·radius_T/ξ_h)² instead, the radius being `alpha`
    or `beta`. They have gaps (``docs/theory.md``): read growth from them, not values.

    Parameters
    ----------
    rounds, n_features, n_arms, delta, sigma, kappa, min_eigenvalue
        T; the others as in `alpha` and `forced_rounds_bound`.
    dominance_margin : float or array_like of shape (K−1,)
        ξ for all arms, or ξ_h for h = 2 … K, as from `stopwise.theory.dominance.arm_margins`.
        Above zero; infinite for an arm never deeper than the best.
    R_max, lipschitz : float
        The largest regret of a round, see `largest_regret`; k_μ, at least κ.
    lam, S, C, C1, C2 : float
        Of USS-PD-λI, as in `beta`; universal constants of unknown value, 1 is a placeholder.
    as_proved : bool
        Whether to take the form that the proof gives.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, sigma=0.1, kappa=0.25)
    >>> instance = dict(min_eigenvalue=0.25, dominance_margin=[0.1, 0.2], R_max=0.5)
    >>> round(regret_bound(1000, **constants, **instance), 2)
    712.34
    >>> round(regret_bound(1000, **constants, **instance, lam=0.1, S=1.0), 2)
    396.64
    """
    rounds = real("rounds", rounds, least=0)
    size: dict[str, Any] = {"n_features": n_features, "n_arms": n_arms, "delta": delta}
    radius = (
        alpha(rounds, **size, sigma=sigma, kappa=kappa)
        if lam is None
        else beta(rounds, **size, sigma=sigma, kappa=kappa, lam=lam, S=S)
    )
    weight = 0.5 if lam is None else lam
    m = forced_rounds_bound(**size, min_eigenvalue=min_eigenvalue, lam=weight, C=C)
    root = math.sqrt(_union(n_arms, delta))
    root = real("C1", C1, above=0) * math.sqrt(n_features) + real("C2", C2, above=0) * root
    settled = (root / min_eigenvalue) ** 2  # observations until λ_min(V) grows with their number
    # k_μ: no slope exceeds it, the least one included.
    slope = real("lipschitz", lipschitz, least=kappa) / _margins(dominance_margin, n_arms)
    if as_proved:
        deep = 8.0 / min_eigenvalue * (slope * radius) ** 2
    elif lam is None:
        deep = 4.0 / min_eigenvalue * (slope * radius) ** 2  # 4·(2σ/κ)² = 16·(σ/κ)²
    else:
        # The proof quotes β_T without its 2σ/κ, which is then put before the bracket.
        bias = 2.0 * math.sqrt(lam) * S
        bracket = (radius - bias) * kappa / (2.0 * sigma) + bias
        deep = 32.0 * lam / min_eigenvalue * (slope * sigma / kappa * bracket) ** 2
    return real("R_max", R_max, least=0) * (m + float((settled + deep).sum()))


def _ellipsoid(n_features: int, n_arms: int, delta: float, sigma: float, kappa: float) -> Ellipsoid:
    sigma, kappa = real("sigma", sigma, above=0), real("kappa", kappa, above=0, most=LIPSCHITZ)
    _union(n_arms, delta)  # which checks them
    d = integer("n_features", n_features, least=1)
    return Ellipsoid(sigma, kappa, delta, n_arms, d)


def _union(n_arms: int, delta: float) -> float:
    """Return ln(K²/2δ), which makes a bound hold for all pairs at once."""
    arms = integer("n_arms", n_arms, least=2)
    return math.log(arms * arms / (2.0 * real("delta", delta, above=0, below=1)))


def _spread(min_eigenvalue: float, n_features: int) -> float:
    """Return λ_Σ; above 1/d' it is impossible: the eigenvalues of E[ΦΦᵀ] add up to at most 1."""
    spread = real("min_eigenvalue", min_eigenvalue, above=0)
    if spread > (1.0 + 1e-9) / n_features:
        raise InvalidParameterError(
            f"min_eigenvalue can be at most 1/n_features = {1 / n_features:g}, since features "
            f"have norm at most one; it is {min_eigenvalue!r}"
        )
    return spread


def _margins(dominance_margin: ArrayLike, n_arms: int) -> NDArray[np.float64]:
    margins = np.asarray(dominance_margin, dtype=np.float64)
    if margins.shape not in ((), (n_arms - 1,)):
        raise InvalidParameterError(
            f"dominance_margin is one number, or one for each of the {n_arms - 1} arms after the "
            f"first; it has shape {margins.shape}"
        )
    if not (margins > 0).all():
        raise InvalidParameterError(
            "dominance_margin must be above zero: without weak dominance there is no such bound"
        )
    return np.broadcast_to(margins, (n_arms - 1,))
