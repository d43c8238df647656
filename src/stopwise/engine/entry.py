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
def decide(where: Ints, x: Floats, plan: Floats, noise: Floats, note: Floats) -> int:
    """Decide for a context, or return −1 if it is refused.

    ``note`` (width + 2·n_pairs) gets the features, and then the numbers of the comparisons made:
    the first is NaN for one not made, and the second of the first pair in a forced round.
    """
    bank, rule = attach(where)
    if not _load_context(bank, x, plan):
        return -1
    width = bank.row.shape[0]
    for c in range(width):
        note[c] = bank.row[c]
    noted = note[width:].reshape(noise.shape[0], 2)
    for k in range(noted.shape[0]):
        noted[k, 0] = math.nan
    noted[0, 1] = math.nan if rounds.forced(bank, rule) else 0.0
    return rounds.decide(bank, rule, noise, noted)


@compiled
def observe(where: Ints, x: Floats, plan: Floats, n: int, codes: int) -> int:
    """Learn from a round in which n arms spoke.

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
    return 1 if rounds.observe(bank, rule, n - 1, bank.outcomes) else 0


@compiled
def decide_many(where: Ints, rows: Floats, noise: Floats) -> Ints:
    """Decide for every row without learning between them.

    ``noise`` has a row per decision, or a single one for all.
    """
    bank, rule = attach(where)
    stops = np.empty(rows.shape[0], dtype=np.int64)
    noted = np.empty((noise.shape[1], 2))
    for t in range(rows.shape[0]):
        _load(bank, rows[t])
        stops[t] = rounds.decide(bank, rule, noise[t % noise.shape[0]], noted)
    return stops


@compiled_nogil
def run(where: Ints, rows: Floats, outcomes: Bytes, noise: Floats, stops: Ints) -> int:
    """Play rounds in order and return how many were played; fewer means that memory is full.

    ``outcomes`` is (n, n_models); the loop reads of it only what the stop reveals.
    """
    bank, rule = attach(where)
    noted = np.empty((noise.shape[1], 2))
    for t in range(rows.shape[0]):
        if not has_room(bank):
            return t
        _load(bank, rows[t])
        stops[t] = rounds.decide(bank, rule, noise[t % noise.shape[0]], noted)
        rounds.observe(bank, rule, stops[t], outcomes[t])
    return rows.shape[0]


@compiled
def solve(where: Ints, k: int, fresh_hessian: bool) -> bool:
    """Bring model k to its exact estimate, and H to it if wanted; say whether that succeeded."""
    bank, _ = attach(where)
    return logistic.solve(bank, k, fresh_hessian)
