"""A round: `decide` how deep to go, `observe` what came of it.

The context at hand is in ``bank.row``, as features.

Every road into the engine (one round from Python, a whole simulated run, a replayed log)
calls these same functions, so the same events give the same decisions, bit for bit.
"""

import math

from stopwise.engine import gram
from stopwise.engine.arrays import Bytes, Floats, Ints
from stopwise.engine.attach import attach
from stopwise.engine.bank import (
    ARM,
    AUTO_DONE,
    DIM,
    GRAM,
    LIGHTEST,
    N_COUNTERS,
    OFFSET,
    REACH,
    RIDGE,
    ROUNDS,
    SHIFT,
    Bank,
)
from stopwise.engine.compiled import compiled, inlined
from stopwise.engine.history import has_room, remember, weight_of
from stopwise.engine.links import sigmoid
from stopwise.engine.logistic import (
    EXACT,
    MAX_REFINEMENTS,
    PATIENCE,
    certificate,
    decrement,
    estimate,
    learn,
    quadratic,
    refine,
    slack,
)
from stopwise.engine.rule import (
    AUTO,
    BETA,
    DELTA,
    ESTIMATE,
    FORCED_ROUNDS,
    GAP,
    HARM,
    KIND,
    LAM,
    LOGIT,
    SCALE,
    SUPERVISED,
    THOMPSON,
    UPPER,
    Rule,
    radius,
)

LOSES, UNSURE, WINS = -1, 0, 1
SLOPE = 0.5  # heuristic: by how much the logit of q is expected to vary with the context


@inlined
def bonus(bank: Bank, rule: Rule, k: int) -> float:
    """Return the optimism of model k at this context: α‖φ‖_{V⁻¹} or β‖φ‖_{(V+λI)⁻¹}.

    Models that share V share the answer; it is noted until the next context.
    """
    g = bank.models[k, GRAM]
    state = bank.gram_state[g]
    if state[gram.BONUS] < 0.0:
        offset = bank.grams[g, OFFSET]
        d = bank.grams[g, DIM]
        x = bank.row[offset : offset + d]
        state[gram.NORM] = gram.norm(bank.gram[g], state, x, d, bank.work)
        state[gram.BONUS] = radius_of(bank, rule, g) * state[gram.NORM]
    return state[gram.BONUS]


@compiled
def radius_of(bank: Bank, rule: Rule, g: int) -> float:
    """Return the radius of the confidence ellipsoid of the models that share V number g.

    Weighted rows of V have noise whose variance is at most their weight times what V accounts
    for, hence the root of the weight (docs/revealed.md).
    """
    n = bank.gram_state[g, gram.COUNT]
    if rule.settings[KIND] != BETA:
        n = max(n, float(bank.counters[ROUNDS]))
    spread = math.sqrt(max(bank.gram_state[g, gram.HEAVIEST], 1.0))
    return spread * radius(rule.settings, rule.gaps.shape[1], n)


@inlined
def forget_bonuses(bank: Bank) -> None:
    """Make `bonus` look again: there is a new context, or something was learned."""
    for g in range(bank.grams.shape[0]):
        bank.gram_state[g, gram.BONUS] = -1.0


@inlined
def cheap_norm(bank: Bank, rule: Rule, k: int) -> float:
    """Return an upper bound on ‖φ‖_{H⁻¹} from the ‖φ‖_{V⁻¹} that `bonus` has just noted.

    H = Σ μ'φφᵀ + ridge·I ≽ min(lightest μ', ridge/base)·(V + base·I), where base is the
    multiple of I in the V at hand, if any.
    """
    state = bank.gram_state[bank.models[k, GRAM]]
    share = bank.numbers[k, LIGHTEST]
    base = rule.settings[LAM] + state[gram.FLOOR]
    if base > 0.0:
        share = min(share, bank.numbers[k, RIDGE] / base)
    return state[gram.NORM] / math.sqrt(share)


@inlined
def _slice(bank: Bank, k: int) -> Floats:
    """Return the features of model k at the context at hand."""
    offset = bank.models[k, OFFSET]
    return bank.row[offset : offset + bank.models[k, DIM]]


@compiled
def logit_at(bank: Bank, k: int) -> float:
    """Return φᵀθ̃, the model's logit at this context to within its `uncertainty`."""
    return estimate(bank.vectors[k], _slice(bank, k))


@compiled
def uncertainty(bank: Bank, k: int) -> float:
    """Return a proved bound on |φᵀ(θ̃ − θ̂)|."""
    x = _slice(bank, k)
    b, e = slack(bank.hessian_state[k], bank.vectors[k], bank.numbers[k], x.shape[0])
    if b == math.inf:
        return math.inf
    return b * hessian_norm(bank, k) + e


