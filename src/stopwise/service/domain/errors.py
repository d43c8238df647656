"""Request errors, each with a code."""

from typing import ClassVar

from stopwise.text import shorten


class RequestError(Exception):
    """A request was rejected and changed nothing.

    Attributes
    ----------
    code : str
        The reason, for programs to compare.
    message : str
        The reason, for people to read.
    field : str, optional
        The invalid field of the request.
    retry_after : int, optional
        Seconds to wait before trying again.
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
    """The content of the request is invalid."""

    code = "invalid"


class UnknownCascade(RequestError):
    """No cascade has this name."""

    code = "unknown_cascade"

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown cascade {shorten(name, 80)!r}")


class UnknownRound(RequestError):
    """The cascade has no round with this id."""

    code = "unknown_round"

    def __init__(self, id_: str) -> None:
        super().__init__(f"unknown round {shorten(id_, 40)!r}")


class Conflict(RequestError):
    """The request conflicts with an earlier one or with a limit of the service."""

    code = "conflict"


class CascadeRetired(RequestError):
    """The cascade accepts no new rounds."""

    code = "retired"

    def __init__(self, name: str) -> None:
        super().__init__(f"cascade {name!r} is retired and accepts no new rounds")


class RoundGone(RequestError):
    """The round expired, or its events were compacted away."""

    code = "gone"


class RequestTooLarge(RequestError):
    """The request is larger than this service accepts."""

    code = "too_large"


class TooManyRequests(RequestError):
    """A rate limit is exceeded or a queue is full."""

    code = "too_many_requests"


class Unavailable(RequestError):
    """The service is starting or stopping, or cannot write its log."""

    code = "unavailable"


class CascadeNotLoaded(Unavailable):
    """The replica has not loaded the cascade yet."""

    def __init__(self, name: str) -> None:
        super().__init__(f"cascade {name!r} is being loaded; try again", retry_after=1)
        self.name = name


class CascadeFailed(RequestError):
    """The state of the cascade may be inconsistent; it is being reloaded from the log."""

    code = "cascade_failed"

    def __init__(self, name: str) -> None:
        message = (
            f"cascade {name!r} failed with an internal error and is being reloaded from the log; "
            "other cascades are not affected. Try again"
        )
        super().__init__(message, retry_after=1)
