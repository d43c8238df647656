"""What was seen: append a round, and find a feature row that was seen before."""

import numpy as np

from stopwise.engine.arrays import Bytes, Floats
from stopwise.engine.bank import (
    ARM,
    BEYOND,
    DIM,
    DISTINCT,
    GRAM,
    MAX_DISTINCT,
    OFFSET,
    ROUNDS,
    ROWS,
    STAGE,
    TABLE_SIZE,
    WEIGHT,
    Bank,
)
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


@inlined
def weight_of(bank: Bank, g: int, wanted: int) -> int:
    """Return for how many rounds one stands, as evidence for the models of V number g.

    What a pair's model does not see can decide whether the pair is seen only where the rule
    stops between its arms: such a round was seen by chance, once in ``WEIGHT`` times
    (Horvitz and Thompson's weights).
    """
    between = bank.grams[g, STAGE] < wanted < bank.grams[g, ARM]
    return bank.counters[WEIGHT] if between else 1


@inlined
def _forget_unseen(bank: Bank, stop: int) -> None:
    """Blank the features that no model reads in a round that ended here.

    They may describe what a later stage would have revealed. A recorded round has them and a
    live one does not, and both must leave the same history.
    """
    for g in range(bank.grams.shape[0]):
        offset = bank.grams[g, OFFSET]
        # the first of those with the same features belongs to the earliest arm
        if bank.grams[g, ARM] > stop and (g == 0 or bank.grams[g - 1, OFFSET] != offset):
            for c in range(offset, offset + bank.grams[g, DIM]):
                bank.row[c] = 0.0


@compiled
def remember(bank: Bank, stop: int, wanted: int, outcomes: Bytes) -> None:
    """Append one round: the features in ``bank.row``, where it ended, the outcomes it revealed.

    ``wanted`` is where the rule itself would have stopped. ``outcomes`` has a 0 or 1 for every
    model; those of arms beyond the stop are not read.
    """
    bank.counters[ROUNDS] += 1
    if stop < bank.grams[0, ARM]:
        return  # too soon for any model to learn from
    _forget_unseen(bank, stop)
    row = bank.row
    n_models = bank.models.shape[0]
    n_grams = bank.grams.shape[0]
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
        for c in range(n_grams + n_models):
            bank.visits[place, c] = 0
    if place < MAX_DISTINCT:
        for g in range(n_grams):
            if bank.grams[g, ARM] <= stop:
                bank.visits[place, g] += weight_of(bank, g, wanted)
    else:
        for c in range(bank.bits.shape[1]):
            bank.bits[place - MAX_DISTINCT, c] = 0
        bank.bits[place - MAX_DISTINCT, 0] = stop | (stop - min(wanted, stop)) << BEYOND
    for k in range(n_models):
        if bank.models[k, ARM] <= stop and outcomes[k] != 0:
            if place < MAX_DISTINCT:
                bank.visits[place, n_grams + k] += weight_of(bank, bank.models[k, GRAM], wanted)
            else:
                bank.bits[place - MAX_DISTINCT, 1 + (k >> 3)] |= np.uint8(1 << (k & 7))