@inlined
def hessian_norm(bank: Bank, k: int) -> float:
    """Return ‖φ‖_{H⁻¹} with the Hessian at hand."""
    line = bank.work[bank.work.shape[1]]
    return math.sqrt(quadratic(bank.hessian[k, gram.INVERSE], _slice(bank, k), line))


@inlined
def forced(bank: Bank, rule: Rule) -> bool:
    """Say whether this round goes to the last arm whatever the context."""
    if rule.settings[FORCED_ROUNDS] == AUTO:
        return bank.counters[AUTO_DONE] == 0
    return bank.counters[ROUNDS] < rule.settings[FORCED_ROUNDS]


@compiled
def decide(bank: Bank, audits: Ints, rule: Rule, noise: Floats, noted: Floats) -> int:
    """Return the first arm whose every deeper arm costs more than it could repair.

        B = {i : C_j − C_i > p̃_ij(x) for all j > i} ∪ {K},  stop at min B     (the paper, Lemma 2)

    ``noise`` holds a standard normal per pair for Thompson sampling; other rules ignore it.
    ``audits`` tells where in memory is, for each pair, what labels have shown (none: no rows).
    The numbers of every comparison made are left in ``noted`` (n_pairs, 3): the logits of p̂ and
    p̃, or for the supervised rule γ̂_i − γ̂_j and its upper value; and half of what labels take
    off p̃.
    """
    last = rule.gaps.shape[1] - 1
    if forced(bank, rule):
        return last
    forget_bonuses(bank)
    for i in range(last):
        if stands(bank, audits, rule, noise, noted, i):
            return i
    return last


@inlined
def stands(bank: Bank, audits: Ints, rule: Rule, noise: Floats, noted: Floats, i: int) -> bool:
    """Say whether to stop at arm i: C_j − C_i > p̃_ij for all j > i; `forget_bonuses` first.

    One proved loss settles it, so all pairs are looked at before any history is, and then the
    history of the pair that looks most like a loss.
    """
    n_arms = rule.gaps.shape[1]
    enough = MAX_REFINEMENTS * (n_arms - 1 - i)
    for refinements in range(enough + 1):
        settle = refinements == enough  # nothing is gained any more: the middle decides
        doubtful = -1
        closest = math.inf
        # The arm that won over this one last time is likely to do so again: look there first.
        first = bank.counters[N_COUNTERS + i]
        for step in range(n_arms - 1 - i):
            j = first + step
            if j >= n_arms:
                j -= n_arms - 1 - i
            verdict, margin = _verdict(bank, rule, noise, noted, i, j, settle)
            if verdict != WINS and audits.shape[0] > 0:
                verdict, margin = _audited(bank, audits, rule, noted, i, j, settle, verdict, margin)
            if verdict == LOSES:
                bank.counters[N_COUNTERS + i] = j
                return False
            if verdict == UNSURE and margin < closest:
                closest = margin
                doubtful = j
        if doubtful < 0:
            return True
        _sharpen(bank, audits, rule, i, doubtful, refinements >= PATIENCE * n_arms)
    return True


@compiled
def _sharpen(bank: Bank, audits: Ints, rule: Rule, i: int, j: int, cautious: bool) -> None:
    """Spend one pass over history on the model that leaves pair (i, j) undecided."""
    k = rule.pairs[i, j]
    if audits.shape[0] > 0:
        labelled, _ = attach(audits[k])
        if labelled.counters[ROUNDS] > 0 and _blurred(labelled, 0) > _blurred(bank, k):
            refine(labelled, 0, True, cautious)  # the bound depends on H itself
            return
    if rule.settings[KIND] == SUPERVISED:
        k = i if uncertainty(bank, i) >= uncertainty(bank, j) else j
    refine(bank, k, rule.settings[KIND] == THOMPSON, cautious)


