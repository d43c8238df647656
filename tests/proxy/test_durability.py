"""kill -9 and restart: no round that was acknowledged is lost."""

import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from examples.proxy_upstreams import Upstream
from examples.text_cascade import tickets
from tests.proxy.harness import ProxyProcess, stages, write_config


def killed_again_and_again(models: list[Upstream], folder: Path, times: int) -> int:
    """Kill the proxy under load, start it again, and look for every acknowledged round."""
    file = write_config(folder, stages(models), mode="on", service_snapshot_every=50)
    random = np.random.default_rng(1)
    acknowledged: dict[str, str] = {}  # the arm that answered, by round
    texts = [one.text for one in tickets(2000, seed=5)]
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
                        return  # it was killed
                    if "x-stopwise-round" in head:
                        acknowledged[head["x-stopwise-round"]] = head["x-stopwise-arm"]

        threads = [threading.Thread(target=ask, args=(part,)) for part in range(3)]
        for one in threads:
            one.start()
        wanted = before + int(random.integers(1, 12))
        while len(acknowledged) < wanted and any(one.is_alive() for one in threads):
            time.sleep(0.002)
        process.end()
        for one in threads:
            one.join()
    process.start()
    process.wait_until_ready()
    with httpx.Client(base_url=process.url, timeout=30) as client:
        for name, arm in acknowledged.items():
            found = client.get(f"/v1/cascades/tickets/rounds/{name}").json()
            assert (found["status"], found["arm"]) == ("learned", arm)
            assert list(found["outputs"])[-1] == arm
    process.end()
    return len(acknowledged)


def test_nothing_acknowledged_is_lost(models: list[Upstream], tmp_path: Path) -> None:
    assert killed_again_and_again(models, tmp_path, 2) >= 2


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_fifty_times(
    models: list[Upstream], tmp_path: Path
) -> None:
    assert killed_again_and_again(models, tmp_path, 50) > 100
