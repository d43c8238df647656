"""What guards a connection before there is a request: sizes, deadlines and how many there are.

The application sees a request once its headers are whole, and whoever sends them has shown no key
until then. So what can be sent before that, and for how long, is limited here, below it.
"""

import asyncio
import sys
from functools import cache
from importlib import import_module
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from stopwise.service.http import faults
from stopwise.service.http.guard import SAFE
from stopwise.service.refusals import Refusal

MAX_HEAD = 65_536  # bytes of address and headers
PATIENCE = 30.0  # seconds for the headers, and as many for the body
MAX_CONNECTIONS = 10_000
SPARE = 64  # files that the log, its snapshots and the keys need beside connections


class Protocol(HttpToolsProtocol):
    """One connection, as uvicorn has it, with limits.

    A request that comes whole in one piece, as nearly all do, costs no timer. What is refused here
    is answered in the one shape of all errors, and the connection is closed.

    Parameters
    ----------
    args, kwargs
        As uvicorn gives them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = False  # the headers of a message have begun, and have not ended
        self._whole = True  # no message has begun, or the last one has ended
        self._head = 0  # bytes that came of the headers under way, without the newest piece
        self._size = 0  # of the newest piece
        self._deadline: asyncio.TimerHandle | None = None

    # -- the connection -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, if there is room for another."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refuse(
                Refusal(503, "unavailable", "too many connections are open", retry_after=1)
            )
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._expected()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._unset_keepalive_if_required()
        self._size = len(data)
        if self._whole:
            self._head = 0
        try:
            cast(Any, self.parser).feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLargeError):
                self._refuse(_head_too_large())
            else:
                self.logger.warning("Invalid HTTP request received.")
                self.send_400_response("")
            return
        except httptools.HttpParserUpgrade:
            pass  # there is nothing to upgrade to: it is answered as if that had not been asked
        if self._whole:
            # Empty lines between requests end the wait of an idle connection, and are no request.
            if not self._answering() and self.timeout_keep_alive_task is None:
                self._expect()
            return
        if self._in_head:
            self._head += self._size
            if self._head > MAX_HEAD:
                self._refuse(_head_too_large())
                return
        self._expect()

    # -- what the parser finds ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head, self._whole = True, False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hand a request on, if its headers are not too large."""
        if self._head + self._size > MAX_HEAD:  # with the body, perhaps: so it is counted
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size + len(self.url) > MAX_HEAD:
                raise _HeadTooLargeError
        self._in_head = False
        self._expected()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that a request is whole."""
        self._whole = True
        self._head = -self._size  # what else is in this piece is of the next request, or less
        if self._deadline is not None:
            self._expected()
        super().on_message_complete()

    # -- deadlines ----------------------------------------------------------------------------

    def _expect(self) -> None:
        """Give the rest of a message its time, unless it is running already."""
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(PATIENCE, self._late)

    def _expected(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.pipeline or (self._in_head and self._answering()):
            self._expect()  # it is we who are slow: an earlier request is being answered
        elif not self._in_head and not self._whole and self._answering():
            seconds = f"{PATIENCE:g} seconds"
            self._refuse(
                Refusal(400, "bad_request", f"the body did not come whole within {seconds}")
            )
        else:
            self.transport.close()

    def _answering(self) -> bool:
        cycle = cast(Any, self.cycle)  # None before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    # -- refusals -----------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        del msg
        self._refuse(Refusal(400, "bad_request", "the request is not HTTP as it should be"))

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: others may ask for what they like."""

    def _refuse(self, refusal: Refusal) -> None:
        """Answer a request that the application does not see, or not whole, and close."""
        self._expected()
        if self.transport.is_closing():
            return
        # While an earlier request has no answer yet, this would be taken for it.
        own = not self._whole and not self._in_head and not self.pipeline
        if not self._answering() or (own and not self.cycle.response_started):
            status, headers, body = faults.answer(refusal)
            lines = [STATUS_LINE[status]]
            lines += [
                b"%b: %b\r\n" % header for header in (*headers, *SAFE, (b"connection", b"close"))
            ]
            self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.transport.close()


class _HeadTooLargeError(Exception):
    """Takes the parser out of a request that is refused."""


def _head_too_large() -> Refusal:
    return Refusal(
        431,
        "headers_too_large",
        f"address and headers are too large: this service takes {MAX_HEAD:,} bytes of them",
    )


@cache
def most_connections() -> int:
    """Return how many connections may be open, which files that may be open limit.

    Examples
    --------
    >>> 0 < most_connections() <= MAX_CONNECTIONS
    True
    """
    if sys.platform != "win32":
        resource: Any = import_module("resource")
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed != resource.RLIM_INFINITY:
            return max(1, min(MAX_CONNECTIONS, allowed - SPARE))
    return MAX_CONNECTIONS
