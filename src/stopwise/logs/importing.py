"""Import of recorded model calls as a log: OpenTelemetry, LiteLLM and OpenAI batch files."""

import csv
import math
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.canonical import canonical_json
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.files import put_in_place
from stopwise.logs.log import format_suffix
from stopwise.logs.rows import BOM, decode_lines
from stopwise.logs.writer import LogWriter
from stopwise.progress import Progress, no_progress
from stopwise.records import Round
from stopwise.running.answer_forms import AnswerForm, answer_form, normalised_text
from stopwise.text import suggestion

Json: TypeAlias = dict[str, Any]
CALL_FIELDS = ("case_id", "model", "answer", "cost", "time", "letters", "turns", "tools", "tokens")
CONTEXT = ("log_prompt_letters", "turns", "tools")
LETTERS_PER_TOKEN = 4  # roughly, in English; for prompts without a text (heuristic)
# Operations of OpenTelemetry that call a model; agents and tools have spans too.
INFERENCE_OPERATIONS = (None, "chat", "text_completion", "generate_content")
# Events, attributes and event fields in which instrumentations record an answer.
ANSWER_EVENTS = ("gen_ai.choice", "gen_ai.content.completion")
ANSWER_ATTRIBUTES = ("gen_ai.output.messages", "gen_ai.completion.0.content")
ANSWER_EVENT_FIELDS = ("gen_ai.completion", "gen_ai.event.content", "message", "content")
TEXT_FIELDS = (
    "message",
    "parts",
    "content",
    "text",
    "refusal",
    "tool_calls",
    "output",
    "response",
)
MAX_EXAMPLES = 5
LITELLM_CASE_FIELDS = ("trace_id", "session_id")
HOW_TO_RECORD_ANSWERS = (
    "Answers are recorded only if enabled: in LiteLLM with store_prompts_in_spend_logs: true, in "
    "OpenTelemetry with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
)


class ImportSummary(msgspec.Struct):
    """Counts of the cases, answers and records of an import."""

    cases: int = 0
    rows: int = 0  # cases written; the others lack an answer from the first arm
    complete: int = 0  # cases with answers from all arms
    compared_as_text: int = 0  # answers without the requested form
    answers: Counter[str] = msgspec.field(default_factory=Counter[str])  # by arm
    costs: dict[str, float | None] = {}  # the mean cost of a call of each arm, in cascade order
    unused: Counter[str] = msgspec.field(default_factory=Counter[str])  # records, by reason
    examples: list[str] = []  # of unused records

    def skip(self, source: str, reason: str) -> None:
        """Count a record that cannot be used."""
        self.unused[reason] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"{source}: {reason}")


def import_calls(
    files: Sequence[Path],
    out: Path,
    *,
    arms: Sequence[str] = (),
    compare: str = "text",
    case: str | None = None,
    progress: Progress = no_progress,
) -> ImportSummary:
    """Convert recorded calls to a log with one row per case; an existing ``out`` is replaced.

    ``arms`` are models in cascade order (default: all, by mean cost), ``compare`` is an
    `answer_form`, and ``case`` names the attribute or field that identifies the case of a call
    (default: the trace, the session or ``custom_id``). Calls are collected in a temporary database
    on disk, so files may be larger than memory.
    """
    form, summary = answer_form(compare), ImportSummary()
    format_suffix(out)
    with closing(sqlite3.connect("")) as calls:
        calls.execute(f"CREATE TABLE calls (source, {', '.join(CALL_FIELDS)})")
        insert = f"INSERT INTO calls VALUES (?{', ?' * len(CALL_FIELDS)})"
        for source, record in _records(files, summary, progress):
            try:
                for call in calls_of(record, case):
                    missing = [key for key in CALL_FIELDS[:3] if call.get(key) is None]
                    if missing and missing != ["model", "answer"]:
                        summary.skip(source, f"no {missing[-1].removesuffix('_id')}")
                    else:  # a batch input has only a prompt
                        calls.execute(insert, [source, *map(call.get, CALL_FIELDS)])
            except (TypeError, ValueError, AttributeError, LookupError, sqlite3.Error):
                summary.skip(source, "not a record of OpenTelemetry, LiteLLM or an OpenAI batch")
        arm_of_model = _arm_of_model(calls, arms, summary)
        temporary = out.with_name(f".{os.getpid()}-{out.name}")
        try:
            _write(calls, temporary, arm_of_model, form, summary)
            put_in_place(temporary, out)
        finally:
            temporary.unlink(missing_ok=True)
    return summary


