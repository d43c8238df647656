"""One pair's logistic model: the exact maximum-likelihood estimate, by certificate.

Model k minimises L(θ) = Σ_s [ln(1 + e^{φ_sᵀθ}) − d_s·φ_sᵀθ] + ridge/2·‖θ‖². Solving it anew
every round costs a pass over history; a decision needs far less. Kept per model:

=========  ====================================================================================
THETA_G    a point θ_g, with the exact gradient g = ∇L(θ_g) over all history (GRADIENT)
THETA_H    a point θ_h, with the exact Hessian H = ∇²L(θ_h) over all history, and H⁻¹
STEP       v = −H⁻¹g, so that θ̃ = θ_g + v is nearly the minimiser θ̂
REACH      m ≥ max_s ‖φ_s‖_{H⁻¹}
LIGHTEST   min_s μ'(φ_sᵀθ_h), the smallest weight in H
SHIFT      ρ ≥ max_s |φ_sᵀ(θ_g − θ_h)|
=========  ====================================================================================

A new row updates all of these in O(d²). Because |μ''| ≤ μ', a move of the logits by at most z
changes every weight μ' by a factor in [e⁻ᶻ, eᶻ], which bounds how far θ̂ is from θ̃:

    λ = ‖v‖_H,  r = λ·m,  q = e^{ρ+r}·(e^ρ(e^r − 1) − r) < 1   ⟹
    |φᵀ(θ̃ − θ̂)| ≤ ‖φ‖_{H⁻¹} · (−ln(1 − q))/m

(``docs/certificate.md`` derives it.) When that is not enough for a decision, `refine` moves θ_g
to θ̃ and visits the history once: for the gradient alone, O(d) a row, while the Hessian is
still near; for both, O(d²) a row, when the shift has grown.
"""

import math

import numpy as np

from stopwise.engine.arrays import Floats, Ints
from stopwise.engine.bank import (
    ANCHORED,
    ARM,
    BEYOND,
    DIM,
    DISTINCT,
    END,
    GRADIENT,
    GRAM,
    HESSIANS,
    LIGHTEST,
    MAX_DISTINCT,
    MEASURED_AT,
    OFFSET,
    PASSES,
    REACH,
    REACH_AGE,
    RIDGE,
    ROWS,
    ROWS_VISITED,
    SHIFT,
    STAGE,
    STEP,
    THETA_G,
    THETA_H,
    WEIGHT,
    Bank,
)
from stopwise.engine.compiled import compiled, inlined
from stopwise.engine.gram import (
    INVERSE,
    MATRIX,
    RESIDUAL,
    STEPS,
    add_row,
    dot,
    multiply,
    refresh_regular,
)

FULL_STEP = 3.0  # heuristic: r up to which a whole Newton step is tried first; beyond, damped
CAUTIOUS_STEP = 0.5  # r up to which a whole step provably descends
PATIENCE = 8  # refinements in a row after which only steps that provably descend are taken
SHIFT_LIMIT = 0.15  # heuristic, by benchmark: ρ from which a new Hessian is worth its pass
SHIFT_SHARE = 0.7  # … and as a share of r: a shift beyond it would dominate the certificate
TYPICAL_MOVE = 0.5  # heuristic, by measurement: the largest move of a logit, as a share of r
REACH_AGE_LIMIT = 0.25  # heuristic: the reach is measured anew once its bound is e^{1/4} loose
BLOCK = 256  # rows visited together; MAX_DISTINCT is a multiple of it
EXACT = 1e-12  # logits closer than this are one: below it a comparison is a tie
STALLED = 1e-6  # an ill-conditioned model may come no nearer than rounding allows
MAX_REFINEMENTS = 500  # a damped Newton run needs tens; a nearly separable one some hundreds


