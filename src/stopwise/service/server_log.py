"""The server log: one JSON object per line on stderr.

``extra=`` adds fields to a line. Lines never contain API keys (only their ids), bodies or contexts.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LOG = logging.getLogger("stopwise.service")
# Attributes of every log record; all others are fields.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}


def start_server_log(level: str, stream: TextIO | None = None) -> None:
    """Log to stderr at ``level`` and above; libraries log only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonFormatter())
    for logger in (LOG, *map(logging.getLogger, ("_granian", "granian.access", "opentelemetry"))):
        logger.handlers = [handler]
        logger.setLevel(level.upper() if logger is LOG else "WARNING")
        logger.propagate = False


class _JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level and message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        reserved = {
            "time": f"{time.isoformat(timespec='milliseconds')}Z",
            "level": record.levelname.lower(),
            "what": record.getMessage(),
        }
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line = reserved | fields | reserved  # reserved names first, and they take precedence
        if record.exc_info and record.exc_info[1]:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()
