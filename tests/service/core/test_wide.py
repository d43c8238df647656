"""Requests that take long run in a thread: the state stays that of the log, and others go on."""

import asyncio
from itertools import pairwise
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from stopwise.service import service as service_module
from stopwise.service.events import Opened, Reported, decode
from stopwise.service.learner import Learner
from stopwise.service.messages import Arm, CascadeSpec, OutputsRequest, RoundRequest
from stopwise.service.service import Service
from stopwise.service.state import State
from stopwise.service.store import open_store
from stopwise.service.writer import Applied
from tests.service.core.services import folded, running, until

ARMS = [Arm("rule", 0.1), Arm("model", 0.2), Arm("person", 0.3)]
IDENTITY = {"kind": "identity", "bound": 50}
SIZES = {"wide": 200, "narrow": 2}


async def play(service: Service, name: str, rounds: int) -> None:
    random = np.random.default_rng(len(name))
    for k in range(rounds):
        context = random.uniform(-1, 1, SIZES[name]).round(3).tolist()
        (one,), _ = await service.open_rounds(name, RoundRequest(context), None)
        assert one.stop is not None
        outputs = ["yes", "no" if k % 3 else "yes", "no"][: one.stop + 1]
        answer = await service.report(name, one.id, OutputsRequest(outputs))
        assert answer.status == "learned"
        view = await service.round(name, one.id)
        assert (view.context, view.status) == (context, "learned")
        assert (await service.state_hash()).position <= service.state.position


async def cascades_in(where: Path) -> list[int]:
    """Return the cascade of each event about a round, in the order of the log."""
    store = open_store(str(where))
    await store.open()
    events = [event async for block in store.read(0) for event in decode(block.payload)]
    await store.close()
    return [event.cascade for event in events if isinstance(event, Opened | Reported)]


def test_wide_cascades_run_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_loop: dict[str, set[bool]] = {"wide": set(), "narrow": set()}
    path, limit = tmp_path / "log.db", 1e5
    monkeypatch.setattr(service_module, "ON_LOOP", limit)

    def noting(method: Any) -> Any:
        def noted(learner: Learner, *arguments: Any, **more: Any) -> Any:
            on_loop[learner.spec.name].add(current_thread() is main_thread())
            return method(learner, *arguments, **more)

        return noted

    async def main() -> None:
        async with running(path) as service:
            for name, size in SIZES.items():
                await service.create(CascadeSpec(name, ARMS, size, features=IDENTITY), None)
            await play(service, "wide", 1)
            learners = service.state.cascades
            assert learners["wide"].work(1) > limit > learners["narrow"].work(1)
            monkeypatch.setattr(Learner, "open", noting(Learner.open))
            monkeypatch.setattr(Learner, "report", noting(Learner.report))
            wide = asyncio.create_task(play(service, "wide", 15))
            narrow = [asyncio.create_task(play(service, "narrow", 15)) for _ in range(4)]
            await asyncio.gather(wide, *narrow)
            await play(service, "narrow", 1)
        assert on_loop["wide"] == {False}
        assert on_loop["narrow"] == {True}
        assert (await folded(path)).hash() == service.state.hash()

    asyncio.run(main())
    order = asyncio.run(cascades_in(path))
    changes = sum(a != b for a, b in pairwise(order))
    assert changes > 15  # neither had to wait until the other was done


async def test_reading_waits_until_a_thread_has_applied_a_request(tmp_path: Path) -> None:
    entered, leave = Event(), Event()

    def slow(state: State, time: float, /) -> Applied:
        learner = state.cascades["narrow"]
        learner.status = "retired"  # half of a change
        entered.set()
        assert leave.wait(30)
        learner.status = "active"
        return None, None

    async with running(tmp_path / "log.db") as service:
        await service.create(CascadeSpec("narrow", ARMS, 2), None)
        (one,), _ = await service.open_rounds("narrow", RoundRequest([0.1, 0.2]), None)
        applying = service.submit(slow, slow=True)
        await until(entered.is_set)
        reading: list[asyncio.Task[Any]] = [
            asyncio.create_task(service.cascade("narrow")),
            asyncio.create_task(service.cascades()),
            asyncio.create_task(service.round("narrow", one.id)),
            asyncio.create_task(service.state_hash()),
            asyncio.create_task(service.readable()),  # what pages and metrics wait for
        ]
        done, _ = await asyncio.wait(reading, timeout=0.1)
        assert not done
        leave.set()
        view, views, *_ = await asyncio.gather(*reading)
        assert view.status == views[0].status == "active"
        await applying
