"""Two replicas on one PostgreSQL: the same state, and each sees what the other has acknowledged."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
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
from tests.service.durability.load import Load, check_log
from tests.service.harness import ServerProcess, process

ASK = RoundRequest([0.1, 0.2])


def spec(name: str) -> CascadeSpec:
    return CascadeSpec(name, [Arm("rule", 0.1), Arm("model", 0.2)], context=2)


# -- two processes under load ----------------------------------------------------------------------


def wait_until_equal(*servers: ServerProcess) -> float:
    """Wait until replicas have the same state; return how long that took."""
    began = time.monotonic()
    while len({str(server.wait_until_ready()) for server in servers}) > 1:
        assert time.monotonic() - began < 60
    return time.monotonic() - began


def load_both(folder: Path, where: str, rounds: int, seed: int) -> list[float]:
    load, seconds = Load(seed), list[float]()
    (folder / "second").mkdir()
    with (
        process(folder, "--snapshot-every", "60", store=where) as first,
        process(folder / "second", store=where) as second,
    ):
        one, other = first, second
        with load.running(one.url, other.url):
            for _ in range(rounds):
                load.wait_for(200, 200, 201)
                load.use()
                seconds.append(wait_until_equal(one, other))
                load.use(one.url, other.url)
                # One is killed, and the other goes on alone.
                load.wait_for(50, 200, 201)
                one.end()
                load.use(other.url)
                load.wait_for(100, 200, 201)
                load.use(one.start(), other.url)
                load.wait_for(100, 200, 201)
                one, other = other, one
        seconds.append(wait_until_equal(one, other))
        assert one.wait_until_ready()["hash"] == check_log(where, load)
    return seconds


def test_replicas_have_the_same_state_also_after_a_kill(tmp_path: Path, postgres: str) -> None:
    load_both(tmp_path, postgres, rounds=1, seed=7)


@pytest.mark.slow
def test_replicas_have_the_same_state_within_a_second(tmp_path: Path, postgres: str) -> None:
    """A limit in seconds, for a machine with nothing else to do."""
    assert max(load_both(tmp_path, postgres, rounds=10, seed=8)) < 1.0


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


async def test_a_replica_that_follows_reads_the_log_once(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the other one commits between its reading and anything that follows."""
    recoveries: list[int] = []
    recover = service_module.recover_state

    async def counted(*arguments: Any, **more: Any) -> Any:
        state = await recover(*arguments, **more)
        recoveries.append(state.position)
        return state

    monkeypatch.setattr(service_module, "recover_state", counted)
    store = RacingStore(postgres)
    async with (
        running(postgres) as writing,
        running(postgres, store, follow_every=0.001) as following,
    ):
        await writing.create(spec("triage"), None)

        async def write() -> None:
            await writing.open_rounds("triage", ASK, None)
            assert following.ready, following.not_ready

        store.after_reading = write
        await until(lambda: writing.state.position > 50)
        store.after_reading = None
        await until(lambda: following.state.position == writing.state.position)
        assert following.state.hash() == writing.state.hash()
    assert len(recoveries) == 2


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
    asyncio.run(check_own_writes(postgres, 10))


@pytest.mark.slow
def test_each_replica_knows_it_a_thousand_times(postgres: str) -> None:
    asyncio.run(check_own_writes(postgres, 1000))
