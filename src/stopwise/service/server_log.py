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
    """Send the log to stderr; also warnings of libraries."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Lines())
    for logger in (LOG, *map(logging.getLogger, ("_granian", "granian.access", "opentelemetry"))):
        logger.handlers = [handler]
        logger.setLevel(settings.log_level.upper() if logger is LOG else "WARNING")
        logger.propagate = False


class _Lines(logging.Formatter):
    """A JSON object on a line: time, level, what, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        time, what = f"{when.isoformat(timespec='milliseconds')}Z", record.getMessage()
        first = {"time": time, "level": record.levelname.lower(), "what": what}
        fields = {name: value for name, value in vars(record).items() if name not in _USUAL}
        caught = record.exc_info
        error = self.formatException(caught) if caught and caught[1] else ""
        every = first | fields | first | ({"error": error} if error else {})  # none replaces these
        return msgspec.json.encode(every, enc_hook=repr).decode()
