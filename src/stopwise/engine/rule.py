"""What a decision is made by: the kind of rule and its constants, fixed for a policy's life."""

import math
from typing import NamedTuple

from stopwise.engine.arrays import Floats, Ints
from stopwise.engine.compiled import compiled

# ``settings`` of a rule
KIND, FORCED_ROUNDS, SIGMA, KAPPA, DELTA, LAM, S, SCALE, N_FEATURES = 0, 1, 2, 3, 4, 5, 6, 7, 8
N_SETTINGS = 9

# KIND: where the upper value compared with a cost gap comes from
ALPHA = 0  # USS-PD: μ(φᵀθ̂ + α‖φ‖_{V⁻¹})
BETA = 1  # USS-PD-λI: the same with V + λI and β
THOMPSON = 2  # μ of a draw from N(φᵀθ̂, SCALE²·‖φ‖²_{H⁻¹})
SUPERVISED = 3  # UCB(γ_i) − LCB(γ_j) with one model per arm

AUTO = -1.0  # FORCED_ROUNDS: until the radius is proved, see `rounds.observe`

GAP, LOGIT = 0, 1  # layers of ``gaps``

# what a decision notes of a comparison: logits of p̂ and p̃, harm (see `rounds.decide`)
ESTIMATE, UPPER, HARM = 0, 1, 2
N_NOTED = 3


class Rule(NamedTuple):
    """The constants of a decision: they never change in a policy's life."""

    settings: Floats  # (9,)
    gaps: Floats  # (2, K, K): C_j − C_i and its logit
    pairs: Ints  # (K, K): the number of pair (i, j)


@compiled
def radius(settings: Floats, n_arms: int, n: float) -> float:
    """Return the radius of the confidence ellipsoid after n observations.

    α = (2σ/κ)·√(d'/2·ln(1 + 2n/d') + ln(K²/2δ))                (Lemma "Confidence Ellipsoid")
    β = (2σ/κ)·√(d'/2·ln(1 + n/(d'λ)) + ln(K²/2δ)) + 2√λ·S      (its λI version, appendix)
    """
    d = settings[N_FEATURES]
    union = math.log(n_arms * n_arms / (2.0 * settings[DELTA]))
    if settings[KIND] == BETA:
        lam = settings[LAM]
        volume = 0.5 * d * math.log1p(n / (d * lam))
        extra = 2.0 * math.sqrt(lam) * settings[S]
    else:
        volume = 0.5 * d * math.log1p(2.0 * n / d)
        extra = 0.0
    return 2.0 * settings[SIGMA] / settings[KAPPA] * math.sqrt(volume + union) + extra
