"""The real client of OpenAI, unchanged but for its base URL."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from examples.proxy_upstreams import Upstream
from tests.proxy.harness import MESSAGES, TOOL, Proxied, proxied, stages


class Topic(BaseModel):
    topic: str


SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {"name": "topic", "schema": Topic.model_json_schema()},
}


@pytest.fixture(scope="module", params=["on", "shadow"])
def proxy(
    request: pytest.FixtureRequest, models: list[Upstream], tmp_path_factory: Any
) -> Iterator[Proxied]:
    folder: Path = tmp_path_factory.mktemp("proxy")
    policy = {"kind": "uss-anchor", "forced_rounds": 1000}  # all stages are asked
    with proxied(folder, stages(models), mode=request.param, policy=policy, sample=0.5) as running:
        yield running


@pytest.fixture
def client(proxy: Proxied) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_plain(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="tickets", messages=MESSAGES)
    answer = raw.parse()
    assert answer.choices[0].message.content == "billing"
    assert raw.headers["x-stopwise-arm"] == "phrases"  # the policy knows nothing yet; or shadow
    assert raw.headers["x-stopwise-depth"] == "3"
    assert float(raw.headers["x-stopwise-cost"]) > 0.2
    assert raw.headers["x-stopwise-reason"]
    assert [model.id for model in client.models.list()] == ["tickets"]


def test_async(proxy: Proxied) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client:
            asked = (
                client.chat.completions.create(model="tickets", messages=MESSAGES) for _ in range(8)
            )
            return [one.choices[0].message.content for one in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == ["billing"] * 8


def test_streaming(client: openai.OpenAI, proxy: Proxied) -> None:
    options: Any = {"include_usage": True}
    stream = client.chat.completions.create(
        model="tickets", messages=MESSAGES, stream=True, stream_options=options
    )
    pieces = list(stream)
    text = "".join(one.choices[0].delta.content or "" for one in pieces if one.choices)
    assert text == "billing"
    assert pieces[-1].usage is not None
    asked = 3 if proxy.config.cascades["tickets"].mode == "on" else 1
    assert pieces[-1].usage.completion_tokens == asked  # of all stages that were asked
    assert len(pieces) > 3  # as the upstream sent it


def test_tools(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tickets", messages=MESSAGES, tools=[TOOL])
    calls: Any = answer.choices[0].message.tool_calls
    (call,) = calls
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("sort", '{"topic": "billing"}')
    stream = client.chat.completions.create(
        model="tickets", messages=MESSAGES, tools=[TOOL], stream=True
    )
    pieces = [one for piece in stream for one in piece.choices[0].delta.tool_calls or ()]
    given = "".join((one.function and one.function.arguments) or "" for one in pieces)
    assert given == '{"topic": "billing"}'


def test_structured_output(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="tickets", messages=MESSAGES, response_format=Topic
    )
    assert answer.choices[0].message.parsed == Topic(topic="billing")


def test_an_earlier_stage_that_is_enough_also_answers_as_a_stream(
    models: list[Upstream], tmp_path: Path
) -> None:
    never_worth_it = stages(models, 0.1, 5, 5)
    policy = {"kind": "uss-anchor", "forced_rounds": 0, "explore": 0}
    with (
        proxied(tmp_path, never_worth_it, mode="on", policy=policy) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="any") as client,
    ):
        for more in ({}, {"tools": [TOOL]}):
            given: Any = {**more, "stream_options": {"include_usage": True}}
            pieces = list(
                client.chat.completions.create(
                    model="tickets", messages=MESSAGES, stream=True, **given
                )
            )
            usage = pieces[-1].usage
            assert usage is not None
            assert usage.completion_tokens == 1
            deltas = [one.choices[0].delta for one in pieces if one.choices]
            calls = [call for one in deltas for call in one.tool_calls or ()]
            text = "".join(one.content or "" for one in deltas)
            named = [call.function.name for call in calls if call.function]
            assert (text, named) == (("", ["sort"]) if more else ("billing", []))
        answer = proxy.ask_for()
        assert answer.headers["x-stopwise-arm"] == "keywords"
        assert "continuing to arm" in answer.headers["x-stopwise-reason"]
        assert answer.headers["x-stopwise-cost"] == "0.1"


def test_errors_are_those_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model 'other'") as caught:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="x-stopwise-deadline"):
        client.chat.completions.create(
            model="tickets", messages=MESSAGES, extra_headers={"x-stopwise-deadline": "soon"}
        )
