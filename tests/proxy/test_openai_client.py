"""OpenAI's own client against the proxy."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from examples.proxy_upstreams import Upstream
from tests.proxy.proxy_harness import MESSAGES, TOOL, RunningProxy, running_proxy, stages


class Topic(BaseModel):
    topic: str


SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {"name": "topic", "schema": Topic.model_json_schema()},
}


@pytest.fixture(scope="module", params=["on", "shadow"])
def proxy(
    request: pytest.FixtureRequest, models: list[Upstream], tmp_path_factory: Any
) -> Iterator[RunningProxy]:
    folder: Path = tmp_path_factory.mktemp("proxy")
    policy = {"kind": "uss-anchor", "forced_rounds": 1000}  # runs every stage
    with running_proxy(
        folder, stages(models), mode=request.param, policy=policy, sample=0.5
    ) as running:
        yield running


@pytest.fixture
def client(proxy: RunningProxy) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_a_completion_is_answered(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="tickets", messages=MESSAGES)
    answer = raw.parse()
    assert answer.choices[0].message.content == "billing"
    assert raw.headers["x-stopwise-arm"] == "phrases"  # forced, or shadow mode
    assert raw.headers["x-stopwise-depth"] == "3"
    assert float(raw.headers["x-stopwise-cost"]) > 0.2
    assert raw.headers["x-stopwise-reason"]
    assert [model.id for model in client.models.list()] == ["tickets"]


def test_async_completions_are_answered(proxy: RunningProxy) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client:
            completions = (
                client.chat.completions.create(model="tickets", messages=MESSAGES) for _ in range(8)
            )
            answers = await asyncio.gather(*completions)
            return [answer.choices[0].message.content for answer in answers]

    assert asyncio.run(ask()) == ["billing"] * 8


def test_a_stream_is_forwarded_with_usage(client: openai.OpenAI, proxy: RunningProxy) -> None:
    options: Any = {"include_usage": True}
    stream = client.chat.completions.create(
        model="tickets", messages=MESSAGES, stream=True, stream_options=options
    )
    pieces = list(stream)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == "billing"
    assert pieces[-1].usage is not None
    calls = 3 if proxy.config.cascades["tickets"].mode == "on" else 1
    assert pieces[-1].usage.completion_tokens == calls  # summed over the stages that ran
    assert len(pieces) > 3  # not merged into one event


def test_tool_calls_are_forwarded(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tickets", messages=MESSAGES, tools=[TOOL])
    calls: Any = answer.choices[0].message.tool_calls
    (call,) = calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("sort", '{"topic": "billing"}')
    stream = client.chat.completions.create(
        model="tickets", messages=MESSAGES, tools=[TOOL], stream=True
    )
    parts = [part for chunk in stream for part in chunk.choices[0].delta.tool_calls or ()]
    arguments = "".join((part.function and part.function.arguments) or "" for part in parts)
    assert arguments == '{"topic": "billing"}'


def test_structured_output_is_parsed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tickets", messages=MESSAGES, response_format=Topic
    )
    assert answer.choices[0].message.parsed == Topic(topic="billing")


def test_an_early_stop_is_answered_as_a_stream(models: list[Upstream], tmp_path: Path) -> None:
    never_worth_it = stages(models, 0.1, 5, 5)
    policy = {"kind": "uss-anchor", "forced_rounds": 0, "explore": 0}
    with (
        running_proxy(tmp_path, never_worth_it, mode="on", policy=policy) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client,
    ):
        for more in ({}, {"tools": [TOOL]}):
            options: Any = {**more, "stream_options": {"include_usage": True}}
            pieces = list(
                client.chat.completions.create(
                    model="tickets", messages=MESSAGES, stream=True, **options
                )
            )
            usage = pieces[-1].usage
            assert usage is not None
            assert usage.completion_tokens == 1
            deltas = [piece.choices[0].delta for piece in pieces if piece.choices]
            calls = [call for delta in deltas for call in delta.tool_calls or ()]
            text = "".join(delta.content or "" for delta in deltas)
            functions = [call.function.name for call in calls if call.function]
            assert (text, functions) == (("", ["sort"]) if more else ("billing", []))
        answer = proxy.chat()
        assert answer.headers["x-stopwise-arm"] == "keywords"
        assert "continuing to arm" in answer.headers["x-stopwise-reason"]
        assert answer.headers["x-stopwise-cost"] == "0.1"


def test_errors_become_exceptions_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model 'other'") as caught:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="x-stopwise-deadline"):
        client.chat.completions.create(
            model="tickets", messages=MESSAGES, extra_headers={"x-stopwise-deadline": "soon"}
        )
