"""Upstreams that misbehave, a store that fails: the caller gets an answer or a proper error."""

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
from tests.proxy.harness import MESSAGES, Misbehaving, Proxied, proxied, stage, stages

ALL = {"kind": "uss-anchor", "forced_rounds": 1000}  # every stage is asked


def shape(error: dict[str, Any]) -> dict[str, Any]:
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    return error["error"]


HOW = {"500": 502, "429": 429, "400": 400, "401": 502, "rubbish": 502, "empty": 502, "gone": 502,
       "hang": 504}  # fmt: skip


def misbehaving(how: str, bad: Misbehaving, cost: float) -> dict[str, Any]:
    return stage(how, bad, cost, **({"timeout": 0.2} if how == "hang" else {}))


def test_a_stage_that_fails_is_passed_over(
    models: list[Upstream], bad: Misbehaving, tmp_path: Path
) -> None:
    cascades = {
        how: [
            stage("keywords", models[0], 0.01),
            misbehaving(how, bad, 0.02),
            stage("phrases", models[2], 0.3),
        ]
        for how in HOW
    }
    with proxied(tmp_path, cascades, mode="on", policy=ALL) as proxy:
        for how, stream in itertools.product(HOW, [False, True]):
            answer = proxy.ask_for({"model": how, "stream": stream})
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-stopwise-arm"] == "phrases"
            if not stream:
                assert answer.json()["choices"][0]["message"]["content"] == "billing"
                assert answer.json()["usage"]["completion_tokens"] == 2  # of those that answered
            name = f"/v1/cascades/{how}/rounds/{answer.headers['x-stopwise-round']}"
            while (found := proxy.get(name).json())["status"] == "open":
                time.sleep(0.005)  # it is ended in the background
            assert (found["status"], found["outputs"]) == ("learned", {"keywords": "billing"})
        assert proxy.counted("stage failed") == 2 * len(HOW)


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_if_no_stage_answers_the_error_has_the_shape_of_openai(
    bad: Misbehaving, tmp_path: Path, mode: str
) -> None:
    first = stage("first", bad, 0.01) | {"model": "500"}
    cascades = {how: [first, misbehaving(how, bad, 0.3)] for how in HOW}
    with proxied(tmp_path, cascades, mode=mode, policy=ALL) as proxy:
        for how, status in HOW.items():
            answer = proxy.ask_for({"model": how}, headers={"x-stopwise-deadline": "60"})
            if mode == "on":
                assert answer.status_code == status, answer.text
                assert how in shape(answer.json())["message"]
            elif how.isdigit():  # exactly as the upstream said it
                assert answer.status_code == int(how)
                assert shape(answer.json())["message"] == f"it is {how}"
            elif how == "rubbish":
                assert (answer.status_code, answer.text) == (200, "<html>oops</html>")
            elif how == "hang":
                assert shape(answer.json())["code"] == "timeout"


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_half_a_stream_ends_with_an_error(
    models: list[Upstream], bad: Misbehaving, tmp_path: Path, mode: str
) -> None:
    cascade = [stage("keywords", models[0], 0.01), stage("half", bad, 0.3)]
    with (
        proxied(tmp_path, cascade, mode=mode, policy=ALL) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client,
    ):
        stream = client.chat.completions.create(model="tickets", messages=MESSAGES, stream=True)
        assert next(iter(stream)).choices[0].delta.content == "acc"
        with pytest.raises(openai.APIError, match="half broke off"):
            list(stream)


@pytest.fixture(scope="module")
def slow(bad: Misbehaving, models: list[Upstream], tmp_path_factory: Any) -> Iterator[Proxied]:
    cascade = [stage("keywords", models[0], 0.01), stage("hang", bad, 0.3)]
    with proxied(tmp_path_factory.mktemp("slow"), cascade, mode="on", policy=ALL) as proxy:
        yield proxy


def test_the_deadline_of_the_caller_is_kept(slow: Proxied) -> None:
    began = time.monotonic()
    answer = slow.ask_for(headers={"x-stopwise-deadline": "0.4"})
    assert time.monotonic() - began >= 0.4  # and it came, while the last stage hangs
    assert answer.status_code == 200
    assert answer.headers["x-stopwise-arm"] == "keywords"  # the newest answer there is


def test_a_caller_that_goes_away_is_noticed(slow: Proxied, bad: Misbehaving) -> None:
    body = json.dumps({"model": "tickets", "messages": MESSAGES}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    calls = bad.calls
    with socket.create_connection(("127.0.0.1", slow.port)) as line:
        line.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
        while bad.calls == calls:
            time.sleep(0.005)
    rounds = slow.service.state.cascades["tickets"]
    while len(rounds.ledger.open):  # until it is given up, while the upstream hangs
        time.sleep(0.01)


def test_limits_of_calls_and_cost_are_kept(models: list[Upstream], tmp_path: Path) -> None:
    for limit in ({"max_calls": 2}, {"max_cost": 0.1}):
        folder = tmp_path / next(iter(limit))
        folder.mkdir()
        with proxied(folder, stages(models), mode="on", policy=ALL, **limit) as proxy:
            answer = proxy.ask_for()
            assert answer.headers["x-stopwise-arm"] == "words"
            assert next(iter(limit)).partition("_")[2][:4] in answer.headers["x-stopwise-reason"]


def test_a_store_that_fails_does_not_fail_a_request(models: list[Upstream], tmp_path: Path) -> None:
    with proxied(tmp_path, stages(models), mode="on", policy=ALL, answer="words") as proxy:
        assert proxy.ask_for().headers["x-stopwise-arm"] == "phrases"
        with sqlite3.connect(tmp_path / "proxy.db", isolation_level=None, timeout=30) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody else can write now
            answer = proxy.ask_for()
            other.execute("ROLLBACK")
        assert answer.status_code == 200
        assert answer.headers["x-stopwise-arm"] == "words"
        assert "could not decide" in answer.headers["x-stopwise-reason"]
        assert proxy.counted("not learned") == 1
        assert (
            'stopwise_proxy_total{cascade="tickets",event="not learned"} 1.0'
            in proxy.get("/metrics").text
        )


def test_a_retired_cascade_still_answers(models: list[Upstream], tmp_path: Path) -> None:
    with proxied(tmp_path, stages(models), mode="on", policy=ALL) as proxy:
        proxy.post("/v1/cascades/tickets/retire", {})
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(proxy.ask_for())) for _ in range(4)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert [one.status_code for one in answers] == [200] * 4
        assert proxy.counted("not learned") == 4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("last", ["rubbish", "large"], ids=["all fail", "one fails"])
@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_failures_are_freed_without_a_garbage_collection(
    models: list[Upstream], bad: Misbehaving, tmp_path: Path, mode: str, last: str, stream: bool
) -> None:
    """Failed answers can be large; in a cycle of references they would stay for a long time."""
    large = stages(models)[2] if last == "large" else stage("empty", bad, 0.3)
    cascade = [stage("rubbish", bad, 0.01), large]
    answer = "rubbish" if last == "large" else large["name"]
    with proxied(tmp_path, cascade, mode=mode, answer=answer, policy=ALL) as proxy:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                proxy.ask_for({"stream": stream})

            async def freed() -> bool:
                for _ in range(500):  # what a request leaves to the loop ends soon after it
                    kept = [
                        one for one in gc.get_objects() if isinstance(one, ChatRun | StageFailure)
                    ]
                    if not kept:
                        return True
                    del kept
                    await asyncio.sleep(0.01)
                return False

            assert proxy.run(freed())
        finally:
            gc.enable()
