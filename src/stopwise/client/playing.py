"""A whole round: ask how deep to go, ask the stages, tell what they said."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable, iscoroutine
from typing import Any

import msgspec

from stopwise.client import plain
from stopwise.client.core import Core
from stopwise.client.exchange import Ask, Exchange
from stopwise.client.plain import ContextLike
from stopwise.errors import InvalidInputError, InvalidParameterError, ServiceError
from stopwise.records import Failure
from stopwise.running.stage import Stage, StageLike, shown, told

UNCHANGED: Any = object()


class Outcome(msgspec.Struct, frozen=True):
    """One round that `Client.run` has run.

    Attributes
    ----------
    id : str
        Of its decision, to tell a label or to look it up.
    stop : int
        The last arm that answered; −1 if none did.
    outputs : tuple
        What the arms that answered said, as it was told to the service.
    answers : tuple
        The same as the stages gave it.
    failure : Failure or None
        Why the round ended early, if it did.

    Examples
    --------
    >>> Outcome("17-0c3fa", stop=0, outputs=("spam",), answers=("Spam!",)).answer
    'Spam!'
    """

    id: str
    stop: int
    outputs: tuple[Any, ...]
    answers: tuple[Any, ...]
    failure: Failure | None = None

    @property
    def answer(self) -> Any:
        """The answer of the last arm that gave one; None if none did."""
        return self.answers[-1] if self.answers else None


def play(
    core: Core,
    name: str,
    context: ContextLike,
    arms: Sequence[StageLike],
    case: Any,
    *,
    blocking: bool,
) -> Exchange[Outcome]:
    """Play one round; see `Client.run`."""
    stages = _prepared((yield from core.arms(name)), arms, blocking)
    course = _Course(stages, context if case is UNCHANGED else case)
    if any(stage.reveals is not None for stage in stages[:-1]):
        return (yield from _by_steps(core, name, context, course))
    decision = yield from core.decide(name, context)
    for arm in range(decision.stop + 1):
        if not (yield from course.asked(arm)):
            break
    try:
        yield from core.outputs(name, decision.id, course.outputs, final=course.failure is not None)
    except ServiceError as error:
        raise course.noted(error, decision.id) from None
    return course.outcome(decision.id)


def _by_steps(core: Core, name: str, context: ContextLike, course: "_Course") -> Exchange[Outcome]:
    if isinstance(context, Mapping):
        raise InvalidParameterError(
            "where stages reveal the context, give what is known before as a list"
        )
    state = yield from core.start_round(name, context)
    try:
        while state.next is not None:
            arm = state.next
            if not (yield from course.asked(arm)):
                yield from core.end_round(name, state.id)
                break
            state = yield from core.step(name, state.id, arm, course.outputs[-1], course.revealed)
    except ServiceError as error:
        raise course.noted(error, state.id) from None
    return course.outcome(state.id)


class _Course:
    """The stages of one round, and what they said."""

    def __init__(self, stages: Sequence[Stage], case: Any) -> None:
        self._stages = stages
        self._case = case
        self._answers: list[Any] = []
        self.outputs: list[Any] = []
        self.revealed: tuple[float, ...] = ()  # by the last that answered
        self.failure: Failure | None = None

    def asked(self, arm: int) -> Exchange[bool]:
        """Ask a stage; return whether it answered with something that can be used."""
        stage = self._stages[arm]
        try:
            answer: Any = yield Ask(stage.call, self._case, stage.timeout)
        except Exception as error:
            self.failure = _failure(arm, error)
            return False
        if isawaitable(answer):  # a plain function that handed on what an async one gave
            if iscoroutine(answer):
                answer.close()  # or Python complains that it was never awaited
            raise _must_be_awaited(stage.name)
        try:
            compared: Hashable
            compared, revealed, _ = stage.judge(answer, last=arm + 1 == len(self._stages))
            said = plain.answer(compared, f"the output of {stage.name!r}")
        except InvalidInputError as error:
            self.failure = _failure(arm, error)
            return False
        self.revealed = revealed
        self._answers.append(answer)
        self.outputs.append(said)
        return True

    def noted(self, error: ServiceError, id: str) -> ServiceError:
        """Return an error with what was paid for, so that it is not lost."""
        answer = self._answers[-1] if self._answers else None
        error.add_note(
            f"What the stages said of {id} was not told to the service; the answer was "
            f"{shown(answer)}."
        )
        return error

    def outcome(self, id: str) -> Outcome:
        """Return the record of the round."""
        return Outcome(
            id=id,
            stop=len(self._answers) - 1,
            outputs=tuple(self.outputs),
            answers=tuple(self._answers),
            failure=self.failure,
        )


def _prepared(names: Sequence[str], arms: Sequence[StageLike], blocking: bool) -> Sequence[Stage]:
    if len(arms) != len(names):
        raise InvalidParameterError(
            f"{len(arms)} stages for a cascade of {len(names)} arms ({', '.join(names)}): give one "
            "for each arm, in order"
        )
    stages: list[Stage] = []
    for name, given in zip(names, arms, strict=True):
        stage = Stage.of(given)
        if stage.name not in (None, name):
            raise InvalidParameterError(
                f"a stage is named {stage.name!r} where the cascade has {name!r}: are the stages "
                "in the order of the arms?"
            )
        if blocking and stage.is_async:
            raise _must_be_awaited(name)
        stages.append(replace(stage, name=name))
    return stages


def _must_be_awaited(name: str | None) -> InvalidParameterError:
    return InvalidParameterError(
        f"stage {name!r} is async, and `Client.run` cannot await it: use AsyncClient"
    )


def _failure(arm: int, error: Exception) -> Failure:
    late = isinstance(error, TimeoutError)
    said = told(error)
    if not (said and (late or isinstance(error, InvalidInputError))):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return Failure(arm, "timeout" if late else "error", said)
