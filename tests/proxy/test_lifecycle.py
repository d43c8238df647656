"""Readiness and shutdown of a proxy."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.proxy_upstreams import Upstream
from stopwise.service.service import Service
from tests.proxy.proxy_harness import (
    FaultyUpstream,
    RunningProxy,
    running_proxy,
    stage,
    stages,
    write_config,
)

ALL = {"kind": "uss-anchor", "forced_rounds": 1000}  # runs every stage


def test_the_proxy_is_ready_once_its_cascades_are_loaded(
    models: list[Upstream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave, create = threading.Event(), threading.Event(), Service.create

    async def create_late(service: Service, *arguments: Any) -> Any:
        entered.set()
        await asyncio.to_thread(leave.wait)
        return await create(service, *arguments)

    monkeypatch.setattr(Service, "create", create_late)
    running = RunningProxy(write_config(tmp_path, stages(models)))
    try:
        assert entered.wait(60)
        answer = running.get("/readyz")
        assert answer.status_code == 503
        assert "cascades" in answer.json()["error"]["message"]
        assert "stopwise_ready 0.0" in running.get("/metrics").text
        assert running.get("/healthz").status_code == 200
        leave.set()
        while running.get("/readyz").status_code != 200:
            pass
        assert list(running.service.state.cascades) == ["tickets"]
    finally:
        leave.set()
        running.close()


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_unfinished_requests_get_503_when_the_proxy_stops(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path, mode: str
) -> None:
    """A stage hangs, and the next must not run: not an internal error."""
    slow = [stage("hang", faulty, 0.01), stage("phrases", models[2], 0.3)]
    more = {"mode": mode, "policy": ALL} | ({"answer": "hang"} if mode == "shadow" else {})
    with (
        running_proxy(tmp_path, slow, service_stop_timeout=0.2, **more) as proxy,
        ThreadPoolExecutor(8) as pool,
    ):
        waiting = [pool.submit(proxy.chat) for _ in range(8)]

        async def asked() -> None:
            while len(proxy.app._in_flight) < 8:
                await asyncio.sleep(0.005)

        proxy.run(asked())
        proxy.ask_to_stop()
        answers = [future.result() for future in waiting]
        assert {answer.status_code for answer in answers} == {503}, answers[0].text
        assert {answer.json()["error"]["code"] for answer in answers} == {"unavailable"}


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_the_proxy_stops_under_load_without_internal_errors(
    models: list[Upstream], tmp_path: Path, mode: str
) -> None:
    statuses: Counter[int] = Counter()
    begun = threading.Event()

    def ask(proxy: RunningProxy) -> None:
        with httpx.Client(base_url=proxy.url, timeout=60, trust_env=False, verify=False) as client:
            body = {"model": "tickets", "messages": [{"role": "user", "content": "hello invoice"}]}
            while True:
                try:
                    statuses[client.post("/v1/chat/completions", json=body).status_code] += 1
                except httpx.TransportError:
                    return  # it no longer listens
                if statuses[200] > 40:
                    begun.set()

    with (
        running_proxy(tmp_path, stages(models), service_stop_timeout=0.05, mode=mode) as proxy,
        ThreadPoolExecutor(8) as pool,
    ):
        clients = [pool.submit(ask, proxy) for _ in range(8)]
        assert begun.wait(60)
        proxy.ask_to_stop()
        for client in clients:
            client.result()
        proxy.wait_until_stopped()
    assert set(statuses) <= {200, 503}
