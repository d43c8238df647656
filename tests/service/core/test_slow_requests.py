"""Slow requests run in a thread: the state stays consistent, and other requests are served."""

import asyncio
from itertools import pairwise
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from stopwise.service import service as service_module
from stopwise.service.domain import messages as m
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.commands import CommandResult
from stopwise.service.domain.state import State
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.service import Service
from tests.service.core.services import folded, running, until

ARMS = [m.Arm("rule", 0.1), m.Arm("model", 0.2), m.Arm("person", 0.3)]
IDENTITY = {"kind": "identity", "bound": 50}
SIZES = {"wide": 200, "narrow": 2}


async def play(service: Service, name: str, rounds: int) -> None:
    random = np.random.default_rng(len(name))
    for k in range(rounds):
        context = random.uniform(-1, 1, SIZES[name]).round(3).tolist()
        (opened,), _ = await service.open_rounds(name, m.RoundRequest(context), None)
        assert opened.stop is not None
        outputs = ["yes", "no" if k % 3 else "yes", "no"][: opened.stop + 1]
        answer = await service.report(name, opened.id, m.OutputsRequest(outputs))
        assert answer.status == "learned"
        view = await service.round(name, opened.id)
        assert (view.context, view.status) == (context, "learned")
        assert (await service.state_hash()).position <= service.state.position


async def test_wide_cascades_run_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, bool]] = []  # cascade, and whether it ran on the event loop
    path, limit = tmp_path / "log.db", 1e5
    monkeypatch.setattr(service_module, "MAX_WORK_ON_LOOP", limit)

    def record_thread(method: Any) -> Any:
        def recorded(cascade: ServedCascade, *arguments: Any, **options: Any) -> Any:
            calls.append((cascade.spec.name, current_thread() is main_thread()))
            return method(cascade, *arguments, **options)

        return recorded

    async with running(path) as service:
        for name, size in SIZES.items():
            await service.create(m.CascadeSpec(name, ARMS, size, features=IDENTITY), None)
        await play(service, "wide", 1)
        cascades = service.state.cascades
        assert cascades["wide"].work(1) > limit > cascades["narrow"].work(1)
        monkeypatch.setattr(ServedCascade, "open", record_thread(ServedCascade.open))
        monkeypatch.setattr(ServedCascade, "report", record_thread(ServedCascade.report))
        await asyncio.gather(*(play(service, name, 15) for name in ("wide", *["narrow"] * 4)))
    assert set(calls) == {("wide", False), ("narrow", True)}
    assert state_hash(await folded(path)) == state_hash(service.state)
    changes = sum(a != b for a, b in pairwise(calls))
    assert changes > 15  # the cascades were served in turn


async def test_reads_wait_until_a_thread_has_applied_a_request(tmp_path: Path) -> None:
    entered, leave = Event(), Event()

    def slow(state: State, time: float, /) -> CommandResult:
        cascade = state.cascades["narrow"]
        cascade.status = "retired"  # an incomplete change
        entered.set()
        assert leave.wait(120)
        cascade.status = "active"
        return None, None

    async with running(tmp_path / "log.db") as service:
        await service.create(m.CascadeSpec("narrow", ARMS, 2), None)
        (opened,), _ = await service.open_rounds("narrow", m.RoundRequest([0.1, 0.2]), None)
        applying = service.submit(slow, None, slow=True)
        await until(entered.is_set)
        requests = [
            service.cascade("narrow"),
            service.cascades(),
            service.round("narrow", opened.id),
            service.state_hash(),
            service.readable(),  # pages and metrics wait for this
        ]
        reading = [asyncio.ensure_future(request) for request in requests]
        await asyncio.to_thread(str)  # give the requests time to run
        await asyncio.to_thread(str)
        assert not any(request.done() for request in reading)
        leave.set()
        view, views, *_ = await asyncio.gather(*reading)
        assert view.status == views[0].status == "active"
        await applying