@inlined
def _verdict(
    bank: Bank, rule: Rule, noise: Floats, noted: Floats, i: int, j: int, settle: bool
) -> tuple[int, float]:
    """Compare the gap of (i, j) with its upper value, of which only an interval is known.

    Return the verdict and, if it is `UNSURE`, the margin by which the gap seems to win.
    ``settle`` decides by the middle of the interval.
    """
    gap = rule.gaps[GAP, i, j]
    kind = rule.settings[KIND]
    k = rule.pairs[i, j]
    noted[k, HARM] = 0.0
    if kind == SUPERVISED:
        return _verdict_supervised(bank, rule, noted, i, j, settle)
    if gap <= 0.0:  # never exceeds a probability that is above 0 …
        return LOSES, 0.0
    if gap > 1.0:  # … and this one always exceeds a probability
        return WINS, 0.0
    optimism = 0.0 if kind == THOMPSON else bonus(bank, rule, k)
    if optimism == math.inf:  # nothing seen: p̃ = 1
        return LOSES, 0.0
    x = _slice(bank, k)
    b, rounding = slack(bank.hessian_state[k], bank.vectors[k], bank.numbers[k], x.shape[0])
    if b == math.inf and not settle:
        return UNSURE, -math.inf
    middle = estimate(bank.vectors[k], x)
    noted[k, ESTIMATE] = middle
    err = math.inf
    if kind != THOMPSON:
        middle += optimism
        err = b * cheap_norm(bank, rule, k) + rounding
    if kind == THOMPSON or not abs(rule.gaps[LOGIT, i, j] - middle) > err:  # or NaN
        spread = hessian_norm(bank, k)
        err = b * spread + rounding
        if kind == THOMPSON:
            optimism = noise[k] * rule.settings[SCALE] * spread
            middle += optimism
            # H at θ̂ is within e^{±turn} of the H at hand
            err += abs(optimism) * math.expm1(0.5 * _hessian_turn(bank, k))
    noted[k, UPPER] = middle
    margin = rule.gaps[LOGIT, i, j] - middle
    if settle or err <= EXACT or abs(margin) > err:
        return (WINS, 0.0) if margin > 0.0 else (LOSES, 0.0)
    noted[k, ESTIMATE] = math.nan  # not a comparison that the decision rests on, yet
    return UNSURE, margin


@compiled
def _blurred(bank: Bank, k: int) -> float:
    """Return by how much the probability of model k may be off at this context."""
    err = uncertainty(bank, k)
    if err == math.inf:
        return 1.0
    middle = logit_at(bank, k)
    return sigmoid(middle + err) - sigmoid(middle - err)


@compiled
def _audited(
    bank: Bank,
    audits: Ints,
    rule: Rule,
    noted: Floats,
    i: int,
    j: int,
    settle: bool,
    verdict: int,
    margin: float,
) -> tuple[int, float]:
    """Judge a gap that does not win by disagreement alone, by what labels have shown besides.

    Going on from i to j repairs at most p_ij − 2·W_ij with W_ij = P(i right, j wrong), since
    where arms disagree the deeper one may be the one that errs. W_ij = p_ij·q_ij, and labels tell
    q_ij = P(i right | they disagree), so the gap is compared with the upper end of p(1 − 2q):
    at UCB(p) while LCB(q) < ½, at LCB(p) beyond (docs/audit.md).
    """
    k = rule.pairs[i, j]
    labelled, _ = attach(audits[k])
    optimism = bonus(bank, rule, k)
    if labelled.counters[ROUNDS] == 0 or optimism == math.inf:
        return verdict, margin  # no label shows this pair
    label_features(_slice(bank, k), labelled.numbers[0, RIDGE], labelled.row)
    err_p = uncertainty(bank, k)
    err_q = uncertainty(labelled, 0)
    if (err_p == math.inf or err_q == math.inf) and not settle:
        return UNSURE, -math.inf
    at_p = logit_at(bank, k)
    caution = label_quantile(labelled, rule) * hessian_norm(labelled, 0)
    at_q = logit_at(labelled, 0) - caution
    err_q += caution * math.expm1(0.5 * _hessian_turn(labelled, 0))
    value = _repair(at_p, optimism, at_q)
    noted[k, ESTIMATE] = at_p
    noted[k, UPPER] = at_p + optimism
    noted[k, HARM] = 0.5 * (sigmoid(at_p + optimism) - value)
    gap = rule.gaps[GAP, i, j]
    if settle or (err_p <= EXACT and err_q <= EXACT):
        return (WINS, 0.0) if gap > value else (LOSES, 0.0)
    if gap > _repair(at_p, optimism + err_p, at_q - err_q):
        return WINS, 0.0
    # the errors may also be of the other sign, which makes the optimism less by as much
    if gap <= _repair(at_p, optimism - err_p, at_q + err_q):
        return LOSES, 0.0
    noted[k, ESTIMATE] = math.nan  # not a comparison that the decision rests on, yet
    return UNSURE, gap - value


@compiled
def label_features(x: Floats, ridge: float, out: Floats) -> None:
    """Write the features of q_ij: a constant, and those of p_ij, which count for less.

    The ridge is the precision of a prior: vague for the constant, `SLOPE` wide for the rest. So
    q_ij is taken to be much the same everywhere until labels show that it is not.
    """
    out[0] = 1.0
    shrunk = SLOPE * math.sqrt(ridge)
    for c in range(x.shape[0]):
        out[1 + c] = shrunk * x[c]


@compiled
def label_quantile(labelled: Bank, rule: Rule) -> float:
    """Return by how many standard deviations LCB(q) lies below the estimate: √(2·ln(1/δ)).

    A Gaussian has less than δ beyond it: 2.4 of them for δ = 0.05. Rows that count several times
    carry less than they weigh, as in `radius_of`.
    """
    heaviest = max(labelled.gram_state[0, gram.HEAVIEST], 1.0)
    return math.sqrt(2.0 * heaviest * math.log(1.0 / rule.settings[DELTA]))


