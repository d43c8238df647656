"""Write requests to the server log."""

from typing import Any

from stopwise.service.server_log import LOG
from stopwise.text import shorten

FLOODS = frozenset({429, 503})  # an overload produces thousands of these; metrics count them
MAX_PATH = 200  # logged characters of a path, whose length the client chooses


def is_logged(log_requests: str, status: int) -> bool:
    """Return whether the setting ``log_requests`` includes requests with this status."""
    failed = log_requests == "failed" and status >= 400 and status not in FLOODS
    return failed or log_requests == "all"


def log_request(
    method: str, path: str, status: int, seconds: float, **optional: str | None
) -> None:
    """Log a request; ``path`` excludes the query, and empty ``optional`` fields are omitted."""
    fields: dict[str, Any] = {"method": method, "path": shorten(path, MAX_PATH), "status": status}
    fields["milliseconds"] = round(seconds * 1e3, 3)
    fields |= {name: value for name, value in optional.items() if value}
    LOG.info("request", extra=fields)
