"""OpenTelemetry spans of a runner, recorded by the SDK."""

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


class SpanRecorder(NamedTuple):
    """A tracer and its finished spans."""

    tracer: Tracer
    exporter: InMemorySpanExporter

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield SpanRecorder(provider.get_tracer("test"), exporter)
    provider.shutdown()


def make_runner(stages: list[Any], depth: int = 2, **options: Any) -> sw.Runner:
    return sw.Runner(sw.FixedDepth(CASCADE, depth=depth), stages, **options)


def current_span_id() -> int:
    return get_current_span().get_span_context().span_id


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("is_async", [False, True])
def test_rounds_and_stages_have_nested_spans(
    recorder: SpanRecorder, is_async: bool, timeout: float | None
) -> None:
    active: list[int] = []

    def plain(case: Any) -> str:
        active.append(current_span_id())
        return "ill"

    async def awaited(case: Any) -> str:
        return plain(case)

    start = time.time_ns()
    runner = make_runner([plain, awaited if is_async else plain, plain], 1, tracer=recorder.tracer)
    if timeout is not None:
        stages = [sw.Stage(plain, timeout=timeout)] * 3
        runner = make_runner(stages, 1, tracer=recorder.tracer)
    with recorder.tracer.start_as_current_span("caller") as caller:
        done = (
            asyncio.run(runner.arun([0.3], id="a-1")) if is_async else runner.run([0.3], id="a-1")
        )
    first, second, round_span, _ = recorder.spans()
    names = ["stopwise.stage rule", "stopwise.stage model", "stopwise.round"]
    assert [span.name for span in (first, second, round_span)] == names
    assert [parent_id(span) for span in (first, second)] == [span_id(round_span)] * 2
    assert parent_id(round_span) == caller.get_span_context().span_id
    # The span of a stage is active in the thread in which the stage runs.
    assert active == [span_id(first), span_id(second)]
    arms = "rule → model → person"
    assert attributes(round_span) == {
        "stopwise.cascade": arms,
        "stopwise.round": "a-1",
        "stopwise.stop": 1,
        "stopwise.rule_stop": done.rule_stop,
        "stopwise.arm": "model",
        "stopwise.cost": pytest.approx(float(CASCADE.cumulative[1])),
    }
    assert attributes(first) == {
        "stopwise.cascade": arms,
        "stopwise.round": "a-1",
        "stopwise.arm": "rule",
    }
    times = [start - 10**6, round_span.start_time, first.start_time, first.end_time]
    times += [second.start_time, second.end_time, round_span.end_time]
    assert times == sorted(moment or 0 for moment in times)
    assert round_span.status.status_code is StatusCode.UNSET


def test_actual_costs_are_in_the_round_span(recorder: SpanRecorder) -> None:
    stages = [sw.Stage(lambda case: 1, cost=cost) for cost in (2.0, 3.0, 5.0)]
    make_runner(stages, 2, tracer=recorder.tracer).run([0.3])
    assert attributes(recorder.spans()[-1])["stopwise.cost"] == 10.0


def test_a_failed_stage_is_an_error_in_both_spans(recorder: SpanRecorder) -> None:
    def fails(case: Any) -> str:
        raise ValueError("no such model")

    done = make_runner([lambda case: 1, fails, fails], tracer=recorder.tracer).run([0.3])
    first, second, round_span = recorder.spans()
    assert done.stop == 0
    codes = [span.status.status_code for span in (first, second, round_span)]
    assert codes == [StatusCode.UNSET, StatusCode.ERROR, StatusCode.ERROR]
    assert "no such model" in (second.status.description or "")
    assert attributes(round_span)["error.type"] == "error"
    assert attributes(round_span)["stopwise.stop"] == 0
    assert [event.name for event in second.events] == ["exception"]


def test_a_late_stage_ends_its_span(recorder: SpanRecorder) -> None:
    release = Event()
    stages = [sw.Stage(lambda case: release.wait(60), timeout=0.01)] * 3
    done = make_runner(stages, tracer=recorder.tracer).run([0.3])
    stage_span, round_span = recorder.spans()  # while the stage still runs
    release.set()
    assert done.failure is not None
    assert stage_span.status.status_code is StatusCode.ERROR
    assert attributes(round_span)["error.type"] == "timeout"
    assert "stopwise.stop" not in attributes(round_span)


def test_stages_of_concurrent_rounds_belong_to_their_rounds(recorder: SpanRecorder) -> None:
    async def stage(case: Any) -> float:
        await asyncio.sleep(0)
        return case[0]

    async def play() -> None:
        runner = make_runner([stage] * 3, tracer=recorder.tracer)
        async for _ in runner.arun_many([[k / 10] for k in range(10)], concurrency=5):
            pass

    asyncio.run(play())
    spans = recorder.spans()
    rounds = {span_id(span): span for span in spans if not span.parent}
    stages = {parent_id(span): span for span in spans if span.parent}
    assert (len(spans), len(rounds), len(stages)) == (40, 10, 10)
    for round_id, stage_span in stages.items():
        round_span = rounds[round_id or 0]
        assert attributes(stage_span)["stopwise.round"] == attributes(round_span)["stopwise.round"]


def test_on_error_raise_also_applies_with_a_tracer(recorder: SpanRecorder) -> None:
    def fails(case: Any) -> str:
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        make_runner([fails] * 3, tracer=recorder.tracer, on_error="raise").run([0.3])
    assert recorder.spans()[-1].status.status_code is StatusCode.ERROR


PROGRAM = """
import sys, stopwise as sw
cascade = sw.Cascade([0.1, 0.2])
runner = sw.Runner(sw.FixedDepth(cascade), [lambda x: 1, lambda x: 2])
print(runner.run([0.5]).answer, "opentelemetry" in sys.modules)
"""


def test_opentelemetry_is_imported_only_with_a_tracer() -> None:
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "2 False"


def test_rounds_run_with_a_tracer_without_a_provider() -> None:
    runner = make_runner([lambda case: "ill"] * 3, tracer=get_tracer("stopwise"))
    assert runner.run([0.3]).answer == "ill"
