"""HTTP errors, and the status and description of every error code."""

from http import HTTPStatus
from typing import NamedTuple

from stopwise.service.domain.errors import RequestError


class HttpError(RequestError):
    """A request rejected by HTTP rules or by access control.

    ``headers`` are added to the response.
    """

    headers: tuple[tuple[str, str], ...] = ()


class BadRequest(HttpError):
    """The body is incomplete or not JSON, or the request is not valid HTTP."""

    code = "bad_request"


class Unauthorized(HttpError):
    """The API key is missing or invalid."""

    code = "unauthorized"
    headers = (("www-authenticate", 'Bearer realm="stopwise"'),)


class Forbidden(HttpError):
    """The API key does not permit the request, or another website sent it."""

    code = "forbidden"


class UnknownPath(HttpError):
    """No route has this path."""

    code = "unknown_path"


class MethodNotAllowed(HttpError):
    """The path does not support the method; ``allowed`` lists the methods that it supports."""

    code = "method_not_allowed"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.headers = (("allow", allowed),)


class UnsupportedMediaType(HttpError):
    """The body is not declared as JSON, or is compressed."""

    code = "unsupported_media_type"


class InternalError(HttpError):
    """An unexpected error; the server log has the details under ``request_id``."""

    code = "internal"

    def __init__(self, message: str, request_id: str) -> None:
        super().__init__(message)
        self.headers = (("x-request-id", request_id),)


class ErrorCode(NamedTuple):
    """The HTTP status and the documented meaning of an error code."""

    status: int
    meaning: str


CODES: dict[str, ErrorCode] = {
    "bad_request": ErrorCode(
        400, "The body is incomplete or not JSON, or the request is not valid HTTP."
    ),
    "unauthorized": ErrorCode(401, "The API key is missing or invalid."),
    "forbidden": ErrorCode(
        403, "The API key does not permit the request or, without keys, another website sent it."
    ),
    "unknown_path": ErrorCode(404, "No route has this path."),
    "unknown_cascade": ErrorCode(404, "No cascade has this name."),
    "unknown_round": ErrorCode(404, "The cascade has no round with this id."),
    "method_not_allowed": ErrorCode(405, "Method not allowed."),
    "conflict": ErrorCode(
        409,
        "The request conflicts with an earlier one (a different output of the same arm, a "
        "different body with the same Idempotency-Key, a different cascade with the same name, or "
        "an arm out of order), or with a limit of the service.",
    ),
    "retired": ErrorCode(409, "The cascade is retired and accepts no new rounds."),
    "gone": ErrorCode(
        410, "The round expired because too many newer ones were open, or it was compacted away."
    ),
    "too_large": ErrorCode(413, "The body or the batch exceeds a limit of this service."),
    "unsupported_media_type": ErrorCode(415, "The body is not declared as JSON, or is compressed."),
    "invalid": ErrorCode(422, "The body is JSON but not valid for this route; see `field`."),
    "too_many_requests": ErrorCode(
        429, "The key exceeded its rate limit, or too many requests are waiting."
    ),
    "internal": ErrorCode(
        500, "Internal error. The server log has the details under the response's `X-Request-Id`."
    ),
    "cascade_failed": ErrorCode(
        503,
        "An internal error stopped this cascade. It is being reloaded from the log; other "
        "cascades are not affected.",
    ),
    "unavailable": ErrorCode(503, "The service is starting, stopping, or cannot write its log."),
}


def phrase(status: int) -> str:
    """Return the standard reason phrase of an HTTP status.

    Examples
    --------
    >>> phrase(CODES["unknown_round"].status)
    'Not Found'
    """
    return HTTPStatus(status).phrase
