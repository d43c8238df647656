"""Two replicas on one PostgreSQL: the same state, whatever happens to either."""

import asyncio
import time

import pytest

from tests.service.durability.checking import (
    check_promises,
    check_state,
    events_of,
    ready,
    replayed,
    state_of,
)
from tests.service.durability.servers import nursery
from tests.service.durability.storm import Storm


async def converged(*ports: int) -> tuple[float, str]:
    """Wait until replicas agree; return how long that took and the hash."""
    began = time.monotonic()
    while True:
        states = [await state_of(port) for port in ports]
        if states[0] and all(state == states[0] for state in states):
            return time.monotonic() - began, states[0]["hash"]
        assert time.monotonic() - began < 30, states
        await asyncio.sleep(0.02)


async def together(where: str, rounds: int, seed: int) -> list[float]:
    storm = Storm(seed)
    took: list[float] = []
    async with nursery(where, snapshot_every=60) as first, nursery(where) as second:
        one, other = first, second
        await asyncio.gather(one.start(), other.start())
        await ready(one.port)
        await ready(other.port)
        storm.serve(one.port, other.port)
        async with storm.raging():
            for _ in range(rounds):
                await storm.progress(200)
                async with storm.calm():
                    took.append((await converged(one.port, other.port))[0])
                # one is killed, and the other goes on alone
                await storm.progress(50)
                storm.serve(other.port)
                await one.kill()
                await storm.progress(100)
                await one.start()
                storm.serve(one.port, other.port)
                await storm.progress(100)
                one, other = other, one
        seconds, served = await converged(one.port, other.port)
        took.append(seconds)
        found = replayed(await events_of(where))
        check_promises(found, storm.book)
        assert await check_state(where, found) == served
    print([round(seconds, 3) for seconds in took], dict(storm.book.answers))
    return took


def test_two_replicas_agree_and_one_that_was_killed_catches_up(postgres: str) -> None:
    asyncio.run(together(postgres, rounds=2, seed=7))


@pytest.mark.full
def test_two_replicas_agree_within_a_second(postgres: str) -> None:
    """A limit in seconds, which is what was promised; on a machine with nothing else to do."""
    assert max(asyncio.run(together(postgres, rounds=10, seed=8))) < 1.0
