"""Counts over time: idle cascades, clock jumps, and snapshots with wrong counts."""

import random
from pathlib import Path

import pytest

from stopwise.service import writer as writer_module
from stopwise.service.domain import messages as m
from stopwise.service.domain.counts import FIRST_WIDTH, MAX_BUCKETS, Counts
from stopwise.service.persistence.snapshots import (
    FORMAT,
    MAGIC,
    restore_snapshot,
    state_hash,
    take_snapshot,
)
from stopwise.service.persistence.stores.base import Snapshot
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.service import Service
from tests.service.core.services import folded, running

SPEC = m.CascadeSpec("triage", [m.Arm("rule", 0.1), m.Arm("model", 0.2)], context=2)
ASK = m.RoundRequest([0.1, 0.2])
BEGAN = 1_800_000_000.0
MINUTE, HOUR, DAY, YEAR = 60.0, 3_600.0, 86_400.0, 365 * 86_400.0
PAUSES = [39 * MINUTE, 40 * MINUTE, 41 * MINUTE, 3 * HOUR, 2 * DAY, YEAR, 1_000 * YEAR]


def sums(counts: Counts) -> list[int]:
    """Return the rounds by arm, over all buckets."""
    return [sum(bucket[arm] for bucket in counts.stops) for arm in range(2)]


def check(counts: Counts, rounds: list[int]) -> None:
    assert counts.stops_total == rounds
    assert sums(counts) == rounds
    assert len(counts.stops) <= MAX_BUCKETS


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("before", [1, 7, MAX_BUCKETS])
def test_rounds_after_a_pause_are_counted(pause: float, before: int) -> None:
    counts = Counts.blank(n_arms=2)
    for k in range(before):
        counts.add_stops(BEGAN + k * FIRST_WIDTH, [0])
    check(counts, [before, 0])
    last = BEGAN + (before - 1) * FIRST_WIDTH + pause
    counts.add_stops(last, [1, 1])
    check(counts, [before, 2])
    # They are counted at the time when they were opened.
    assert counts.stops[counts._index(last)][1] == 2


def test_rounds_are_counted_when_the_clock_jumps() -> None:
    rng = random.Random(3)
    for _ in range(200):
        counts, time, rounds = Counts.blank(n_arms=2), BEGAN, [0, 0]
        for _ in range(rng.randrange(1, 40)):
            jump = rng.choice([0.0, 5.0, *PAUSES[:-1]])
            time = max(1.0, time + rng.choice([-1, 1, 1]) * jump)
            arm = rng.randrange(2)
            counts.add_stops(time, [arm])
            rounds[arm] += 1
            check(counts, rounds)
            assert counts.stops[counts._index(time)][arm] > 0


def test_rounds_before_the_first_bucket_count_in_it() -> None:
    counts = Counts.blank(n_arms=2)
    counts.add_stops(BEGAN, [0])
    counts.add_stops(BEGAN + 15, [0])
    for back in PAUSES[:-1]:
        counts.add_stops(BEGAN - back, [1])
    assert counts.stops == [[1, len(PAUSES) - 1], [1, 0]]
    assert (counts.start, counts.width) == (BEGAN, FIRST_WIDTH)


class Clock:
    """The wall clock of the writer, set by the test; the monotonic clock is real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGAN
        real = writer_module.time

        class Time:
            monotonic = staticmethod(real.monotonic)
            perf_counter = staticmethod(real.perf_counter)
            time = staticmethod(lambda: self.now)

        monkeypatch.setattr(writer_module, "time", Time)


async def play(service: Service) -> None:
    [answer], _ = await service.open_rounds("triage", ASK, None)
    assert answer.stop is not None
    outputs: list[object] = ["yes"] * (answer.stop + 1)
    await service.report("triage", answer.id, m.OutputsRequest(outputs))


@pytest.mark.parametrize("jump", [*PAUSES[:-1], -40 * MINUTE, -2 * DAY])
async def test_cascade_answers_after_a_clock_jump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    clock, path = Clock(monkeypatch), tmp_path / "log.db"
    async with running(path) as service:
        await service.create(SPEC, None)
        await play(service)
        clock.now += jump
        await play(service)
        assert service.state.cascades["triage"].counts.stops_total[1] == 2
    async with running(path) as service:  # from the snapshot
        clock.now += jump
        await play(service)
        counts = service.state.cascades["triage"].counts
        assert sum(sums(counts)) == sum(counts.stops_total) == 3
        expected = state_hash(service.state)
    assert state_hash(await folded(path)) == expected


async def test_counts_of_an_old_snapshot_are_rebuilt_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In format 8, written by version 0.1, rounds after a pause may be missing."""
    clock, path = Clock(monkeypatch), tmp_path / "log.db"
    async with running(path) as service:
        await service.create(SPEC, None)
        for _ in range(3):
            await play(service)
            clock.now += HOUR
    right = state_hash(service.state)
    wrong = await folded(path)
    wrong.cascades["triage"].counts.stops[0][1] -= 1
    snapshot = take_snapshot(wrong)
    head = MAGIC + (8).to_bytes(4, "little") + snapshot.parts[0][len(MAGIC) + 4 :]
    old = Snapshot(snapshot.position, snapshot.digest, (head, *snapshot.parts[1:]))
    assert FORMAT > 8
    assert restore_snapshot(old) is None
    store = open_store(str(path))
    await store.open()
    await store.save_snapshot(old, keep=1)
    assert await store.snapshots() == [old.position]
    await store.close()
    async with running(path) as service:
        assert state_hash(service.state) == right
        counts = service.state.cascades["triage"].counts
        assert sums(counts) == counts.stops_total


def test_early_rounds_stay_in_their_bucket_when_buckets_merge() -> None:
    counts = Counts.blank(n_arms=2)
    counts.add_stops(BEGAN, [0], early=True)
    counts.add_stops(BEGAN, [1])
    for k in range(3 * MAX_BUCKETS):
        counts.add_stops(BEGAN + k * FIRST_WIDTH, [0], early=k % 2 == 0)
    assert counts.early_total == [1 + 3 * MAX_BUCKETS // 2, 0]
    assert [sum(bucket[arm] for bucket in counts.early) for arm in range(2)] == counts.early_total
    assert len(counts.early) == len(counts.stops)
    for early, stops in zip(counts.early, counts.stops, strict=True):
        assert all(a <= b for a, b in zip(early, stops, strict=True))


def test_rounds_of_the_day_reset_at_midnight() -> None:
    counts, midnight = Counts.blank(n_arms=2), BEGAN - BEGAN % DAY + DAY
    counts.add_opened(midnight - 1, 5)
    assert counts.opened_on(midnight - DAY) == 5
    assert counts.opened_on(midnight) == 0
    counts.add_opened(midnight, 2)
    counts.add_opened(midnight - 1, 1)  # the clock was set back: it counts for the newest day
    assert counts.opened_on(midnight) == 3


def test_rounds_of_the_day_recover_after_a_clock_was_far_ahead() -> None:
    counts, today = Counts.blank(n_arms=2), BEGAN - BEGAN % DAY
    counts.add_opened(today + 5, 4)
    counts.add_opened(today + 10 * DAY, 3)
    assert counts.opened_on(today) == 3  # not 0, so that no budget is spent twice
    counts.add_opened(today + 7, 2)
    assert counts.opened_on(today) == 2
    assert counts.opened_on(today + DAY) == 0
    counts.add_opened(today + DAY, 1)
    assert counts.opened_on(today + DAY) == 1
