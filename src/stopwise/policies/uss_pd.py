"""USS-PD, the paper's algorithm.

`stopwise.reference` implements the same decisions in about a page of plain numpy.
"""

from collections.abc import Sequence
from typing import ClassVar, final

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike, Identity
from stopwise.policies.options import Options
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.policies.rules import Ellipsoid


@final
class USSPD(PairwisePolicy):
    """Unsupervised sequential selection from pairwise disagreement (USS-PD).

    ::

        the first m contexts go to the last arm
        then, for context x, stop at the first arm i with

            C_j − C_i > p̃_ij(x)   for all j > i,        or at the last
            p̃_ij(x) = μ(φᵀθ̂_ij + α‖φ‖_{V_ij⁻¹}),        φ = Φ_ij(x),   μ(z) = 1/(1 + e⁻ᶻ)

        observe which arms up to the stop disagreed, and update
            θ̂_ij :  Σ_s (d_s − μ(φ_sᵀθ))·φ_s = ridge·θ,      V_ij = Σ_s φ_sφ_sᵀ
            α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ)),   n rounds so far, d' features, K arms

    Stopping early is safe as long as every p̃ is a valid upper bound, because an arm's error rate
    exceeds that of a deeper arm by at most the probability that they disagree. Under contextual
    weak dominance, the regret is also small. Without it, the rule goes too deep, which costs more
    and may even cause more errors. Once labels have arrived, p̃ is multiplied by an upper bound on
    the gain of continuing (see `USSLaplace`).

    Parameters
    ----------
    features : feature map, optional
        Φ: a feature map, a `PerStage`, a `PerPair` or any callable. By default ``Identity()``,
        which has no intercept, so the estimate for a context of zeros is always ½;
        ``Polynomial(degree=1)`` adds an intercept. With ``reveals``, the default is `Standard` at
        each arm.
    context_dim : int
        Number of values in the context before the first arm; with ``reveals``, 0 by default.
    reveals : int or sequence of int, optional
        Number of values that each arm but the last adds to the context. Rounds are then decided
        arm by arm (`start`), and features include which outputs so far agree (docs/revealed.md). By
        default, the complete context is known from the start.
    answers : bool, optional
        With ``reveals``, whether features include which outputs so far agree; True by default.
    delta : float
        δ in (0, 1): the confidence level is 1 − δ.
    sigma : float
        σ > 0, the sub-Gaussian parameter of the noise; 0.1 in the paper's experiments. With ½,
        the proof holds for any data; smaller values explore less.
    kappa : float
        κ in (0, 1/4]: the smallest slope μ' near the true θ. The default, 1/4, is a heuristic.
    forced_rounds : int or "auto"
        m, the number of first rounds that run every arm. "auto" runs every arm until
        λ_min(V) ≥ 1 for every pair, as the lemma requires; with nearly dependent features, this can
        take very long.
    ridge : float
        Keeps θ̂ finite for pairs that never disagree; as it approaches 0, the estimate approaches
        that of the paper.
    explore : float, optional
        Initial share of rounds, chosen at random, that run every arm. The share decays as 1/t to a
        thirtieth of its initial value (a tenth with ``reveals`` and three or more arms). By
        default 0.06 with ``labels`` or ``reveals``, otherwise 0 as in the paper (docs/revealed.md).
    labels : int or float
        Total number of labels to request or, if below 1, the share of the rounds with a
        disagreement for which to request one (docs/labels.md).
    seed : int
        Seed of the random choices of ``explore`` and ``labels``.
    transitive : bool
        Whether pair (i, j) also passes the test if (i, k) and (k, j) pass for an arm k between
        them. This is equally safe and keeps the rule from settling too deep
        (docs/theory-regret.md). False by default, as in the paper.
    half_life : float, optional
        Number of rounds after which a round counts half as much, so that the policy adapts to
        changes (docs/forgetting.md). By default, all rounds count equally.
    memory : str or int, optional
        Maximum memory, such as "256 MB"; once it is full, older rounds are replaced by a summary
        (docs/forgetting.md). By default, all rounds are stored.

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
        forced_rounds: int | str = 50,
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
        super().__init__(cascade, Ellipsoid(delta, sigma, kappa), options)