@inlined
def certificate(decrement: float, reach: float, shift: float) -> float:
    """Return b such that |φᵀ(θ̃ − θ̂)| ≤ ‖φ‖_{H⁻¹}·b for every φ, or +∞ if nothing is proved."""
    if reach <= 0.0:
        return 0.0
    r = decrement * reach
    z = shift + r
    bound = math.inf
    if z < 1.0:  # q ≥ 1 well before this
        # Each factor of q = e^{ρ+r}·((e^ρ − 1)(eʳ − 1) + (eʳ − 1 − r)) by a rational upper bound:
        # eᶻ ≤ (2 + z)/(2 − z),  eᶻ − 1 ≤ 2z/(2 − z),  eᶻ − 1 − z ≤ 3z²/(6 − 2z),  0 ≤ z < 2.
        # They cost a few divisions, keep their digits at zero, and err on the safe side.
        excess = 3.0 * r * r / (6.0 - 2.0 * r)
        q = (2.0 + z) / (2.0 - z) * (4.0 * shift * r / ((2.0 - shift) * (2.0 - r)) + excess)
        if q < 1.0:
            bound = q * (1.0 + 0.5 * q / (1.0 - q)) / reach  # −ln(1 − q) ≤ q + q²/(2(1 − q))
    # Far from the minimum the step says little; but θ̂ is near θ_g itself (docs/certificate.md).
    if bound * reach > 0.7:
        left = 1.0 - r * math.exp(shift)
        if left > 0.0:
            bound = min(bound, decrement - math.log(left) / reach)
    return bound


@inlined
def decrement(vectors: Floats, d: int) -> float:
    """Return the Newton decrement λ = ‖g‖_{H⁻¹} = √(−gᵀv)."""
    return math.sqrt(max(-dot(vectors[GRADIENT], vectors[STEP], d), 0.0))


@inlined
def estimate(vectors: Floats, x: Floats) -> float:
    """Return φᵀθ̃, the logit that `uncertainty` is about."""
    d = x.shape[0]
    return dot(x, vectors[THETA_G], d) + dot(x, vectors[STEP], d)


@inlined
def quadratic(inverse: Floats, x: Floats, line: Floats) -> float:
    """Return xᵀA⁻¹x, leaving A⁻¹x in ``line``."""
    multiply(inverse, x, x.shape[0], line)
    return max(dot(x, line, x.shape[0]), 0.0)


@inlined
def slack(state: Floats, vectors: Floats, numbers: Floats, d: int) -> tuple[float, float]:
    """Return (b, e) such that |φᵀ(θ̃ − θ̂)| ≤ b·‖φ‖_{H⁻¹} + e for every φ with ‖φ‖ ≤ 1.

    e is the rounding of the solve: v = −(I + E)H⁻¹g with |E| entrywise at most the residual.
    """
    if numbers[ANCHORED] == 0.0:
        return math.inf, 0.0
    eta = min(d * state[RESIDUAL], 0.5)  # relative error of everything computed with H⁻¹
    stretch = 1.0 / math.sqrt(1.0 - eta)
    lam = decrement(vectors, d) * stretch
    b = certificate(lam, numbers[REACH] * stretch, numbers[SHIFT]) * stretch
    v = vectors[STEP]
    return b, eta / (1.0 - eta) * math.sqrt(dot(v, v, d))


@compiled
def learn(
    both: Floats,
    state: Floats,
    vectors: Floats,
    numbers: Floats,
    x: Floats,
    outcome: float,
    times: float,
    work: Floats,
) -> None:
    """Account for one more row, already in the history, in everything kept about a model.

    The row counts ``times`` times.
    """
    if numbers[ANCHORED] == 0.0:
        return  # nobody has asked about this model yet: its first anchor will read the history
    d = x.shape[0]
    g = vectors[GRADIENT]
    v = vectors[STEP]
    at_g = dot(x, vectors[THETA_G], d)
    e = math.exp(-abs(at_g))
    error = times * ((1.0 if at_g >= 0.0 else e) / (1.0 + e) - outcome)
    at_h = at_g
    if numbers[SHIFT] > 0.0:  # otherwise θ_h is θ_g
        at_h = dot(x, vectors[THETA_H], d)
        e = math.exp(-abs(at_h))
    slope = e / ((1.0 + e) * (1.0 + e))
    weight = times * slope
    inverse_x = work[work.shape[1]]
    before = add_row(both, state, x, weight, d, True, inverse_x, work)
    for c in range(d):
        g[c] += error * x[c]
    if before >= 0.0 and state[STEPS] > 0.0:
        # Sherman–Morrison applied to −H⁻¹g: the new step differs along H⁻¹φ only
        along = (weight * dot(x, v, d) + error) / (1.0 + weight * before)
        for c in range(d):
            v[c] -= along * inverse_x[c]
        after = before / (1.0 + weight * before)
    else:  # the inverse was guarded or computed afresh: so is the step, which drifts with it
        _solve_step(both[INVERSE], vectors, d)
        after = quadratic(both[INVERSE], x, inverse_x)
    numbers[REACH] = max(numbers[REACH], math.sqrt(after))
    numbers[LIGHTEST] = min(numbers[LIGHTEST], slope)
    numbers[SHIFT] = max(numbers[SHIFT], abs(at_g - at_h))


