"""Faulty upstreams and a failing store: the caller gets an answer or a proper error."""

import asyncio
import gc
import itertools
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from examples.proxy_upstreams import Upstream
from stopwise.proxy.chat import StageFailure
from stopwise.proxy.chat_run import ChatRun
from tests.proxy.proxy_harness import (
    MESSAGES,
    FaultyUpstream,
    RunningProxy,
    running_proxy,
    stage,
    stages,
)

ALL = {"kind": "uss-anchor", "forced_rounds": 1000}  # runs every stage


def check_format(error: dict[str, Any]) -> dict[str, Any]:
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    return error["error"]


FAULTS = {"500": 502, "429": 429, "400": 400, "401": 502, "rubbish": 502, "empty": 502, "gone": 502,
       "hang": 504}  # fmt: skip


def faulty_stage(fault: str, faulty: FaultyUpstream, cost: float) -> dict[str, Any]:
    return stage(fault, faulty, cost, **({"timeout": 0.2} if fault == "hang" else {}))


def test_the_next_stage_answers_if_a_stage_fails(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path
) -> None:
    cascades = {
        fault: [
            stage("keywords", models[0], 0.01),
            faulty_stage(fault, faulty, 0.02),
            stage("phrases", models[2], 0.3),
        ]
        for fault in FAULTS
    }
    with running_proxy(tmp_path, cascades, mode="on", policy=ALL) as proxy:
        for fault, stream in itertools.product(FAULTS, [False, True]):
            answer = proxy.chat({"model": fault, "stream": stream})
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-stopwise-arm"] == "phrases"
            if not stream:
                assert answer.json()["choices"][0]["message"]["content"] == "billing"
                assert answer.json()["usage"]["completion_tokens"] == 2  # the stages that ran
            name = f"/v1/cascades/{fault}/rounds/{answer.headers['x-stopwise-round']}"
            while (round_ := proxy.get(name).json())["status"] == "open":
                time.sleep(0.005)  # it ends in the background
            assert (round_["status"], round_["outputs"]) == ("learned", {"keywords": "billing"})
        assert proxy.event_count("stage failed") == 2 * len(FAULTS)


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_if_no_stage_answers_the_error_has_the_format_of_openai(
    faulty: FaultyUpstream, tmp_path: Path, mode: str
) -> None:
    first = stage("first", faulty, 0.01) | {"model": "500"}
    cascades = {fault: [first, faulty_stage(fault, faulty, 0.3)] for fault in FAULTS}
    with running_proxy(tmp_path, cascades, mode=mode, policy=ALL) as proxy:
        for fault, status in FAULTS.items():
            answer = proxy.chat({"model": fault}, headers={"x-stopwise-deadline": "60"})
            if mode == "on":
                assert answer.status_code == status, answer.text
                assert fault in check_format(answer.json())["message"]
            elif fault.isdigit():  # the unmodified error of the upstream
                assert answer.status_code == int(fault)
                assert check_format(answer.json())["message"] == f"it is {fault}"
            elif fault == "rubbish":
                assert (answer.status_code, answer.text) == (200, "<html>oops</html>")
            elif fault == "hang":
                assert check_format(answer.json())["code"] == "timeout"


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_a_truncated_stream_ends_with_an_error(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path, mode: str
) -> None:
    cascade = [stage("keywords", models[0], 0.01), stage("half", faulty, 0.3)]
    with (
        running_proxy(tmp_path, cascade, mode=mode, policy=ALL) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client,
    ):
        stream = client.chat.completions.create(model="tickets", messages=MESSAGES, stream=True)
        assert next(iter(stream)).choices[0].delta.content == "acc"
        with pytest.raises(openai.APIError, match="half broke off"):
            list(stream)


@pytest.fixture(scope="module")
def slow(
    faulty: FaultyUpstream, models: list[Upstream], tmp_path_factory: Any
) -> Iterator[RunningProxy]:
    cascade = [stage("keywords", models[0], 0.01), stage("hang", faulty, 0.3)]
    with running_proxy(tmp_path_factory.mktemp("slow"), cascade, mode="on", policy=ALL) as proxy:
        yield proxy


