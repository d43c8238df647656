"""Two replicas on one PostgreSQL: the same state, and each sees what the other has acknowledged."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from stopwise.service import service as service_module
from stopwise.service.events import Block
from stopwise.service.messages import (
    Arm,
    CascadeSpec,
    LabelRequest,
    OutputsRequest,
    RoundAnswer,
    RoundRequest,
)
from stopwise.service.service import Service
from stopwise.service.store.postgres import PostgresStore
from tests.service.core.services import running, until
from tests.service.durability.checking import check_all, ready, state_of
from tests.service.durability.clients import Load
from tests.service.durability.servers import server

ASK = RoundRequest([0.1, 0.2])


def spec(name: str) -> CascadeSpec:
    return CascadeSpec(name, [Arm("rule", 0.1), Arm("model", 0.2)], context=2)


# -- two processes under load ----------------------------------------------------------------------


async def converged(*ports: int) -> float:
    """Wait until replicas have the same state; return how long that took."""
    began = time.monotonic()
    while True:
        states = [await state_of(port) for port in ports]
        if states[0] and all(state == states[0] for state in states):
            return time.monotonic() - began
        assert time.monotonic() - began < 30, states
        await asyncio.sleep(0.02)


async def load_both(where: str, rounds: int, seed: int) -> list[float]:
    load = Load(seed)
    seconds: list[float] = []
    async with server(where, snapshot_every=60) as first, server(where) as second:
        one, other = first, second
        await asyncio.gather(one.start(), other.start())
        await ready(one.port)
        await ready(other.port)
        load.use(one.port, other.port)
        async with load.running():
            for _ in range(rounds):
                await load.progress(200)
                async with load.paused():
                    seconds.append(await converged(one.port, other.port))
                # One is killed, and the other goes on alone.
                await load.progress(50)
                load.use(other.port)
                await one.kill()
                await load.progress(100)
                await one.start()
                load.use(one.port, other.port)
                await load.progress(100)
                one, other = other, one
        seconds.append(await converged(one.port, other.port))
        await check_all(where, load, one.port, other.port)
    print([round(each, 3) for each in seconds], dict(load.record.answers))
    return seconds


def test_replicas_have_the_same_state_also_after_a_kill(postgres: str) -> None:
    asyncio.run(load_both(postgres, rounds=2, seed=7))


@pytest.mark.full
def test_replicas_have_the_same_state_within_a_second(postgres: str) -> None:
    """A limit in seconds, for a machine with nothing else to do."""
    assert max(asyncio.run(load_both(postgres, rounds=10, seed=8))) < 1.0


# -- one reads while the other writes --------------------------------------------------------------


class RacingStore(PostgresStore):
    """A store that calls a function whenever the log was read to its end."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.after_reading: Callable[[], Awaitable[object]] | None = None

    async def read(self, after: int) -> AsyncIterator[Block]:
        async for block in super().read(after):
            yield block
        if self.after_reading is not None:
            await self.after_reading()


@pytest.mark.parametrize("forced", [False, True])
def test_a_replica_that_follows_reads_the_log_once(
    postgres: str, forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recoveries: list[int] = []
    recover = service_module.recovered

    async def counted(*arguments: Any, **more: Any) -> Any:
        state = await recover(*arguments, **more)
        recoveries.append(state.position)
        return state

    async def scenario() -> None:
        monkeypatch.setattr(service_module, "recovered", counted)
        store = RacingStore(postgres)
        async with (
            running(postgres) as writing,
            running(postgres, store, follow_every=0.001) as following,
        ):
            assert len(recoveries) == 2
            await writing.create(spec("triage"), None)

            async def write() -> None:
                await writing.open_rounds("triage", ASK, None)
                assert following.ready, following.not_ready

            if forced:  # the other commits between reading and anything that follows it
                store.after_reading = write
                await until(lambda: writing.state.position > 50)
                store.after_reading = None
            else:
                for _ in range(400):
                    await write()
            await until(lambda: following.state.position == writing.state.position)
            assert following.state.hash() == writing.state.hash()
        assert len(recoveries) == 2

    asyncio.run(scenario())


# -- what one acknowledged, the other knows --------------------------------------------------------


async def open_one(service: Service, name: str) -> RoundAnswer:
    (answer,), _ = await service.open_rounds(name, ASK, None)
    return answer


async def check_own_writes(where: str, times: int) -> None:
    """Use two replicas in turn, of which neither looks at the log unless it must."""
    async with AsyncExitStack() as stack:
        settings = {"follow_every": 60.0, "max_cascades": times}
        here, there = [
            await stack.enter_async_context(running(where, **settings)) for _ in range(2)
        ]
        outputs = OutputsRequest(["yes", "no"])
        for k in range(times):
            name = f"cascade-{k}"
            await here.create(spec(name), None)
            assert (await there.cascade(name)).status == "active"
            one = await open_one(here, name)
            assert (await there.round(name, one.id)).status == "open"
            assert (await there.report(name, one.id, outputs)).status == "learned"
            two = await open_one(there, name)
            assert (await here.report(name, two.id, outputs)).status == "learned"
            assert (await there.label(name, two.id, LabelRequest("yes"))).audited == 1
            here, there = there, here
        await here.retire("cascade-0")
        await there.retire("cascade-0")
        assert here.state.hash() == there.state.hash()


def test_each_replica_knows_what_the_other_has_acknowledged(postgres: str) -> None:
    asyncio.run(check_own_writes(postgres, 50))


@pytest.mark.full
def test_each_replica_knows_it_a_thousand_times(postgres: str) -> None:
    asyncio.run(check_own_writes(postgres, 1000))
