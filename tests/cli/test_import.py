"""``stopwise import`` with files in the documented shape of each format."""

import csv
import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw
from tests.cli.conftest import Run, flat

N = 120  # cases
CATEGORIES = ("billing", "refund", "other")
SPEND = {"small": 0.0001, "large": 0.002}
Json = dict[str, Any]


def answer(case: int, model: str) -> str:
    """Return the answer of a model; the small model is wrong on some long prompts."""
    right = case % 3
    wrong = model == "small" and case % 4 == 0 and case > N // 2
    return CATEGORIES[(right + wrong) % 3]


def prompt(case: int) -> str:
    return "Where is my money? " * (case + 1)


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """Write records as JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def value(plain: Any) -> Json:
    """Return a value in OTLP/JSON, in which 64-bit integers are text."""
    match plain:
        case bool():
            return {"boolValue": plain}
        case int():
            return {"intValue": str(plain)}
        case float():
            return {"doubleValue": plain}
        case list():
            return {"arrayValue": {"values": [value(item) for item in plain]}}
        case dict():
            return {"kvlistValue": {"values": attributes(plain)}}
        case _:
            return {"stringValue": plain}


def attributes(plain: Json) -> list[Json]:
    return [{"key": key, "value": value(item)} for key, item in plain.items()]


def message(role: str, text: str, **fields: str) -> Json:
    return {"role": role, "parts": [{"type": "text", "content": text}], **fields}


def span(case: int, model: str, extra: Json, events: Iterable[tuple[str, Json]] = ()) -> Json:
    start = 1_790_000_000_000_000_000 + case * 10**9 + (model == "large") * 10**8
    common = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 5 * (case + 1),
        "gen_ai.usage.output_tokens": 1,
    }
    return {
        "traceId": f"{case:032x}",
        "spanId": f"{2 * case + (model == 'large'):016x}",
        "parentSpanId": "",
        "name": f"chat {model}",
        "kind": 3,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**8),
        "attributes": attributes(common | extra),
        "events": [
            {"timeUnixNano": str(start), "name": name, "attributes": attributes(fields)}
            for name, fields in events
        ],
        "status": {},
    }


def export(spans: list[Json]) -> Json:
    """Return a line of the Collector's file exporter."""
    resource = {"attributes": attributes({"service.name": "help desk"})}
    scope = {"name": "opentelemetry.instrumentation.openai_v2", "version": "2.1b0"}
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]
    }


def span_with_attributes(case: int, model: str) -> Json:
    output = [message("assistant", answer(case, model).title() + ".", finish_reason="stop")]
    return span(
        case,
        model,
        {
            "gen_ai.input.messages": [message("system", "Sort."), message("user", prompt(case))],
            "gen_ai.output.messages": output,
            "gen_ai.tool.definitions": [{"type": "function", "name": "look_up"}] * (case % 2),
        },
    )


def span_with_json_text(case: int, model: str) -> Json:
    output = [message("assistant", answer(case, model), finish_reason="stop")]
    texts = json.dumps([message("user", prompt(case))])
    return span(
        case,
        model,
        {"gen_ai.input.messages": texts, "gen_ai.output.messages": json.dumps(output)},
    )


def span_with_events(case: int, model: str) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", "content": answer(case, model)}}
    events = [
        ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"content": prompt(case)})}),
        ("gen_ai.choice", {"gen_ai.event.content": json.dumps(choice)}),
    ]
    return span(case, model, {}, events)


def span_with_content_events(case: int, model: str) -> Json:
    events = [
        ("gen_ai.content.prompt", {"gen_ai.prompt": prompt(case)}),
        ("gen_ai.content.completion", {"gen_ai.completion": answer(case, model)}),
    ]
    return span(case, model, {}, events)


def span_with_flat_answer(case: int, model: str) -> Json:
    return span(case, model, {"gen_ai.completion.0.content": answer(case, model)})


SPANS = (
    span_with_attributes,
    span_with_json_text,
    span_with_events,
    span_with_content_events,
    span_with_flat_answer,
)


