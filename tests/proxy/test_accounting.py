"""Costs of calls, failed ones included; invalid token counts; rates of keys."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from examples.proxy_upstreams import Upstream
from stopwise.proxy.chat import MAX_TOKENS, Answer, read_usage
from stopwise.service.http.keys import add_key
from tests.proxy.proxy_harness import (
    MESSAGES,
    TICKET,
    FaultyUpstream,
    ScriptedUpstream,
    running_proxy,
    stage,
    stages,
)

ALL = {"kind": "uss-anchor", "forced_rounds": 1000}  # runs every stage
INPUT = len(TICKET) / 4  # tokens of the request, as a failed call counts them


def completion(usage: str, content: str = '"billing"') -> bytes:
    """Return a chat completion with this text as its usage."""
    message = f'{{"role": "assistant", "content": {content}}}'
    choice = f'{{"index": 0, "message": {message}, "finish_reason": "stop"}}'
    head = '"id": "c", "object": "chat.completion", "created": 1, "model": "m"'
    return f'{{{head}, "choices": [{choice}], "usage": {usage}}}'.encode()


def priced(name: str, upstream: Upstream, **more: Any) -> dict[str, Any]:
    """Return a stage that costs 1 per prompt token and 2 per answer token."""
    prices = {"price_in": 1e6, "price_out": 2e6}
    return {"name": name, "url": upstream.url, "model": name, **prices, **more}


@pytest.mark.parametrize("how", ["500", "429", "rubbish", "empty", "gone", "hang"])
def test_failed_calls_count_towards_the_budget(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path, how: str
) -> None:
    slow = {"timeout": 0.1} if how == "hang" else {}
    cascade = [stage(how, faulty, 0.1, **slow), stage("phrases", models[2], 0.3)]
    calls = faulty.calls
    with running_proxy(tmp_path, cascade, sample=1.0, budget=0.25) as proxy:
        for _ in range(6):
            proxy.chat()
        proxy.wait_for("over budget", 4)
        proxy.wait_for("shadow failed", 2)
        assert faulty.calls == calls + 2
    with running_proxy(tmp_path, cascade, sample=1.0, budget=0.25) as proxy:  # the same day
        proxy.chat()
        proxy.wait_for("over budget", 1)
        assert faulty.calls == calls + 2


def test_a_failed_call_counts_towards_the_cost_of_a_request(
    models: list[Upstream], scripted: ScriptedUpstream, tmp_path: Path
) -> None:
    scripted.add("known", b'{"error": {}, "usage": {"prompt_tokens": 5}}', status=500)
    scripted.add("unknown", b"<html>", status=502)
    scripted.add("negative", b'{"usage": {"prompt_tokens": -5}}', status=500)
    scripted.add("large", completion("null", json.dumps("billing" * 3000)))
    costs = {"known": 5.0, "unknown": INPUT, "negative": INPUT, "large": INPUT, "nowhere": 0.0}
    cascades = {
        name: [priced(name, scripted), stage("phrases", models[2], 1000.0)] for name in costs
    }
    cascades["nowhere"][0]["url"] = "http://127.0.0.1:9/v1"  # no listener: nothing is sent
    limits = {"limits_max_answer": 20_000}
    with running_proxy(tmp_path, cascades, mode="on", policy=ALL, tokens_out=0, **limits) as proxy:
        for name, cost in costs.items():
            answer = proxy.chat({"model": name})
            assert answer.headers["x-stopwise-arm"] == "phrases"
            assert float(answer.headers["x-stopwise-cost"]) == pytest.approx(1000 + cost)


def test_a_failed_call_counts_towards_max_cost(
    models: list[Upstream], faulty: FaultyUpstream, tmp_path: Path
) -> None:
    cascade = [stage("500", faulty, 0.1), *stages(models)[1:]]
    with running_proxy(tmp_path, cascade, mode="on", policy=ALL, max_cost=0.15) as proxy:
        assert proxy.chat().status_code == 502  # 0.1 is spent, and the next stage costs 0.08
    (tmp_path / "more").mkdir()
    with running_proxy(tmp_path / "more", cascade, mode="on", policy=ALL, max_cost=0.2) as proxy:
        assert proxy.chat().headers["x-stopwise-arm"] == "words"


INVALID = {
    "negative": "-1000000",
    "huge": str(MAX_TOKENS + 1),
    "of 401 digits": "1" * 401,
    "of 5,000 digits": "1" * 5000,
    "beyond floats": "1e400",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
    "bool": "true",
    "text": '"7"',
    "half": "0.5",
    "list": "[3]",
}
PLACES = {
    "prompt": '{"prompt_tokens": %s, "completion_tokens": 1, "total_tokens": 1}',
    "completion": '{"prompt_tokens": 3, "completion_tokens": %s, "total_tokens": 4}',
    "details": '{"prompt_tokens": 3, "completion_tokens": 1, "x": {"cached_tokens": %s}}',
    "usage": "%s",
}


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_invalid_token_counts_are_ignored(
    models: list[Upstream],
    scripted: ScriptedUpstream,
    tmp_path: Path,
    mode: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"{place}-{k}" for place in PLACES for k in range(len(INVALID))]
    for place, usage in PLACES.items():
        for k, wrong in enumerate(INVALID.values()):
            scripted.add(f"{place}-{k}", completion(usage % wrong))
    first, last = stage("keywords", models[0], 0.5), priced("", scripted)
    cascades = {name: [first, {**last, "name": name, "model": name}] for name in names}
    more = {"mode": mode, "policy": ALL, "tokens_in": 2, "tokens_out": 3, "sample": 1.0}
    with (
        running_proxy(tmp_path, cascades, service_log_level="warning", **more) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0) as client,
    ):
        for name in names:
            answer = proxy.chat({"model": name})
            assert answer.status_code == 200, (name, answer.text)
            assert answer.headers["x-stopwise-arm"] == name
            cost = float(answer.headers["x-stopwise-cost"])
            assert cost == pytest.approx(8.0 + (0.5 if mode == "on" else 0.0)), name  # as expected
            if mode == "shadow":
                assert answer.content == scripted.replies[name][1]
            else:
                assert answer.json()["usage"]["total_tokens"] == len(TICKET.split()) + 1
                completed = client.chat.completions.create(model=name, messages=MESSAGES)
                assert completed.choices[0].message.content == "billing"
        if mode == "shadow":
            proxy.wait_for("shadowed", len(names))
            spent = proxy.app._spent.values()
            assert all(cost == pytest.approx(0.5) for cost in spent)  # a credit would lower it
        assert proxy.event_count("failed") == proxy.event_count("stage failed") == 0
    ignored = [vars(record) for record in caplog.records if record.message == "usage ignored"]
    assert {record["stage"] for record in ignored} == set(names)
    assert all(len(record["reason"]) < 200 for record in ignored)


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_an_object_as_token_count_is_ignored(
    scripted: ScriptedUpstream, tmp_path: Path, mode: str
) -> None:
    scripted.add("m", completion('{"prompt_tokens": {"text": 3}, "completion_tokens": 1}'))
    cascade = [priced("m", scripted), priced("n", scripted, model="m")]
    with running_proxy(tmp_path, cascade, mode=mode, policy=ALL) as proxy:
        answer = proxy.chat()
        assert (answer.status_code, answer.content) == (200, scripted.replies["m"][1])
        assert answer.headers["x-stopwise-arm"] == "n"
    problem = "prompt_tokens is of type dict"
    assert read_usage({"prompt_tokens": {"text": 3}}) == ({}, problem)


def test_a_negative_token_count_does_not_extend_the_budget(
    models: list[Upstream], scripted: ScriptedUpstream, tmp_path: Path
) -> None:
    scripted.add("credit", completion('{"prompt_tokens": -1000000000, "completion_tokens": 1}'))
    cascade = [priced("credit", scripted), stage("phrases", models[2], 0.3)]
    more = {"tokens_in": 2, "tokens_out": 3, "budget": 20.0}
    with running_proxy(tmp_path, cascade, sample=1.0, **more) as proxy:
        for k in range(6):  # each is accounted for before the next
            proxy.chat()
            proxy.wait_for("shadowed" if k < 2 else "over budget", k + 1 if k < 2 else k - 1)
        assert scripted.calls == 2


def test_unknown_fields_of_usage_are_preserved() -> None:
    usage = {"prompt_tokens": 3, "cost": 0.25, "is_byok": False, "details": {"audio_tokens": None}}
    assert read_usage(usage) == (usage, "")
    deep: Any = {"cached_tokens": -1}
    for _ in range(50):
        deep = {"more": deep}
    assert read_usage(deep)[1] == ""  # nested too deeply to be validated
    assert read_usage({"seconds": -1.0, "prompt_tokens": 2.0}) == ({"prompt_tokens": 2}, "")
    assert Answer(completion("null")).usage == {}


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGE = {"role": "assistant", "content": None, "tool_calls": [CALL]}
MALFORMED: dict[str, Any] = {
    "choices": {"0": {"message": {"content": "billing"}}},
    "choices-text": "billing",
    "choices-null": [None],
    "choices-second": [{"message": {"content": "billing"}}, 3],
    "message": [{"message": "billing"}],
    "index-text": [{"index": "x", "message": {"content": "billing"}}],
    "index-negative": [{"index": -1, "message": {"content": "billing"}}],
    "index-huge": [{"index": 10**401, "message": {"content": "billing"}}],
    "index-bool": [{"index": True, "message": {"content": "billing"}}],
    "calls-text": [{"message": {**MESSAGE, "tool_calls": "f()"}}],
    "calls-object": [{"message": {**MESSAGE, "tool_calls": CALL}}],
    "calls-numbers": [{"message": {**MESSAGE, "tool_calls": [1]}}],
    "calls-unnamed": [{"message": {**MESSAGE, "tool_calls": [{"function": {}}]}}],
    "calls-function": [{"message": {**MESSAGE, "tool_calls": [{"function": "f"}]}}],
    "function-call": [{"message": {"content": None, "function_call": "f"}}],
}


def chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]}


CHUNKS: dict[str, Any] = {
    "choices": {"choices": {"0": {"delta": {"content": "b"}}}},
    "choices-text": {"choices": "billing"},
    "choices-null": {"choices": [None]},
    "chunk-list": [1, 2],
    "chunk-null": None,
    "delta-text": {"choices": [{"index": 0, "delta": "billing"}]},
    "index-text": {"choices": [{"index": "x", "delta": {"content": "b"}}]},
    "index-negative": {"choices": [{"index": -1, "delta": {"content": "b"}}]},
    "index-huge": {"choices": [{"index": 10**401, "delta": {"content": "b"}}]},
    "index-inf": {"choices": [{"index": float("inf"), "delta": {"content": "b"}}]},
    "index-bool": {"choices": [{"index": True, "delta": {"content": "b"}}]},
    "calls-text": chunk(tool_calls="f()"),
    "calls-numbers": chunk(tool_calls=[1]),
    "calls-index": chunk(tool_calls=[{"index": "x", **CALL}]),
    "calls-index-inf": chunk(tool_calls=[{"index": float("inf"), **CALL}]),
    "calls-index-huge": chunk(tool_calls=[{"index": 10**9, **CALL}]),
    "calls-unnamed": chunk(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
}


def events(name: str) -> bytes:
    """Return a stream with a malformed chunk between valid ones."""
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    chunks = [json.dumps(value) for value in (chunk(content=None), CHUNKS[name], last)]
    return "".join(f"data: {text}\r\n\r\n" for text in chunks).encode() + b"data: [DONE]\n\n"


@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("stream", [False, True])
def test_malformed_answers_fail_a_stage_and_are_forwarded_in_shadow_mode(
    models: list[Upstream], scripted: ScriptedUpstream, tmp_path: Path, stream: bool, mode: str
) -> None:
    for name, choices in MALFORMED.items():
        scripted.add(f"plain-{name}", json.dumps({"choices": choices}).encode())
    for name in CHUNKS:
        scripted.add(f"stream-{name}", events(name), stream=True)
    kind = "stream" if stream else "plain"
    names = [name for name in scripted.replies if name.startswith(kind)]
    rule = stage("keywords", models[0], 0.01)
    # Only the last stage streams; if it fails, the latest answer is returned.
    cascades = {
        name: [rule, stage(name, scripted, 0.1)]
        if stream or mode == "shadow"
        else [stage(name, scripted, 0.01), stage("phrases", models[2], 0.1)]
        for name in names
    }
    with running_proxy(tmp_path, cascades, mode=mode, policy=ALL, sample=1.0) as proxy:
        for name in names:
            answer = proxy.chat({"model": name, "stream": stream})
            assert answer.status_code == 200, (name, answer.text)
            if mode == "shadow":
                assert answer.content == scripted.replies[name][1], name
                continue
            if not stream:
                assert answer.headers["x-stopwise-arm"] == "phrases", name
                assert answer.json()["choices"][0]["message"]["content"] == "billing"
            # If earlier events were already forwarded, the stream ends with an error.
            begun = answer.headers["x-stopwise-arm"] == name
            assert begun == (stream and b"error" in answer.content), (name, answer.text)
        assert proxy.event_count("not learned") == 0
        if mode == "on":
            assert proxy.event_count("stage failed") + proxy.event_count("failed") >= len(names)
        else:
            assert proxy.event_count("shadowed") == 0


def test_invalid_requests_count_towards_the_rate_of_a_key(
    models: list[Upstream], tmp_path: Path
) -> None:
    file = tmp_path / "keys.jsonl"
    bodies = {
        "unknown": b'{"model": "other", "messages": []}',
        "bad JSON": b'{"model": ',
        "not an object": b"[1]",
        "forbidden": b'{"model": "tickets", "messages": []}',
        "not JSON": b"hello",
    }
    keys = {
        name: add_key(file, name, ["observe"], rate=0.001)[1] for name in bodies
    }  # one request, then one per quarter of an hour
    once = add_key(file, "good", ["decide"], rate=0.001)[1]
    with running_proxy(tmp_path, stages(models), service_keys=str(file)) as proxy:
        for name, body in bodies.items():
            kind = "text/plain" if name == "not JSON" else "application/json"
            head = {"content-type": kind, "authorization": f"Bearer {keys[name]}"}
            statuses = [
                proxy.ask("POST", "/v1/chat/completions", headers=head, content=body).status_code
                for _ in range(2)
            ]
            assert statuses[0] in {400, 403, 404, 415}, name
            assert statuses[1] == 429, name
        with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key=once, max_retries=0) as client:
            assert client.chat.completions.create(model="tickets", messages=MESSAGES)
            with pytest.raises(openai.RateLimitError):
                client.chat.completions.create(model="tickets", messages=MESSAGES)


@pytest.mark.parametrize("characters", ["xx", "\x00\u202e"], ids=["printable", "escaped"])
def test_the_error_shortens_the_name_of_an_unknown_model(
    models: list[Upstream], tmp_path: Path, characters: str
) -> None:
    with running_proxy(tmp_path, stages(models)) as proxy:
        answer = proxy.chat({"model": characters * 50_000})
        assert answer.status_code == 404
        assert len(answer.json()["error"]["message"]) < 300
