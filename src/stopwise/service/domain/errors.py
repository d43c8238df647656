"""Errors of requests: why a request is not carried out, as a code with fields."""

from typing import ClassVar

from stopwise.text import shorten


class RequestError(Exception):
    """A request that is not carried out; nothing has changed.

    Attributes
    ----------
    code : str
        The reason, for a program.
    message : str
        The reason, for the person who must act.
    field : str, optional
        Where in the request.
    retry_after : int, optional
        Seconds after which to try again.
    """

    code: ClassVar[str]

    def __init__(
        self, message: str, *, field: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after = retry_after


class InvalidRequest(RequestError):
    """The content of the request is not valid."""

    code = "invalid"


class UnknownCascade(RequestError):
    """No cascade has this name."""

    code = "unknown_cascade"

    def __init__(self, name: str) -> None:
        super().__init__(f"no cascade is called {shorten(name, 80)!r}")


class UnknownRound(RequestError):
    """The cascade has no round with this id."""

    code = "unknown_round"

    def __init__(self, id_: str) -> None:
        super().__init__(f"this cascade has no round {shorten(id_, 40)!r}")


class Conflict(RequestError):
    """The request contradicts an earlier one."""

    code = "conflict"


class CascadeRetired(RequestError):
    """The cascade takes no new rounds."""

    code = "retired"

    def __init__(self, name: str) -> None:
        super().__init__(f"the cascade {name!r} is retired: no new rounds")


class RoundGone(RequestError):
    """The round expired, or its events were compacted away."""

    code = "gone"


class RequestTooLarge(RequestError):
    """The request is larger than this service accepts."""

    code = "too_large"


class TooManyRequests(RequestError):
    """A rate or a queue is full."""

    code = "too_many_requests"


class Unavailable(RequestError):
    """The service is starting, stopping, or cannot write its log."""

    code = "unavailable"


class NotFollowed(Unavailable):
    """The replica has not applied the events of the cascade; load it first."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is being loaded; try again", retry_after=1)
        self.name = name


class CascadeFailed(RequestError):
    """The memory of the cascade cannot be trusted; it is being read from the log."""

    code = "cascade_failed"

    def __init__(self, name: str) -> None:
        message = (
            f"the cascade {name!r} has failed (internal error) and is being read from the log "
            "again; other cascades are not affected. Try again"
        )
        super().__init__(message, retry_after=1)
