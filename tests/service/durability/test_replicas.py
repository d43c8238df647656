"""Two replicas on one PostgreSQL: the same state, and each sees what the other has acknowledged."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stopwise.service import messages as m
from stopwise.service import service as service_module
from stopwise.service.events import Block
from stopwise.service.labelling import give_label
from stopwise.service.store.postgres import PostgresStore
from tests.service.core.services import running, until
from tests.service.durability.load import Load, check
from tests.service.harness import ServerProcess, process
from tests.service.tools.making import TRIAGE, open_round, report

X = [0.1, 0.2]

# -- two processes under load ----------------------------------------------------------------------


def wait_until_equal(*servers: ServerProcess) -> float:
    """Wait until replicas have the same state; return how long that took."""
    began = time.monotonic()
    while len({str(server.wait_until_ready()) for server in servers}) > 1:
        assert time.monotonic() - began < 120
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("rounds", "limit"), [(1, 120.0), pytest.param(10, 1.0, marks=pytest.mark.slow)]
)
def test_replicas_have_the_same_state_also_after_a_kill(
    tmp_path: Path, postgres: str, rounds: int, limit: float
) -> None:
    """The limit of a second is for a machine with nothing else to do."""
    load, folder = Load(7), tmp_path / "second"
    folder.mkdir()
    with (
        process(tmp_path, "--snapshot-every", "60", store=postgres) as first,
        process(folder, store=postgres) as second,
    ):
        one, other = first, second
        with load.running(one.url, other.url):
            for _ in range(rounds):
                load.wait_for(200, 200, 201)
                load.use()
                assert wait_until_equal(one, other) < limit
                load.use(one.url, other.url)
                # One is killed, and the other goes on alone.
                load.wait_for(50, 200, 201)
                one.end()
                load.use(other.url)
                load.wait_for(100, 200, 201)
                load.use(one.start(), other.url)
                load.wait_for(100, 200, 201)
                one, other = other, one
        assert wait_until_equal(one, other) < limit
        check(one, postgres, load)


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
        await writing.create(TRIAGE, None)

        async def write() -> None:
            await open_round(writing, X)
            assert following.ready, following.not_ready

        store.after_reading = write
        await until(lambda: writing.state.position > 50)
        store.after_reading = None
        await until(lambda: following.state.position == writing.state.position)
        assert following.state.hash() == writing.state.hash()
    assert len(recoveries) == 2


# -- what one acknowledged, the other knows --------------------------------------------------------


@pytest.mark.parametrize("times", [10, pytest.param(1000, marks=pytest.mark.slow)])
async def test_each_replica_knows_what_the_other_has_acknowledged(
    postgres: str, times: int
) -> None:
    """Two replicas in turn, of which neither looks at the log unless it must."""
    settings = {"follow_every": 60.0, "max_cascades": times}
    async with running(postgres, **settings) as first, running(postgres, **settings) as second:
        here, there = first, second
        for k in range(times):
            name = f"cascade-{k}"
            await here.create(replace(TRIAGE, name=name), None)
            assert (await there.cascade(name)).status == "active"
            one = await open_round(here, X, name)
            assert (await there.round(name, one.id)).status == "open"
            assert await report(there, one, str, name) == "learned"
            two = await open_round(there, X, name)
            assert await report(here, two, str, name) == "learned"
            assert (await give_label(there, name, two.id, m.LabelRequest("1"))).labelled == 1
            here, there = there, here
        await here.retire("cascade-0")
        await there.retire("cascade-0")
        assert here.state.hash() == there.state.hash()
