"""The server log: structured lines on stderr, through `logging`; not the log of events.

It has what happened (`event`), what needs attention (`trouble`) and, as far as the settings ask for
it, requests (`RequestLog`). It never has a key, only its id, and never a body or a context.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from stopwise.service.settings import Settings

LOGGER = logging.getLogger("stopwise.service")
FLOODS = frozenset({429, 503})  # statuses that come in thousands; metrics count them
MAX_PATH = 200  # characters that are logged; clients choose how long a path is
FIELDS = "stopwise_fields"  # the attribute of a log record that has them
# What every log record has; anything else is a field, given as ``extra=``.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {FIELDS, "asctime", "message", "taskName"}


def event(what: str, **fields: Any) -> None:
    """Log something that happened: it listens, it has recovered."""
    LOGGER.info(what, extra={FIELDS: fields})


def trouble(what: str, error: BaseException | None = None, **fields: Any) -> None:
    """Log something that needs attention; an error with its traceback."""
    level = logging.WARNING if error is None else logging.ERROR
    LOGGER.log(level, what, extra={FIELDS: fields}, exc_info=error)


def cut(path: str) -> str:
    """Return a path as it is logged."""
    return path if len(path) <= MAX_PATH else f"{path[: MAX_PATH - 1]}…"


class RequestLog:
    """Logs requests, as far as the settings ask for it."""

    def __init__(self, settings: Settings) -> None:
        self.requests = settings.log_requests  # look at it first where time matters

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
        """Log a request: ``path`` without its query, ``key_id`` and never the key itself."""
        failed = status >= 400 and status not in FLOODS
        if self.requests == "all" or (self.requests == "failed" and failed):
            fields: dict[str, Any] = {"method": method, "path": cut(path), "status": status}
            fields["milliseconds"] = round(seconds * 1e3, 3)
            more = {"code": code, "request": request_id, "key": key_id}
            event("request", **fields, **{name: one for name, one in more.items() if one})


def start_server_log(settings: Settings, stream: TextIO | None = None) -> None:
    """Send the log to stderr in the format of the settings; also warnings of the HTTP server."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Lines(settings.log_format))
    for logger in (LOGGER, logging.getLogger("_granian"), logging.getLogger("granian.access")):
        logger.handlers = [handler]
        logger.setLevel(settings.log_level.upper() if logger is LOGGER else "WARNING")
        logger.propagate = False


class _Lines(logging.Formatter):
    """Time, level, what, then the fields: a JSON object, or text for people."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._json = kind == "json"

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        time, what = f"{when.isoformat(timespec='milliseconds')}Z", record.getMessage()
        first = {"time": time, "level": record.levelname.lower(), "what": what}
        extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
        fields, caught = extra | getattr(record, FIELDS, {}), record.exc_info
        error = self.formatException(caught) if caught and caught[1] else ""
        if self._json:  # no field replaces what comes first
            return _json(first | fields | first | ({"error": error} if error else {}))
        words = [time, f"{record.levelname:7}", what if what.isprintable() else _json(what)[1:-1]]
        for name, value in fields.items():
            bare = isinstance(value, str) and value.isprintable() and not set(value) & set(' "=')
            words.append(f"{name}={value if bare and value else _json(value)}")
        return " ".join(words) + (f"\n{error}" if error else "")


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
