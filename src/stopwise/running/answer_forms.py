"""Normal forms of text answers, for comparing them.

The stopping rule requires an equivalence relation: if arms i and j agree, both are right or both
are wrong, so error_i − error_j ≤ P(i and j disagree). Equality of normal forms is such a
relation. Similarity is not, because it is not transitive: of two similar answers, one may be right
and the other wrong.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.canonical import canonical_json, canonical_value
from stopwise.errors import InvalidOutputsError, InvalidParameterError
from stopwise.text import suggestion

AnswerForm: TypeAlias = Callable[[str], Any]  # text → value to compare; None if it does not match
NAMES = ("text", "json", "json:path.to.field", "number", "choice:a|b|c", "code")

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_AROUND_PUNCTUATION = re.compile(r"\s*([^\w\s])\s*")
# Characters that may surround an answer without changing it. Signs, "%", "#", "<" and the leading
# point of ".5" are not among them, because they change the answer.
OPENING = "\"'`´“”„‟‘’‚‹›«»([{*_~¡¿"
CLOSING = "\"'`´“”„‟‘’‚‹›«»)]}*_~.,;:!?…。、！？"


def normalised_text(text: str) -> str:
    """Return a text in a normal form that ignores case, spacing and surrounding punctuation.

    Letters are case-folded and normalised (NFKC), white space is collapsed and trimmed, and quotes,
    brackets, emphasis and closing punctuation around the text are removed.

    Examples
    --------
    >>> normalised_text("  **New   York.** ")
    'new york'
    >>> normalised_text("-0.5"), normalised_text("(.5)"), normalised_text("5 %")
    ('-0.5', '.5', '5 %')
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
        raise InvalidOutputsError(
            f"normalised_text needs a string, got {text!r}; extract the text of the answer first, "
            "as in canonical=lambda answer: sw.normalised_text(answer['text'])"
        )
    # Case folding can break NFKC, and removing marks can expose more of them: repeat until stable.
    while True:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        bare = " ".join(folded.split()).lstrip(OPENING + " ").rstrip(CLOSING + " ")
        if bare == text:
            return bare
        text = bare


def answer_form(name: str) -> AnswerForm:
    r"""Return the answer form ``name``, a function from an answer's text to the value to compare.

    The function returns None if the text does not have the form.

    Examples
    --------
    >>> answer_form("json:item.price")('{"item": {"price": 3.0, "unit": "EUR"}}')
    3
    >>> code = answer_form("code")
    >>> code("if x :\n    y = 1") == code("if x:\n\n  y=1")
    True
    """
    kind, _, argument = name.partition(":")
    if name in _FORMS:
        return _FORMS[name]
    if kind == "json" and argument:
        path = argument.split(".")
        return lambda text: _field(text, path)
    choices = [normalised_text(choice) for choice in argument.split("|")]
    if kind == "choice" and len(choices) > 1 and all(choices):
        alternatives = "|".join(map(re.escape, sorted(choices, key=len, reverse=True)))
        pattern = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)")
        return lambda text: _unique(pattern.findall(normalised_text(text)))
    raise InvalidParameterError(f"unknown comparison {name!r}; {suggestion(name, NAMES)}")


def _without_fence(text: str) -> str:
    """Return the content of a Markdown code fence; any other text unchanged."""
    stripped = text.strip()
    first_line, _, content = stripped.partition("\n")
    if first_line.startswith("```") and content.endswith("```"):
        return content[:-3]
    return text


def _parsed(text: str) -> Any:
    try:
        return canonical_value(msgspec.json.decode(_without_fence(text)))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _json(text: str) -> str | None:
    value = _parsed(text)
    return None if value is None else canonical_json(value).decode()


def _field(text: str, path: list[str]) -> Any:
    value = _parsed(text)
    try:
        for name in path:
            parent: Any = value
            value = parent[int(name) if isinstance(parent, list) else name]
    except (LookupError, TypeError, ValueError):
        return _json(text)  # the field is missing: compare the complete answer
    if isinstance(value, dict | list):
        return canonical_json(cast(object, value)).decode()
    if value is None:
        return "null"
    return normalised_text(value) if isinstance(value, str) else value


def _number(text: str) -> Any:
    numbers = _NUMBER.findall(_without_fence(text))
    if not numbers:
        return None
    value = float(numbers[-1].replace(",", ""))  # the result is usually last
    return value if abs(value) < 1e300 else numbers[-1]


def _unique(matches: list[str]) -> str | None:
    return matches[0] if len(set(matches)) == 1 else None


def _code(text: str) -> str:
    """Return code without its layout: no blank lines, indentation as levels."""
    lines: list[str] = []
    levels = [0]
    for line in _without_fence(text).expandtabs().splitlines():
        tokens = _AROUND_PUNCTUATION.sub(r"\1", " ".join(line.split()))
        if not tokens:
            continue
        column = len(line) - len(line.lstrip())
        while levels[-1] > column:
            levels.pop()
        if column > levels[-1]:
            levels.append(column)
        lines.append("\t" * (len(levels) - 1) + tokens)
    return "\n".join(lines)


_FORMS: dict[str, AnswerForm] = {
    "text": normalised_text,
    "json": _json,
    "number": _number,
    "code": _code,
}
