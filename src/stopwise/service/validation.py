"""What msgspec found wrong with a value, in words for the person who must correct it."""

import json
import re
from typing import Any

import msgspec

from stopwise.text import shorten

NAME = r"^[a-z0-9][a-z0-9_-]{0,63}\Z"
NO_NUL = r"^[^\0]*$"
UNKNOWN_FIELD = "is not a known field"
_FORMS = {
    repr(NAME): 'a name like "triage-2" (at most 64 lower-case letters, digits, - and _)',
    repr(NO_NUL): "text without a NUL character",
}
_NOUNS = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "an object",
    "str": "a string",
}
_LIMITS = {">=": "at least", "<=": "at most", ">": "more than"}
_PLACE = re.compile(r"(?s)(.*) - at `(?:key in )?\$\.?(.*)`")
_NAMED = re.compile(r"(?s)Object (missing|contains).* field `(.*)`")
_EXPECTED = re.compile(
    r"(?s)Expected `([^`]*)`(?: matching regex (.*)|(.*?) ([<>]=?) (.*)|, got .*)"
)


def explain(error: msgspec.ValidationError, given: Any = msgspec.UNSET) -> tuple[str, str]:
    """Return where in a value something is wrong ("": all of it), and what should be there.

    Examples
    --------
    >>> try:
    ...     msgspec.convert([3, "4"], list[int])
    ... except msgspec.ValidationError as error:
    ...     explain(error, [3, "4"])
    ('[1]', 'must be a whole number, not "4"')
    """
    found = _PLACE.fullmatch(str(error))
    what, place = (found[1], found[2]) if found else (str(error), "")
    if named := _NAMED.fullmatch(what):
        problem = "is missing" if named[1] == "missing" else UNKNOWN_FIELD
        return f"{place}.{named[2]}".removeprefix("."), problem
    if (expected := _EXPECTED.fullmatch(what)) is None:
        return place, f"is not valid: {what.lower()}"
    kinds, form, length, sign, limit = expected.groups()
    right = _FORMS.get(form) or " or ".join(_NOUNS.get(one, one) for one in kinds.split(" | "))
    if sign is not None:
        right += f"{length or ' of'} {_LIMITS[sign]} {limit.removesuffix('.0')}"
    return place, f"must be {right}{_not(given, place)}"


def _not(given: Any, place: str) -> str:
    """Return what is at a place instead; nothing where that is not known."""
    if given is msgspec.UNSET:
        return ""
    try:
        for name, index in re.findall(r"([^.\[\]]+)|\[(.*?)\]", place):
            given = given[int(index) if index else name]
    except (LookupError, TypeError, ValueError):  # the name of an entry is not given
        return ""
    return f", not {shorten(json.dumps(given, ensure_ascii=False, default=str), 60)}"