def calls_of(record: Any, case: str | None = None) -> list[Json]:
    """Return the calls in a record, each with the `CALL_FIELDS` that the record has.

    Examples
    --------
    >>> body = {"model": "small", "choices": [{"message": {"role": "assistant", "content": "cat"}}]}
    >>> line = {"custom_id": "7", "response": {"status_code": 200, "body": body}, "error": None}
    >>> [(call["case_id"], call["model"], call["answer"]) for call in calls_of(line)]
    [('7', 'small', 'cat')]
    """
    if "custom_id" in record:
        body = _dict(_dict(record.get("response")).get("body"))
        call = {"case_id": str(record["custom_id"]), "model": body.get("model")}
        call |= {"answer": _answer(body), "time": body.get("created", body.get("created_at"))}
        if "response" in record:  # an output, perhaps of a failed request
            call["model"] = call["model"] or "unknown"
        return [call | _prompt(_dict(record.get("body")), _dict(body.get("usage")))]
    if "request_id" in record:
        return [_from_spend_log({key: _decoded(cell) for key, cell in record.items()}, case)]
    kind, key = ("Spans", "spans") if "resourceSpans" in record else ("Logs", "logRecords")
    scopes = (scope for resource in record["resource" + kind] for scope in resource["scope" + kind])
    calls = (_from_span(span, case) for scope in scopes for span in scope[key])
    return [call for call in calls if call]


def _from_span(span: Json, case: str | None) -> Json:
    """Return the call of a span or log record; {} if it is not a call of a model."""
    attributes = _attributes(span.get("attributes"))
    model = attributes.get("gen_ai.request.model", attributes.get("gen_ai.response.model"))
    if model is None or attributes.get("gen_ai.operation.name") not in INFERENCE_OPERATIONS:
        return {}
    candidates = [attributes.get(key) for key in ANSWER_ATTRIBUTES]
    for event in span.get("events", ()):
        if event["name"] in ANSWER_EVENTS:
            fields = _attributes(event["attributes"])
            candidates += [fields.get(key) for key in ANSWER_EVENT_FIELDS]
    usage = {key.removeprefix("gen_ai.usage."): value for key, value in attributes.items()}
    request = {
        "messages": _decoded(attributes.get("gen_ai.input.messages")),
        "tools": attributes.get("gen_ai.tool.definitions"),
    }
    call = {
        "case_id": span["traceId"] if case is None else attributes.get(case),
        "model": model,
        "answer": next(filter(None, map(_answer, candidates)), None),
        "cost": usage.get("cost"),
        "time": int(span.get("startTimeUnixNano", span.get("timeUnixNano", 0))) / 1e9,
    }
    return call | _prompt(request, usage)


def _from_spend_log(row: Json, case: str | None) -> Json:
    metadata = _dict(row.get("metadata"))
    request = _dict(
        row.get("proxy_server_request") or _decoded(metadata.get("proxy_server_request"))
    )
    request |= {"messages": row["messages"]} if row.get("messages") else {}
    sources = (row, metadata, _dict(metadata.get("spend_logs_metadata")))
    names = (case,) if case else LITELLM_CASE_FIELDS
    case_ids = [source.get(name) for name in names for source in sources]
    spend = row.get("spend")
    call: Json = {
        "model": row["model"],
        "cost": None if spend in (None, "") else float(spend),
        "case_id": next(filter(None, case_ids), None if case else row["request_id"]),
        "answer": _answer(row.get("response")),
    }
    with suppress(ValueError):
        call["time"] = datetime.fromisoformat(str(row.get("startTime"))).timestamp()
    return call | _prompt(request, row)


