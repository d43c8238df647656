"""Canonical JSON, for comparing and hashing values."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

_encode = msgspec.json.Encoder(order="deterministic").encode


def canonical_json(value: object) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no whitespace, and 3.0 written as 3.

    Two values are equal if and only if their canonical JSON is equal; True differs from 1.

    Examples
    --------
    >>> canonical_json({"b": 2.0, "a": [1, 1.5, True, "é"]}).decode()
    '{"a":[1,1.5,true,"é"],"b":2}'
    """
    return _encode(canonical_value(value))


def canonical_value(value: Any) -> Any:
    """Return a JSON value in which floats without a fractional part are integers.

    Examples
    --------
    >>> canonical_value({"a": [2.0, 2.5]})
    {'a': [2, 2.5]}
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list | tuple):
        return [canonical_value(item) for item in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        named = cast(dict[str, Any], value)
        return {name: canonical_value(item) for name, item in named.items()}
    return value
