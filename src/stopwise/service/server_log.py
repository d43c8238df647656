"""The server log: structured lines on stderr, through `logging`; not the log of events.

Whatever is logged with ``extra=`` becomes fields of a line. Requests are logged as far as the
settings ask for it. No line has a key, only its id, and none a body or a context.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from stopwise.service.settings import Settings
from stopwise.service.validation import short

LOG = logging.getLogger("stopwise.service")
FLOODS = frozenset({429, 503})  # statuses that come in thousands; metrics count them
MAX_PATH = 200  # characters that are logged; clients choose how long a path is
# What every log record has; anything else is a field.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}


def is_logged(log_requests: str, status: int) -> bool:
    """Return whether a request that got this status is logged, under that setting."""
    failed = log_requests == "failed" and status >= 400 and status not in FLOODS
    return failed or log_requests == "all"


def log_request(method: str, path: str, status: int, seconds: float, **more: str | None) -> None:
    """Log a request: ``path`` without its query; of ``more``, what is known."""
    fields: dict[str, Any] = {"method": method, "path": short(path, MAX_PATH), "status": status}
    fields["milliseconds"] = round(seconds * 1e3, 3)
    LOG.info("request", extra=fields | {name: one for name, one in more.items() if one})


def start_server_log(settings: Settings, stream: TextIO | None = None) -> None:
    """Send the log to stderr in the format of the settings; also warnings of the HTTP server."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Lines(settings.log_format))
    for logger in (LOG, logging.getLogger("_granian"), logging.getLogger("granian.access")):
        logger.handlers = [handler]
        logger.setLevel(settings.log_level.upper() if logger is LOG else "WARNING")
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
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        caught = record.exc_info
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
