"""Comparison of chat answers, and of labels with answers.

A user's ``same(a, b)`` is made an equivalence relation within each round.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.proxy.chat import Answer, text_of
from stopwise.running.answer_forms import AnswerForm, answer_form, normalised_text
from stopwise.service.domain.errors import Conflict
from stopwise.service.domain.events import Reported
from stopwise.service.domain.outputs import StoredAnswer, canonical, unpack_answers

Same: TypeAlias = Callable[[Any, Any], Any]
NOT_STORED = (
    "the answers of this round were not stored, so a label cannot be compared with them: they are "
    "stored for policies that learn from labels, up to 1 MB per round. Label by stage instead: "
    '{"right": {…}}'
)
_json = answer_form("json")
_encode = msgspec.json.Encoder().encode


class Comparison:
    """The comparison of a cascade's answers; `start` begins a round.

    Examples
    --------
    >>> comparison = Comparison("choice:spam|ham").start()
    >>> comparison.value(Answer.of_text("This is SPAM.", "small"))
    'spam'
    >>> Comparison("number").start().value(Answer.of_text("So it is $1,200.50.", "small"))
    1200.5
    """

    def __init__(self, kind: str, same: Same | None = None) -> None:
        self._form = answer_form(kind)
        self._is_field = kind.startswith("json:")
        self._same = same

    def start(self) -> "Comparison | AnswerClasses":
        """Return the object that maps each answer of one round to its compared value."""
        return self if self._same is None else AnswerClasses(self._same)

    stored_answers: Sequence[StoredAnswer] = ()  # none: labels are compared with outputs

    def value(self, answer: Answer) -> Any:
        """Return the compared value of an answer, or of its tool calls if it has any."""
        return tool_calls(answer.message) or _value(self._form, answer.text)

    def label(self, label: object, reported: Reported) -> bytes:
        """Return the output that a label equals; a new output if it matches no arm of the round.

        A label is a text as a stage would answer, a message with ``content`` or ``tool_calls``, a
        JSON value, or an output as the service shows it.
        """
        outputs = reported.outputs
        exact = canonical(label, "label")
        if self._same is not None:
            if reported.answers:
                return _class_of(label, reported, self._same)
            if exact in outputs:  # the class of an answer, in a round without stored answers
                return exact
            raise Conflict(NOT_STORED)
        if exact in outputs:
            return exact
        candidates = [canonical(value, "label") for value in self._values_of(label)]
        return next((output for output in candidates if output in outputs), candidates[0])

    def _values_of(self, label: object) -> list[Any]:
        """Return the possible values of a label, the most likely first."""
        message = _message(label)
        if message is not None:
            return [tool_calls(message) or _value(self._form, text_of(message.get("content")))]
        text = label if isinstance(label, str) else _encode(label).decode()
        values = [_value(self._form, text)]
        if self._is_field:  # the label may be the field alone
            inner = answer_form("json:field")
            objects = [_encode({"field": label}).decode(), f'{{"field": {text}}}']
            values += [value for value in map(inner, objects) if value is not None]
        return values


class AnswerClasses:
    """Equivalence classes of the answers within a round, assigned in the order of the stages."""

    def __init__(self, same: Same) -> None:
        self._same = same
        self._classes: list[int] = []
        self.stored_answers: list[StoredAnswer] = []  # for each class in `_classes`

    def value(self, answer: Answer) -> int:
        """Return the class of an answer."""
        calls = tool_calls(answer.message)
        stored = StoredAnswer(answer.text if calls is None else calls, calls is not None)
        # An answer that matches several classes joins the first. Classes already reported never
        # change, and their equality is an equivalence relation even if ``same`` is not transitive.
        pairs = zip(self._classes, self.stored_answers, strict=True)
        matches = (class_ for class_, other in pairs if _alike(other, stored, self._same))
        class_ = min(matches, default=len(self.stored_answers))
        self._classes.append(class_)
        self.stored_answers.append(stored)
        return class_


def _class_of(label: object, reported: Reported, same: Same) -> bytes:
    """Return the class of a label in its round; a new class if it matches no answer."""
    answers, message = unpack_answers(reported.answers), _message(label)
    calls = None if message is None else tool_calls(message)
    text = label if isinstance(label, str) else _encode(label).decode()
    if message is not None:
        text = calls or text_of(message.get("content"))
    # Tool calls as the service shows them are a valid label as well.
    texts = [answer.text for answer in answers]
    if text in texts:
        return reported.outputs[texts.index(text)]
    stored = StoredAnswer(text, calls is not None)
    for output, answer in zip(reported.outputs, answers, strict=True):
        try:
            if _alike(answer, stored, same):
                return output
        except Exception as error:  # a user's function may raise anything
            problem = f"{type(error).__name__}: {error}"
            raise Conflict(f"the label cannot be compared with an answer: {problem}") from None
    return canonical(len(answers), "label")


def _alike(first: StoredAnswer, second: StoredAnswer, same: Same) -> bool:
    if first.is_calls or second.is_calls:  # ``same`` compares texts only
        return first == second
    return bool(same(first.text, second.text))


def _message(label: object) -> dict[str, Any] | None:
    """Return the label if it is an assistant message."""
    message = cast(dict[str, Any], label if isinstance(label, dict) else {})
    calls = message.get("tool_calls") or message.get("function_call")
    return message if calls or message.get("role") == "assistant" else None


def tool_calls(message: dict[str, Any]) -> str | None:
    """Return the names and canonical arguments of a message's tool calls as JSON."""
    calls = [
        call.get("function") or call.get("custom") for call in _objects(message.get("tool_calls"))
    ]
    compared = [
        [str(call.get("name")), _value(_json, str(call.get("arguments", call.get("input", ""))))]
        for call in _objects([*calls, message.get("function_call")])
    ]
    return _encode(compared).decode() if compared else None


def _value(form: AnswerForm, text: str) -> Any:
    """Return the value of a text in this form, or the normalised text if it has no such value."""
    value = form(text)
    return normalised_text(text) if value is None else value


def _objects(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in a list; none if the value is not a list."""
    entries = cast(list[Any], value if isinstance(value, list) else [])
    return [entry for entry in entries if isinstance(entry, dict)]
