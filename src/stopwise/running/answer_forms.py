"""Normal forms of text answers: answers agree if their forms are equal.

A form makes agreement an equivalence, which the stopping rule needs: if arms i and j agree, both
are right or both are wrong, so error_i − error_j ≤ P(i and j disagree). Similarity is not an
equivalence: a may be similar to b and b to c while a and c are not, and then only one of two arms
that "agree" may be right.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.canonical import canonical_json, canonical_value
from stopwise.errors import InvalidOutputsError, InvalidParameterError

Form: TypeAlias = Callable[[str], Any]
KINDS = "text, json, json:path.to.field, number, choice:a|b|c or code"

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_TIGHT = re.compile(r"\s*([^\w\s])\s*")
# Marks that surround an answer and are no part of it. Not among them: signs, "%", "#", "<", and,
# in front, the point of ".5", since answers that differ by these are different answers.
OPENING = "\"'`´“”„‟‘’‚‹›«»([{*_~¡¿"
CLOSING = "\"'`´“”„‟‘’‚‹›«»)]}*_~.,;:!?…。、！？"


def normalised_text(text: str) -> str:
    """Return a text such that answers which differ only in their writing become equal.

    Letters are case-folded and brought to one Unicode form (NFKC), white space is collapsed and
    trimmed, quotes, brackets, emphasis and closing punctuation around the text are removed.

    Examples
    --------
    >>> normalised_text("  **New   York.** ")
    'new york'
    >>> normalised_text("-0.5"), normalised_text("(.5)"), normalised_text("5 %")
    ('-0.5', '.5', '5 %')
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            f"normalised_text takes a text, not {text!r}: take the text out of the answer first, "
            "as in canonical=lambda answer: sw.normalised_text(answer['text'])"
        )
    # Folding can leave NFKC, and removing marks can uncover more of either: repeat until stable.
    while True:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        bare = " ".join(folded.split()).lstrip(OPENING + " ").rstrip(CLOSING + " ")
        if bare == text:
            return bare
        text = bare


def form(kind: str) -> Form:
    r"""Return the function of a name: from a text to its value, None where it has not that form.

    Examples
    --------
    >>> form("json:item.price")('{"item": {"price": 3.0, "unit": "EUR"}}')
    3
    >>> form("code")("if x :\n    y = 1") == form("code")("if x:\n\n  y=1")
    True
    """
    name, _, rest = kind.partition(":")
    if kind in _FORMS:
        return _FORMS[kind]
    if name == "json" and rest:
        path = rest.split(".")
        return lambda text: _field(text, path)
    choices = [normalised_text(one) for one in rest.split("|")]
    if name == "choice" and len(choices) > 1 and all(choices):
        words = "|".join(map(re.escape, sorted(choices, key=len, reverse=True)))
        pattern = re.compile(rf"(?<!\w)(?:{words})(?!\w)")
        return lambda text: _only(pattern.findall(normalised_text(text)))
    raise InvalidParameterError(f"answers cannot be compared by {kind!r}; write {KINDS}")


def _bare(text: str) -> str:
    """Return what is within a code fence, if the text is one."""
    stripped = text.strip()
    first, _, rest = stripped.partition("\n")
    return rest[:-3] if first.startswith("```") and rest.endswith("```") else text


def _parsed(text: str) -> Any:
    try:
        return canonical_value(msgspec.json.decode(_bare(text)))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _json(text: str) -> str | None:
    value = _parsed(text)
    return None if value is None else canonical_json(value).decode()


def _field(text: str, path: list[str]) -> Any:
    value = _parsed(text)
    try:
        for name in path:
            inner: Any = value
            value = inner[int(name) if isinstance(inner, list) else name]
    except (LookupError, TypeError, ValueError):
        return _json(text)  # no such field: the whole answer
    if isinstance(value, dict | list):
        return canonical_json(cast(object, value)).decode()
    known = normalised_text(value) if isinstance(value, str) else value
    return "null" if known is None else known


def _number(text: str) -> Any:
    found = _NUMBER.findall(_bare(text))
    if not found:
        return None
    value = float(found[-1].replace(",", ""))  # an answer ends with its result
    return value if abs(value) < 1e300 else found[-1]


def _only(found: list[str]) -> str | None:
    return found[0] if len(set(found)) == 1 else None


def _code(text: str) -> str:
    """Return code without layout: no blank lines, levels of indentation instead of columns."""
    lines: list[str] = []
    levels = [0]
    for line in _bare(text).expandtabs().splitlines():
        words = _TIGHT.sub(r"\1", " ".join(line.split()))
        if not words:
            continue
        column = len(line) - len(line.lstrip())
        while levels[-1] > column:
            levels.pop()
        if column > levels[-1]:
            levels.append(column)
        lines.append("\t" * (len(levels) - 1) + words)
    return "\n".join(lines)


_FORMS: dict[str, Form] = {
    "text": normalised_text,
    "json": _json,
    "number": _number,
    "code": _code,
}
