"""What is kept of the rounds: a plain dictionary and list say what it should be."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stopwise.engine import bank as banks
from stopwise.engine.history import has_room, remember


def empty_bank(n_arms: int, width: int) -> banks.Bank:
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    models = np.array([[0, width, j, j - 1] for _, j in pairs])
    grams = np.array([[0, width, j] for j in range(1, n_arms)])
    return banks.new_bank(models, grams, n_arms, width, 0.0, 1e-3)


def put(bank: banks.Bank, row: NDArray[np.float64], stop: int, outcomes: list[int]) -> None:
    """Remember a round, making room for it first."""
    if not has_room(bank):
        banks.with_room(bank, 1)
    bank.row[...] = row
    remember(bank, stop, np.array(outcomes, dtype=np.uint8))


class Plain:
    """The same history in Python's own containers."""

    def __init__(self, n_arms: int) -> None:
        self.arms = [j for i in range(n_arms) for j in range(i + 1, n_arms)]
        self.n_arms = n_arms
        self.counted: dict[tuple[float, ...], list[int]] = {}
        self.single: list[tuple[tuple[float, ...], int, list[int]]] = []

    def remember(self, row: tuple[float, ...], stop: int, outcomes: list[int]) -> None:
        told = [int(o and arm <= stop) for o, arm in zip(outcomes, self.arms, strict=True)]
        if row not in self.counted and len(self.counted) == banks.MAX_DISTINCT:
            self.single.append((row, stop, told))
            return
        counts = self.counted.setdefault(row, [0] * (self.n_arms + len(self.arms)))
        for arm in range(stop + 1):
            counts[arm] += 1
        for k, o in enumerate(told):
            counts[self.n_arms + k] += o


@pytest.mark.parametrize(
    ("n_arms", "rounds", "levels"),
    [(2, 3000, 4), (3, 5500, 10_000), (5, 9000, 18), (6, 4500, 10_000), (7, 4300, 10_000)],
)
def test_history_is_what_a_dictionary_and_a_list_hold(
    n_arms: int, rounds: int, levels: int
) -> None:
    rng = np.random.default_rng(n_arms)
    bank, plain = empty_bank(n_arms, 3), Plain(n_arms)
    n_models = len(bank.models)
    for _ in range(rounds):
        row = rng.integers(0, levels, 3) / levels - 0.5
        stop = int(rng.integers(0, n_arms))
        outcomes = rng.integers(0, 2, n_models).tolist()
        put(bank, row, stop, outcomes)
        plain.remember(tuple(row.tolist()), stop, outcomes)

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
    for s, (row, stop, told) in enumerate(plain.single):
        assert tuple(bank.rows[banks.MAX_DISTINCT + s].tolist()) == row
        packed = bank.bits[s]
        assert packed[0] == stop
        unpacked = np.unpackbits(packed[1:], bitorder="little")[:n_models]
        assert unpacked.tolist() == told


def test_growing_keeps_what_was_there_and_says_when_it_is_full() -> None:
    bank = empty_bank(3, 2)
    assert not has_room(bank)
    rng = np.random.default_rng(0)
    rows = rng.random((5000, 2))
    for t, row in enumerate(rows):
        put(bank, row, t % 3, [1, 1, 1])
    np.testing.assert_array_equal(bank.rows[:5000], rows)
    assert bank.bits[: 5000 - 4096, 0].tolist() == [t % 3 for t in range(4096, 5000)]


def test_a_repeated_context_takes_no_room() -> None:
    bank = empty_bank(2, 2)
    put(bank, np.array([0.5, -0.25]), 1, [1])
    before = banks.nbytes(bank)
    for _ in range(9_999):
        put(bank, np.array([0.5, -0.25]), 1, [1])
    assert banks.nbytes(bank) == before
    assert bank.visits[0].tolist() == [10_000, 10_000, 10_000]
