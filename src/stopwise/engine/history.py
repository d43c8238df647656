"""What was seen: append a round, and find a feature row that was seen before."""

import numpy as np

from stopwise.engine.arrays import Bytes, Floats
from stopwise.engine.bank import ARM, DISTINCT, MAX_DISTINCT, ROUNDS, ROWS, TABLE_SIZE, Bank
from stopwise.engine.compiled import compiled, inlined


@compiled
def _hash(row: Floats) -> np.int64:
    """Return a slot of the table for the bits of a feature row (a multiply–xorshift mix)."""
    h = np.uint64(0x9E3779B97F4A7C15)
    words = row.view(np.uint64)
    for k in range(words.shape[0]):
        h = (h ^ words[k]) * np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(32)
    return np.int64(h % np.uint64(TABLE_SIZE))


@compiled
def _same(rows: Floats, place: int, row: Floats) -> bool:
    for k in range(row.shape[0]):
        if rows[place, k] != row[k]:
            return False
    return True


@inlined
def has_room(bank: Bank) -> bool:
    """Say whether one more round surely fits."""
    return bank.counters[ROWS] < bank.rows.shape[0]


@compiled
def remember(bank: Bank, stop: int, outcomes: Bytes) -> None:
    """Append one round: the features in ``bank.row``, the stop, the outcomes it revealed.

    ``outcomes`` has a 0 or 1 for every model; those of arms beyond the stop are not read.
    """
    row = bank.row
    n_models = bank.models.shape[0]
    n_arms = bank.visits.shape[1] - n_models
    slot = _hash(row)
    while bank.table[slot] >= 0 and not _same(bank.rows, bank.table[slot], row):
        slot = (slot + 1) % TABLE_SIZE
    place = np.int64(bank.table[slot])
    known = place >= 0
    if not known:
        place = bank.counters[ROWS]
        bank.counters[ROWS] += 1
        for c in range(row.shape[0]):
            bank.rows[place, c] = row[c]
    if not known and place < MAX_DISTINCT:
        bank.table[slot] = place
        bank.counters[DISTINCT] += 1
        for c in range(n_arms + n_models):
            bank.visits[place, c] = 0
    if place < MAX_DISTINCT:
        for arm in range(stop + 1):
            bank.visits[place, arm] += 1
    else:
        for c in range(bank.bits.shape[1]):
            bank.bits[place - MAX_DISTINCT, c] = 0
        bank.bits[place - MAX_DISTINCT, 0] = stop
    for k in range(n_models):
        if bank.models[k, ARM] <= stop and outcomes[k] != 0:
            if place < MAX_DISTINCT:
                bank.visits[place, n_arms + k] += 1
            else:
                bank.bits[place - MAX_DISTINCT, 1 + (k >> 3)] |= np.uint8(1 << (k & 7))
    bank.counters[ROUNDS] += 1
