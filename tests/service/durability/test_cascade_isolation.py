"""A cascade that fails repeatedly does not affect another one under load."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from stopwise.service.persistence.snapshots import state_hash
from tests.service.core.services import folded
from tests.service.harness import SPEC, ServerProcess, process

CONNECTIONS = 8
# Injected into the server: an output "boom" of the cascade "broken" is only partly learned.
FAULT = """
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.ledger import Ledger

apply, end = ServedCascade._apply, Ledger.end

def failing(cascade, event, *arguments):
    if cascade.spec.name == "broken" and b'"boom"' in event.outputs:
        cascade.policy.observe([0.5, 0.5], [b"1", b"2", b"3"])
        end(cascade.ledger, event.number, 0)
        raise ZeroDivisionError("injected")
    apply(cascade, event, *arguments)

ServedCascade._apply = failing
"""


def connected(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False)


def boom(server: ServerProcess, over: threading.Event) -> Counter[tuple[int, str]]:
    """Make requests of the cascade "broken" fail repeatedly; count the responses."""
    answers: Counter[tuple[int, str]] = Counter()
    with connected(server) as client:
        while not over.is_set():
            opened = client.post("/v1/cascades/broken/rounds", json={"context": [0.2, 0.7]})
            answers[opened.status_code, opened.json().get("error", {}).get("code", "")] += 1
            if opened.status_code == 201:
                path = f"/v1/cascades/broken/rounds/{opened.json()['id']}/outputs"
                failed = client.post(path, json={"outputs": ["boom"] * (opened.json()["stop"] + 1)})
                answers[failed.status_code, failed.json()["error"]["code"]] += 1
                assert "'broken'" in failed.json()["error"]["message"]
            else:
                assert "'broken'" in opened.json()["error"]["message"]
    return answers


def play(server: ServerProcess, rounds: int) -> Counter[int]:
    """Play rounds of the healthy cascade; count the statuses."""
    statuses: Counter[int] = Counter()
    with connected(server) as client:
        for k in range(rounds):
            opened = client.post("/v1/cascades/triage/rounds", json={"context": [0.2, k % 7 / 7]})
            statuses[opened.status_code] += 1
            if opened.status_code == 201:
                path = f"/v1/cascades/triage/rounds/{opened.json()['id']}/outputs"
                outputs = ["yes"] * (opened.json()["stop"] + 1)
                statuses[client.post(path, json={"outputs": outputs}).status_code] += 1
    return statuses


def under_load(server: ServerProcess, rounds: int) -> tuple[Counter[int], Counter[tuple[int, str]]]:
    over = threading.Event()
    with ThreadPoolExecutor(CONNECTIONS + 1) as pool:
        failing = pool.submit(boom, server, over)
        try:
            work = [pool.submit(play, server, rounds) for _ in range(CONNECTIONS)]
            statuses = sum((client.result() for client in work), Counter[int]())
        finally:
            over.set()
        return statuses, failing.result()


@pytest.mark.parametrize("rounds", [15, pytest.param(300, marks=pytest.mark.slow)])
async def test_requests_of_a_cascade_succeed_while_another_one_fails(
    tmp_path: Path, rounds: int
) -> None:
    learned = 0
    with process(tmp_path, before=FAULT) as server:
        server.wait_until_ready()
        with connected(server) as client:
            for name in ("triage", "broken"):
                assert client.post("/v1/cascades", json={**SPEC, "name": name}).status_code == 201
        for again in (False, True):
            statuses, failed = under_load(server, rounds)
            learned += CONNECTIONS * rounds
            assert statuses == {201: CONNECTIONS * rounds, 200: CONNECTIONS * rounds}
            assert failed[500, "internal"] > 0
            assert set(failed) <= {(201, ""), (500, "internal"), (503, "cascade_failed")}
            state = server.wait_until_ready()  # waits for the reload of the other cascade
            with connected(server) as client:
                views = client.get("/v1/cascades").json()["cascades"]
                assert [view["status"] for view in views] == ["active", "active"]
                assert [view["learned"] for view in views] == [learned, 0]
            assert state["hash"] == state_hash(await folded(tmp_path / "log.db"))
            server.end()  # with SIGKILL
            if not again:
                server.start()
                assert server.wait_until_ready() == state
