"""Comparison of answers, context features, and streams collected into answers."""

import json
import math
from typing import Any

import numpy as np
import pytest

from stopwise.proxy.chat import Answer, ChatRequest, StageFailure, StreamCollector, event
from stopwise.proxy.compare import Comparison
from stopwise.proxy.context import REVEALED, Projection, answer_features
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.events import Reported


def answer(text: str | None, **message: Any) -> Answer:
    choice = {"message": {"role": "assistant", "content": text, **message}}
    return Answer(json.dumps({"choices": [choice]}).encode())


def value_of(kind: str, text: str) -> Any:
    return Comparison(kind).start().value(answer(text))


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("text", "New  York.", "**new york**"),
        ("json", '{"a": 1.0, "b": [2]}', '```json\n{"b": [2], "a": 1}\n```'),
        ("json:item.name", '{"item": {"name": "A", "x": 1}}', '{"item": {"name": "a."}}'),
        ("json:items.1", '{"items": [1, 2]}', '{"items": [3, 2.0]}'),
        ("number", "It is 1,200.", "= 1200.0"),
        ("number", "first 3, then -0.5", "-5e-1"),
        ("choice:spam|no spam", "No spam!", "this is no spam, surely"),
        ("code", "def f(x):\n    return x + 1", "```python\ndef f( x ):\n\n\treturn x+1\n```"),
    ],
)
def test_answers_that_differ_only_in_form_agree(kind: str, first: str, second: str) -> None:
    assert value_of(kind, first) == value_of(kind, second)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("json", '{"a": 1}', '{"a": 2}'),
        ("json:a", '{"a": true}', '{"a": "true"}'),
        ("number", "2", "2.5"),
        ("choice:spam|no spam", "spam", "no spam"),
        ("choice:a|b", "neither", "nothing"),
        ("code", "if a:\n  b\n  c", "if a:\n  b\nc"),
    ],
)
def test_different_answers_do_not_agree(kind: str, first: str, second: str) -> None:
    assert value_of(kind, first) != value_of(kind, second)


def test_tool_calls_are_compared_by_name_and_arguments() -> None:
    def call(name: str, arguments: str) -> Answer:
        return answer(None, tool_calls=[{"function": {"name": name, "arguments": arguments}}])

    value = Comparison("text").start().value
    assert value(call("f", '{"a": 1, "b": 2}')) == value(call("f", '{"b":2,"a":1.0}'))
    assert value(call("f", "{}")) != value(call("g", "{}"))
    assert value(call("f", "{}")) != value(answer("f"))


def test_a_comparison_that_is_not_transitive_still_gives_classes() -> None:
    near = Comparison("text", lambda a, b: abs(float(a) - float(b)) <= 1).start().value
    assert [near(answer(text)) for text in ("1", "3", "2", "3.5", "9")] == [0, 1, 0, 1, 4]


WITHOUT_ANSWERS = Reported(0, 0, [0, 1], [b"0", b"1"], True, 0.0)  # answers are not in the log


def test_a_round_without_stored_answers_accepts_classes_as_labels() -> None:
    comparison = Comparison("text", lambda a, b: a == b)
    assert comparison.label(1, WITHOUT_ANSWERS) == b"1"


@pytest.mark.parametrize("label", ["billing", "1", 2])
def test_a_round_without_stored_answers_rejects_other_labels(label: object) -> None:
    comparison = Comparison("text", lambda a, b: a == b)
    with pytest.raises(RequestError, match="were not stored"):
        comparison.label(label, WITHOUT_ANSWERS)


@pytest.mark.parametrize("logprobs", [None, [], [-0.5, -2.0], [-9, -1e300], ["x"]])
def test_answer_features_are_finite_and_of_fixed_length(logprobs: list[Any] | None) -> None:
    content = None if logprobs is None else [{"logprob": value} for value in logprobs]
    choice = {"message": {"content": "yes"}, "logprobs": content and {"content": content}}
    features = answer_features(Answer(json.dumps({"choices": [choice]}).encode()))
    assert len(features) == REVEALED
    assert np.isfinite(features).all()


@pytest.mark.parametrize("vector", [[], [math.nan], [0.0, 0.0], list(range(500))])
def test_a_projection_is_finite_and_of_fixed_length(vector: list[float]) -> None:
    projected = Projection(16, 1).project(vector)
    assert len(projected) == 17
    assert np.isfinite(projected).all()


def test_a_stream_is_collected_into_its_answer() -> None:
    collector = StreamCollector()
    pieces: list[Any] = [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
    ]
    for delta in pieces:
        chunk = {"id": "x", "choices": [{"index": 0, "delta": delta}]}
        collector.add(event(chunk).removeprefix(b"data: ").strip())
    collector.add(b"[DONE]")
    collected = Answer(collector.body())
    assert collector.done
    assert collected.text == "Hello"
    assert collected.message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_unknown_fields_are_forwarded_byte_for_byte() -> None:
    body = b'{"model":"m","stream":true,"messages":[],"x":{"big":12345678901234567890,"f":1.50}}'
    sent = ChatRequest(body).upstream_body("other", stream=False)
    assert b'"x":{"big":12345678901234567890,"f":1.50}' in sent
    assert json.loads(sent)["stream"] is False
    with pytest.raises(StageFailure):
        Answer(b'{"choices": [{"message": null}]}')
