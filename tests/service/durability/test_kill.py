"""kill -9 at random moments, under load: nothing acknowledged is lost, nothing happens twice."""

import asyncio
import random

import pytest

from tests.service.durability.checking import (
    check_promises,
    check_state,
    events_of,
    ready,
    replayed,
)
from tests.service.durability.servers import nursery
from tests.service.durability.storm import Storm


async def survive(where: str, kills: int, seed: int) -> Storm:
    rng = random.Random(seed)
    storm = Storm(seed)
    async with nursery(where, snapshot_every=60) as server:
        await server.start()
        storm.serve(server.port)
        async with storm.raging():
            for _ in range(kills):
                if rng.random() < 0.1:  # while it reads its log, perhaps
                    await asyncio.sleep(rng.uniform(0, 0.2))
                else:
                    await storm.progress(rng.randint(5, 150))
                    await asyncio.sleep(rng.uniform(0, 0.02))
                storm.serve()
                await server.kill()
                await server.start()
                storm.serve(server.port)
            await storm.progress(50)
        served = await ready(server.port)
        found = replayed(await events_of(where))
        check_promises(found, storm.book)
        assert await check_state(where, found) == served["hash"]
        # once more, now that nothing happens: it comes back as the same
        await server.kill()
        await server.start()
        assert await ready(server.port) == served
        assert await server.stop() == 0
    return storm


def told(storm: Storm) -> None:
    """Check that the storm was one."""
    book = storm.book
    learned = sum(one.status == "learned" for one in book.promised.values())
    assert learned > 20
    assert any(one.label is not None for one in book.promised.values())
    assert any(one.stop is not None for one in book.taken.values())
    assert book.answers["lost"] > 0
    print(dict(book.answers), f"{len(book.promised):,} decisions, {learned:,} learned")


def test_nothing_is_lost_when_the_server_is_killed(where: str) -> None:
    told(asyncio.run(survive(where, kills=4, seed=1)))


@pytest.mark.full
def test_nothing_is_lost_in_200_kills(where: str) -> None:
    told(asyncio.run(survive(where, kills=200, seed=2)))
