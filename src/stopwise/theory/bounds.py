"""The paper's bounds: confidence radii, forced rounds and regret.

They say how things grow, not what a number will be. Three universal constants (C, C1, C2) are
nowhere given a value; each is an argument, 1 by default, and that 1 is a placeholder. Two steps
of the regret proofs have gaps besides; ``docs/theory.md`` says which.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import integer, number
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
    d, union = _dimension(n_features), _union(n_arms, delta)
    volume = 0.5 * d * math.log1p(2.0 * number("n", n, least=0) / d)
    return _noise(sigma, kappa) * math.sqrt(volume + union)


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
    d, union = _dimension(n_features), _union(n_arms, delta)
    lam = number("lam", lam, above=0)
    volume = 0.5 * d * math.log1p(number("n", n, least=0) / (d * lam))
    bias = 2.0 * math.sqrt(lam) * number("S", S, least=0)
    return _noise(sigma, kappa) * math.sqrt(volume + union) + bias


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

    Parameters
    ----------
    n_features, n_arms, delta
        d', K and δ.
    min_eigenvalue : float
        λ_Σ, the least eigenvalue of E[Φ_ij(X)Φ_ij(X)ᵀ] over the pairs; at most 1/d'.
    lam : float
        λ of USS-PD-λI.
    C : float
        The universal constant, whose value the paper does not give. 1 is a placeholder.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, min_eigenvalue=0.25)
    >>> (
    ...     round(forced_rounds_bound(**constants), 2),
    ...     round(forced_rounds_bound(**constants, lam=2), 2),
    ... )
    (112.0, 136.0)
    """
    # Printed with d and a small k in places; d' and K are meant.
    d, union = _dimension(n_features), _union(n_arms, delta)
    spread = _spread(min_eigenvalue, d)
    lam = number("lam", lam, above=0)
    return number("C", C, above=0) * (d + union) / spread**2 + 4.0 * lam / spread


def observations_needed(
    eigenvalue: float,
    *,
    n_features: int,
    n_arms: int,
    delta: float,
    min_eigenvalue: float,
    C1: float = 1.0,
    C2: float = 1.0,
) -> float:
    """Return how many observations of a pair bring λ_min(V) to an eigenvalue Ψ.

        ((C₁√d' + C₂√ln(K²/2δ))/λ_Σ)² + 2Ψ/λ_Σ               (the paper, Lemma on λ_min(V))

    With probability at least 1 − 2δ/K², for contexts that are independent draws. The paper
    writes "iff"; its source proves "if".

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, min_eigenvalue=0.25)
    >>> round(observations_needed(1.0, **constants), 2)
    207.99
    """
    d, union = _dimension(n_features), _union(n_arms, delta)
    spread = _spread(min_eigenvalue, d)
    c1, c2 = number("C1", C1, above=0), number("C2", C2, above=0)
    start = (c1 * math.sqrt(d) + c2 * math.sqrt(union)) / spread
    return start**2 + 2.0 * number("eigenvalue", eigenvalue, least=0) / spread


