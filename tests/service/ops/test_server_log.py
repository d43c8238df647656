"""The server log: JSON lines with their fields, and nothing secret."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stopwise.service.http.request_log import is_logged, log_request
from stopwise.service.server_log import LOG, start_server_log

NAMES = ("stopwise.service", "_granian", "granian.access")
Start = Callable[..., io.StringIO]


@pytest.fixture
def start() -> Iterator[Start]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]

    def begin(level: str = "info") -> io.StringIO:
        stream = io.StringIO()
        start_server_log(level, stream)
        return stream

    yield begin
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers = handlers
        logger.propagate = propagate
        logger.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_line_is_one_object(start: Start) -> None:
    stream = start()
    LOG.info("listening", extra={"url": "http://127.0.0.1:8350", "keys": None})
    odd = {"path": "/v1\r\n/é", "level": "debug", "time": "never"}
    LOG.info('odd "words"\nin two lines', extra=odd)
    first, second = lines(stream)
    assert list(first) == ["time", "level", "what", "url", "keys"]
    assert (first["level"], first["what"], first["keys"]) == ("info", "listening", None)
    assert first["time"].endswith("Z")
    assert (second["what"], second["path"]) == ('odd "words"\nin two lines', "/v1\r\n/é")
    assert second["level"] == "info"  # fields do not replace reserved names
    assert second["time"] != "never"


def test_errors_have_their_traceback(start: Start) -> None:
    stream = start("warning")
    try:
        raise ZeroDivisionError("a cause")
    except ZeroDivisionError as error:
        LOG.error("a request failed", extra={"path": "/v1"}, exc_info=error)
    LOG.info("below the level")
    logging.getLogger("_granian").info("Starting granian")
    logging.getLogger("granian.access").info("GET /")
    logging.getLogger("_granian").warning("a worker failed")
    assert "ZeroDivisionError: a cause" in stream.getvalue()
    assert "test_server_log.py" in stream.getvalue()
    # Of the HTTP server, only warnings are logged.
    assert [line["what"] for line in lines(stream)] == ["a request failed", "a worker failed"]
    assert [line["level"] for line in lines(stream)] == ["error", "warning"]


@pytest.mark.parametrize(
    ("setting", "logged"),
    [("none", []), ("failed", [401, 404, 500]), ("all", [201, 401, 404, 429, 500, 503])],
)
def test_the_setting_log_requests_selects_requests(setting: Any, logged: list[int]) -> None:
    statuses = [201, 401, 404, 429, 500, 503]
    assert [status for status in statuses if is_logged(setting, status)] == logged


def test_a_request_is_logged_without_empty_fields_and_with_a_short_path(start: Start) -> None:
    stream = start()
    log_request("POST", "/" + "x" * 60_000, 404, 0.0123456, request="r-1", key="5bcc", code=None)
    [line] = lines(stream)
    assert (line["milliseconds"], line["method"], line["status"]) == (12.346, "POST", 404)
    assert (line["request"], line["key"], "code" in line) == ("r-1", "5bcc", False)
    assert (len(line["path"]), line["path"][-1]) == (200, "…")
