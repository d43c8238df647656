"""Turn msgspec validation errors into messages for users."""

import json
import re
from typing import Any

import msgspec

from stopwise.text import shorten

NAME = r"^[a-z0-9][a-z0-9_-]{0,63}\Z"
NO_NUL = r"^[^\0]*$"
UNKNOWN_FIELD = "is an unknown field"
_FORMS = {
    repr(NAME): 'a name like "triage-2" (at most 64 lower-case letters, digits, - and _)',
    repr(NO_NUL): "text without a NUL character",
}
_NOUNS = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}
_PATH = re.compile(r"(?s)(.*) - at `(?:key in )?\$\.?(.*)`")
_FIELD = re.compile(r"(?s)Object (missing|contains).* field `(.*)`")
_EXPECTED = re.compile(
    r"(?s)Expected `([^`]*)`(?: matching regex (.*)|(.*?) ([<>]=?) (.*)|, got .*)"
)


def explain(error: msgspec.ValidationError, value: Any = msgspec.UNSET) -> tuple[str, str]:
    """Return the path to the invalid part of a value ("" for the value itself) and the problem.

    Examples
    --------
    >>> try:
    ...     msgspec.convert([3, "4"], list[int])
    ... except msgspec.ValidationError as error:
    ...     explain(error, [3, "4"])
    ('[1]', 'must be an integer, got "4"')
    """
    text, path = str(error), ""
    if located := _PATH.fullmatch(text):
        text, path = located[1], located[2]
    if field := _FIELD.fullmatch(text):
        problem = "is missing" if field[1] == "missing" else UNKNOWN_FIELD
        return f"{path}.{field[2]}".removeprefix("."), problem
    if (expected := _EXPECTED.fullmatch(text)) is None:
        return path, f"is invalid: {text.lower()}"
    types, pattern, length, sign, limit = expected.groups()
    wanted = _FORMS.get(pattern)
    if wanted is None:
        wanted = " or ".join(_NOUNS.get(name, name) for name in types.split(" | "))
    if sign is not None:
        wanted += f"{length or ''} {sign} {limit.removesuffix('.0')}"
    return path, f"must be {wanted}{_got(value, path)}"


def _got(value: Any, path: str) -> str:
    """Return ", got …" with the value at a path, or "" if the path cannot be resolved."""
    if value is msgspec.UNSET:
        return ""
    try:
        for name, index in re.findall(r"([^.\[\]]+)|\[(.*?)\]", path):
            value = value[int(index) if index else name]
    # In a path, msgspec writes […] in place of the key of an entry.
    except (LookupError, TypeError, ValueError):
        return ""
    return f", got {shorten(json.dumps(value, ensure_ascii=False, default=str), 60)}"