@compiled
def refine(bank: Bank, k: int, fresh_hessian: bool, cautious: bool) -> None:
    """Move θ_g along the step and visit the history once.

    Far from the minimum, and whenever ``cautious``, the step is damped to ln(1 + r)/r, which
    always decreases L when |μ''| ≤ μ' (docs/certificate.md). ``fresh_hessian`` asks for H at the
    new point whatever the shift, for rules that depend on H itself.
    """
    d = bank.models[k, DIM]
    vectors = bank.vectors[k]
    numbers = bank.numbers[k]
    expected = math.inf
    r = 1.0
    if numbers[ANCHORED] != 0.0:
        r = decrement(vectors, d) * numbers[REACH]
        fraction = 1.0 if r <= (CAUTIOUS_STEP if cautious else FULL_STEP) else math.log1p(r) / r
        expected = numbers[SHIFT] + TYPICAL_MOVE * fraction * r
        for c in range(d):
            vectors[THETA_G, c] += fraction * vectors[STEP, c]
    with_hessian = fresh_hessian or expected > min(SHIFT_LIMIT, SHIFT_SHARE * r)
    moved, count, lightest = _visit_all(bank, k, with_hessian)
    if with_hessian:
        numbers[LIGHTEST] = lightest
        for c in range(d):
            vectors[THETA_H, c] = vectors[THETA_G, c]
        numbers[SHIFT] = 0.0
        refresh_regular(bank.hessian[k], bank.hessian_state[k], d, bank.work)
        # The new H is at least e^{−moved} times the old one, so no norm grew by more than
        # e^{moved/2}. That bound serves until it, or the growth of history, makes it loose.
        numbers[REACH_AGE] += 0.5 * moved
        growth = 0.5 * math.log(max(count, 1.0) / max(numbers[MEASURED_AT], 1.0))
        if numbers[ANCHORED] == 0.0 or numbers[REACH_AGE] + growth > REACH_AGE_LIMIT:
            numbers[REACH] = _measure_reach(bank, k)
            numbers[REACH_AGE] = 0.0
            numbers[MEASURED_AT] = count
        else:
            numbers[REACH] *= math.exp(0.5 * moved)
    else:
        numbers[SHIFT] = moved
    numbers[ANCHORED] = 1.0
    _solve_step(bank.hessian[k, INVERSE], vectors, d)


@compiled
def solve(bank: Bank, k: int, fresh_hessian: bool) -> bool:
    """Refine until every logit of θ_g + v is exact to `EXACT`, and say whether that was reached.

    Where rounding does not let it come so near (ill-conditioned histories), `STALLED` will do.
    ``fresh_hessian`` asks for H at θ̂ too, not only near it.
    """
    d = bank.models[k, DIM]
    numbers = bank.numbers[k]
    best = math.inf
    if numbers[ANCHORED] != 0.0:
        _solve_step(bank.hessian[k, INVERSE], bank.vectors[k], d)
    for attempt in range(MAX_REFINEMENTS):
        b, e = slack(bank.hessian_state[k], bank.vectors[k], numbers, d)
        near = not fresh_hessian or numbers[SHIFT] <= EXACT
        error = max(numbers[REACH], 1.0) * b + e
        if near and error <= EXACT:
            return True
        if attempt % 8 == 0:  # the last pass was one with a fresh Hessian
            if near and error <= STALLED and error > 0.5 * best:
                return True
            best = error
        refine(bank, k, fresh_hessian or attempt % 8 == 7, attempt >= PATIENCE)
    return False


@compiled
def _solve_step(inverse: Floats, vectors: Floats, d: int) -> None:
    """Set v = −H⁻¹g."""
    v = vectors[STEP]
    multiply(inverse, vectors[GRADIENT], d, v)
    for c in range(d):
        v[c] = -v[c]


