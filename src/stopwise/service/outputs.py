"""What arms said, as JSON values that are compared by equality.

Every value has one canonical form, bytes of JSON, so that 1 and 1.0 are equal, true and 1 are
not, and the order of an object's fields does not matter.
"""

from hashlib import blake2b
from typing import Any, cast

import msgspec

from stopwise.service.refusals import Refusal

MAX_DEPTH = 32  # of lists and objects in each other: deeper is no answer that anybody compares
MAX_REMEMBERED = 4096  # texts whose canonical form is kept at hand; classifiers have few

_encode = msgspec.json.Encoder(order="deterministic").encode
_texts: dict[str, bytes] = {}
_prints: dict[bytes, int] = {}


def canonical(value: object, field: str) -> bytes:
    """Return the one form of a JSON value.

    Examples
    --------
    >>> canonical(1.0, "outputs[0]"), canonical({"b": 2, "a": [True, 1]}, "outputs[0]")
    (b'1', b'{"a":[true,1],"b":2}')
    """
    if type(value) is str:
        known = _texts.get(value)
        if known is None:
            known = _encode(value)
            if len(_texts) < MAX_REMEMBERED and len(known) < 256:
                _texts[value] = known
        return known
    if value is None:
        raise Refusal(422, "invalid", "null is no output: leave out what is not known", field=field)
    return _encode(_plain(value, field, MAX_DEPTH))


def _plain(value: object, field: str, depth: int) -> object:
    if depth == 0:
        raise Refusal(
            422, "invalid", f"an output may be nested {MAX_DEPTH} deep at most", field=field
        )
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(v, field, depth - 1) for v in cast(list[Any], value)]
    if isinstance(value, dict):
        return {k: _plain(v, field, depth - 1) for k, v in cast(dict[str, Any], value).items()}
    return value


def fingerprint(form: bytes) -> int:
    """Return 64 bits that stand for a canonical form, and are never 0.

    Two forms have the same with a chance of 1 in 2⁶³: a conflicting repeat would go unnoticed.

    Examples
    --------
    >>> fingerprint(b'"yes"') == fingerprint(b'"no"')
    False
    """
    known = _prints.get(form)
    if known is None:
        known = int.from_bytes(blake2b(form, digest_size=8).digest(), "little") | 1
        if len(_prints) < MAX_REMEMBERED and len(form) < 256:
            _prints[form] = known
    return known


def plain(form: bytes) -> Any:
    """Return the JSON value of a canonical form.

    Examples
    --------
    >>> plain(b'"yes"')
    'yes'
    """
    return msgspec.json.decode(form)
