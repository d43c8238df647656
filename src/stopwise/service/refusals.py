"""Refusals: one exception for every request that is not carried out, and the table of its codes."""

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is not carried out; nothing has changed."""

    status: int  # of HTTP
    code: str  # for a program: one of `CODES`
    message: str  # for the person who must act
    _: KW_ONLY
    field: str | None = None  # where in the body
    retry_after: int | None = None  # seconds
    request: str | None = None  # under which the log has more
    allow: str | None = None  # the methods of the path

    def __str__(self) -> str:
        return self.message


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


def conflict(message: str, *, field: str | None = None) -> Refusal:
    """Return the refusal of what contradicts an earlier request."""
    return Refusal(409, "conflict", message, field=field)


def invalid(message: str, *, field: str | None = None) -> Refusal:
    """Return the refusal of a body that is not what the route takes."""
    return Refusal(422, "invalid", message, field=field)
