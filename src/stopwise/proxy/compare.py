"""Comparing answers: from a chat message to the value that must be equal for two arms to agree.

``same(a, b)`` of a user is made an equivalence within each round (`stopwise.running.answer_forms`).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.proxy.chat import Answer, text_of
from stopwise.running.answer_forms import Form, form, normalised_text
from stopwise.service.domain.errors import Conflict
from stopwise.service.domain.events import Reported
from stopwise.service.domain.outputs import StoredAnswer, canonical, unpack_answers

Same: TypeAlias = Callable[[Any, Any], Any]
NOT_KEPT = (
    "the answers of this round were not kept, so a label cannot be compared with them: they are "
    "kept for policies that learn from labels, up to 1 MB a round"
)
_json = form("json")
_encode = msgspec.json.Encoder().encode


class Comparison:
    """How the answers of a cascade are compared; `start` begins a round.

    Examples
    --------
    >>> compared = Comparison("choice:spam|ham").start()
    >>> compared.value(Answer.of_text("This is SPAM.", "small"))
    'spam'
    >>> Comparison("number").start().value(Answer.of_text("So it is $1,200.50.", "small"))
    1200.5
    """

    def __init__(self, kind: str, same: Same | None = None) -> None:
        self._form = form(kind)
        self._is_field = kind.startswith("json:")
        self._same = same

    def start(self) -> "Comparison | Classes":
        """Return what gives the compared value of each answer of one round."""
        return self if self._same is None else Classes(self._same)

    kept: Sequence[StoredAnswer] = ()  # a label is compared with the values themselves

    def value(self, answer: Answer) -> Any:
        """Return the compared value of an answer: of its tool calls, if it has any."""
        return tool_calls(answer.message) or _value(self._form, answer.text)

    def label(self, label: object, reported: Reported) -> bytes:
        """Return the output that a label equals, or one that no arm of its round has.

        A label is a text, as a stage answers it, a message with ``content`` or ``tool_calls``, the
        JSON value itself, or an output as the service shows it.
        """
        outputs = reported.outputs
        exact = canonical(label, "label")
        if self._same is not None:
            if reported.answers:
                return _class_of(label, reported, self._same)
            if exact in outputs:  # its class, of a round that is older than kept answers
                return exact
            raise Conflict(NOT_KEPT)
        if exact in outputs:
            return exact
        readings = [canonical(one, "label") for one in self._readings(label)]
        return next((one for one in readings if one in outputs), readings[0])

    def _readings(self, label: object) -> list[Any]:
        """Return the values that a label may stand for, the likeliest first."""
        message = _message(label)
        if message is not None:
            return [tool_calls(message) or _value(self._form, text_of(message.get("content")))]
        text = label if isinstance(label, str) else _encode(label).decode()
        values = [_value(self._form, text)]
        if self._is_field:  # or it is the field alone
            inner = form("json:field")
            whole = [_encode({"field": label}).decode(), f'{{"field": {text}}}']
            values += [value for value in map(inner, whole) if value is not None]
        return values


class Classes:
    """Classes of answers within a round: those before keep theirs, as they were reported."""

    def __init__(self, same: Same) -> None:
        self._same = same
        self._classes: list[int] = []
        self.kept: list[StoredAnswer] = []  # what is compared, for each class in `_classes`

    def value(self, answer: Answer) -> int:
        """Return the class of an answer."""
        calls = tool_calls(answer.message)
        given = StoredAnswer(answer.text if calls is None else calls, calls is not None)
        # An answer like two earlier ones joins the first of them: a class is never split or
        # renamed later, and equality of classes is an equivalence whatever ``same`` says.
        pairs = zip(self._classes, self.kept, strict=True)
        alike = (known for known, other in pairs if _alike(other, given, self._same))
        joined = min(alike, default=len(self.kept))
        self._classes.append(joined)
        self.kept.append(given)
        return joined


def _class_of(label: object, reported: Reported, same: Same) -> bytes:
    """Return the class that a label joins in its round; a new one if it is like no answer."""
    kept, message = unpack_answers(reported.answers), _message(label)
    calls = None if message is None else tool_calls(message)
    text = label if isinstance(label, str) else _encode(label).decode()
    if message is not None:
        text = calls or text_of(message.get("content"))
    # The form in which the service shows calls of tools is a label as well.
    exact = [one.text for one in kept]
    if text in exact:
        return reported.outputs[exact.index(text)]
    given = StoredAnswer(text, calls is not None)
    for output, one in zip(reported.outputs, kept, strict=True):
        try:
            if _alike(one, given, same):
                return output
        except Exception as error:  # a function of the user's may raise anything
            problem = f"{type(error).__name__}: {error}"
            raise Conflict(f"the label cannot be compared with an answer: {problem}") from None
    return canonical(len(kept), "label")


def _alike(one: StoredAnswer, other: StoredAnswer, same: Same) -> bool:
    if one.is_calls or other.is_calls:  # calls of tools are equal or not
        return one == other
    return bool(same(one.text, other.text))


def _message(label: object) -> dict[str, Any] | None:
    """Return a label that is a message of an assistant."""
    given = cast(dict[str, Any], label if isinstance(label, dict) else {})
    calls = given.get("tool_calls") or given.get("function_call")
    return given if calls or given.get("role") == "assistant" else None


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