@compiled
def _gather(bank: Bank, k: int, start: int, stop: int, place: Ints, seen: Floats) -> int:
    """Find the history rows in [start, stop) at which model k was observed; return how many.

    Writes their numbers into ``place``, and how often each was observed and was positive into
    ``seen`` (2, BLOCK). Branch-free where rows are single: which of them went deep enough is
    as good as random to a processor.
    """
    arm = bank.models[k, ARM]
    g = bank.models[k, GRAM]
    found = 0
    if start < bank.counters[DISTINCT]:
        for s in range(start, stop):
            n = bank.visits[s, g]
            place[found] = s
            seen[0, found] = n
            seen[1, found] = bank.visits[s, bank.grams.shape[0] + k]
            found += n > 0
    else:
        byte = 1 + (k >> 3)
        mask = np.uint8(1 << (k & 7))
        bits = bank.bits[start - MAX_DISTINCT : stop - MAX_DISTINCT]
        deep = np.uint8(arm)
        for s in range(stop - start):
            place[found] = start + s
            found += (bits[s, 0] & np.uint8(END)) >= deep
        for q in range(found):
            seen[0, q] = 1.0
            seen[1, q] = 1.0 if bits[place[q] - start, byte] & mask else 0.0
        stage = bank.grams[g, STAGE]
        if bank.counters[WEIGHT] > 1 and stage < arm:
            for q in range(found):
                end = bits[place[q] - start, 0]
                wanted = np.int64(end & END) - np.int64(end >> BEYOND)
                if stage < wanted < arm:
                    seen[0, q] *= bank.counters[WEIGHT]
                    seen[1, q] *= bank.counters[WEIGHT]
    return found


@compiled
def _visit_all(bank: Bank, k: int, with_hessian: bool) -> tuple[float, float, float]:
    """Recompute the gradient, and the Hessian if wanted, at θ_g.

    Return the largest |φ_sᵀ(θ_g − θ_h)|, the number of observations and the smallest weight μ'
    of any. Rows go through in blocks and stages, so that each inner loop is a simple one.
    """
    rows = bank.rows
    offset = bank.models[k, OFFSET]
    d = bank.models[k, DIM]
    ridge = bank.numbers[k, RIDGE]
    theta_g = bank.vectors[k, THETA_G]
    g = bank.vectors[k, GRADIENT]
    h = bank.hessian[k, MATRIX]
    away = bank.work[bank.work.shape[1]]
    for c in range(d):
        g[c] = ridge * theta_g[c]
        away[c] = theta_g[c] - bank.vectors[k, THETA_H, c]
    if with_hessian:
        for i in range(d):
            for c in range(d):
                h[i, c] = ridge if i == c else 0.0
    place = np.empty(BLOCK, dtype=np.int64)
    seen = np.empty((2, BLOCK))
    error = np.empty(BLOCK)
    weight = np.empty(BLOCK)
    moved = 0.0
    count = 0.0
    lightest = 0.25
    n_rows = bank.counters[ROWS]
    for start in range(0, n_rows, BLOCK):
        found = _gather(bank, k, start, min(start + BLOCK, n_rows), place, seen)
        moved = max(moved, _project(rows, offset, d, place, found, theta_g, away, error))
        for q in range(found):
            z = error[q]
            e = math.exp(-abs(z))
            p = (1.0 if z >= 0.0 else e) / (1.0 + e)
            error[q] = seen[0, q] * p - seen[1, q]
            weight[q] = e / ((1.0 + e) * (1.0 + e))
            lightest = min(lightest, weight[q])
            weight[q] *= seen[0, q]
            count += seen[0, q]
        _add_errors(g, rows, offset, d, place, error, found)
        if with_hessian:
            _add_weighted(h, rows, offset, d, place, weight, found)
    if with_hessian:
        for i in range(d):
            for c in range(i):
                h[c, i] = h[i, c]
        bank.counters[HESSIANS] += 1
    bank.counters[PASSES] += 1
    bank.counters[ROWS_VISITED] += n_rows
    return moved, count, lightest


