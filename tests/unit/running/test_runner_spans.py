"""Spans of a runner, as the SDK of OpenTelemetry records them."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from threading import Event
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer, get_current_span, get_tracer

import stopwise as sw

CASCADE = sw.Cascade([0.1, 0.2, 0.4], names=["rule", "model", "person"])


class Recorded(NamedTuple):
    """A tracer, and the spans that have ended."""

    tracer: Tracer
    exporter: InMemorySpanExporter

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Recorded(provider.get_tracer("test"), exporter)
    provider.shutdown()


def runner(stages: list[Any], depth: int = 2, **more: Any) -> sw.Runner:
    return sw.Runner(sw.FixedDepth(CASCADE, depth=depth), stages, **more)


def current() -> int:
    return get_current_span().get_span_context().span_id


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_span_for_the_round_and_one_for_each_stage(
    recorded: Recorded, is_async: bool, timeout: float | None
) -> None:
    inside: list[int] = []

    def plain(case: Any) -> str:
        inside.append(current())
        return "ill"

    async def awaited(case: Any) -> str:
        return plain(case)

    begun = time.time_ns()
    how = runner([plain, awaited if is_async else plain, plain], 1, tracer=recorded.tracer)
    if timeout is not None:
        stages = [sw.Stage(one, timeout=timeout) for one in (plain, plain, plain)]
        how = runner(stages, 1, tracer=recorded.tracer)
    with recorded.tracer.start_as_current_span("caller") as caller:
        done = asyncio.run(how.arun([0.3], id="a-1")) if is_async else how.run([0.3], id="a-1")
    first, second, whole, _ = recorded.spans()
    names = ["stopwise.stage rule", "stopwise.stage model", "stopwise.round"]
    assert [one.name for one in (first, second, whole)] == names
    assert [parent(one) for one in (first, second)] == [own(whole)] * 2
    assert parent(whole) == caller.get_span_context().span_id
    # what stages do is traced within their spans, in whatever thread they run
    assert inside == [own(first), own(second)]
    arms = "rule → model → person"
    assert attributes(whole) == {
        "stopwise.cascade": arms,
        "stopwise.round": "a-1",
        "stopwise.stop": 1,
        "stopwise.rule_stop": done.rule_stop,
        "stopwise.arm": "model",
        "stopwise.cost": pytest.approx(float(CASCADE.cumulative[1])),
    }
    known = {"stopwise.cascade": arms, "stopwise.round": "a-1", "stopwise.arm": "rule"}
    assert attributes(first) == known
    times = [begun - 10**6, whole.start_time, first.start_time, first.end_time]
    times += [second.start_time, second.end_time, whole.end_time]
    assert times == sorted(one or 0 for one in times)
    assert whole.status.status_code is StatusCode.UNSET


def test_what_calls_really_cost_is_in_the_span(recorded: Recorded) -> None:
    stages = [sw.Stage(lambda case: 1, cost=cost) for cost in (2.0, 3.0, 5.0)]
    runner(stages, 2, tracer=recorded.tracer).run([0.3])
    assert attributes(recorded.spans()[-1])["stopwise.cost"] == 10.0


def test_a_stage_that_fails_is_an_error_in_both_spans(recorded: Recorded) -> None:
    def fails(case: Any) -> str:
        raise ValueError("no such model")

    done = runner([lambda case: 1, fails, fails], tracer=recorded.tracer).run([0.3])
    first, second, whole = recorded.spans()
    assert done.stop == 0
    codes = [one.status.status_code for one in (first, second, whole)]
    assert codes == [StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR]
    assert "no such model" in (second.status.description or "")
    assert attributes(whole)["error.type"] == "error"
    assert attributes(whole)["stopwise.stop"] == 0
    assert [event.name for event in second.events] == ["exception"]


def test_a_stage_that_is_too_late_ends_its_span(recorded: Recorded) -> None:
    release = Event()
    stages = [sw.Stage(lambda case: release.wait(60), timeout=0.01)] * 3
    done = runner(stages, tracer=recorded.tracer).run([0.3])
    only, whole = recorded.spans()  # although the stage still runs
    release.set()
    assert done.failure is not None
    assert only.status.status_code is StatusCode.ERROR
    assert attributes(whole)["error.type"] == "timeout"
    assert "stopwise.stop" not in attributes(whole)


def test_rounds_at_the_same_time_keep_their_stages_apart(recorded: Recorded) -> None:
    async def stage(case: Any) -> float:
        await asyncio.sleep(0)
        return case[0]

    async def play() -> None:
        how = runner([stage] * 3, tracer=recorded.tracer)
        async for _ in how.arun_many([[k / 10] for k in range(10)], concurrency=5):
            pass

    asyncio.run(play())
    spans = recorded.spans()
    rounds = {own(one): one for one in spans if not one.parent}
    stages = {parent(one): one for one in spans if one.parent}
    assert (len(spans), len(rounds), len(stages)) == (40, 10, 10)
    for id_, one in stages.items():
        whole = rounds[id_ or 0]
        assert attributes(one)["stopwise.round"] == attributes(whole)["stopwise.round"]


def test_with_traces_an_error_is_raised_as_before(
    recorded: Recorded,
) -> None:
    def fails(case: Any) -> str:
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        runner([fails] * 3, tracer=recorded.tracer, on_error="raise").run([0.3])
    assert recorded.spans()[-1].status.status_code is StatusCode.ERROR


PROGRAM = """
import sys, stopwise as sw
cascade = sw.Cascade([0.1, 0.2])
runner = sw.Runner(sw.FixedDepth(cascade), [lambda x: 1, lambda x: 2])
print(runner.run([0.5]).answer, "opentelemetry" in sys.modules)
"""


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "2 False"


def test_a_tracer_without_a_provider_records_nothing_and_rounds_run_as_ever() -> None:
    how = runner([lambda case: "ill"] * 3, tracer=get_tracer("stopwise"))
    assert how.run([0.3]).answer == "ill"