def _prompt(request: Json, usage: Json) -> Json:
    """Return the prompt features of an OpenAI request."""
    tokens = usage.get("input_tokens", usage.get("prompt_tokens"))
    features: Json = {"tokens": None if tokens is None else float(tokens)}
    if prompt := request.get("messages") or request.get("input") or request.get("prompt"):
        messages = cast("list[Any]", prompt if isinstance(prompt, list) else [prompt])
        features["letters"] = len(_text([request.get("instructions"), *messages]))
        features["turns"] = sum(_dict(message).get("role") == "user" for message in messages) or 1
        features["tools"] = bool(request.get("tools") or request.get("functions"))
    return features


def _answer(value: Any) -> str | None:
    """Return the answer in an OpenAI response, a list of messages, or a text."""
    first: Any = _dict(_decoded(value)).get("choices") or _decoded(value)
    first = cast("Any", first[0] if isinstance(first, list) and first else first)
    return (_text(first) or _text(value)).strip() or None


def _text(value: Any) -> str:
    """Return the text of a message in a format of OpenTelemetry, LiteLLM or OpenAI."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, cast("list[Any]", value))))
    item = _dict(value)
    tool = _dict(item.get("function", item))
    if "name" in tool and "arguments" in tool:
        return canonical_json([tool["name"], _decoded(tool["arguments"])]).decode()
    if item and item.get("type") != "reasoning":
        return _text([item.get(key) for key in TEXT_FIELDS])
    return value if isinstance(value, str) else ""


def _decoded(value: Any) -> Any:
    """Return the object or list that a JSON text holds; any other value unchanged."""
    with suppress(msgspec.DecodeError):
        if isinstance(value, str) and value[:1] in ("{", "["):
            return msgspec.json.decode(value)
    return value


def _attributes(pairs: Any) -> Json:
    return {pair["key"]: _plain(pair.get("value")) for pair in pairs or ()}


def _plain(value: Any) -> Any:
    """Return a typed OTLP value as a plain one."""
    kind, content = cast("tuple[str, Any]", next(iter(_dict(value).items()), ("", None)))
    if kind == "arrayValue":
        return [_plain(item) for item in content.get("values", ())]
    return _attributes(content.get("values")) if kind == "kvlistValue" else content


def _dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _records(
    files: Sequence[Path], summary: ImportSummary, progress: Progress
) -> Iterator[tuple[str, Any]]:
    """Yield every record, preceded by its file and line as text."""
    done, size = 0, sum(path.stat().st_size for path in files)
    for path in files:
        with path.open("rb") as file, ExitStack() as cleanup:
            # Answers may be of any length; the limit is global, so it is restored.
            cleanup.callback(csv.field_size_limit, csv.field_size_limit(2**31 - 1))
            if (head := file.peek().removeprefix(BOM).lstrip()[:1]) in (b"", b"["):
                problem = "must have one JSON object per line, not an array" if head else "is empty"
                raise InvalidLogError(f"{path.name} {problem}")
            lines = decode_lines(file, path.name)
            table = csv.DictReader(lines) if path.suffix.lower() == ".csv" else None
            for number, row in enumerate(table or lines, 1):
                source = f"{path.name}, line {table.line_num if table else number}"
                try:
                    record = msgspec.json.decode(row) if isinstance(row, str) else row
                except msgspec.DecodeError:
                    if str(row).strip():
                        summary.skip(source, "not JSON")
                else:
                    yield source, record
                progress("reading (kB)", (done + file.tell()) // 1000, size // 1000)
            done += file.tell()


def _arm_of_model(
    calls: sqlite3.Connection, arms: Sequence[str], summary: ImportSummary
) -> dict[str, str]:
    """Return the arm of each model, in cascade order; store the mean costs in ``summary``."""
    query = (
        "SELECT model, AVG(cost), COUNT(cost) < COUNT(*) FROM calls "
        "WHERE model IS NOT NULL GROUP BY model"
    )
    means = {model: None if unknown else cost for model, cost, unknown in calls.execute(query)}
    if len(means) < 2:
        reasons = [f"{n} × {reason}" for reason, n in summary.unused.items()]
        raise InvalidLogError(
            "the files must contain answers from at least 2 models, got "
            f"{', '.join(means) or 'none'}; unused records: "
            f"{'; '.join([*reasons, *summary.examples]) or 'none'}. "
            f"{HOW_TO_RECORD_ANSWERS}"
        )
    if not arms and None in means.values():
        raise InvalidParameterError(
            "the costs of some calls are missing, so the arms cannot be ordered by cost; name them "
            f"in cascade order, as in --arms {','.join(means)}"
        )
    arm_of_model: dict[str, str] = {}
    for arm in arms or sorted(means, key=lambda model: cast("float", means[model])):
        versions = [m for m in means if re.fullmatch(re.escape(arm) + r"(-\d[\d-]*)?", m)]
        if arm in means:
            model = arm
        elif len(versions) == 1:
            model = versions[0]
        else:
            raise InvalidParameterError(
                f"the files have no model {arm!r}; {suggestion(arm, means)}"
            )
        if model in arm_of_model:
            raise InvalidParameterError(f"duplicate arm {arm!r}: {model!r} is already an arm")
        arm_of_model[model] = arm
        summary.costs[arm] = means[model]
    return arm_of_model


def _write(
    calls: sqlite3.Connection,
    path: Path,
    arm_of_model: dict[str, str],
    form: AnswerForm,
    summary: ImportSummary,
) -> None:
    """Write the cases in order of time, each up to the first arm without an answer."""
    order = "MIN(time) OVER (PARTITION BY case_id), case_id, time, rowid"
    rows = calls.execute(f"SELECT * FROM calls ORDER BY {order}")
    comparable_cases = 0
    has_costs = None not in summary.costs.values()
    with LogWriter(path, [*summary.costs], CONTEXT, costs=has_costs) as log:
        for case, group in groupby(rows, lambda row: str(row[1])):
            outputs_and_costs = dict[str, tuple[Any, Any]]()  # by arm
            fields = Json()  # of the case: the first value of each
            for source, *cells in group:
                call = dict(zip(CALL_FIELDS, cells, strict=True))
                fields = {key: cell for key, cell in call.items() if cell is not None} | fields
                arm = arm_of_model.get(call["model"] or "")
                if arm in outputs_and_costs:
                    summary.skip(source, "second call of a model in one case; the first is used")
                elif arm is not None:
                    output = form(call["answer"])
                    summary.compared_as_text += output is None
                    if output in (None, ""):  # a blank output would be a missing answer
                        output = normalised_text(call["answer"]) or call["answer"]
                    outputs_and_costs[arm] = output, call["cost"]
            summary.cases += 1
            summary.answers.update(outputs_and_costs.keys())
            summary.complete += len(outputs_and_costs) == len(arm_of_model)
            ran = [
                outputs_and_costs[arm]
                for arm in takewhile(outputs_and_costs.__contains__, summary.costs)
            ]
            comparable_cases += len(ran) > 1
            if not ran:
                continue
            letters = fields.get("letters", LETTERS_PER_TOKEN * fields.get("tokens", 0))
            turns, tools = float(fields.get("turns", 1)), float(fields.get("tools", 0))
            outputs, costs = zip(*ran, strict=True)
            last = len(ran) - 1
            log.write(
                Round(
                    id=case,
                    time=fields.get("time", 0.0),
                    context=(math.log1p(letters), turns, tools),
                    outputs=outputs,
                    answers=outputs,
                    stop=last,
                    rule_stop=last,
                    costs=costs if has_costs else None,
                )
            )
            summary.rows += 1
    if not comparable_cases:
        raise InvalidLogError(
            f"none of {summary.cases:,} cases has answers from both "
            f"{' and '.join([*summary.costs][:2])}; use --case to name the attribute or field that "
            "identifies the case of a call"
        )
