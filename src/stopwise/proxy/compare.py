"""Compare chat answers with each other and with labels.

With a user's ``same(a, b)``, each round's answers are grouped into equivalence classes.
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
    "cannot compare the label with this round's answers, because they were not stored (answers are "
    "stored only for policies that learn from labels, up to 1 MB per round); state which stages "
    'were right instead: {"right": {…}}'
)
_json = answer_form("json")
_encode = msgspec.json.Encoder().encode


class Comparison:
    """How a cascade's answers are compared; call `start` at the start of each round.

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
        """Return an object whose ``value`` method maps this round's answers to outputs."""
        return self if self._same is None else AnswerClasses(self._same)

    stored_answers: Sequence[StoredAnswer] = ()  # empty, since labels are compared with outputs

    def value(self, answer: Answer) -> Any:
        """Return the value by which an answer is compared: its tool calls, or else its text."""
        return tool_calls(answer.message) or _value(self._form, answer.text)

    def label(self, label: object, reported: Reported) -> bytes:
        """Return the output that a label matches, or a new output if it matches no arm.

        A label is the text of a right answer, a message with ``content`` or ``tool_calls``, a JSON
        value, or an output in the form in which the service returns it.
        """
        outputs = reported.outputs
        exact = canonical(label, "label")
        if self._same is not None:
            if reported.answers:
                return _class_of(label, reported, self._same)
            if exact in outputs:  # the label is the class of an answer
                return exact
            raise Conflict(NOT_STORED)
        if exact in outputs:
            return exact
        candidates = [canonical(value, "label") for value in self._values_of(label)]
        return next((output for output in candidates if output in outputs), candidates[0])

    def _values_of(self, label: object) -> list[Any]:
        """Return the values that a label may mean, most likely first."""
        message = _message(label)
        if message is not None:
            return [tool_calls(message) or _value(self._form, text_of(message.get("content")))]
        text = label if isinstance(label, str) else _encode(label).decode()
        values = [_value(self._form, text)]
        if self._is_field:  # the label may be only the field's value
            inner = answer_form("json:field")
            objects = [_encode({"field": label}).decode(), f'{{"field": {text}}}']
            values += [value for value in map(inner, objects) if value is not None]
        return values


class AnswerClasses:
    """Equivalence classes of one round's answers, assigned in stage order."""

    def __init__(self, same: Same) -> None:
        self._same = same
        self._classes: list[int] = []
        self.stored_answers: list[StoredAnswer] = []  # for each class in `_classes`

    def value(self, answer: Answer) -> int:
        """Return the class of an answer."""
        calls = tool_calls(answer.message)
        stored = StoredAnswer(answer.text if calls is None else calls, calls is not None)
        # An answer that matches several classes joins the first, so reported classes never change.
        # This is an equivalence relation even if ``same`` is not transitive.
        pairs = zip(self._classes, self.stored_answers, strict=True)
        matches = (class_ for class_, other in pairs if _alike(other, stored, self._same))
        class_ = min(matches, default=len(self.stored_answers))
        self._classes.append(class_)
        self.stored_answers.append(stored)
        return class_


def _class_of(label: object, reported: Reported, same: Same) -> bytes:
    """Return the class of the first answer that a label matches, or a new class."""
    answers, message = unpack_answers(reported.answers), _message(label)
    calls = None if message is None else tool_calls(message)
    text = label if isinstance(label, str) else _encode(label).decode()
    if message is not None:
        text = calls or text_of(message.get("content"))
    # Tool calls are also accepted in the form in which the service returns them.
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
            raise Conflict(f"comparing the label with an answer raised {problem}") from None
    return canonical(len(answers), "label")


def _alike(first: StoredAnswer, second: StoredAnswer, same: Same) -> bool:
    if first.is_calls or second.is_calls:  # ``same`` compares texts only
        return first == second
    return bool(same(first.text, second.text))


def _message(label: object) -> dict[str, Any] | None:
    """Return a label that is an assistant message, or None for other labels."""
    message = cast(dict[str, Any], label if isinstance(label, dict) else {})
    calls = message.get("tool_calls") or message.get("function_call")
    return message if calls or message.get("role") == "assistant" else None


def tool_calls(message: dict[str, Any]) -> str | None:
    """Return a message's tool calls as JSON with canonical arguments, or None if it has none."""
    calls = [
        call.get("function") or call.get("custom") for call in _objects(message.get("tool_calls"))
    ]
    compared = [
        [str(call.get("name")), _value(_json, str(call.get("arguments", call.get("input", ""))))]
        for call in _objects([*calls, message.get("function_call")])
    ]
    return _encode(compared).decode() if compared else None


def _value(form: AnswerForm, text: str) -> Any:
    """Return the value that ``form`` finds in a text, or the normalised text if it finds none."""
    value = form(text)
    return normalised_text(text) if value is None else value


def _objects(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects in a list, or an empty list if the value is not a list."""
    entries = cast(list[Any], value if isinstance(value, list) else [])
    return [entry for entry in entries if isinstance(entry, dict)]
