"""The proxy: what it loses and saves, and how long it takes: `python -m benchmarks.proxy`.

Loss: 2,000 tickets through a keyword rule and two classifiers, real servers, the client of OpenAI.
Time: 32 connections to an upstream that takes a quarter to three quarters of a second and says how
long it took; the rest of a request's time is counted, called directly and through the proxy. (An
upstream that always takes the same time would make all requests arrive at the same moment.)
Beside each time stands the share of its processors that the machine's host gave to others: of a
virtual machine that shares a busy host, the times are those of the host.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

CONNECTIONS, SECONDS = 32, 0.5  # that the upstream of the measurement of time takes on average
COSTS = {"keywords": 0.005, "words": 0.08, "phrases": 0.25}
ANSWER: dict[str, Any] = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [
        {"message": {"role": "assistant", "content": "yes"}, "index": 0, "finish_reason": "x"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}  # fmt: skip


def config(folder: Path, stages: list[dict[str, Any]], **cascade: Any) -> Path:
    lines = ["[service]", "port = 0", f'store = "{folder}/proxy.db"', 'log_level = "error"']
    lines += ["[[cascade]]", 'name = "tickets"']
    lines += [f"{name} = {json.dumps(value)}" for name, value in cascade.items()]
    for stage in stages:
        lines += ["[[cascade.stage]]", *(f"{k} = {json.dumps(v)}" for k, v in stage.items())]
    file = folder / "proxy.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


@contextmanager
def running(
    folder: Path, stages: list[dict[str, Any]], **cascade: Any
) -> Iterator[tuple[str, int]]:
    """Run the proxy as a process; yield its URL and process id once its cascade is there."""
    import httpx

    file = config(folder, stages, **cascade)
    command = [sys.executable, "-c", "from stopwise.cli.main import main; main()", "proxy"]
    process = subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(one for one in process.stdout if "://" in one)
        url = next(word for word in line.split() if "://" in word)
        while httpx.get(f"{url}/v1/cascades/tickets").status_code != 200:
            time.sleep(0.05)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def proxy(stages: list[dict[str, Any]], **cascade: Any) -> Iterator[str]:
    """Run the proxy as a process; yield its URL once its cascade is there."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), stages, **cascade) as (url, _),
    ):
        yield url


# -- loss ----------------------------------------------------------------------------------------


def loss(requests: int, labels: int | None) -> dict[str, float]:
    """Return the loss a request of the proxy and of every fixed depth."""
    import httpx
    import openai

    from examples.proxy_upstreams import Upstream, classifiers
    from examples.text_cascade import tickets

    models = classifiers()
    upstreams = [Upstream(one) for one in models]
    stages = [
        {"name": name, "url": one.url, "model": name, "cost": cost}
        for (name, cost), one in zip(COSTS.items(), upstreams, strict=True)
    ]
    asked = {} if labels is None else {"labels": labels}
    compare = "choice:account|billing|outage"
    cumulative = dict(zip(COSTS, np.cumsum(list(COSTS.values())), strict=True))
    total, depths = 0.0, dict.fromkeys(COSTS, 0)
    live = tickets(requests, seed=0)
    with (
        proxy(stages, mode="on", compare=compare, **asked) as url,
        httpx.Client(base_url=url) as service,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client,
    ):
        topic_of: dict[str, str] = {}
        for k, ticket in enumerate(live):
            message: Any = [{"role": "user", "content": ticket.text}]
            create = client.chat.completions.with_raw_response.create
            raw = create(model="tickets", messages=message)
            arm = raw.headers["x-stopwise-arm"]
            wrong = raw.parse().choices[0].message.content != ticket.topic
            topic_of[raw.headers["x-stopwise-round"]] = ticket.topic
            total += cumulative[arm] + wrong
            depths[arm] += 1
            if labels is not None and (k < 200 or k % 10 == 0):
                wanted = service.get("/v1/cascades/tickets/label-requests").json()["rounds"]
                for one in wanted:
                    place = f"/v1/cascades/tickets/rounds/{one['id']}/label"
                    service.post(place, json={"label": topic_of[one["id"]]}).raise_for_status()
        given = service.get("/v1/cascades/tickets").json()["labelled"]
    found = {"labels": given, "stopwise": total / requests}
    for (name, cost), model in zip(cumulative.items(), models, strict=True):
        wrong = np.mean([model(ticket.text)[0] != ticket.topic for ticket in live])
        found[f"always {name}"] = float(cost + wrong)
    for one in upstreams:
        one.close()
    return found | {f"ended at {name}": n / requests for name, n in depths.items()}


