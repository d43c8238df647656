"""Import of recorded calls as a log: OpenTelemetry, LiteLLM spend logs, OpenAI batch files."""

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
from stopwise.running.answer_forms import Form, form, normalised_text

Json: TypeAlias = dict[str, Any]
CALL = ("case_id", "model", "answer", "cost", "time", "letters", "turns", "tools", "tokens")
CONTEXT = ("log_prompt_letters", "turns", "tools")
LETTERS = 4  # of English in a token, roughly: for prompts of which only the tokens are known
# Operations of OpenTelemetry that call a model: agents and tools have spans too.
INFERENCE = (None, "chat", "text_completion", "generate_content")
# Events by which older instrumentations record an answer; attributes and fields that may hold it.
ANSWERS = ("gen_ai.choice", "gen_ai.content.completion")
SAID = ("gen_ai.output.messages", "gen_ai.completion.0.content")
SAID_IN_EVENT = ("gen_ai.completion", "gen_ai.event.content", "message", "content")
TEXTS = ("message", "parts", "content", "text", "refusal", "tool_calls", "output", "response")
LINKS = ("trace_id", "session_id")  # of LiteLLM
SETTINGS = (
    "Answers are recorded only if asked for: in LiteLLM by store_prompts_in_spend_logs: true, in "
    "OpenTelemetry by OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
)


class Imported(msgspec.Struct):
    """What was found, and what became of it."""

    cases: int = 0
    rows: int = 0  # cases that were written: the others lack the answer of the first arm
    complete: int = 0  # cases with the answers of all arms
    unlike: int = 0  # answers that have not the form asked for, and are compared as text
    answers: Counter[str] = msgspec.field(default_factory=Counter[str])  # by arm
    costs: dict[str, float | None] = {}  # the mean of a call of each arm, in cascade order
    unused: Counter[str] = msgspec.field(default_factory=Counter[str])  # records, by reason
    examples: list[str] = []  # of such records

    def refuse(self, source: str, reason: str) -> None:
        """Count a record that cannot be used."""
        self.unused[reason] += 1
        self.examples += [f"{source} {reason}"][: 5 - len(self.examples)]


def import_calls(
    files: Sequence[Path],
    out: Path,
    *,
    arms: Sequence[str] = (),
    compare: str = "text",
    case: str | None = None,
    progress: Progress = no_progress,
) -> Imported:
    """Write recorded calls as a log, one row per case, in place of ``out``.

    ``arms`` are models in the order of the cascade (default: all, by mean cost), ``compare`` is a
    `form` of answers, and ``case`` names the attribute or field that the calls of a case
    share (default: the trace, the session or ``custom_id``). Calls wait in a temporary database on
    disk: files may be larger than memory.
    """
    compared_form, found = form(compare), Imported()
    format_suffix(out)
    with closing(sqlite3.connect("")) as calls:
        calls.execute(f"CREATE TABLE calls (source, {', '.join(CALL)})")
        add = f"INSERT INTO calls VALUES (?{', ?' * len(CALL)})"
        for source, record in _records(files, found, progress):
            try:
                for call in calls_of(record, case):
                    missing = [key for key in CALL[:3] if call.get(key) is None]
                    if missing and missing != ["model", "answer"]:
                        found.refuse(source, f"has no {missing[-1].removesuffix('_id')}")
                    else:  # a prompt alone is the input of a batch
                        calls.execute(add, [source, *map(call.get, CALL)])
            except (TypeError, ValueError, AttributeError, LookupError, sqlite3.Error):
                found.refuse(source, "is no record of OpenTelemetry, LiteLLM or an OpenAI batch")
        models = _models(calls, arms, found)
        new = out.with_name(f".{os.getpid()}-{out.name}")
        try:
            _write(calls, new, models, compared_form, found)
            put_in_place(new, out)
        finally:
            new.unlink(missing_ok=True)
    return found


