"""Lines of the server log about requests."""

from typing import Any

from stopwise.service.server_log import LOG
from stopwise.text import shorten

FLOODS = frozenset({429, 503})  # statuses that come in thousands; metrics count them
MAX_PATH = 200  # characters that are logged; clients choose how long a path is


def is_logged(log_requests: str, status: int) -> bool:
    """Return whether a request that got this status is logged, under that setting."""
    failed = log_requests == "failed" and status >= 400 and status not in FLOODS
    return failed or log_requests == "all"


def log_request(method: str, path: str, status: int, seconds: float, **more: str | None) -> None:
    """Log a request: ``path`` without its query; of ``more``, what is known."""
    fields: dict[str, Any] = {"method": method, "path": shorten(path, MAX_PATH), "status": status}
    fields["milliseconds"] = round(seconds * 1e3, 3)
    LOG.info("request", extra=fields | {name: one for name, one in more.items() if one})