@compiled
def _project(
    rows: Floats,
    offset: int,
    d: int,
    place: Ints,
    found: int,
    theta: Floats,
    away: Floats,
    out: Floats,
) -> float:
    """Write φᵀθ of a block of rows into ``out`` and return the largest |φᵀaway|.

    Four rows at a time: their sums do not wait for each other.
    """
    largest = 0.0
    whole = found - found % 4
    for q in range(0, whole, 4):
        x0 = rows[place[q], offset : offset + d]
        x1 = rows[place[q + 1], offset : offset + d]
        x2 = rows[place[q + 2], offset : offset + d]
        x3 = rows[place[q + 3], offset : offset + d]
        z0 = z1 = z2 = z3 = 0.0
        m0 = m1 = m2 = m3 = 0.0
        for c in range(d):
            t = theta[c]
            a = away[c]
            z0 += x0[c] * t
            z1 += x1[c] * t
            z2 += x2[c] * t
            z3 += x3[c] * t
            m0 += x0[c] * a
            m1 += x1[c] * a
            m2 += x2[c] * a
            m3 += x3[c] * a
        out[q] = z0
        out[q + 1] = z1
        out[q + 2] = z2
        out[q + 3] = z3
        largest = max(largest, abs(m0), abs(m1), abs(m2), abs(m3))
    for q in range(whole, found):
        x0 = rows[place[q], offset : offset + d]
        z0 = 0.0
        m0 = 0.0
        for c in range(d):
            z0 += x0[c] * theta[c]
            m0 += x0[c] * away[c]
        out[q] = z0
        largest = max(largest, abs(m0))
    return largest


@compiled
def _add_errors(
    g: Floats, rows: Floats, offset: int, d: int, place: Ints, error: Floats, found: int
) -> None:
    """Add error·φ of a block of rows to the gradient, four rows at a time."""
    whole = found - found % 4
    for q in range(0, whole, 4):
        x0 = rows[place[q], offset : offset + d]
        x1 = rows[place[q + 1], offset : offset + d]
        x2 = rows[place[q + 2], offset : offset + d]
        x3 = rows[place[q + 3], offset : offset + d]
        for c in range(d):
            g[c] += (error[q] * x0[c] + error[q + 1] * x1[c]) + (
                error[q + 2] * x2[c] + error[q + 3] * x3[c]
            )
    for q in range(whole, found):
        x0 = rows[place[q], offset : offset + d]
        for c in range(d):
            g[c] += error[q] * x0[c]


@compiled
def _add_weighted(
    h: Floats, rows: Floats, offset: int, d: int, place: Ints, weight: Floats, found: int
) -> None:
    """Add the weighted outer products of a block of rows to the lower half of H.

    Four rows at a time, so that H is read and written a quarter as often: for wide features
    that is what a pass costs.
    """
    whole = found - found % 4
    for q in range(0, whole, 4):
        x0 = rows[place[q], offset : offset + d]
        x1 = rows[place[q + 1], offset : offset + d]
        x2 = rows[place[q + 2], offset : offset + d]
        x3 = rows[place[q + 3], offset : offset + d]
        for i in range(d):
            a0 = weight[q] * x0[i]
            a1 = weight[q + 1] * x1[i]
            a2 = weight[q + 2] * x2[i]
            a3 = weight[q + 3] * x3[i]
            for c in range(i + 1):
                h[i, c] += (a0 * x0[c] + a1 * x1[c]) + (a2 * x2[c] + a3 * x3[c])
    for q in range(whole, found):
        x0 = rows[place[q], offset : offset + d]
        for i in range(d):
            a0 = weight[q] * x0[i]
            for c in range(i + 1):
                h[i, c] += a0 * x0[c]


@compiled
def _measure_reach(bank: Bank, k: int) -> float:
    """Return m = max_s ‖φ_s‖_{H⁻¹} over the rows of model k.

    A block of rows is turned on its side first: each inner loop then runs over rows, whose
    sums are independent and can be computed side by side.
    """
    offset = bank.models[k, OFFSET]
    d = bank.models[k, DIM]
    inverse = bank.hessian[k, INVERSE]
    place = np.empty(BLOCK, dtype=np.int64)
    seen = np.empty((2, BLOCK))
    sideways = np.empty((d, BLOCK))
    line = np.empty(BLOCK)
    size = np.empty(BLOCK)
    largest = 0.0
    n_rows = bank.counters[ROWS]
    for start in range(0, n_rows, BLOCK):
        found = _gather(bank, k, start, min(start + BLOCK, n_rows), place, seen)
        for q in range(found):
            size[q] = 0.0
            for c in range(d):
                sideways[c, q] = bank.rows[place[q], offset + c]
        for i in range(d):
            for q in range(found):
                line[q] = inverse[i, i] * sideways[i, q]
            for c in range(i):  # H⁻¹ is symmetric: twice what is left of the diagonal
                twice = 2.0 * inverse[i, c]
                for q in range(found):
                    line[q] += twice * sideways[c, q]
            for q in range(found):
                size[q] += sideways[i, q] * line[q]
        for q in range(found):
            largest = max(largest, size[q])
    return math.sqrt(largest)
