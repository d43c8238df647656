"""The log: every line can be parsed, and has what it should and nothing that it must not."""

import io
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from stopwise.service import journal as module
from stopwise.service.journal import Journal, event, start_journal, trouble
from stopwise.service.settings import Settings

NAMES = ("stopwise.service", "_granian", "granian.access")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    kept = [(one.handlers, one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, kept, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_object_a_line() -> None:
    stream = io.StringIO()
    start_journal(Settings(), stream)
    event("listens", url="http://127.0.0.1:8350", keys=None)
    event('odd "words"\nin two lines', path="/v1\r\n/é")
    first, second = lines(stream)
    assert list(first) == ["time", "level", "what", "url", "keys"]
    assert (first["level"], first["what"], first["keys"]) == ("info", "listens", None)
    assert first["time"].endswith("Z")
    assert second["what"] == 'odd "words"\nin two lines'
    assert second["path"] == "/v1\r\n/é"


def test_a_field_cannot_replace_another() -> None:
    stream = io.StringIO()
    start_journal(Settings(), stream)
    event("true", level="debug", time="never")
    (line,) = lines(stream)
    assert line["level"] == "info"
    assert line["time"] != "never"


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_trouble_has_the_traceback_of_its_error(log_format: str) -> None:
    stream = io.StringIO()
    start_journal(Settings(log_format=log_format), stream)  # pyright: ignore[reportArgumentType] (one of both)
    try:
        raise ZeroDivisionError("a cause")
    except ZeroDivisionError as error:
        trouble("a request failed", error, path="/v1")
    trouble("the disk is nearly full")
    assert "ZeroDivisionError: a cause" in stream.getvalue()
    assert "test_journal.py" in stream.getvalue()
    if log_format == "json":
        assert [line["level"] for line in lines(stream)] == ["error", "warning"]


def test_text_stays_on_its_line_whatever_is_in_it() -> None:
    stream = io.StringIO()
    start_journal(Settings(log_format="text", log_requests="all"), stream)
    journal = Journal(Settings(log_requests="all"))
    journal.request("GET", "/a\n2020 INFO forged", 200, 0.001)
    event("a\nb", value="\x1b[31m")
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()
    assert "status=200" in stream.getvalue()


@pytest.mark.parametrize(
    ("which", "logged"),
    [("none", []), ("failed", [401, 404, 500]), ("all", [201, 401, 404, 429, 500, 503])],
)
def test_requests_are_logged_as_asked(which: str, logged: list[int]) -> None:
    stream = io.StringIO()
    journal = start_journal(Settings(log_requests=which), stream)  # pyright: ignore[reportArgumentType] (one of three)
    for status in (201, 401, 404, 429, 500, 503):
        journal.request("POST", "/v1/cascades", status, 0.0123456, "r-1", "5bcc96c4")
    assert [line["status"] for line in lines(stream)] == logged
    for line in lines(stream):
        assert line["milliseconds"] == 12.346
        assert (line["method"], line["path"]) == ("POST", "/v1/cascades")
        assert (line["request"], line["key"]) == ("r-1", "5bcc96c4")


def test_by_default_only_failures_are_logged() -> None:
    stream = io.StringIO()
    journal = start_journal(Settings(), stream)
    journal.request("POST", "/v1/cascades/triage/rounds", 201, 0.001)
    journal.decided("triage", "0-0a00e", 1, [0.2, 0.7])
    assert stream.getvalue() == ""
    assert not journal.decisions


def test_the_level_is_kept() -> None:
    stream = io.StringIO()
    start_journal(Settings(log_level="warning"), stream)
    event("nothing")
    trouble("something")
    assert [line["what"] for line in lines(stream)] == ["something"]


def test_warnings_of_the_http_server_are_logged_and_nothing_else_of_it() -> None:
    stream = io.StringIO()
    start_journal(Settings(log_level="debug"), stream)
    logging.getLogger("_granian").info("Starting granian")
    logging.getLogger("granian.access").info("GET /")
    logging.getLogger("_granian").warning("a worker failed")
    assert [line["what"] for line in lines(stream)] == ["a worker failed"]


def decided(settings: Settings, *contexts: list[float]) -> list[Any]:
    stream = io.StringIO()
    journal = start_journal(settings, stream)
    for context in contexts:
        journal.decided("triage", "0-0a00e", 1, context)
    return [line["context"] for line in lines(stream)]


def test_contexts_plain() -> None:
    assert decided(Settings(log_contexts="plain"), [0.25, 1.0]) == [[0.25, 1.0]]


def test_contexts_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(log_contexts="hashed")
    one, other, again, zero, minus = decided(
        settings, [0.25, 1.0], [1.0, 0.25], [0.25, 1], [0.0], [-0.0]
    )
    assert one == again  # so that rounds of the same case can be found
    assert one != other
    assert zero == minus
    assert len(one) == 32
    assert "0.25" not in one
    assert decided(settings, [0.25, 1.0]) == [one]  # wherever in the process it is logged
    # another process has another salt; without it nobody can try contexts until a hash matches
    monkeypatch.setattr(module, "PROCESS_SALT", os.urandom(32))
    assert decided(settings, [0.25, 1.0]) != [one]


def test_replicas_with_one_salt_agree() -> None:
    def hashed(salt: str) -> list[Any]:
        return decided(Settings(log_contexts="hashed", log_salt=salt), [0.25, 1.0])

    assert hashed("one salt of ours") == hashed("one salt of ours")
    assert hashed("one salt of ours") != hashed("another salt of ours")


def test_a_long_path_is_cut_and_a_code_is_logged() -> None:
    stream = io.StringIO()
    journal = start_journal(Settings(), stream)
    journal.request("GET", "/" + "x" * 60_000, 404, 0.001, code="unknown_path")
    (line,) = lines(stream)
    assert len(line["path"]) == 200
    assert line["path"].endswith("…")
    assert line["code"] == "unknown_path"
