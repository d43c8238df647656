"""The server log: structured lines on stderr, through `logging`; not the log of events.

Whatever is logged with ``extra=`` becomes fields of a line. No line has a key, only its id, and
none a body or a context.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LOG = logging.getLogger("stopwise.service")
# What every log record has; anything else is a field.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}


def start_server_log(level: str, stream: TextIO | None = None) -> None:
    """Send the log to stderr, from a level on; also warnings of libraries."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Lines())
    for logger in (LOG, *map(logging.getLogger, ("_granian", "granian.access", "opentelemetry"))):
        logger.handlers = [handler]
        logger.setLevel(level.upper() if logger is LOG else "WARNING")
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
