"""Errors over HTTP: those that only HTTP has, and the status of every code."""

from http import HTTPStatus
from typing import NamedTuple

from stopwise.service.domain.errors import RequestError


class HttpError(RequestError):
    """A request that HTTP itself or the access rules do not allow; ``headers`` of its answer."""

    headers: tuple[tuple[str, str], ...] = ()


class BadRequest(HttpError):
    """The body is not JSON, or the request is not valid HTTP."""

    code = "bad_request"


class Unauthorized(HttpError):
    """The API key is missing or not valid."""

    code = "unauthorized"
    headers = (("www-authenticate", 'Bearer realm="stopwise"'),)


class Forbidden(HttpError):
    """The API key does not allow this, or the request came through another site."""

    code = "forbidden"


class UnknownPath(HttpError):
    """There is nothing at this path."""

    code = "unknown_path"


class MethodNotAllowed(HttpError):
    """The path exists and the method does not; ``allowed`` lists those that do."""

    code = "method_not_allowed"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.headers = (("allow", allowed),)


class UnsupportedMediaType(HttpError):
    """The body is not declared as JSON."""

    code = "unsupported_media_type"


class InternalError(HttpError):
    """An unexpected error; the server log has its details under ``request_id``."""

    code = "internal"

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(message)
        self.headers = (("x-request-id", request_id),)


class Code(NamedTuple):
    """One row of the table of errors: its HTTP status, and what happened."""

    status: int
    meaning: str


CODES: dict[str, Code] = {
    "bad_request": Code(
        400, "The body is not JSON or is incomplete, or the request is not valid HTTP."
    ),
    "unauthorized": Code(401, "No key was sent, or an unknown one."),
    "forbidden": Code(
        403, "The key may not do this; or, without keys, the request came through another site."
    ),
    "unknown_path": Code(404, "There is nothing at this path."),
    "unknown_cascade": Code(404, "No cascade has this name."),
    "unknown_round": Code(404, "The cascade has no round with this id."),
    "method_not_allowed": Code(405, "The path exists and the method does not."),
    "conflict": Code(
        409,
        "It contradicts an earlier request: another output for the same arm, another body under "
        "the same Idempotency-Key, another cascade of the same name, an arm out of turn.",
    ),
    "retired": Code(409, "The cascade is retired and takes no new rounds."),
    "gone": Code(
        410, "The round was given up because too many were open, or its events were compacted away."
    ),
    "too_large": Code(413, "The body is larger than this service takes."),
    "unsupported_media_type": Code(415, "The body is not declared as JSON."),
    "invalid": Code(422, "The body is JSON, but not what the route takes; `field` says where."),
    "too_many_requests": Code(
        429, "The key's rate is used up, or more requests are waiting than the service holds."
    ),
    "internal": Code(
        500, "Internal error; the server log has it under the `X-Request-Id` of the answer."
    ),
    "cascade_failed": Code(
        503,
        "An internal error has stopped this cascade. It is read from the log again; others are "
        "not affected.",
    ),
    "unavailable": Code(503, "The service is starting, stopping, or cannot write its log."),
}


def phrase(status: int) -> str:
    """Return the standard phrase of a status.

    Examples
    --------
    >>> phrase(CODES["unknown_round"].status)
    'Not Found'
    """
    return HTTPStatus(status).phrase