@inlined
def _repair(at_p: float, spread: float, at_q: float) -> float:
    """Return the largest p(1 − 2q) for a logit of p within ± spread and this one of q."""
    gain = 1.0 - 2.0 * sigmoid(at_q)
    return gain * sigmoid(at_p + spread if gain > 0.0 else at_p - spread)


@compiled
def _hessian_turn(bank: Bank, k: int) -> float:
    """Return t such that e⁻ᵗH ≼ ∇²L(θ̂) ≼ eᵗH: the shift, the step and what is left of it."""
    lam = decrement(bank.vectors[k], bank.models[k, DIM])
    reach = bank.numbers[k, REACH]
    shift = bank.numbers[k, SHIFT]
    return shift + reach * (lam + certificate(lam, reach, shift))


@compiled
def _verdict_supervised(
    bank: Bank, rule: Rule, noted: Floats, i: int, j: int, settle: bool
) -> tuple[int, float]:
    """Compare the gap with UCB(γ_i) − LCB(γ_j)."""
    gap = rule.gaps[GAP, i, j]
    err_i = uncertainty(bank, i)
    err_j = uncertainty(bank, j)
    if (err_i == math.inf or err_j == math.inf) and not settle:
        return UNSURE, -math.inf
    at_i = logit_at(bank, i)
    at_j = logit_at(bank, j)
    upper = at_i + bonus(bank, rule, i)
    lower = at_j - bonus(bank, rule, j)
    value = sigmoid(upper) - sigmoid(lower)
    noted[rule.pairs[i, j], ESTIMATE] = sigmoid(at_i) - sigmoid(at_j)
    noted[rule.pairs[i, j], UPPER] = value
    if settle or (err_i <= EXACT and err_j <= EXACT):
        return (WINS, 0.0) if gap > value else (LOSES, 0.0)
    if gap > sigmoid(upper + err_i) - sigmoid(lower - err_j):
        return WINS, 0.0
    if gap <= sigmoid(upper - err_i) - sigmoid(lower + err_j):
        return LOSES, 0.0
    noted[rule.pairs[i, j], ESTIMATE] = math.nan  # not one that the decision rests on, yet
    return UNSURE, gap - value


@compiled
def observe(bank: Bank, rule: Rule, stop: int, wanted: int, outcomes: Bytes) -> bool:
    """Learn from a round that went to ``stop``; False, and nothing changed, if memory is full.

    ``wanted`` is where the rule itself would have stopped: before ``stop`` if chance sent the
    round on. ``outcomes`` holds 0 or 1 per model; those of arms beyond the stop are not read.
    """
    if not has_room(bank):
        return False
    remember(bank, stop, wanted, outcomes)
    for g in range(bank.grams.shape[0]):
        arm = bank.grams[g, ARM]
        if arm <= stop:
            offset = bank.grams[g, OFFSET]
            d = bank.grams[g, DIM]
            x = bank.row[offset : offset + d]
            line = bank.work[bank.work.shape[1]]
            times = weight_of(bank, g, wanted)
            state = bank.gram_state[g]
            gram.add_row(bank.gram[g], state, x, float(times), d, False, line, bank.work)
            if times > 1:
                state[gram.COUNT] += float(times - 1)
                state[gram.HEAVIEST] = float(times)
    for k in range(bank.models.shape[0]):
        if bank.models[k, ARM] <= stop:
            learn(
                bank.hessian[k],
                bank.hessian_state[k],
                bank.vectors[k],
                bank.numbers[k],
                _slice(bank, k),
                float(outcomes[k]),
                float(weight_of(bank, bank.models[k, GRAM], wanted)),
                bank.work,
            )
    if rule.settings[FORCED_ROUNDS] == AUTO and bank.counters[AUTO_DONE] == 0:
        bank.counters[AUTO_DONE] = _explored(bank, rule)
    return True


@compiled
def _explored(bank: Bank, rule: Rule) -> int:
    """Return 1 once the radius is proved for every pair: V − level·I is positive definite.

    α asks for λ_min(V) ≥ 1; β for λ_min(V) ≥ 2λ, that is 3λ with the λI that V̄ starts from.
    """
    level = 3.0 * rule.settings[LAM] if rule.settings[KIND] == BETA else 1.0
    shift = -level * (1.0 - 1e-9)  # V carries rounding
    for g in range(bank.grams.shape[0]):
        if not gram.cholesky(bank.gram[g, gram.MATRIX], shift, bank.grams[g, DIM], bank.work):
            return 0
    return 1
