"""Comparing answers: from a chat message to the value that must be equal for two arms to agree.

``same(a, b)`` of a user is made an equivalence within each round (`stopwise.running.forms`).
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.proxy.chat import Answer
from stopwise.running.forms import Form, form, normalised_text

Same: TypeAlias = Callable[[Any, Any], Any]
_json = form("json")
_encode = msgspec.json.Encoder().encode


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
        self._form = form(kind)
        self._same = same

    def start(self) -> Callable[[Answer], Any]:
        """Return the function that gives the compared value of each answer of one round."""
        return self.value if self._same is None else _Classes(self._same).value

    def value(self, answer: Answer) -> Any:
        """Return the compared value of an answer: of its tool calls, if it has any."""
        return tool_calls(answer.message) or _value(self._form, answer.text)


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


def tool_calls(message: dict[str, Any]) -> str | None:
    """Return the tool calls of a message as they are compared: names and canonical arguments."""
    calls: list[Any] = [one.get("function") or one.get("custom") for one in _listed(message)]
    calls = [one for one in [*calls, message.get("function_call")] if isinstance(one, dict)]
    found = [
        [str(one.get("name")), _value(_json, str(one.get("arguments", one.get("input", ""))))]
        for one in calls
    ]
    return _encode(found).decode() if found else None


def _value(form: Form, text: str) -> Any:
    """Return the value of a text; the text itself where it has not that form."""
    value = form(text)
    return normalised_text(text) if value is None else value


def _listed(message: dict[str, Any]) -> list[dict[str, Any]]:
    given = message.get("tool_calls")
    listed = cast(list[Any], given if isinstance(given, list) else [])
    return [one for one in listed if isinstance(one, dict)]
