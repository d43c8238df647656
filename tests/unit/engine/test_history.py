"""What is kept of the rounds: a plain dictionary and list say what it should be."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine import bank as banks
from stopwise.engine.history import has_room, remember


def empty_bank(n_arms: int, width: int, weight: int = 1) -> banks.Bank:
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    models = np.array([[0, width, j, k] for k, (_, j) in enumerate(pairs)])
    grams = np.array([[0, width, j, i] for i, j in pairs])  # every pair by itself, as stages see it
    return banks.new_bank(models, grams, n_arms, width, 0.0, 1e-3, weight)


def put(
    bank: banks.Bank,
    row: NDArray[np.float64],
    stop: int,
    outcomes: list[int],
    wanted: int | None = None,
) -> None:
    """Remember a round, making room for it first."""
    if not has_room(bank):
        banks.with_room(bank, 1)
    bank.row[...] = row
    remember(bank, stop, stop if wanted is None else wanted, np.array(outcomes, dtype=np.uint8))


class Plain:
    """The same history in Python's own containers."""

    def __init__(self, n_arms: int, weight: int) -> None:
        self.weight = weight
        self.pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
        self.counted: dict[tuple[float, ...], list[int]] = {}
        self.single: list[tuple[tuple[float, ...], int, int, list[int]]] = []

    def remember(self, row: tuple[float, ...], stop: int, wanted: int, outcomes: list[int]) -> None:
        if stop == 0:  # no pair was complete: it teaches nothing
            return
        times = [self.weight if i < wanted < j else 1 for i, j in self.pairs]
        told = [int(o and j <= stop) for o, (_, j) in zip(outcomes, self.pairs, strict=True)]
        if row not in self.counted and len(self.counted) == banks.MAX_DISTINCT:
            self.single.append((row, stop, wanted, told))
            return
        counts = self.counted.setdefault(row, [0] * (2 * len(self.pairs)))
        for k, (_, j) in enumerate(self.pairs):
            counts[k] += times[k] * (j <= stop)
            counts[len(self.pairs) + k] += told[k] * times[k]


@pytest.mark.parametrize(
    ("n_arms", "rounds", "levels"),
    [(2, 3000, 4), (3, 9500, 10_000), (5, 9000, 18), (6, 6500, 10_000), (7, 6300, 10_000)],
)
def test_history_is_what_a_dictionary_and_a_list_hold(
    n_arms: int, rounds: int, levels: int
) -> None:
    rng = np.random.default_rng(n_arms)
    bank, plain = empty_bank(n_arms, 3, weight=7), Plain(n_arms, weight=7)
    n_models = len(bank.models)
    for _ in range(rounds):
        row = rng.integers(0, levels, 3) / levels - 0.5
        stop = int(rng.integers(0, n_arms))
        outcomes = rng.integers(0, 2, n_models).tolist()
        wanted = int(rng.integers(0, stop + 1))
        put(bank, row, stop, outcomes, wanted)
        plain.remember(tuple(row.tolist()), stop, wanted, outcomes)

    distinct, rows = int(bank.counters[banks.DISTINCT]), int(bank.counters[banks.ROWS])
    assert int(bank.counters[banks.ROUNDS]) == rounds
    assert distinct == len(plain.counted)
    assert rows == distinct + len(plain.single)
    kept = dict(
        zip(map(tuple, bank.rows[:distinct].tolist()), bank.visits[:distinct].tolist(), strict=True)
    )
    assert kept == plain.counted
    n_single = rows - banks.MAX_DISTINCT
    if levels == 10_000:
        assert n_single > 100
    for s, (row, stop, wanted, told) in enumerate(plain.single):
        assert tuple(bank.rows[banks.MAX_DISTINCT + s].tolist()) == row
        packed = bank.bits[s]
        assert packed[0] == stop + 16 * (stop - wanted)
        unpacked = np.unpackbits(packed[1:], bitorder="little")[:n_models]
        assert unpacked.tolist() == told


def test_growing_keeps_what_was_there_and_says_when_it_is_full() -> None:
    bank = empty_bank(3, 2)
    assert not has_room(bank)
    rng = np.random.default_rng(0)
    rows = rng.random((5000, 2))
    for t, row in enumerate(rows):
        put(bank, row, 1 + t % 2, [1, 1, 1])
    np.testing.assert_array_equal(bank.rows[:5000], rows)
    assert bank.bits[: 5000 - 4096, 0].tolist() == [1 + t % 2 for t in range(4096, 5000)]


def test_a_round_that_ends_before_any_pair_is_complete_is_counted_and_not_kept() -> None:
    bank = empty_bank(3, 2)
    for _ in range(10):
        put(bank, np.array([0.5, 0.5]), 0, [1, 1, 1])
    assert bank.counters[banks.ROUNDS] == 10
    assert bank.counters[banks.ROWS] == 0


def test_a_repeated_context_takes_no_room() -> None:
    bank = empty_bank(2, 2)
    put(bank, np.array([0.5, -0.25]), 1, [1])
    before = banks.nbytes(bank)
    for _ in range(9_999):
        put(bank, np.array([0.5, -0.25]), 1, [1])
    assert banks.nbytes(bank) == before
    assert bank.visits[0].tolist() == [10_000, 10_000]
