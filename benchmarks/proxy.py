"""Loss and latency of the proxy: `python -m benchmarks.proxy`.

Loss: 2,000 tickets through a keyword rule and two classifiers, with real servers and OpenAI's
client.

Latency: 32 connections to an upstream that takes 0.25 to 0.75 s and reports its time, which is
subtracted, directly and through the proxy. (With a constant time, all requests would arrive at the
same moment.) Each line also has the steal time, the share of the processors that the host of a
virtual machine took for others, because it dominates the latency on a busy host.
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

CONNECTIONS = 32
COSTS = {"keywords": 0.005, "words": 0.08, "phrases": 0.25}
SECONDS = 0.5  # mean time of the upstream
ANSWER: dict[str, Any] = {
    "id": "x", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [
        {"message": {"role": "assistant", "content": "yes"}, "index": 0, "finish_reason": "x"}
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}  # fmt: skip


def write_config(folder: Path, stages: list[dict[str, Any]], **cascade: Any) -> Path:
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
    """Run the proxy as a process; yield its URL and process id once its cascade exists."""
    import httpx

    file = write_config(folder, stages, **cascade)
    command = [sys.executable, "-c", "from stopwise.cli.main import main; main()", "proxy"]
    process = subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "://" in line)
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
    """Run the proxy as a process; yield its URL once its cascade exists."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), stages, **cascade) as (url, _),
    ):
        yield url


# -- loss ----------------------------------------------------------------------------------------


def loss(requests: int, labels: int | None) -> dict[str, float]:
    """Return the loss per request of the proxy and of every fixed depth."""
    import httpx
    import openai

    from examples.proxy_upstreams import Upstream, classifiers
    from examples.text_cascade import tickets

    models = classifiers()
    servers = [Upstream(model) for model in models]
    stages = [
        {"name": name, "url": server.url, "model": name, "cost": cost}
        for (name, cost), server in zip(COSTS.items(), servers, strict=True)
    ]
    options = {} if labels is None else {"labels": labels}
    compare = "choice:account|billing|outage"
    cumulative = dict(zip(COSTS, np.cumsum(list(COSTS.values())), strict=True))
    total, depths = 0.0, dict.fromkeys(COSTS, 0)
    live = tickets(requests, seed=0)
    with (
        proxy(stages, mode="on", compare=compare, **options) as url,
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
                for request in wanted:
                    place = f"/v1/cascades/tickets/rounds/{request['id']}/label"
                    service.post(place, json={"label": topic_of[request["id"]]}).raise_for_status()
        n_labels = service.get("/v1/cascades/tickets").json()["labelled"]
    losses = {"labels": n_labels, "stopwise": total / requests}
    for (name, cost), model in zip(cumulative.items(), models, strict=True):
        wrong = np.mean([model(ticket.text)[0] != ticket.topic for ticket in live])
        losses[f"always {name}"] = float(cost + wrong)
    for server in servers:
        server.close()
    return losses | {f"ended at {name}": n / requests for name, n in depths.items()}


# -- latency -------------------------------------------------------------------------------------


async def upstream(port: int, seconds: float) -> None:
    """Serve a constant answer after a random time, and report that time in it."""
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
    processes = [
        subprocess.Popen([*command, str(mean)], stdout=subprocess.PIPE, text=True)
        for mean in seconds
    ]
    try:
        yield [int(process.stdout.readline()) for process in processes if process.stdout]
    finally:
        for process in processes:
            process.terminate()
            process.wait()


async def latencies(port: int, requests: int) -> list[float]:
    """Return the seconds of requests beyond the time of the upstream."""
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
            if k >= 3:  # the first requests open connections
                took.append(seconds - json.loads(answer)["took"])
        writer.close()

    await asyncio.gather(*map(connection, range(CONNECTIONS)))
    return took


def steal_time() -> tuple[int, int]:
    """Return the steal time and the total time of all processors, from /proc/stat."""
    file = Path("/proc/stat")
    counts = [int(x) for x in file.read_text().split()[1:9]] if file.exists() else [0] * 8
    return counts[7], sum(counts)


def times(requests: int) -> Iterator[str]:
    """Yield a line for each way to the upstream: median and 99th percentile in milliseconds."""

    def measure(name: str, port: int) -> str:
        before = steal_time()
        took = np.array(asyncio.run(latencies(port, requests))) * 1e3
        stolen, total = np.subtract(steal_time(), before)
        median, p99 = np.median(took), np.percentile(took, 99)
        share = f"{100 * stolen / max(total, 1):5.1f} % steal time"
        return f"{name:<22}{median:8.1f} ms median{p99:8.1f} ms p99 {share}"

    with upstreams(0.0, SECONDS) as (fast, slow):
        stages = [
            {"name": name, "url": f"http://127.0.0.1:{port}/v1", "model": name, "cost": cost}
            for name, port, cost in (("fast", fast, 0.01), ("slow", slow, 0.2))
        ]
        # With this error cost the gap between the stages is so small that every round runs both.
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
