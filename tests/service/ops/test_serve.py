"""What a service says while it starts."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stopwise.service import serve


def test_a_start_that_takes_long_is_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(serve, "SOON", 0.02)
    told: list[tuple[str, Any]] = []
    monkeypatch.setattr(serve, "event", lambda what, **more: told.append((what, more)))
    said: list[str] = []
    service = SimpleNamespace(ready=False, recovering="recovering: 1 of 2 events")

    async def start() -> None:
        task = asyncio.create_task(serve._tell_when_ready(cast(Any, service), said.append))
        while not said:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        service.ready = True
        await task

    asyncio.run(start())
    assert said == ["Starting (recovering: 1 of 2 events) …", "Ready."]
    assert told == [("starting", {"reason": "recovering: 1 of 2 events"})]
