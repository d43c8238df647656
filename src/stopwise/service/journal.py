"""What a service writes down about itself: structured lines on stderr, through `logging`.

Three kinds of lines: what happened in its life (`event`), what somebody should look at (`trouble`),
and, where the settings ask for it, requests and decisions (`Journal`). A key is never among them,
only its id; a body never; a context only as the settings allow.
"""

import logging
import os
import struct
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, TextIO

import msgspec

from stopwise.service.settings import Settings

LOGGER = logging.getLogger("stopwise.service")
FIELDS = "stopwise_fields"  # the attribute of a log record that carries them
PROCESS_SALT = os.urandom(32)  # contexts are hashed under it, unless the settings have another
# Answers to expect in thousands when there is too much to do; metrics count them.
FLOODS = frozenset({429, 503})
MAX_PATH = 200  # characters of one that are written down
# What every log record has; whatever else one has is a field, given as ``extra=``.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {
    FIELDS,
    "asctime",
    "color_message",
    "message",
    "taskName",
}


def event(what: str, **fields: Any) -> None:
    """Write down something that happened: it started, it listens, it has recovered."""
    LOGGER.info(what, extra={FIELDS: fields})


def trouble(what: str, error: BaseException | None = None, **fields: Any) -> None:
    """Write down something that somebody should look at; with an error, where it came from."""
    level = logging.WARNING if error is None else logging.ERROR
    LOGGER.log(level, what, extra={FIELDS: fields}, exc_info=error)


def cut(path: str) -> str:
    """Return a path as it is written down: strangers choose it, and how long it is.

    Examples
    --------
    >>> cut("/v1/cascades"), len(cut("/v1/" + 60_000 * "x"))
    ('/v1/cascades', 200)
    """
    return path if len(path) <= MAX_PATH else f"{path[: MAX_PATH - 1]}…"


class Journal:
    """Writes down requests and decisions, as far as the settings ask for it.

    Ask ``requests`` or ``decisions`` first where every microsecond counts; both are False where
    nothing would be written.

    Attributes
    ----------
    requests : str
        "none", "failed" or "all".
    decisions : bool
        Whether decisions are written down.

    Examples
    --------
    >>> journal = Journal(Settings(log_contexts="hashed", log_salt="an example of one"))
    >>> journal.shown([0.2, 0.7])
    'e45e8bdad44735cd140981ccdef248d7'
    >>> Journal(Settings()).shown([0.2, 0.7]) is None
    True
    """

    def __init__(self, settings: Settings) -> None:
        self.requests = settings.log_requests
        self.decisions = settings.log_contexts != "none"
        self._plain = settings.log_contexts == "plain"
        salt = PROCESS_SALT if settings.log_salt is None else settings.log_salt.encode()
        # a key of blake2b has at most 64 bytes
        self._salt = blake2b(salt, digest_size=32).digest()

    def request(
        self,
        method: str,
        path: str,
        status: int,
        seconds: float,
        request_id: str | None = None,
        key_id: str | None = None,
        code: str | None = None,
    ) -> None:
        """Write down a request that was answered, if such requests are to be.

        ``path`` without its query; ``key_id`` the id of a key, never the key; ``code`` of an error.
        """
        if self.requests == "none":
            return
        if self.requests == "failed" and (status < 400 or status in FLOODS):
            return
        fields: dict[str, Any] = {
            "method": method,
            "path": cut(path),
            "status": status,
            "milliseconds": round(seconds * 1e3, 3),
        }
        if code is not None:
            fields["code"] = code
        if request_id is not None:
            fields["request"] = request_id
        if key_id is not None:
            fields["key"] = key_id
        LOGGER.info("request", extra={FIELDS: fields})

    def decided(self, cascade: str, id_: str, stop: int, context: Sequence[float]) -> None:
        """Write down a decision with its context, if and as the settings allow."""
        if self.decisions:
            fields = {"cascade": cascade, "id": id_, "stop": stop, "context": self.shown(context)}
            LOGGER.info("decision", extra={FIELDS: fields})

    def shown(self, context: Sequence[float]) -> list[float] | str | None:
        """Return a context as it may be written down: as it is, as a hash, or None."""
        if self._plain:
            return list(context)
        if not self.decisions:
            return None
        # + 0.0: minus zero is zero, and equal contexts must have equal hashes
        numbers = struct.pack(f"<{len(context)}d", *(number + 0.0 for number in context))
        return blake2b(numbers, key=self._salt, digest_size=16).hexdigest()


def start_journal(settings: Settings, stream: TextIO | None = None) -> Journal:
    """Send what is logged to stderr in the format asked for; that of the HTTP server too."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    level = settings.log_level.upper()
    for name, least in (
        ("stopwise.service", level),
        # what else a server says, each request among it, is said here in our own words
        ("uvicorn", "WARNING"),
        ("litestar", "WARNING"),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(least)
        logger.propagate = False
    return Journal(settings)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, what, then the fields.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "listens", "levelname": "INFO", "created": 0.5})
    >>> record.stopwise_fields = {"port": 8350}
    >>> JsonLines().format(record)
    '{"time":"1970-01-01T00:00:00.500Z","level":"info","what":"listens","port":8350}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "what": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


class TextLines(logging.Formatter):
    r"""For people: time, level, what, then name=value. Still one line, whatever the values hold.

    Examples
    --------
    >>> record = logging.makeLogRecord({"msg": "request", "levelname": "INFO", "created": 0.5})
    >>> record.stopwise_fields = {"path": "/v1\n/a b", "status": 404}
    >>> print(TextLines().format(record))
    1970-01-01T00:00:00.500Z INFO    request path="/v1\n/a b" status=404
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an error adds lines of its own."""
        words = [_time(record.created), f"{record.levelname:7}", _one_line(record.getMessage())]
        for name, value in _fields(record).items():
            words.append(f"{name}={_word(value)}")
        line = " ".join(words)
        if record.exc_info and record.exc_info[1] is not None:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
    return extra | getattr(record, FIELDS, {})


def _time(seconds: float) -> str:
    shown = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return shown.replace("+00:00", "Z")


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain or not isinstance(value, str) else msgspec.json.encode(text).decode()


def _one_line(text: str) -> str:
    return text if text.isprintable() else msgspec.json.encode(text).decode()[1:-1]
