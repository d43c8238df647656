"""How a refusal looks to the world: one table of codes, and one shape of body for all of them."""

import re
from secrets import token_hex
from typing import TypeVar, cast

import msgspec

from stopwise.service.journal import cut, trouble
from stopwise.service.messages import CascadeSpec, ErrorAnswer, Fault
from stopwise.service.outputs import MAX_DEPTH
from stopwise.service.refusals import Refusal

T = TypeVar("T")
RawHeaders = list[tuple[bytes, bytes]]


class Code(msgspec.Struct, frozen=True):
    """One row of the table of errors.

    Attributes
    ----------
    status : int
        The HTTP status that goes with it.
    meaning : str
        What happened.
    remedy : str
        What whoever asked should do.
    """

    status: int
    meaning: str
    remedy: str


CODES: dict[str, Code] = {
    "bad_request": Code(
        400,
        "The body is not JSON or did not come whole, or the request is not HTTP as it should be.",
        "Mend it.",
    ),
    "unauthorized": Code(
        401, "No key was sent, or one that is not known.", "Send `Authorization: Bearer <key>`."
    ),
    "forbidden": Code(
        403,
        "The key may not do this; or, where no keys are asked for, the request came through "
        "another site.",
        "Use a key with the scope that the message names.",
    ),
    "unknown_path": Code(404, "There is nothing at this path.", "Compare with `/openapi.json`."),
    "unknown_cascade": Code(404, "No cascade has this name.", "Create it, or mend the name."),
    "unknown_decision": Code(
        404, "The cascade never took a decision with this id.", "Send the id as it was answered."
    ),
    "unknown_round": Code(
        404, "The cascade never began a round with this id.", "Send the id as it was answered."
    ),
    "method_not_allowed": Code(
        405, "The path is right and the method is not.", "Use one that `Allow` names."
    ),
    "conflict": Code(
        409,
        "It contradicts what was said before: another output for the same arm, another body under "
        "the same Idempotency-Key, another cascade of the same name, a step out of turn.",
        "Do not send it again. What was said first stands; find out which of the two is right.",
    ),
    "retired": Code(
        409, "The cascade is retired and decides no more.", "Ask another one, or create one."
    ),
    "gone": Code(
        410,
        "It was there once: a decision given up because too many were waiting, or whose events "
        "were compacted away.",
        "Let it go. Raise `keep_open` if outputs come late.",
    ),
    "too_large": Code(
        413, "The body is larger than this service takes.", "Send less, or smaller batches."
    ),
    "unsupported_media_type": Code(
        415, "The body is not declared as JSON.", "Send `Content-Type: application/json`."
    ),
    "invalid": Code(
        422,
        "The body is JSON, but not what was asked for; `field` says where.",
        "Mend that field. Sending the same again gives the same answer.",
    ),
    "too_many_requests": Code(
        429,
        "More requests are waiting than the service holds.",
        "Wait as long as `Retry-After` says and send it again, more slowly.",
    ),
    "headers_too_large": Code(
        431,
        "Address and headers together are larger than this service takes.",
        "Send fewer or shorter headers.",
    ),
    "internal": Code(
        500,
        "A defect of the service; its log has it under the `X-Request-Id` of the answer.",
        "Report it. With an Idempotency-Key it is safe to try again.",
    ),
    "unavailable": Code(
        503,
        "The service is starting, stopping, or cannot write its log.",
        "Wait as long as `Retry-After` says and send it again.",
    ),
}

_encode = msgspec.json.Encoder().encode


def answer(refusal: Refusal) -> tuple[int, RawHeaders, bytes]:
    """Return status, headers and body of the answer to a request that is refused.

    Examples
    --------
    >>> answer(Refusal(503, "unavailable", "the disk is full", retry_after=2))
    (503, [(b'content-type', b'application/json'), (b'content-length', b'61'),
    (b'retry-after', b'2')], b'{"error":{"code":"unavailable","message":"the disk is full"}}')
    """
    field = msgspec.UNSET if refusal.field is None else refusal.field
    body = _encode(ErrorAnswer(Fault(refusal.code, refusal.message, field)))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="stopwise"'))
    return refusal.status, headers, body


def stopping() -> Refusal:
    """Return the refusal of a request that is cut off because the service stops.

    Examples
    --------
    >>> stopping().status, stopping().retry_after
    (503, 1)
    """
    return Refusal(
        503,
        "unavailable",
        "the service is stopping; whether this was carried out is not known",
        retry_after=1,
    )