def calls_of(record: Any, case: str | None = None) -> list[Json]:
    """Return the calls that a record describes, with those of the fields `CALL` that it has.

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
        call |= {"answer": _said(body), "time": body.get("created", body.get("created_at"))}
        if "response" in record:  # an output, though its request may have failed
            call["model"] = call["model"] or "unknown"
        return [call | _prompt(_dict(record.get("body")), _dict(body.get("usage")))]
    if "request_id" in record:
        return [_from_spend({key: _decoded(cell) for key, cell in record.items()}, case)]
    kind, of = ("Spans", "spans") if "resourceSpans" in record else ("Logs", "logRecords")
    scopes = (scope for one in record["resource" + kind] for scope in one["scope" + kind])
    spans = (_from_span(span, case) for scope in scopes for span in scope[of])
    return [call for call in spans if call]


def _from_span(span: Json, case: str | None) -> Json:
    """Read a span, or a log record with its attributes; {} if it is not a call of a model."""
    own = _attributes(span.get("attributes"))
    model = own.get("gen_ai.request.model", own.get("gen_ai.response.model"))
    if model is None or own.get("gen_ai.operation.name") not in INFERENCE:
        return {}
    events = [_attributes(e["attributes"]) for e in span.get("events", ()) if e["name"] in ANSWERS]
    said = [own.get(key) for key in SAID] + [e.get(key) for e in events for key in SAID_IN_EVENT]
    used = {key.removeprefix("gen_ai.usage."): value for key, value in own.items()}
    asked = {"messages": _decoded(own.get("gen_ai.input.messages"))}
    asked["tools"] = own.get("gen_ai.tool.definitions")
    time = int(span.get("startTimeUnixNano", span.get("timeUnixNano", 0))) / 1e9
    call = {"case_id": span["traceId"] if case is None else own.get(case), "model": model}
    call |= {"answer": next(filter(None, map(_said, said)), None), "cost": used.get("cost")}
    return call | {"time": time} | _prompt(asked, used)


def _from_spend(row: Json, case: str | None) -> Json:
    more = _dict(row.get("metadata"))
    asked = _dict(row.get("proxy_server_request") or _decoded(more.get("proxy_server_request")))
    asked |= {"messages": row["messages"]} if row.get("messages") else {}
    places = (row, more, _dict(more.get("spend_logs_metadata")))
    keys = [place.get(key) for key in ((case,) if case else LINKS) for place in places]
    spend = row.get("spend")
    call: Json = {"model": row["model"], "cost": None if spend in (None, "") else float(spend)}
    call["case_id"] = next(filter(None, keys), None if case else row["request_id"])
    call["answer"] = _said(row.get("response"))
    with suppress(ValueError):
        call["time"] = datetime.fromisoformat(str(row.get("startTime"))).timestamp()
    return call | _prompt(asked, row)


def _prompt(asked: Json, used: Json) -> Json:
    """Describe the prompt of a request in the form of OpenAI's API; ``used`` counts its tokens."""
    tokens = used.get("input_tokens", used.get("prompt_tokens"))
    known: Json = {"tokens": None if tokens is None else float(tokens)}
    if prompt := asked.get("messages") or asked.get("input") or asked.get("prompt"):
        said = cast("list[Any]", prompt if isinstance(prompt, list) else [prompt])
        known["letters"] = len(_text([asked.get("instructions"), *said]))
        known["turns"] = sum(_dict(one).get("role") == "user" for one in said) or 1
        known["tools"] = bool(asked.get("tools") or asked.get("functions"))
    return known


def _said(value: Any) -> str | None:
    """Return an answer: that of a response of OpenAI's API, of the first message, or a text."""
    first: Any = _dict(_decoded(value)).get("choices") or _decoded(value)
    first = cast("Any", first[0] if isinstance(first, list) and first else first)
    return (_text(first) or _text(value)).strip() or None


