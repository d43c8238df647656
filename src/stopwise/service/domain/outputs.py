"""Outputs of arms: JSON values that are compared by equality.

Every value has one canonical JSON form: 1 and 1.0 are equal, true and 1 are not, and the order of
an object's fields does not matter. Outputs are usually labels or short texts; the canonical form of
a value longer than `MAX_BYTES` is a hash.
"""

import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

import msgspec

from stopwise.canonical import canonical_json
from stopwise.service.domain.errors import InvalidRequest

MAX_DEPTH = 32  # levels of nested lists and objects
MAX_BYTES = 1024  # of a canonical form; longer forms are replaced by a hash
MAX_PACKED = 1_000_000  # bytes of a round's compressed answers; longer ones are not stored
SHORT = 256  # characters below which forms are cached: classifiers have few distinct outputs


def canonical(value: object, field: str) -> bytes:
    """Return the canonical form of a JSON value; ``field`` is its place in the request."""
    if type(value) is str and len(value) < SHORT:
        return _canonical_text(value)
    if value is None:
        raise InvalidRequest(f"{field} must not be null; omit unknown values", field=field)
    _check_depth(value, field, MAX_DEPTH)
    return _hash_if_long(canonical_json(value))


@lru_cache(4096)
def _canonical_text(value: str) -> bytes:
    return _hash_if_long(canonical_json(value))


def _hash_if_long(form: bytes) -> bytes:
    if len(form) <= MAX_BYTES:
        return form
    digest = blake2b(form, digest_size=32).hexdigest()
    return canonical_json({"blake2b": digest, "bytes": len(form)})


def _check_depth(value: object, field: str, depth: int) -> None:
    if depth == 0:
        message = f"{field} is nested deeper than {MAX_DEPTH} levels"
        raise InvalidRequest(message, field=field)
    items: Iterable[object] = ()
    if isinstance(value, list):
        items = cast(list[object], value)
    elif isinstance(value, dict):
        items = cast(dict[str, object], value).values()
    for item in items:
        _check_depth(item, field, depth - 1)


@lru_cache(4096)
def fingerprint(form: bytes) -> int:
    """Return a nonzero 64-bit hash of a canonical form.

    Two forms collide with probability 2⁻⁶³; a conflicting repeat would then go unnoticed.
    """
    return int.from_bytes(blake2b(form, digest_size=8).digest(), "little") | 1


def decode_output(form: bytes) -> Any:
    """Return the JSON value of a canonical form."""
    return msgspec.json.decode(form)


class StoredAnswer(NamedTuple):
    """The answer of an arm: a text, or the canonical form of its tool calls."""

    text: str
    is_calls: bool


def pack_answers(answers: Sequence[StoredAnswer]) -> bytes:
    """Compress answers for the log; return ``b""`` if they are empty or exceed `MAX_PACKED`.

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
    """Decompress answers; the inverse of `pack_answers`."""
    if not packed:
        return []
    return msgspec.msgpack.decode(zlib.decompress(packed), type=list[StoredAnswer])
