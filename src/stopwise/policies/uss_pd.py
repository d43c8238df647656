"""USS-PD and USS-PD-λI: the paper's algorithms.

The rule is in C++: p̃ in ``engine/rule.cpp``, the stopping test in ``engine/stopping.cpp``.
`stopwise.reference` writes both out on one page of plain numpy and takes the same decisions.
"""

from typing import ClassVar

from stopwise.cascade import Cascade
from stopwise.checks import real
from stopwise.engine.native import Ellipsoid, Rule, UssPd, UssPdRidge
from stopwise.features import FeaturesLike, Identity
from stopwise.policies.contextual import Contextual


class ConfidencePolicy(Contextual):
    """A contextual policy with δ, σ and κ (see `USSPD` for the parameters)."""

    default_map = Identity
    unset = Contextual.unset | {"explore": None, "labels": 0, "seed": 0, "transitive": False}

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None = None,
        context_dim: int | None = None,
        *,
        delta: float = 0.05,
        sigma: float = 0.1,
        kappa: float = 0.25,
        forced_rounds: int | str = 50,
        ridge: float = 1e-3,
        explore: float | None = None,
        labels: float = 0,
        seed: int = 0,
        transitive: bool = False,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        self._set_confidence(delta, sigma, kappa)
        more = (forced_rounds, ridge, explore, labels, seed, transitive, half_life, memory)
        super().__init__(cascade, features, context_dim, *more)

    def _set_confidence(self, delta: float, sigma: float, kappa: float) -> None:
        self.delta = real("delta", delta, above=0, below=1)
        self.sigma = real("sigma", sigma, above=0)
        self.kappa = real("kappa", kappa, above=0, most=0.25)

    def radius(self, i: int, j: int) -> float:
        """Return α, the same for every pair, or β_ij of USS-PD-λI, after what was observed."""
        return self._rule().radius(self.observations(i, j), self.learner.effective_rounds)

    @property
    def ellipsoid(self) -> Ellipsoid:
        """The radius of the confidence ellipsoid as a function of the observations."""
        n_arms, n_features = self.cascade.n_arms, self.features.n_features
        return Ellipsoid(self.sigma, self.kappa, self.delta, n_arms, n_features)


class USSPD(ConfidencePolicy):
    """Unsupervised sequential selection from pairwise disagreement (USS-PD).

    ::

        the first m contexts go to the last arm
        then, for context x, stop at the first arm i with

            C_j − C_i > p̃_ij(x)   for all j > i,        or at the last
            p̃_ij(x) = μ(φᵀθ̂_ij + α‖φ‖_{V_ij⁻¹}),        φ = Φ_ij(x)

        observe which of the arms up to the stop disagreed, and re-estimate
            θ̂_ij :  Σ_s (d_s − μ(φ_sᵀθ))·φ_s = ridge·θ,      V_ij = Σ_s φ_sφ_sᵀ
            α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ)),   n rounds so far, d' features, K arms

    Stopping early is safe while p̃ is valid: an arm errs more often than a deeper one by at most
    their disagreement. It is also cheap under contextual weak dominance; without it, the rule
    goes too deep, which costs more and may even err more.

    Parameters
    ----------
    features : feature map, optional
        Φ, by default ``Identity()``, which has no intercept: a context of zeros means even odds.
        ``Polynomial(degree=1)`` adds one. Also `PerStage`, `PerPair`, or any callable.
    context_dim : int
        How many numbers a context has.
    delta : float
        δ in (0, 1): the confidence is 1 − δ.
    sigma : float
        σ > 0, the sub-Gaussian parameter of the noise; the paper's experiments use 0.1. ½ is
        always valid; smaller values explore less than is proved.
    kappa : float
        κ in (0, 1/4]: the least slope μ' near the truth. 1/4, its largest value, is heuristic.
    forced_rounds : int or "auto"
        m. "auto": until λ_min(V) ≥ 1 for every pair, as the lemma asks; with features that are
        nearly dependent that can take very long.
    ridge : float
        A small ridge keeps θ̂ finite when a pair never disagrees; → 0 is the paper's equation.
    explore : float, optional
        The share of rounds that go to the last arm at random, whatever the context: so much in the
        beginning, falling like 1/t to a thirtieth of it. By default none, as in the paper, but 0.06
        where labels are asked for or stages reveal the context (docs/revealed.md).
    labels : int or float
        How many labels to ask for in all, or below 1, of what share of the rounds whose arms
        disagree; none by default (docs/labels.md).
    seed : int
        Seed for these choices.
    transitive : bool
        Whether (i, j) also passes where (i, k) and (k, j) do, for an arm k between them. It is as
        safe, and the rule cannot settle too deep (docs/theory.md). Off, as in the paper.
    half_life : float, optional
        Rounds after which a round counts half, for worlds that change (docs/forgetting.md). By
        default all rounds count alike.
    memory : str or int, optional
        Most to store of the rounds, such as "256 MB": older rounds are then replaced by a summary
        (docs/forgetting.md). By default all are stored.

    Examples
    --------
    >>> import stopwise as sw
    >>> cascade = sw.Cascade(costs=[0.01, 0.3], names=["rule", "model"])
    >>> policy = sw.USSPD(cascade, context_dim=2, forced_rounds=20)
    >>> for _ in range(30):
    ...     decision = policy.decide([0.5, 1.0])
    ...     policy.observe([0.5, 1.0], ["spam", "spam"][: decision.stop + 1])
    >>> policy.decide([0.5, 1.0]).arm
    'rule'
    """

    name: ClassVar[str] = "uss-pd"

    def _rule(self) -> Rule:
        return UssPd(self.ellipsoid)


class USSPDRidge(ConfidencePolicy):
    """USS-PD with a regularised Gram matrix (USS-PD-λI): no long forced exploration.

    As `USSPD`, with V̄_ij = λI + V_ij in place of V_ij and

        β_ij = (2σ/κ)·√(d'/2·ln(1 + n_ij/(d'λ)) + ln(K²/2δ)) + 2√λ·S

    in place of α, where n_ij counts the observations of the pair; the first context alone is
    forced to arm K. The bound holds once λ_min(V_ij) ≥ 2λ for every pair.

    Parameters
    ----------
    features, context_dim, delta, sigma, kappa, ridge, explore
        As in `USSPD`.
    labels, seed, transitive, half_life, memory
        As in `USSPD`.
    lam : float
        λ > 0, the multiple of I that V starts from. Not the ridge of the estimate.
    S : float
        A bound on ‖θ*_ij‖.
    forced_rounds : int or "auto"
        1 in the paper; "auto": until λ_min(V_ij) ≥ 2λ for every pair, from where the bound is
        proved.

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
        self.lam = real("lam", lam, least=1e-9)
        self.S = real("S", S, least=0)
        self._set_confidence(delta, sigma, kappa)
        more = (forced_rounds, ridge, explore, labels, seed, transitive, half_life, memory)
        Contextual.__init__(self, cascade, features, context_dim, *more)

    def _rule(self) -> Rule:
        return UssPdRidge(self.ellipsoid, self.lam, self.S)