def test_the_deadline_of_the_caller_is_respected(slow: RunningProxy) -> None:
    began = time.monotonic()
    answer = slow.chat(headers={"x-stopwise-deadline": "0.4"})
    assert time.monotonic() - began >= 0.4  # answered although the last stage hangs
    assert answer.status_code == 200
    assert answer.headers["x-stopwise-arm"] == "keywords"  # the latest answer


def test_a_round_ends_if_the_caller_disconnects(slow: RunningProxy, faulty: FaultyUpstream) -> None:
    body = json.dumps({"model": "tickets", "messages": MESSAGES}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    calls = faulty.calls
    with socket.create_connection(("127.0.0.1", slow.port)) as line:
        line.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
        while faulty.calls == calls:
            time.sleep(0.005)
    rounds = slow.service.state.cascades["tickets"]
    while len(rounds.ledger.open):  # it is cancelled, while the upstream hangs
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("limit", "reason"), [({"max_calls": 2}, "max_calls"), ({"max_cost": 0.1}, "max_cost")]
)
def test_max_calls_and_max_cost_are_respected(
    models: list[Upstream], tmp_path: Path, limit: dict[str, float], reason: str
) -> None:
    with running_proxy(tmp_path, stages(models), mode="on", policy=ALL, **limit) as proxy:
        answer = proxy.chat()
        assert answer.headers["x-stopwise-arm"] == "words"
        assert reason in answer.headers["x-stopwise-reason"]


def test_a_store_that_fails_does_not_fail_a_request(models: list[Upstream], tmp_path: Path) -> None:
    with running_proxy(tmp_path, stages(models), mode="on", policy=ALL, answer="words") as proxy:
        assert proxy.chat().headers["x-stopwise-arm"] == "phrases"
        with sqlite3.connect(tmp_path / "proxy.db", isolation_level=None, timeout=30) as other:
            other.execute("BEGIN IMMEDIATE")  # locks the store
            answer = proxy.chat()
            other.execute("ROLLBACK")
        assert answer.status_code == 200
        assert answer.headers["x-stopwise-arm"] == "words"
        assert "could not decide" in answer.headers["x-stopwise-reason"]
        assert proxy.event_count("not learned") == 1
        assert (
            'stopwise_proxy_total{cascade="tickets",event="not learned"} 1.0'
            in proxy.get("/metrics").text
        )


def test_a_retired_cascade_answers_without_the_policy(
    models: list[Upstream], tmp_path: Path
) -> None:
    with running_proxy(tmp_path, stages(models), mode="on", policy=ALL) as proxy:
        proxy.post("/v1/cascades/tickets/retire", {})
        answers: list[Any] = []
        threads = [threading.Thread(target=lambda: answers.append(proxy.chat())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 4
        assert proxy.event_count("not learned") == 4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("last", ["rubbish", "large"], ids=["all fail", "one fails"])
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_failures_are_freed_without_a_garbage_collection(
    models: list[Upstream],
    faulty: FaultyUpstream,
    tmp_path: Path,
    mode: str,
    last: str,
    stream: bool,
) -> None:
    """Failed answers can be large, and reference cycles would keep them in memory."""
    large = stages(models)[2] if last == "large" else stage("empty", faulty, 0.3)
    cascade = [stage("rubbish", faulty, 0.01), large]
    answer = "rubbish" if last == "large" else large["name"]
    with running_proxy(tmp_path, cascade, mode=mode, answer=answer, policy=ALL) as proxy:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                proxy.chat({"stream": stream})

            async def freed() -> bool:
                for _ in range(500):  # callbacks of the request may still be pending
                    types = ChatRun | StageFailure
                    alive = [value for value in gc.get_objects() if isinstance(value, types)]
                    if not alive:
                        return True
                    del alive
                    await asyncio.sleep(0.01)
                return False

            assert proxy.run(freed())
        finally:
            gc.enable()