def largest_regret(cascade: Cascade, error_rates: ArrayLike) -> float:
    """Return R_max: the most a single round can lose, over all arms and the contexts given.

        R_max = max_{i, x} [C_i + γ_i(x) − (C_i* + γ_i*(x))]      (the paper, before Theorem 2)

    Examples
    --------
    >>> round(largest_regret(Cascade(costs=[0.1, 0.2]), [[0.5, 0.1], [0.2, 0.1]]), 3)
    0.2
    """
    rates = np.asarray(error_rates, dtype=np.float64)
    if rates.ndim != 2 or rates.shape[1] != cascade.n_arms or not len(rates):
        raise InvalidParameterError(
            f"error rates must be of shape (n, {cascade.n_arms}) with n at least 1, not "
            f"{rates.shape}"
        )
    if not ((rates >= 0) & (rates <= 1)).all():
        raise InvalidParameterError("error rates must lie between 0 and 1")
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
    are printed. The proofs lead to 8/λ_Σ·(k_μ·radius_T/ξ_h)² instead, the radius being `alpha`
    or `beta`: twice the first, and for λ < 1 far above the second. They have gaps for three arms
    or more besides (``docs/theory.md``): read the growth from them, in ln T, 1/ξ², d' and K, not
    the value.

    Parameters
    ----------
    rounds : float
        T.
    n_features, n_arms, delta, sigma, kappa
        As in `alpha`.
    min_eigenvalue : float
        λ_Σ, as in `forced_rounds_bound`.
    dominance_margin : float or array_like of shape (K−1,)
        ξ for all arms, or ξ_h for h = 2 … K, as from `stopwise.theory.dominance.arm_margins`.
        Above zero; infinite for an arm never deeper than the best.
    R_max : float
        The largest regret of a round, see `largest_regret`.
    lam, S : float
        Of USS-PD-λI, as in `beta`.
    lipschitz : float
        k_μ, at least κ; 1/4 for the logistic function.
    C, C1, C2 : float
        Universal constants of unknown value; 1 is a placeholder.
    as_proved : bool
        Take what the proof gives instead of what is printed.

    Examples
    --------
    >>> constants = dict(n_features=2, n_arms=3, delta=0.05, sigma=0.1, kappa=0.25)
    >>> instance = dict(min_eigenvalue=0.25, dominance_margin=[0.1, 0.2], R_max=0.5)
    >>> round(regret_bound(1000, **constants, **instance), 2)
    712.34
    >>> round(regret_bound(1000, **constants, **instance, lam=0.1, S=1.0), 2)
    396.64
    """
    rounds = number("rounds", rounds, least=0)
    size: dict[str, Any] = {"n_features": n_features, "n_arms": n_arms, "delta": delta}
    radius = (
        alpha(rounds, **size, sigma=sigma, kappa=kappa)
        if lam is None
        else beta(rounds, **size, sigma=sigma, kappa=kappa, lam=lam, S=S)
    )
    settled = observations_needed(0.0, **size, min_eigenvalue=min_eigenvalue, C1=C1, C2=C2)
    weight = 0.5 if lam is None else lam
    m = forced_rounds_bound(**size, min_eigenvalue=min_eigenvalue, lam=weight, C=C)
    # k_μ: no slope exceeds it, the least one included.
    slope = number("lipschitz", lipschitz, least=kappa) / _margins(dominance_margin, n_arms)
    if as_proved:
        deep = 8.0 / min_eigenvalue * (slope * radius) ** 2
    elif lam is None:
        deep = 4.0 / min_eigenvalue * (slope * radius) ** 2  # 4·(2σ/κ)² = 16·(σ/κ)²
    else:
        # The proof quotes β_T without its 2σ/κ, which is then put before the whole bracket.
        bias = 2.0 * math.sqrt(lam) * S
        bracket = (radius - bias) * kappa / (2.0 * sigma) + bias
        deep = 32.0 * lam / min_eigenvalue * (slope * sigma / kappa * bracket) ** 2
    return number("R_max", R_max, least=0) * (m + float((settled + deep).sum()))


def mixed_regret_bound(bound: float, rounds: float, *, rho: float, R_max: float) -> float:
    """Return the bound when a share ρ of the contexts does not satisfy weak dominance.

        (1 − ρ)·R_T + ρ·R_max·T         (the paper, appendix, Lemma on the regret decomposition)

    The second part is linear in T: what is not dominated cannot be learnt from disagreement.

    Parameters
    ----------
    bound : float
        R_T, a bound on the regret were all contexts weakly dominant.
    rounds : float
        T.
    rho : float
        ρ, the chance that a context is not weakly dominant.
    R_max : float
        The largest regret of a round, see `largest_regret`.

    Examples
    --------
    >>> mixed_regret_bound(500.0, 10_000, rho=0.1, R_max=0.5)
    950.0
    """
    rho = number("rho", rho, least=0, most=1)
    lost = rho * number("R_max", R_max, least=0) * number("rounds", rounds, least=0)
    return (1.0 - rho) * number("bound", bound, least=0) + lost


def _noise(sigma: float, kappa: float) -> float:
    """Return 2σ/κ."""
    return 2.0 * number("sigma", sigma, above=0) / number("kappa", kappa, above=0, most=LIPSCHITZ)


def _union(n_arms: int, delta: float) -> float:
    """Return ln(K²/2δ), the price of holding for all pairs at once."""
    arms = integer("n_arms", n_arms, least=2)
    return math.log(arms * arms / (2.0 * number("delta", delta, above=0, below=1)))


def _dimension(n_features: int) -> int:
    return integer("n_features", n_features, least=1)


def _spread(min_eigenvalue: float, n_features: int) -> float:
    """Return λ_Σ; above 1/d' it is impossible: the eigenvalues of E[ΦΦᵀ] add up to at most 1."""
    spread = number("min_eigenvalue", min_eigenvalue, above=0)
    if spread > (1.0 + 1e-9) / n_features:
        raise InvalidParameterError(
            f"min_eigenvalue can be at most 1/n_features = {1 / n_features:g}, since features "
            f"have norm at most one; it is {min_eigenvalue!r}"
        )
    return spread


def _margins(dominance_margin: ArrayLike, n_arms: int) -> NDArray[np.float64]:
    """Return ξ_h for h = 2 … K."""
    margins = np.asarray(dominance_margin, dtype=np.float64)
    if margins.shape not in ((), (n_arms - 1,)):
        raise InvalidParameterError(
            f"dominance_margin is one number, or one for each of the {n_arms - 1} arms after the "
            f"first; it has shape {margins.shape}"
        )
    if not (margins > 0).all():
        raise InvalidParameterError(
            "dominance_margin must be above zero: without weak dominance there is no such bound; "
            "see mixed_regret_bound"
        )
    return np.broadcast_to(margins, (n_arms - 1,))