def unexpected(
    error: BaseException, method: str, path: str, number: str | None = None
) -> tuple[int, RawHeaders, bytes]:
    """Answer a request that ran into a defect: details go to the log, their number to the caller.

    Examples
    --------
    >>> status, headers, body = unexpected(KeyError("secret"), "GET", "/v1/state", "17")
    >>> status, headers[-1], b"secret" in body
    (500, (b'x-request-id', b'17'), False)
    """
    number = number or token_hex(8)
    trouble("a request failed", error, request=number, method=method, path=cut(path))
    status, headers, body = answer(
        Refusal(500, "internal", f"a defect of the service; its log has it under {number}")
    )
    return status, [*headers, (b"x-request-id", number.encode())], body


def decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Read a body, or refuse it in words for the person who must mend it.

    Examples
    --------
    >>> from stopwise.service.messages import BatchRequest
    >>> batch = msgspec.json.Decoder(BatchRequest)
    >>> decoded(batch, b'{"contexts": [[0.5, 1]]}').contexts
    [[0.5, 1.0]]
    >>> try:
    ...     decoded(batch, b'{"contexts": [[0.5, 1], [0.5, "1"]]}')
    ... except Refusal as refusal:
    ...     print(refusal.code, refusal.field, "-", refusal)
    invalid contexts[1][1] - contexts[1][1] must be a number, not a string
    """
    try:
        value = decoder.decode(body)
    except msgspec.ValidationError as error:
        _check_json(body)  # a validator stops at the first fault; the rest may not even be JSON
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        _check_json(body)
        raise Refusal(400, "bad_request", "the body is not JSON") from None
    except RecursionError:
        raise _too_deep() from None
    if isinstance(value, CascadeSpec):
        _check_depth(value.features, "features")
        _check_depth(value.policy, "policy")
    return value


def _check_json(body: bytes) -> None:
    if not body.strip():
        raise Refusal(400, "bad_request", "the body is empty, and JSON is needed")
    try:
        msgspec.json.decode(body)
    except msgspec.ValidationError:
        return  # JSON, with a number that no float holds
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise Refusal(400, "bad_request", f"the body is not JSON: {_cut(why)}") from None
    except RecursionError:
        raise _too_deep() from None


def _check_depth(value: object, field: str, depth: int = MAX_DEPTH) -> None:
    if not isinstance(value, list | dict):
        return
    if depth == 0:
        raise _too_deep(field)
    mapping = isinstance(value, dict)
    for one in cast(dict[str, object], value).values() if mapping else cast(list[object], value):
        _check_depth(one, field, depth - 1)


def _too_deep(field: str | None = None) -> Refusal:
    what = f"{field} is" if field else "the body is"
    return Refusal(
        422, "invalid", f"{what} nested deeper than {MAX_DEPTH} lists or objects", field=field
    )


# -- wording what msgspec found ----------------------------------------------------------------

_NOUNS = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a string",
}
_GOT = {**_NOUNS, "bool": "a truth value", "float": "a number with a fraction"}
_PLACE = re.compile(r"(?s)(.*) - at `(?:key in )?\$\.?(.*)`")
_WRONG_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_LENGTH = re.compile(r"Expected `(str|array|object)` of length (<=|>=) (\d+)")
_LIMIT = re.compile(r"Expected `(int|float)` (<=|>=|<|>) (\S+)")
_PATTERN = re.compile(r"Expected `str` matching regex .*")
_MISSING = re.compile(r"(?s)Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"(?s)Object contains unknown field `(.*)`")
_ORDER = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def _invalid(found: str) -> Refusal:
    place = _PLACE.fullmatch(found)
    what, field = (place[1], _cut(place[2])) if place else (found, "")
    if missing := _MISSING.fullmatch(what):
        field = _inside(field, missing[1])
        return Refusal(422, "invalid", f"{field} is missing", field=field)
    if unknown := _UNKNOWN.fullmatch(what):
        field = _inside(field, _cut(unknown[1]))
        return Refusal(422, "invalid", f"{field} is no field of this request", field=field)
    return Refusal(422, "invalid", f"{field or 'the body'} {_must(what)}", field=field or None)


def _must(what: str) -> str:
    if wrong := _WRONG_TYPE.fullmatch(what):
        wanted = " or ".join(_NOUNS.get(name, name) for name in wrong[1].split(" | "))
        return f"must be {wanted}, not {_GOT.get(wrong[2], wrong[2])}"
    if length := _LENGTH.fullmatch(what):
        unit = "characters" if length[1] == "str" else "elements"
        return f"must have {_ORDER[length[2]]} {length[3]} {unit}"
    if limit := _LIMIT.fullmatch(what):
        return f"must be {_ORDER[limit[2]]} {limit[3].removesuffix('.0')}"
    if _PATTERN.fullmatch(what):  # only names have one
        return (
            "must be of lower-case letters, digits, - and _, at most 64 in all, and begin with a "
            "letter or a digit"
        )
    if "out of range" in what:
        return "must be a number that fits into 64 bits"
    return f"is not as it should be: {_cut(what)}"


def _inside(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _cut(text: str, length: int = 100) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