def chat(case: int, model: str) -> Json:
    choice = {"index": 0, "message": {"role": "assistant", "content": answer(case, model)}}
    return {
        "id": f"chatcmpl-{case}",
        "object": "chat.completion",
        "created": 1_790_000_000 + case,
        "model": f"{model}-2026-07-18",
        "choices": [choice | {"finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 5 * (case + 1), "completion_tokens": 1, "total_tokens": 6},
    }


def spend_row(case: int, model: str) -> Json:
    request = {"model": model, "messages": [{"role": "user", "content": prompt(case)}]}
    return {
        "request_id": f"{model}-{case}",
        "call_type": "acompletion",
        "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
        "spend": SPEND[model],
        "total_tokens": 6,
        "prompt_tokens": 5 * (case + 1),
        "completion_tokens": 1,
        "startTime": f"2026-09-01T10:{case // 60:02}:{case % 60:02}.25Z",
        "endTime": f"2026-09-01T10:{case // 60:02}:{case % 60:02}.75Z",
        "model": model,
        "metadata": json.dumps(
            {"spend_logs_metadata": {"ticket": f"T{case}"}, "status": "success"}
        ),
        "cache_hit": "False",
        "request_tags": "[]",
        "messages": "{}",
        "response": json.dumps(chat(case, model)),
        "proxy_server_request": json.dumps(request),
        "session_id": f"session-{case}",
        "status": "success",
    }


def batch_input(case: int) -> Json:
    body = {"model": "small", "messages": [{"role": "user", "content": prompt(case)}]}
    return {"custom_id": f"{case}", "method": "POST", "url": "/v1/chat/completions", "body": body}


def batch_output(case: int, model: str) -> Json:
    response = {"status_code": 200, "request_id": "af0bac", "body": chat(case, model)}
    return {"id": f"batch_req_{case}", "custom_id": f"{case}", "response": response, "error": None}


def both(make: Callable[[int, str], Json], cases: int = N) -> list[Json]:
    """Return the records of both models for every case."""
    return [make(case, model) for case in range(cases) for model in SPEND]


def check(path: Path, process: Any) -> sw.Log:
    """Check that the command succeeded and the log has the recorded answers; return the log."""
    assert process.returncode == 0, process.stderr
    log = sw.Log(path)
    assert log.arms == ("small", "large")
    assert log.context == ("log_prompt_letters", "turns", "tools")
    [chunk] = log.chunks()
    differ = [answer(case, "small") != answer(case, "large") for case in range(N)]
    assert chunk.rounds.differ[:, 0].tolist() == differ
    assert sum(differ) > 10
    assert chunk.values is not None
    answers = np.array(chunk.values)[chunk.codes]
    assert answers[:, 1].tolist() == [answer(case, "large") for case in range(N)]
    lengths = chunk.rounds.contexts[:, 0]
    assert (np.diff(lengths) > 0).all()
    return log


@pytest.mark.parametrize("make", SPANS)
def test_spans_are_imported(stopwise: Run, tmp_path: Path, make: Any) -> None:
    spans = both(make)
    other_operations = (
        span(0, "x", {"gen_ai.operation.name": "execute_tool"}),
        {
            "traceId": "0" * 32,
            "spanId": "f" * 16,
            "name": "GET /",
            "attributes": attributes({"http.request.method": "GET"}),
        },
    )
    records = [export(spans[at : at + 7]) for at in range(0, len(spans), 7)]
    write_lines(tmp_path / "spans.jsonl", [*reversed(records), export([*other_operations])])
    process = stopwise("import", "spans.jsonl", "--arms", "small,large", "--out", "calls.csv")
    log = check(tmp_path / "calls.csv", process)
    assert f"{N} cases, 2 arms, {2 * N} answers." in process.stdout
    assert "Skipped" not in process.stdout
    if make is span_with_attributes:
        [chunk] = log.chunks()
        assert chunk.rounds.contexts[:4, 2].tolist() == [0, 1, 0, 1]
        assert chunk.rounds.contexts[3, 0] == pytest.approx(np.log1p(len("Sort.\n" + prompt(3))))
        [command] = [line for line in process.stdout.splitlines() if line.startswith("Next: ")]
        diagnosed = stopwise(*shlex.split(command)[2:])
        assert diagnosed.returncode == 0, diagnosed.stderr
        assert (tmp_path / "calls-diagnosis" / "report.html").is_file()


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_spend_logs_are_imported(stopwise: Run, tmp_path: Path, suffix: str) -> None:
    rows = both(spend_row)
    if suffix == "jsonl":
        write_lines(tmp_path / "spend.jsonl", rows)
    else:
        with (tmp_path / "spend.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    process = stopwise("import", f"spend.{suffix}", "--out", "calls.jsonl")
    check(tmp_path / "calls.jsonl", process)  # ordered by cost
    first = json.loads((tmp_path / "calls.jsonl").read_text().splitlines()[0])
    assert first["costs"] == SPEND
    assert first["time"].startswith("2026-09-01T10:00:00.25")
    assert first["id"] == "session-0"
    assert "small: 120 answers, missing in 0 cases; 0.0001 per call" in process.stdout
    [command] = [line for line in process.stdout.splitlines() if line.startswith("Next: ")]
    assert "--prices 0.0001,0.002 --error-cost 1" in command
    if suffix == "jsonl":
        replayed = stopwise("replay", *shlex.split(command)[3:], "--policy", "uss-laplace")
        assert replayed.returncode == 0, replayed.stderr


def test_case_links_calls_by_a_metadata_field(stopwise: Run, tmp_path: Path) -> None:
    rows = [row | {"session_id": row["request_id"]} for row in both(spend_row)]
    write_lines(tmp_path / "spend.jsonl", rows)
    process = stopwise("import", "spend.jsonl", "--out", "calls.csv")
    assert process.returncode == 2
    assert "none of 240 cases has answers from both small and large" in flat(process.stderr)
    assert not (tmp_path / "calls.csv").exists()
    process = stopwise("import", "spend.jsonl", "--case", "ticket", "--out", "calls.csv")
    check(tmp_path / "calls.csv", process)


def test_batch_files_are_imported(stopwise: Run, tmp_path: Path) -> None:
    write_lines(tmp_path / "input.jsonl", map(batch_input, range(N)))
    for model in SPEND:
        outputs = [batch_output(case, model) for case in reversed(range(N))]
        write_lines(tmp_path / f"{model}.jsonl", outputs)
    files = ("small.jsonl", "input.jsonl", "large.jsonl")
    process = stopwise("import", *files, "--arms", "small,large", "--out", "calls.parquet")
    [chunk] = check(tmp_path / "calls.parquet", process).chunks()
    assert chunk.rounds.contexts[9, 0] == pytest.approx(np.log1p(len(prompt(9))))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    without = stopwise("import", *files[::2], "--arms", "small,large", "--out", "b.csv")
    [chunk] = check(tmp_path / "b.csv", without).chunks()
    assert chunk.rounds.contexts[9, 0] == pytest.approx(np.log1p(4 * 50))  # from its tokens


def test_unusable_records_are_counted_with_examples(stopwise: Run, tmp_path: Path) -> None:
    rows = both(spend_row)
    rows[0] |= {"response": "{}", "status": "failure"}  # case 0 has no answer of the first arm
    rows[3] |= {"response": "{}"}  # case 1 has no answer of the second
    rows.append(rows[4] | {"request_id": "again"})
    path = write_lines(tmp_path / "spend.jsonl", [*rows, {"hello": 1}, [1], 7])
    with path.open("a") as file:
        file.write('{"cut of')
    process = stopwise("import", "spend.jsonl", "--out", "calls.csv")
    assert process.returncode == 0, process.stderr
    text = process.stdout
    assert "small: 119 answers, missing in 1 case;" in text
    assert "large: 119 answers, missing in 1 case;" in text
    assert "Dropped: 1 case without an answer from the first arm." in text
    assert "Skipped 2 records: no answer" in text
    assert "Skipped 3 records: not a record of OpenTelemetry, LiteLLM or an OpenAI batch" in text
    assert "Skipped 1 record: not JSON" in text
    assert "Skipped 1 record: second call of a model in one case" in text
    assert "spend.jsonl, line 1: no answer" in text
    assert "Wrote calls.csv: 119 rows, 118 with all answers." in text
    assert sw.Log(tmp_path / "calls.csv").arms == ("small", "large")


def test_blank_lines_are_skipped(stopwise: Run, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "spend.jsonl", both(spend_row))
    path.write_text("\n" + path.read_text().replace("\n", "\r\n \n") + "\n\n")
    process = stopwise("import", "spend.jsonl", "--out", "calls.csv")
    check(tmp_path / "calls.csv", process)
    assert "Skipped" not in process.stdout


@pytest.mark.parametrize("text", ["", " \n\n", "\ufeff", "\ufeff[\n  {}\n]\n"])
def test_empty_files_and_json_arrays_are_rejected(stopwise: Run, tmp_path: Path, text: str) -> None:
    write_lines(tmp_path / "spend.jsonl", both(spend_row))
    (tmp_path / "more.jsonl").write_text(text, encoding="utf-8")
    process = stopwise("import", "spend.jsonl", "more.jsonl", "--out", "calls.csv")
    assert process.returncode == 2
    expected = "must have one JSON object per line" if "[" in text else "is empty"
    assert f"more.jsonl {expected}" in flat(process.stderr)
    assert not (tmp_path / "calls.csv").exists()


def test_failed_requests_of_a_batch_have_no_answer(stopwise: Run, tmp_path: Path) -> None:
    outputs = [batch_output(case, model) for case in range(N) for model in SPEND]
    outputs[1]["response"] = None
    outputs[1]["error"] = {"code": "batch_expired", "message": "expired"}
    body = {"error": {"message": "Unknown field", "type": "invalid_request_error"}}
    outputs[2]["response"] = {"status_code": 400, "request_id": "b", "body": body}
    write_lines(tmp_path / "out.jsonl", outputs)
    process = stopwise("import", "out.jsonl", "--arms", "small,large", "--out", "calls.csv")
    assert process.returncode == 0, process.stderr
    assert "Skipped 2 records: no answer" in process.stdout
    assert "out.jsonl, line 2: no answer" in process.stdout
    assert "out.jsonl, line 3: no answer" in process.stdout
    assert "large: 119 answers, missing in 1 case" in process.stdout


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ([], (), "in.jsonl is empty"),
        ([both(spend_row, 1)], (), "in.jsonl must have one JSON object per line"),
        ([{"a": 1}], (), "1 × not a record of OpenTelemetry"),
        ([{**spend_row(0, "small"), "response": "{}"}], (), "store_prompts_in_spend_logs: true"),
        ([spend_row(0, "small")], (), "answers from at least 2 models, got small"),
        ([export(both(span_with_attributes, 1))], (), "--arms large,small"),
        (
            both(spend_row, 1),
            ("--arms", "small,huge"),
            "the files have no model 'huge'; choose from large, small",
        ),
        (both(spend_row, 1), ("--arms", "small,small"), "duplicate arm 'small'"),
        (both(spend_row, 1), ("--out", "new/calls.csv"), "folder new does not exist"),
        (both(spend_row, 1), ("--compare", "choice:a"), "choice:a|b|c"),
        (both(spend_row, 1), ("--out", "calls.txt"), "unknown format of calls.txt"),
    ],
)
def test_invalid_files_and_options_are_rejected(
    stopwise: Run, tmp_path: Path, records: list[Any], options: tuple[str, ...], message: str
) -> None:
    write_lines(tmp_path / "in.jsonl", records)
    process = stopwise("import", "in.jsonl", "--out", "calls.csv", *options)
    assert process.returncode == 2
    assert message in flat(process.stderr)
    assert "Traceback" not in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_files_are_replaced_only_with_overwrite(stopwise: Run, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "spend.jsonl", both(spend_row))
    before = path.read_bytes()
    (tmp_path / "calls.csv").write_text("mine")
    process = stopwise("import", "spend.jsonl", "--out", "calls.csv")
    assert process.returncode == 2
    assert (tmp_path / "calls.csv").read_text() == "mine"
    process = stopwise("import", "spend.jsonl", "--out", "spend.jsonl", "--overwrite")
    assert process.returncode == 2
    assert path.read_bytes() == before
    process = stopwise("import", "spend.jsonl", "--out", "calls.csv", "--overwrite")
    check(tmp_path / "calls.csv", process)
    assert stopwise("import", "none.jsonl", "--out", "new.csv").returncode == 2


@pytest.mark.parametrize(
    ("compare", "first", "second", "differ"),
    [
        ("text", "**Yes.**", " yes", False),
        ("text", "yes", "no", True),
        ("json", '```json\n{"a": 1, "b": [2]}\n```', '{"b":[2],"a":1}', False),
        ("json", '{"a": 1}', '{"a": 2}', True),
        ("json", "sorry", "Sorry!", False),
        ("number", "It is 1,250.0 in all.", "1250", False),
        ("number", "-3", "3", True),
        ("number", "between 2-3: .50", "0.5", False),
        ("text", "?!", "!", True),
        ("choice:refund|billing", "I would say: Refund.", "refund", False),
        ("choice:refund|billing", "refund or billing", "refund", True),
    ],
)
def test_answers_are_compared_in_the_chosen_form(
    stopwise: Run, tmp_path: Path, compare: str, first: str, second: str, differ: bool
) -> None:
    rows = both(spend_row, 1)
    for row, text in zip(rows, (first, second), strict=True):
        row["response"] = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    write_lines(tmp_path / "in.jsonl", rows)
    process = stopwise("import", "in.jsonl", "--compare", compare, "--out", "calls.csv")
    assert process.returncode == 0, process.stderr
    [chunk] = sw.Log(tmp_path / "calls.csv").chunks()
    assert chunk.rounds.differ.tolist() == [[differ]]
    assert ("compared as text" in process.stdout) == ("sorry" in first or "or billing" in first)


def test_tool_calls_and_responses_are_compared_as_answers(stopwise: Run, tmp_path: Path) -> None:
    tool = {"name": "refund", "arguments": '{"order": 7, "all": true}'}
    calls = [{"id": "c1", "type": "function", "function": tool}]
    small = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}]}
    same = {"name": "refund", "arguments": '{"all": true, "order": 7}'}
    large = {"output": [{"type": "reasoning", "summary": []}, {"type": "function_call", **same}]}
    rows = both(spend_row, 1)
    rows[0]["response"], rows[1]["response"] = small, large
    write_lines(tmp_path / "in.jsonl", rows)
    assert stopwise("import", "in.jsonl", "--out", "calls.csv").returncode == 0
    [chunk] = sw.Log(tmp_path / "calls.csv").chunks()
    assert chunk.rounds.differ.tolist() == [[False]]
