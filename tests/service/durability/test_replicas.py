"""Two replicas on one PostgreSQL have the same state and see each other's acknowledged data."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stopwise.service import service as service_module
from stopwise.service.domain import messages as m
from stopwise.service.labels import report_label
from stopwise.service.persistence.blocks import Block
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.persistence.stores.postgres import PostgresStore
from stopwise.service.service import Service
from tests.service.core.services import bits_of, folded, running, until
from tests.service.durability.load import Load, check
from tests.service.harness import ServerProcess, process
from tests.service.tools.sample_logs import TRIAGE, open_round, output_of, report

X = [0.1, 0.2]

# -- two processes under load ----------------------------------------------------------------------


def wait_until_equal(*servers: ServerProcess) -> float:
    """Wait until replicas have the same state; return the seconds that took."""
    began = time.monotonic()
    while len({str(server.wait_until_ready()) for server in servers}) > 1:
        assert time.monotonic() - began < 120
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("rounds", "limit"), [(1, 120.0), pytest.param(10, 1.0, marks=pytest.mark.slow)]
)
def test_replicas_have_the_same_state_after_a_kill(
    tmp_path: Path, postgres: str, rounds: int, limit: float
) -> None:
    """The limit of one second is for an idle machine."""
    load, folder = Load(7), tmp_path / "second"
    folder.mkdir()
    with (
        process(tmp_path, "--snapshot-every", "60", store=postgres) as first,
        process(folder, store=postgres) as second,
    ):
        killed, other = first, second
        with load.running(killed.url, other.url):
            for _ in range(rounds):
                load.wait_for(80, 200, 201)
                load.use()
                assert wait_until_equal(killed, other) < limit
                load.use(killed.url, other.url)
                load.wait_for(30, 200, 201)
                killed.end()  # the other replica continues alone
                load.use(other.url)
                load.wait_for(40, 200, 201)
                load.use(killed.start(), other.url)
                load.wait_for(40, 200, 201)
                killed, other = other, killed
        assert wait_until_equal(killed, other) < limit
        check(killed, postgres, load)


# -- following the log of another replica ----------------------------------------------------------


class RacingStore(PostgresStore):
    """A store that calls a function after each read of the log to its end."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.after_reading: Callable[[], Awaitable[object]] | None = None

    async def pages(self, after: int) -> AsyncIterator[list[Block]]:
        async for blocks in super().pages(after):
            yield blocks
        if self.after_reading is not None:
            await self.after_reading()


