"""USS-PD: the paper's algorithm.

The rule is in C++: p̃ in ``engine/rule.cpp``, the stopping test in ``engine/stopping.cpp``.
`stopwise.reference` writes both out on one page of plain numpy and takes the same decisions.
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
        ``Polynomial(degree=1)`` adds one. Also `PerStage`, `PerPair`, or any callable. With
        ``reveals``, `Standard` for what is known at each arm.
    context_dim : int
        How many numbers a context has before the first arm; 0 by default if stages reveal some.
    reveals : int or sequence of int, optional
        How many numbers each stage but the last adds to the context. Rounds are then decided arm by
        arm (`start`), and see which of the answers so far agree (docs/revealed.md). By default the
        complete context is known from the start.
    answers : bool, optional
        With ``reveals``: whether agreement of the answers so far is a feature; True by default.
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
        The share of rounds that go to the last arm at random, whatever the context. It starts at
        this value and falls like 1/t to a thirtieth of it. By default none, as in the paper, but
        0.06 where labels are asked for or stages reveal the context (docs/revealed.md).
    labels : int or float
        How many labels to ask for in all, or below 1, of what share of the rounds whose arms
        disagree; none by default (docs/labels.md).
    seed : int
        Seed for these choices.
    transitive : bool
        Whether (i, j) also passes where (i, k) and (k, j) do, for an arm k between them. It is as
        safe, and the rule cannot settle too deep (docs/theory-regret.md). Off, as in the paper.
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
