"""The learner's whole state as a handful of arrays: the history and one model per question.

A *model* is one logistic regression: "do arms i and j disagree?" for the unsupervised
policies, "is arm i wrong?" for the supervised one. Model k reads a slice of the feature row
(``OFFSET``, ``DIM``), shares the matrix V number ``GRAM`` with the models that see the same
features in the same rounds, and is observed when the cascade went at least to ``ARM``.

The history keeps the first ``MAX_DISTINCT`` distinct feature rows once, with counts: a stream
whose contexts repeat (categories, round-robin data) never grows beyond its distinct contexts,
nor does the price of a pass over it. Rows after these are kept one by one, with their stop
and their outcomes packed in bits: d'·8 bytes and a few more a round. A round that no model
learns from (it ended before any pair was complete) is counted and not kept.

Some rounds go to the last arm by chance, whatever the context. Where stages reveal the context,
what such a round shows of a pair stands for ``WEIGHT`` rounds if the rule itself would have
stopped between its arms: all but one of these ended too soon to be seen. It is weighted
accordingly (docs/revealed.md).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stopwise.engine import gram
from stopwise.engine.arrays import Bytes, Floats, Ints, Ints32

# columns of ``models`` (the last is the number of its V) and ``grams`` (the last is the arm at
# which its pairs stand, or NO_STAGE where the whole context is known from the start)
OFFSET, DIM, ARM, GRAM = 0, 1, 2, 3
STAGE = 3
NO_STAGE = 1 << 30

# ``counters``
ROUNDS, DISTINCT, ROWS, AUTO_DONE, PASSES, HESSIANS, ROWS_VISITED = 0, 1, 2, 3, 4, 5, 6
WEIGHT = 7  # of a round sent on by chance
N_COUNTERS = 8

# ``vectors`` of a model
THETA_H, THETA_G, GRADIENT, STEP = 0, 1, 2, 3

# ``numbers`` of a model
REACH, REACH_AGE, MEASURED_AT, SHIFT, LIGHTEST, RIDGE, ANCHORED = 0, 1, 2, 3, 4, 5, 6
N_NUMBERS = 7

N_LINES = 2  # scratch vectors behind the scratch matrix in ``work``

MAX_DISTINCT = 4096  # heuristic: small beside a long history, large beside usual category counts
TABLE_SIZE = 2 * MAX_DISTINCT  # open addressing stays below half full


class Bank(NamedTuple):
    """Arrays of one learner; kernels read and write them in place.

    With M models, G matrices V, K arms, rows of ``width`` features and d = the largest slice:
    """

    models: Ints  # (M, 4)
    grams: Ints  # (G, 4)
    gram: Floats  # (G, 2, d, d): V and V⁻¹
    gram_state: Floats  # (G, 8)
    hessian: Floats  # (M, 2, d, d): H and H⁻¹
    hessian_state: Floats  # (M, 8)
    vectors: Floats  # (M, 4, d)
    numbers: Floats  # (M, 7)
    counters: Ints  # (8 + K,): counts, then for each arm the deeper arm that last beat it
    visits: Ints32  # (distinct capacity, G + M): rounds seen by V number g, then positives of k
    table: Ints32  # (TABLE_SIZE,): hash of a feature row → its number, −1 for none
    rows: Floats  # (capacity, width)
    bits: Bytes  # (capacity beyond MAX_DISTINCT, 1 + ⌈M/8⌉): the end, packed outcomes
    row: Floats  # (width,): the features of the context at hand
    outcomes: Bytes  # (M,): what the round at hand revealed, 0 or 1 per model
    work: Floats  # (d + N_LINES, d): scratch, meaningless between calls


# What makes a learner what it is; the plan and the scratch are made anew from its parameters.
SAVED = tuple(
    name for name in Bank._fields if name not in ("models", "grams", "row", "outcomes", "work")
)
GROWING = ("visits", "rows", "bits")  # arrays whose length follows the history
END, BEYOND = 15, 4  # the end of a round: four bits its stop, four by how much chance led it on


def new_bank(
    models: Ints, grams: Ints, n_arms: int, width: int, lam: float, ridge: float, weight: int = 1
) -> Bank:
    """Return the state of a learner that has seen nothing.

    Parameters
    ----------
    models, grams
        The plan: columns OFFSET, DIM, ARM, and GRAM for models, STAGE for grams.
    n_arms, width
        Arms of the cascade; length of a feature row.
    lam
        V starts as lam·I (0 for USS-PD, λ for USS-PD-λI).
    ridge
        H starts as ridge·I.
    weight
        For how many rounds one stands that chance sent on to the last arm.
    """
    n_models, n_grams = len(models), len(grams)
    d = int(max(models[:, DIM].max(), grams[:, DIM].max()))
    eye = np.eye(d)
    gram_matrices = np.zeros((n_grams, 2, d, d))
    gram_matrices[:, gram.MATRIX] = lam * eye
    hessians = np.zeros((n_models, 2, d, d))
    hessians[:, gram.MATRIX] = ridge * eye
    numbers = np.zeros((n_models, N_NUMBERS))
    numbers[:, RIDGE] = ridge
    counters = np.concatenate([np.zeros(N_COUNTERS), 1 + np.arange(n_arms)]).astype(np.int64)
    counters[WEIGHT] = weight
    return Bank(
        models=np.ascontiguousarray(models, dtype=np.int64),
        grams=np.ascontiguousarray(grams, dtype=np.int64),
        gram=gram_matrices,
        gram_state=np.zeros((n_grams, gram.N_STATE)),
        hessian=hessians,
        hessian_state=np.zeros((n_models, gram.N_STATE)),
        vectors=np.zeros((n_models, 4, d)),
        numbers=numbers,
        counters=counters,
        visits=np.zeros((0, n_grams + n_models), dtype=np.int32),
        table=np.full(TABLE_SIZE, -1, dtype=np.int32),
        rows=np.zeros((0, width)),
        bits=np.zeros((0, 1 + (n_models + 7) // 8), dtype=np.uint8),
        row=np.zeros(width),
        outcomes=np.zeros(n_models, dtype=np.uint8),
        work=np.zeros((d + N_LINES, d)),
    )


def with_room(bank: Bank, extra: int) -> Bank:
    """Return the bank with capacity for ``extra`` more rounds.

    Arrays grow by a sixteenth, not by doubling, and in place (`ndarray.resize` is a ``realloc``,
    which moves pages instead of copying them where the system can), so that memory stays near
    what the history needs even while it grows.
    """
    needed = int(bank.counters[ROWS]) + extra
    if needed > len(bank.rows):
        capacity = max(64, needed, len(bank.rows) + len(bank.rows) // 16)
        # ``rows`` last: kernels take its length for the room there is, should memory run out here
        _resize(bank.visits, min(capacity, MAX_DISTINCT))
        _resize(bank.bits, max(0, capacity - MAX_DISTINCT))
        _resize(bank.rows, capacity)
    return bank


def saved(bank: Bank) -> dict[str, NDArray[Any]]:
    """Return copies of the arrays of `SAVED`, of the growing ones as much as is in use."""
    rows = int(bank.counters[ROWS])
    used = {"visits": min(rows, MAX_DISTINCT), "rows": rows, "bits": max(0, rows - MAX_DISTINCT)}
    arrays = {name: np.array(getattr(bank, name)[: used.get(name)]) for name in SAVED}
    arrays["gram_state"][:, gram.NORM :] = 0.0  # notes of the last decision, not knowledge
    return arrays


def restore(bank: Bank, saved: Mapping[str, NDArray[Any]]) -> None:
    """Take up the arrays of `SAVED`, in place; ValueError, and nothing changed, if they misfit."""
    for name in SAVED:
        own, given = getattr(bank, name), saved[name]
        fixed = 1 if name in GROWING else 0
        if given.dtype != own.dtype or given.shape[fixed:] != own.shape[fixed:]:
            raise ValueError(f"{name} is {given.dtype}{given.shape}, expected {own.shape}")
    for name in SAVED:
        if saved[name].dtype.kind == "f" and not np.isfinite(saved[name]).all():
            raise ValueError(f"{name} is not finite")
    counters, table = saved["counters"], saved["table"]
    rounds, distinct, rows = (int(counters[i]) for i in (ROUNDS, DISTINCT, ROWS))
    n_arms = len(counters) - N_COUNTERS
    lengths = (distinct, rows, max(0, rows - MAX_DISTINCT))
    if not 0 <= rows <= rounds or distinct != min(rows, MAX_DISTINCT):
        raise ValueError("its counters contradict each other")
    if tuple(len(saved[name]) for name in GROWING) != lengths:
        raise ValueError("its history is incomplete")
    if np.count_nonzero(table >= 0) != distinct or table.max(initial=-1) >= distinct:
        raise ValueError("its index of contexts contradicts its history")
    end = saved["bits"][:, 0]
    if saved["visits"].min(initial=0) < 0 or (end & END).max(initial=0) >= n_arms:
        raise ValueError("its history is impossible")
    if counters[WEIGHT] != bank.counters[WEIGHT] or (end >> BEYOND > end & END).any():
        raise ValueError("its weights are impossible")
    beaten_by = counters[N_COUNTERS:-1]
    if (beaten_by <= np.arange(n_arms - 1)).any() or (beaten_by >= n_arms).any():
        raise ValueError("its order of arms is impossible")
    for name in SAVED:
        own, given = getattr(bank, name), saved[name]
        if name in GROWING:
            _resize(own, len(given))
        own[...] = given


def copied(bank: Bank) -> Bank:
    """Return a bank with memory of its own, which can grow."""
    return Bank._make(np.array(array) for array in bank)


def nbytes(bank: Bank) -> int:
    """Return the bytes that the state occupies."""
    return sum(a.nbytes for a in bank)


def _resize(array: Floats | Ints32 | Bytes, length: int) -> None:
    # refcheck=False: only kernels hold these arrays, and a policy serves one thread at a time.
    array.resize((length, array.shape[1]), refcheck=False)
