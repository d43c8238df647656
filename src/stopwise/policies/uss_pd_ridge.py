"""USS-PD-λI, the paper's algorithm without long forced exploration."""

from collections.abc import Sequence
from typing import ClassVar, final

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike, Identity
from stopwise.policies.options import Options
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.rules import RegularizedEllipsoid


@final
class USSPDRidge(PairwisePolicy):
    """USS-PD with a regularised Gram matrix (USS-PD-λI), without long forced exploration.

    Like `USSPD`, but with V̄_ij = λI + V_ij in place of V_ij, and with

        β_ij = (2σ/κ)·√(d'/2·ln(1 + n_ij/(d'λ)) + ln(K²/2δ)) + 2√λ·S

    in place of α, where n_ij is the number of rounds in which both arms of the pair ran. Only the
    first context is forced to go to arm K. The regret bound holds once
    λ_min(V_ij) ≥ 2λ for every pair.

    Parameters
    ----------
    features, context_dim, reveals, answers, delta, sigma, kappa, ridge, explore
        As in `USSPD`.
    labels, seed, transitive, half_life, memory
        As in `USSPD`.
    lam : float
        λ > 0: V̄ starts at λI. Independent of ``ridge``.
    S : float
        An upper bound on ‖θ*_ij‖.
    forced_rounds : int or "auto"
        The number of first rounds that run every arm, 1 in the paper. "auto" runs every arm until
        λ_min(V_ij) ≥ 2λ for every pair, from which point the bound holds.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSPDRidge(sw.Cascade(costs=[0.01, 0.3]), context_dim=2, lam=0.5, S=2.0)
    >>> policy.decide([0.5, 1.0]).stop
    1
    """

    name: ClassVar[str] = "uss-pd-ridge"

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        reveals: int | Sequence[int] | None = None,
        answers: bool | None = None,
        delta: float = 0.05,
        sigma: float = 0.1,
        kappa: float = 0.25,
        lam: float = 1.0,
        S: float = 1.0,
        forced_rounds: int | str = 1,
        ridge: float = 1e-3,
        explore: float | None = None,
        labels: float = 0,
        seed: int = 0,
        transitive: bool = False,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        options = Options(
            features=Identity() if features is None and reveals is None else features,
            context_dim=context_dim,
            reveals=reveals,
            answers=answers,
            labels=labels,
            forced_rounds=forced_rounds,
            ridge=ridge,
            explore=explore,
            transitive=transitive,
            seed=seed,
            half_life=half_life,
            memory=memory,
        )
        super().__init__(cascade, RegularizedEllipsoid(delta, sigma, kappa, lam, S), options)
