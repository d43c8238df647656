"""kill -9 at random moments, under load: nothing acknowledged is lost, nothing counts twice."""

import asyncio
import random

import pytest

from tests.service.durability.checking import check_all, ready
from tests.service.durability.clients import Load
from tests.service.durability.servers import server


async def kill_often(where: str, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    load = Load(seed)
    async with server(where, snapshot_every=60) as one:
        await one.start()
        load.use(one.port)
        async with load.running():
            for _ in range(kills):
                if rng.random() < 0.1:  # while it reads its log, perhaps
                    await asyncio.sleep(rng.uniform(0, 0.2))
                else:
                    await load.progress(rng.randint(5, 150))
                    await asyncio.sleep(rng.uniform(0, 0.02))
                load.use()
                await one.kill()
                await one.start()
                load.use(one.port)
            await load.progress(50)
        state = await check_all(where, load, one.port)
        # Once more, now that nothing changes: it has the same state.
        await one.kill()
        await one.start()
        assert await ready(one.port) == state
        assert await one.stop() == 0
    rounds = load.record.rounds.values()
    learned = sum(one.status == "learned" for one in rounds)
    print(dict(load.record.answers), f"{len(rounds):,} rounds, {learned:,} learned")
    assert learned > 20  # the load was one
    assert {one.cascade for one in rounds if one.status == "learned"} == {
        "triage",
        "chance",
        "stages",
    }
    assert any(one.label is not None for one in rounds)
    assert load.record.answers["lost"] > 0


def test_nothing_is_lost_when_the_server_is_killed(where: str) -> None:
    asyncio.run(kill_often(where, kills=4, seed=1))


@pytest.mark.full
def test_nothing_is_lost_in_200_kills(where: str) -> None:
    asyncio.run(kill_often(where, kills=200, seed=2))