def _text(value: Any) -> str:
    """Return the text of a message, in any form that the three formats have."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, cast("list[Any]", value))))
    part = _dict(value)
    tool = _dict(part.get("function", part))
    if "name" in tool and "arguments" in tool:
        return canonical_json([tool["name"], _decoded(tool["arguments"])]).decode()
    if part and part.get("type") != "reasoning":
        return _text([part.get(key) for key in TEXTS])
    return value if isinstance(value, str) else ""


def _decoded(value: Any) -> Any:
    """Return what a text holds if it is an object or list in JSON, else the value itself."""
    with suppress(msgspec.DecodeError):
        if isinstance(value, str) and value[:1] in ("{", "["):
            return msgspec.json.decode(value)
    return value


def _attributes(pairs: Any) -> Json:
    return {one["key"]: _plain(one.get("value")) for one in pairs or ()}


def _plain(value: Any) -> Any:
    """Return a value of OTLP, which names its type, as a plain one."""
    kind, held = cast("tuple[str, Any]", next(iter(_dict(value).items()), ("", None)))
    if kind == "arrayValue":
        return [_plain(one) for one in held.get("values", ())]
    return _attributes(held.get("values")) if kind == "kvlistValue" else held


def _dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _records(
    files: Sequence[Path], found: Imported, progress: Progress
) -> Iterator[tuple[str, Any]]:
    """Yield every record with its place."""
    done, size = 0, sum(path.stat().st_size for path in files)
    for path in files:
        with path.open("rb") as file, ExitStack() as after:
            # answers of any length; the limit is one for the whole process
            after.callback(csv.field_size_limit, csv.field_size_limit(2**31 - 1))
            if (head := file.peek().removeprefix(BOM).lstrip()[:1]) in (b"", b"["):
                what = "must hold one JSON object per line, not an array" if head else "is empty"
                raise InvalidLogError(f"{path.name} {what}")
            lines = decode_lines(file, path.name)
            table = csv.DictReader(lines) if path.suffix.lower() == ".csv" else None
            for number, row in enumerate(table or lines, 1):
                source = f"{path.name}, line {table.line_num if table else number}"
                try:
                    record = msgspec.json.decode(row) if isinstance(row, str) else row
                except msgspec.DecodeError:
                    if str(row).strip():
                        found.refuse(source, "is not JSON")
                else:
                    yield source, record
                progress("reading (kB)", (done + file.tell()) // 1000, size // 1000)
            done += file.tell()


def _models(calls: sqlite3.Connection, arms: Sequence[str], found: Imported) -> dict[str, str]:
    """Return the arm of each model that is one."""
    named = "FROM calls WHERE model IS NOT NULL GROUP BY model"
    query = f"SELECT model, AVG(cost), COUNT(cost) < COUNT(*) {named}"
    means = {model: None if unknown else cost for model, cost, unknown in calls.execute(query)}
    if len(means) < 2:
        reasons = [f"{n} × {reason}" for reason, n in found.unused.items()]
        raise InvalidLogError(
            f"answers of {', '.join(means) or 'no model'} only, where a cascade has two or more; "
            f"records not used: {'; '.join([*reasons, *found.examples]) or 'none'}. {SETTINGS}"
        )
    if not arms and None in means.values():
        raise InvalidParameterError(
            f"what calls cost is not known: give the arms in order, --arms {','.join(means)}"
        )
    of: dict[str, str] = {}
    for arm in arms or sorted(means, key=lambda model: cast("float", means[model])):
        same = [m for m in means if re.fullmatch(re.escape(arm) + r"(-\d[\d-]*)?", m)]
        model = arm if arm in means else same[0] if len(same) == 1 else None
        if model is None or model in of:
            what = "named twice" if model in of else f"not one of the models: {', '.join(means)}"
            raise InvalidParameterError(f"{arm!r} is {what}")
        of[model], found.costs[arm] = arm, means[model]
    return of


def _write(
    calls: sqlite3.Connection, path: Path, models: dict[str, str], form: Form, found: Imported
) -> None:
    """Write the cases in order of time, each up to the first arm whose answer is missing."""
    order = "MIN(time) OVER (PARTITION BY case_id), case_id, time, rowid"
    rows = calls.execute(f"SELECT * FROM calls ORDER BY {order}")
    pairs, priced = 0, None not in found.costs.values()
    with LogWriter(path, [*found.costs], CONTEXT, costs=priced) as log:
        for case, group in groupby(rows, lambda row: str(row[1])):
            said, asked = dict[str, tuple[Any, Any]](), Json()
            for source, *cells in group:
                call = dict(zip(CALL, cells, strict=True))
                asked = {key: cell for key, cell in call.items() if cell is not None} | asked
                arm = models.get(call["model"] or "")
                if arm in said:
                    found.refuse(source, "is a second call of its model in its case; not used")
                elif arm is not None:
                    compared = form(call["answer"])
                    found.unlike += compared is None
                    if compared in (None, ""):  # "" would be no answer
                        compared = normalised_text(call["answer"]) or call["answer"]
                    said[arm] = compared, call["cost"]
            found.cases += 1
            found.answers.update(said.keys())
            found.complete += len(said) == len(models)
            ran = [said[arm] for arm in takewhile(said.__contains__, found.costs)]
            pairs += len(ran) > 1
            if not ran:
                continue
            letters = asked.get("letters", LETTERS * asked.get("tokens", 0))
            x = (math.log1p(letters), float(asked.get("turns", 1)), float(asked.get("tools", 0)))
            outputs, costs = zip(*ran, strict=True)
            time, last, paid = asked.get("time", 0.0), len(ran) - 1, costs if priced else None
            log.write(Round(case, time, x, outputs, outputs, last, last, paid))
            found.rows += 1
    if not pairs:
        raise InvalidLogError(
            f"no case of {found.cases:,} has answers of {' and '.join([*found.costs][:2])}: name "
            "the attribute or field that the calls of a case share, as in --case metadata_key"
        )
