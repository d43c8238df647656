"""No acknowledged round is lost by kill -9 and restarts."""

import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from examples.proxy_upstreams import Upstream
from examples.text_cascade import tickets
from tests.proxy.proxy_harness import ProxyProcess, stages, write_config


def kill_repeatedly(models: list[Upstream], folder: Path, times: int) -> int:
    """Kill and restart the proxy under load; return the number of acknowledged rounds."""
    file = write_config(folder, stages(models), mode="on", service_snapshot_every=50)
    random = np.random.default_rng(1)
    acknowledged: dict[str, str] = {}  # the arm that answered, by round
    texts = [ticket.text for ticket in tickets(2000, seed=5)]
    process = ProxyProcess(file)
    for k in range(times):
        url, before = process.start(), len(acknowledged)
        process.wait_until_ready()

        def ask(part: int, url: str = url, k: int = k) -> None:
            with httpx.Client(base_url=url, timeout=10) as client:
                for text in texts[part + 3 * k :: 97]:
                    body = {"model": "tickets", "messages": [{"role": "user", "content": text}]}
                    try:
                        head = client.post("/v1/chat/completions", json=body).headers
                    except httpx.HTTPError:
                        return  # the proxy was killed
                    if "x-stopwise-round" in head:
                        acknowledged[head["x-stopwise-round"]] = head["x-stopwise-arm"]

        threads = [threading.Thread(target=ask, args=(part,)) for part in range(3)]
        for thread in threads:
            thread.start()
        wanted = before + int(random.integers(1, 12))
        while len(acknowledged) < wanted and any(thread.is_alive() for thread in threads):
            time.sleep(0.002)
        process.end()
        for thread in threads:
            thread.join()
    process.start()
    process.wait_until_ready()
    with httpx.Client(base_url=process.url, timeout=30) as client:
        for name, arm in acknowledged.items():
            round_ = client.get(f"/v1/cascades/tickets/rounds/{name}").json()
            assert (round_["status"], round_["arm"]) == ("learned", arm)
            assert list(round_["outputs"])[-1] == arm
    process.end()
    return len(acknowledged)


def test_acknowledged_rounds_survive_kill_9(models: list[Upstream], tmp_path: Path) -> None:
    assert kill_repeatedly(models, tmp_path, 2) >= 2


@pytest.mark.slow
def test_acknowledged_rounds_survive_fifty_kills(models: list[Upstream], tmp_path: Path) -> None:
    assert kill_repeatedly(models, tmp_path, 50) > 100
