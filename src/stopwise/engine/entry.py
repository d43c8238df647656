"""The doors from Python: every kernel that a policy calls, over an `Attachment`.

`decide` and `observe` serve one round, `run` a whole series; all are the same two functions of
`stopwise.engine.rounds`.
"""

import math

import numpy as np

from stopwise.engine import logistic, rounds
from stopwise.engine.arrays import Bytes, Floats, Ints
from stopwise.engine.attach import attach
from stopwise.engine.bank import Bank
from stopwise.engine.compiled import compiled, compiled_nogil, inlined
from stopwise.engine.history import has_room
from stopwise.engine.rule import ESTIMATE, N_NOTED, UPPER
from stopwise.monomials import fill_row


@inlined
def _load(bank: Bank, features: Floats) -> None:
    """Make these features the context at hand."""
    for c in range(features.shape[0]):
        bank.row[c] = features[c]


@inlined
def _load_context(bank: Bank, x: Floats, plan: Floats) -> bool:
    """Make ``x`` the context at hand; False if `stopwise.monomials.fill_row` refuses it.

    Without a plan, ``x`` is a row of features computed elsewhere.
    """
    if plan.shape[0] > 0:
        return fill_row(x, plan, bank.row) == 0
    _load(bank, x)
    return True


@compiled
def decide(where: Ints, audits: Ints, x: Floats, plan: Floats, noise: Floats, note: Floats) -> int:
    """Decide for a context, or return −1 if it is refused.

    ``note`` (width + 3·n_pairs) gets the features, and then the numbers of the comparisons made:
    the first is NaN for one not made, and the second of the first pair in a forced round.
    """
    bank, rule = attach(where)
    if not _load_context(bank, x, plan):
        return -1
    begin_note(where, note)
    width = bank.row.shape[0]
    for c in range(width):
        note[c] = bank.row[c]
    noted = note[width:].reshape(noise.shape[0], N_NOTED)
    return rounds.decide(bank, audits, rule, noise, noted)


@compiled
def begin_note(where: Ints, note: Floats) -> None:
    """Mark every comparison as not made, and whether this round is forced."""
    bank, rule = attach(where)
    width = bank.row.shape[0]
    for place in range(width, note.shape[0], N_NOTED):
        note[place + ESTIMATE] = math.nan
    note[width + UPPER] = math.nan if rounds.forced(bank, rule) else 0.0


@compiled
def stands(
    where: Ints, audits: Ints, features: Floats, noise: Floats, note: Floats, arm: int
) -> bool:
    """Say whether to stop at an arm, of a row of features known at least that far."""
    bank, rule = attach(where)
    if rounds.forced(bank, rule):
        return False
    _load(bank, features)
    noted = note[bank.row.shape[0] :].reshape(noise.shape[0], N_NOTED)
    rounds.forget_bonuses(bank)
    return rounds.stands(bank, audits, rule, noise, noted, arm)


@compiled
def observe(where: Ints, x: Floats, plan: Floats, n: int, wanted: int, codes: int) -> int:
    """Learn from a round in which n arms spoke and the rule wanted to stop at ``wanted``.

    ``codes`` packs four bits an arm, equal where the outputs are; −1 says that the outcomes are
    in ``bank.outcomes`` already. Return 1; 0 if memory is full; −1 if the context is refused.
    Nothing has changed but in the first case.
    """
    bank, rule = attach(where)
    if not _load_context(bank, x, plan):
        return -1
    if codes >= 0:
        for i in range(n):
            for j in range(i + 1, n):
                differ = ((codes >> (4 * i)) ^ (codes >> (4 * j))) & 15
                bank.outcomes[rule.pairs[i, j]] = 1 if differ else 0
    return 1 if rounds.observe(bank, rule, n - 1, wanted, bank.outcomes) else 0


@compiled
def decide_many(where: Ints, audits: Ints, rows: Floats, noise: Floats) -> Ints:
    """Decide for every row without learning between them.

    ``noise`` has a row per decision, or a single one for all.
    """
    bank, rule = attach(where)
    stops = np.empty(rows.shape[0], dtype=np.int64)
    noted = np.empty((noise.shape[1], N_NOTED))
    for t in range(rows.shape[0]):
        _load(bank, rows[t])
        stops[t] = rounds.decide(bank, audits, rule, noise[t % noise.shape[0]], noted)
    return stops


@compiled_nogil
def run(
    where: Ints,
    audits: Ints,
    rows: Floats,
    outcomes: Bytes,
    reach: Ints,
    sent: Bytes,
    noise: Floats,
    stops: Ints,
    wanted: Ints,
) -> int:
    """Play rounds in order and return how many were played.

    Fewer than all: memory is full, or an audited round has ended and its label is to be learned.

    ``outcomes`` is (n, n_models); the loop reads of it only what the stop reveals. ``reach`` is
    the last arm whose outcomes are known: a deeper stop teaches nothing, unless the round ended
    there because an arm failed (−2 − the last arm known). ``sent`` says which rounds go to the
    last arm by chance (1), and after which to pause (2). ``stops`` and ``wanted`` receive where
    the rounds end, and where the rule itself would have ended them.
    """
    bank, rule = attach(where)
    noted = np.empty((noise.shape[1], N_NOTED))
    last = rule.gaps.shape[1] - 1
    for t in range(rows.shape[0]):
        if not has_room(bank):
            return t
        _load(bank, rows[t])
        wanted[t] = rounds.decide(bank, audits, rule, noise[t % noise.shape[0]], noted)
        stop = last if sent[t] & 1 else wanted[t]
        stops[t] = stop
        known = reach[t]
        if known < -1:  # a failed arm ends the round where the answers end
            known = -2 - known
            stop = min(stop, known)
        if 0 <= stop <= known:
            rounds.observe(bank, rule, stop, wanted[t], outcomes[t])
        if sent[t] & 2:
            return t + 1
    return rows.shape[0]


@compiled_nogil
def learn(where: Ints, rows: Floats, outcomes: Bytes, stops: Ints, wanted: Ints) -> int:
    """Learn from rounds that ended at ``stops`` (−1: teaches nothing), deciding nothing.

    Return how many were learned; fewer than all means that memory is full.
    """
    bank, rule = attach(where)
    for t in range(rows.shape[0]):
        if not has_room(bank):
            return t
        if stops[t] >= 0:
            _load(bank, rows[t])
            rounds.observe(bank, rule, stops[t], wanted[t], outcomes[t])
    return rows.shape[0]


@compiled
def solve(where: Ints, k: int, fresh_hessian: bool) -> bool:
    """Bring model k to its exact estimate, and H to it if wanted; say whether that succeeded."""
    bank, _ = attach(where)
    return logistic.solve(bank, k, fresh_hessian)
