"""Outputs of arms: JSON values that are compared by equality.

Every value has one canonical form, bytes of JSON, so that 1 and 1.0 are equal, true and 1 are
not, and the order of an object's fields does not matter. Outputs are labels or short texts: of a
longer one the canonical form is a hash, which is equal where the values are.
"""

import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from stopwise.canonical import canonical_json
from stopwise.service.domain.errors import InvalidRequest

MAX_DEPTH = 32  # of lists and objects in each other: deeper is no answer that anybody compares
MAX_BYTES = 1024  # of a canonical form; of a longer one a hash is stored
MAX_PACKED = 1_000_000  # bytes of a round's packed answers: the log is not for books
SHORT = 256  # characters below which forms are cached: classifiers have few outputs


def canonical(value: object, field: str) -> bytes:
    """Return the one form of a JSON value; ``field`` is where it was, for errors."""
    if type(value) is str and len(value) < SHORT:
        return _text(value)
    if value is None:
        raise InvalidRequest("null is no output: leave out what is not known", field=field)
    _check_depth(value, field, MAX_DEPTH)
    return _shortened(canonical_json(value))


@lru_cache(4096)
def _text(value: str) -> bytes:
    return _shortened(canonical_json(value))


def _shortened(form: bytes) -> bytes:
    if len(form) <= MAX_BYTES:
        return form
    digest = blake2b(form, digest_size=32).hexdigest()
    return canonical_json({"blake2b": digest, "bytes": len(form)})


def _check_depth(value: object, field: str, depth: int) -> None:
    if depth == 0:
        raise InvalidRequest(f"an output may be nested {MAX_DEPTH} deep at most", field=field)
    inner: Iterable[object] = ()
    if isinstance(value, list):
        inner = cast(list[object], value)
    elif isinstance(value, dict):
        inner = cast(dict[str, object], value).values()
    for item in inner:
        _check_depth(item, field, depth - 1)


@lru_cache(4096)
def fingerprint(form: bytes) -> int:
    """Return 64 bits that stand for a canonical form, and are never 0.

    Two forms share it with a chance of 1 in 2⁶³: then a conflicting repeat goes unnoticed.
    """
    return int.from_bytes(blake2b(form, digest_size=8).digest(), "little") | 1


def decode_output(form: bytes) -> Any:
    """Return the JSON value of a canonical form."""
    return msgspec.json.decode(form)


class StoredAnswer(NamedTuple):
    """The answer of an arm as it is compared: a text, or the canonical form of its tool calls."""

    text: str
    is_calls: bool


def pack_answers(answers: Sequence[StoredAnswer]) -> bytes:
    """Return answers in a few bytes for the log; nothing if there are none, or far too long ones.

    Examples
    --------
    >>> unpack_answers(pack_answers([StoredAnswer("Spam!", False)]))
    [StoredAnswer(text='Spam!', is_calls=False)]
    """
    if not answers:
        return b""
    packed = zlib.compress(msgspec.msgpack.encode(answers))
    return packed if len(packed) <= MAX_PACKED else b""


def unpack_answers(packed: bytes) -> list[StoredAnswer]:
    """Return the answers that `pack_answers` packed."""
    if not packed:
        return []
    return msgspec.msgpack.decode(zlib.decompress(packed), type=list[StoredAnswer])