# -- time ----------------------------------------------------------------------------------------


async def upstream(port: int, seconds: float) -> None:
    """Serve a constant answer, each after a while, with how long that was."""
    random_seconds = random.Random(0).uniform

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:"
        while True:
            try:
                received = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            size = next(x for x in received.lower().split(b"\r\n") if b"content-length" in x)
            await reader.readexactly(int(size.split(b":")[1]))
            began = time.perf_counter()
            if seconds:
                await asyncio.sleep(random_seconds(0.5 * seconds, 1.5 * seconds))
            body = json.dumps({**ANSWER, "took": time.perf_counter() - began})
            writer.write(f"{head} {len(body)}\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def upstreams(*seconds: float) -> Iterator[list[int]]:
    command = [sys.executable, "-m", "benchmarks.proxy", "--upstream"]
    made = [
        subprocess.Popen([*command, str(one)], stdout=subprocess.PIPE, text=True) for one in seconds
    ]
    try:
        yield [int(one.stdout.readline()) for one in made if one.stdout]
    finally:
        for one in made:
            one.terminate()
            one.wait()


async def latencies(port: int, requests: int) -> list[float]:
    """Return how long requests took beyond the upstream's time, in seconds."""
    body = json.dumps({"model": "tickets", "messages": [{"role": "user", "content": "hi " * 20}]})
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    sent, took = (head + body).encode(), list[float]()

    async def connection(_: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for k in range(requests // CONNECTIONS + 3):
            began = time.perf_counter()
            writer.write(sent)
            received = await reader.readuntil(b"\r\n\r\n")
            assert received.startswith(b"HTTP/1.1 200"), received
            size = next(x for x in received.lower().split(b"\r\n") if b"content-length" in x)
            answer = await reader.readexactly(int(size.split(b":")[1]))
            seconds = time.perf_counter() - began
            if k >= 3:  # the first ones open connections
                took.append(seconds - json.loads(answer)["took"])
        writer.close()

    await asyncio.gather(*map(connection, range(CONNECTIONS)))
    return took


def stolen() -> tuple[int, int]:
    """Return the time that the host gave to others, and all time, as the kernel counts them."""
    file = Path("/proc/stat")
    counts = [int(x) for x in file.read_text().split()[1:9]] if file.exists() else [0] * 8
    return counts[7], sum(counts)


def times(requests: int) -> Iterator[str]:
    """Yield a line for each way to the upstream: median and 99th percentile in milliseconds."""

    def measure(name: str, port: int) -> str:
        before = stolen()
        took = np.array(asyncio.run(latencies(port, requests))) * 1e3
        lost, passed = np.subtract(stolen(), before)
        median, most = np.median(took), np.percentile(took, 99)
        share = f"{100 * lost / max(passed, 1):5.1f} % taken by the host"
        return f"{name:<22}{median:8.1f} ms median{most:8.1f} ms p99 {share}"

    with upstreams(0.0, SECONDS) as (fast, slow):
        stages = [
            {"name": name, "url": f"http://127.0.0.1:{port}/v1", "model": name, "cost": cost}
            for name, port, cost in (("fast", fast, 0.01), ("slow", slow, 0.2))
        ]
        # The gap between these stages is so small that every round goes on to the last.
        deep = {"policy": "uss-laplace", "error_cost": 1e6}
        for name, more in {
            "shadow, sample 0": {"mode": "shadow", "sample": 0.0},
            "shadow, sample 0.1": {"mode": "shadow", "sample": 0.1},
            "on, both stages": {"mode": "on", **deep},
        }.items():
            yield measure("direct", slow)
            with proxy(stages, **more) as url:
                yield measure(name, int(url.rpartition(":")[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstream", type=float, metavar="SECONDS")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--only", choices=["loss", "time"])
    options = parser.parse_args()
    if options.upstream is not None:
        asyncio.run(upstream(0, options.upstream))
        return
    if options.only != "time":
        for labels in (100, None):
            print(f"labels={labels}:", json.dumps(loss(options.requests, labels), indent=1))
    if options.only != "loss":
        for line in times(options.requests):
            print(line, flush=True)


if __name__ == "__main__":
    main()