async def test_following_replica_reads_the_log_once(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other replica commits between a read of the log and the next step."""
    recoveries: list[int] = []
    recover = service_module.recover_state

    async def counted(*arguments: Any, **options: Any) -> Any:
        state = await recover(*arguments, **options)
        recoveries.append(state.position)
        return state

    monkeypatch.setattr(service_module, "recover_state", counted)
    store = RacingStore(postgres)
    async with (
        running(postgres) as writing,
        running(postgres, store, follow_every=0.001) as following,
    ):
        await writing.create(TRIAGE, None)
        await following.cascade("triage")

        async def write() -> None:
            await open_round(writing, X)
            assert following.ready, following.not_ready

        store.after_reading = write
        await until(lambda: writing.state.position > 50)
        store.after_reading = None
        await until(lambda: following.state.position == writing.state.position)
        assert state_hash(following.state) == state_hash(writing.state)
    # At the start of each replica, and on the first request for the cascade.
    assert len(recoveries) == 3


# -- loading cascades on demand --------------------------------------------------------------------


async def played(services: list[Service], names: list[str], rounds: int) -> list[m.RoundAnswer]:
    """Play rounds on services and cascades in turn; return all answers."""
    rng, answers = np.random.default_rng(5), list[m.RoundAnswer]()
    for k in range(rounds):
        service, name, x = services[k % len(services)], names[k % len(names)], rng.uniform(-1, 1, 2)
        opened = await open_round(service, x.tolist(), name)
        outputs = [output_of(rng, x.tolist(), arm) for arm in range((opened.stop or 0) + 1)]
        answers.append(opened)
        answers.append(await service.report(name, opened.id, m.OutputsRequest(outputs)))
    return answers


async def test_replica_that_follows_one_cascade_answers_like_one_that_follows_all(
    postgres: str, tmp_path: Path
) -> None:
    other = replace(TRIAGE, name="other", policy={"kind": "thompson", "seed": 4})
    async with (
        running(tmp_path / "log.db") as alone,
        running(postgres) as first,
        running(postgres) as second,
    ):
        for service in (alone, first):
            await service.create(TRIAGE, None)
            await service.create(other, None)
        names = ["triage", "other"]
        answers = await played([first], names, 60), await played([first, second], ["triage"], 60)
        expected = await played([alone], names, 60), await played([alone], ["triage"], 60)
        assert answers == expected
        assert any(answer.stop != 2 for answer in answers[1])  # not all rounds were forced
        assert list(second.state.follows or ()) == ["triage"]
        assert len(second.state.cascades["other"].ledger) == 0
        await second.retire("other")  # loads it
        await first.state_hash()
        for name in names:
            left, right = (service.state.cascade(name) for service in (first, second))
            assert bits_of(left.policy) == bits_of(right.policy)
            assert left.view() == right.view()
            assert left.ledger.columns() == right.ledger.columns()
        assert await second.state_hash() == await first.state_hash()
    assert state_hash(second.state) == state_hash(await folded(postgres))


async def test_unused_cascade_is_unloaded_and_loaded_again(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "CHECK_INTERVAL", 0.001)
    async with running(postgres) as service:
        await service.create(TRIAGE, None)
        await played([service], ["triage"], 20)
        before = await service.state_hash()
        monkeypatch.setattr(service_module, "UNUSED_SECONDS", 0.0)
        for _ in range(3):
            await until(lambda: not service.state.follows)
            assert len(service.state.cascades["triage"].ledger) == 0
            assert (await service.cascade("triage")).learned == 20
        monkeypatch.setattr(service_module, "UNUSED_SECONDS", 600.0)
        assert await service.state_hash() == before
        monkeypatch.setattr(service_module, "UNUSED_SECONDS", -1.0)
        await until(lambda: not service.state.follows)
        monkeypatch.setattr(service_module, "UNUSED_SECONDS", 600.0)
        await asyncio.gather(*(open_round(service, X) for _ in range(20)))  # all share one load
        assert state_hash(service.state) == state_hash(await folded(postgres))


# -- consistency between replicas ------------------------------------------------------------------


@pytest.mark.parametrize("times", [10, pytest.param(100, marks=pytest.mark.slow)])
async def test_replicas_see_all_acknowledged_data(postgres: str, times: int) -> None:
    """Two replicas in turn, neither of which reads the log unless a request requires it.

    Loading a cascade reads the entire log, so the time is quadratic in ``times``.
    """
    settings = {"follow_every": 60.0, "max_cascades": times}
    async with running(postgres, **settings) as first, running(postgres, **settings) as second:
        replica, other = first, second
        for k in range(times):
            name = f"cascade-{k}"
            await replica.create(replace(TRIAGE, name=name), None)
            assert (await other.cascade(name)).status == "active"
            first_round = await open_round(replica, X, name)
            assert (await other.round(name, first_round.id)).status == "open"
            assert await report(other, first_round, str, name) == "learned"
            second_round = await open_round(other, X, name)
            assert await report(replica, second_round, str, name) == "learned"
            labelled = await report_label(other, name, second_round.id, m.LabelReport("1"))
            assert labelled.labelled == 1
            replica, other = other, replica
        await replica.retire("cascade-0")
        await other.retire("cascade-0")
        assert state_hash(replica.state) == state_hash(other.state)
