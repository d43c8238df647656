"""Comparing answers: from a chat message to the value that must be equal for two arms to agree.

Each form is a function of one answer, so agreement is an equivalence, which is what the stopping
rule needs. ``same(a, b)`` of a user is made one within each round.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.errors import InvalidParameterError
from stopwise.proxy.chat import Answer
from stopwise.running.answers import normalised_text

Form: TypeAlias = Callable[[str], Any]
Same: TypeAlias = Callable[[Any, Any], Any]
KINDS = 'text, json, json:path.to.field, number, choice:a|b|c, code or {python = "module:same"}'

_FENCE = re.compile(r"\s*```[^\n]*\n(.*?)\n?\s*```\s*", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_TIGHT = re.compile(r"\s*([^\w\s])\s*")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Comparison:
    """How the answers of a cascade are compared; `start` begins a round.

    Examples
    --------
    >>> compared = Comparison("choice:spam|ham").start()
    >>> compared(Answer.of_text("This is SPAM.", "small"))
    'spam'
    >>> Comparison("number").start()(Answer.of_text("So it is $1,200.50.", "small"))
    1200.5
    """

    def __init__(self, kind: str, same: Same | None = None) -> None:
        self._form = form(kind) if same is None else normalised_text
        self._same = same

    def start(self) -> Callable[[Answer], Any]:
        """Return the function that gives the compared value of each answer of one round."""
        return self.value if self._same is None else _Classes(self._same).value

    def value(self, answer: Answer) -> Any:
        """Return the compared value of an answer: of its tool calls, if it has any."""
        return tool_calls(answer.message) or self._form(answer.text)


class _Classes:
    """Classes of answers within a round: those before keep theirs, as they were reported."""

    def __init__(self, same: Same) -> None:
        self._same = same
        self._seen: list[tuple[int, Any]] = []  # the class of each, and what is compared

    def value(self, answer: Answer) -> int:
        calls = tool_calls(answer.message)
        given = (True, calls) if calls else (False, answer.text)
        # An answer like two earlier ones joins the first of them: a class is never split or
        # renamed later, and equality of classes is an equivalence whatever ``same`` says.
        found = (known for known, other in self._seen if self._alike(other, given))
        joined = min(found, default=len(self._seen))
        self._seen.append((joined, given))
        return joined

    def _alike(self, one: Any, other: Any) -> bool:
        if one[0] or other[0]:  # calls of tools are equal or not
            return one == other
        return bool(self._same(one[1], other[1]))


def form(kind: str) -> Form:
    r"""Return the canonical form of a name, or refuse the name.

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
        return lambda text: _first(pattern, normalised_text(text))
    raise InvalidParameterError(f"compare is {kind!r}: it must be {KINDS}")


def tool_calls(message: dict[str, Any]) -> str | None:
    """Return the tool calls of a message as they are compared: names and canonical arguments."""
    calls: list[Any] = [one.get("function") or one.get("custom") for one in _listed(message)]
    calls = [one for one in [*calls, message.get("function_call")] if isinstance(one, dict)]
    found = [
        [str(one.get("name")), _json(str(one.get("arguments", one.get("input", ""))))]
        for one in calls
    ]
    return _encode(found).decode() if found else None


def _listed(message: dict[str, Any]) -> list[dict[str, Any]]:
    given = message.get("tool_calls")
    listed = cast(list[Any], given if isinstance(given, list) else [])
    return [one for one in listed if isinstance(one, dict)]


def _bare(text: str) -> str:
    """Return what is within a code fence, if the text is one."""
    found = _FENCE.fullmatch(text)
    return found[1] if found else text


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(_bare(text))
    except (msgspec.MsgspecError, RecursionError):
        return None


def _json(text: str) -> str:
    value = _parsed(text)
    return normalised_text(text) if value is None else _encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """Return a value in which 3.0 is 3."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_plain(one) for one in cast(list[Any], value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _field(text: str, path: list[str]) -> Any:
    value = _parsed(text)
    try:
        for name in path:
            inner: Any = value
            value = inner[int(name) if isinstance(inner, list) else name]
    except (LookupError, TypeError, ValueError):
        return _json(text)  # no such field: the whole answer
    if isinstance(value, dict | list):
        return _encode(_plain(value)).decode()
    known = normalised_text(value) if isinstance(value, str) else _plain(value)
    return "null" if known is None else known


def _number(text: str) -> Any:
    found = _NUMBER.findall(_bare(text))
    if not found:
        return normalised_text(text)
    value = float(found[-1].replace(",", ""))  # an answer ends with its result
    return value if abs(value) < 1e300 else found[-1]


def _first(pattern: "re.Pattern[str]", text: str) -> str:
    found = pattern.search(text)
    return found[0] if found else text


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
