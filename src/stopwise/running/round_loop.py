"""The loop of one round, for decisions of a policy or of a service.

The loop is a generator that does nothing itself. It yields steps: `Ask` a stage, and whatever its
source of decisions yields. `drive` and `drive_async` do the steps, blocking or not.
"""

from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import replace
from inspect import isawaitable, iscoroutine
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

from stopwise.errors import InvalidInputError, InvalidParameterError
from stopwise.records import Failure
from stopwise.running.stage import Stage, StageLike

T = TypeVar("T")


class Ask(NamedTuple):
    """Step: ask a stage; the outcome is its answer, or the exception that it raised."""

    call: Callable[[Any], Any]
    case: Any
    timeout: float | None


class Decisions(Protocol):
    """Decides which arm runs next."""

    def next(self) -> int | None:
        """Return the arm to run now; None: stop here."""
        ...

    def give(self, output: Hashable, revealed: tuple[float, ...]) -> Iterable[Any]:
        """Take the output of that arm and what it reveals; return the steps that this takes.

        An `InvalidInputError` means that the answer cannot be used: the stage has failed.
        """
        ...


class RoundLoop:
    """One round: asks the stages that a source of decisions names, until it says stop.

    ``case`` is what they are asked about. ``instead`` says what to write instead of a call that
    blocks, if a stage must be awaited; None where the steps are awaited.
    """

    def __init__(
        self, stages: Sequence[Stage], case: Any, decisions: Decisions, instead: str | None
    ) -> None:
        self._stages = stages
        self._case = case
        self._decisions = decisions
        self._instead = instead
        self.answers: list[Any] = []
        self.newest: Any = None  # answer, also if it could not be given to the decisions
        self.costs: list[float] = []  # of the calls that answered, where the stages say
        self.failure: Failure | None = None  # why the round ended early
        self.error: Exception | None = None

    def steps(self) -> Generator[Any, Any, None]:
        """Run the round; a stage that fails ends it."""
        while self.failure is None and (arm := self._decisions.next()) is not None:
            stage = self._stages[arm]
            try:
                answer: Any = yield Ask(stage.call, self._case, stage.timeout)
            except Exception as error:
                self._fail(arm, error)
                continue
            if self._instead is not None and isawaitable(answer):  # from a plain function
                if iscoroutine(answer):
                    answer.close()  # or Python complains that it was never awaited
                _refuse_async(stage, self._instead)
            try:
                output, revealed, cost = stage.judge(answer, last=arm + 1 == len(self._stages))
                self.newest = answer
                yield from self._decisions.give(output, revealed)
            except InvalidInputError as error:
                self._fail(arm, error)
                continue
            self.answers.append(answer)
            if cost is not None:
                self.costs.append(cost)

    def _fail(self, arm: int, error: Exception) -> None:
        late = isinstance(error, TimeoutError)
        try:
            text = str(error)
        except Exception:  # of an exception of the user's
            text = ""
        if not (text and (late or isinstance(error, InvalidInputError))):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        self.failure = Failure(arm, "timeout" if late else "error", text)
        self.error = error


def drive(steps: Generator[Any, Any, T], do: Callable[[Any], Any]) -> T:
    """Do each step that a generator yields, and return its result."""
    advance: Callable[[Any], Any] = steps.send
    outcome: Any = None
    try:
        while True:
            step = advance(outcome)
            try:
                advance, outcome = steps.send, do(step)
            except Exception as error:  # thrown above, where it is not the cause of others
                advance, outcome = steps.throw, error
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


async def drive_async(steps: Generator[Any, Any, T], do: Callable[[Any], Awaitable[Any]]) -> T:
    """Await each step that a generator yields, and return its result."""
    advance: Callable[[Any], Any] = steps.send
    outcome: Any = None
    try:
        while True:
            step = advance(outcome)
            try:
                advance, outcome = steps.send, await do(step)
            except Exception as error:
                advance, outcome = steps.throw, error
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def check_blocking(stages: Sequence[Stage], instead: str) -> None:
    """Raise if a stage must be awaited; ``instead`` says what to write."""
    for stage in stages:
        if stage.is_async:
            _refuse_async(stage, instead)


def _refuse_async(stage: Stage, instead: str) -> NoReturn:
    raise InvalidParameterError(
        f"stage {stage.name!r} is async, and `run` cannot await it: write {instead}"
    )


def stages_for(
    names: Sequence[str],
    given: Sequence[StageLike],
    *,
    reveal: bool,
    canonical: Callable[[Any], Hashable] | None = None,
    timeout: float | None = None,
) -> tuple[Stage, ...]:
    """Return a complete stage for every arm, or refuse what does not fit.

    ``reveal`` says whether stages may reveal numbers; ``canonical`` and ``timeout`` are for stages
    that have none of their own.
    """
    if len(given) != len(names):
        raise InvalidParameterError(
            f"{len(given)} stages for a cascade of {len(names)} arms ({', '.join(names)}): give "
            "one for each arm, in order"
        )
    stages: list[Stage] = []
    for i, (name, one) in enumerate(zip(names, given, strict=True)):
        stage = one if isinstance(one, Stage) else Stage(one)
        if stage.name not in (None, name) and name != f"arm {i}":  # the cascade's default
            raise InvalidParameterError(
                f"stage {i} is named {stage.name!r}, but arm {i} is {name!r}: are the stages in "
                "the order of the arms?"
            )
        if stage.reveals is not None and not reveal and i < len(names) - 1:
            raise InvalidParameterError(
                f"stage {name!r} reveals numbers, but this policy sees the complete context from "
                "the start; to let it see more from stage to stage, create it with reveals=, how "
                "many numbers each stage adds"
            )
        stages.append(
            replace(
                stage,
                name=stage.name or name,
                canonical=stage.canonical or canonical,
                timeout=timeout if stage.timeout is None else stage.timeout,
            )
        )
    silent = [stage.name for stage in stages if stage.cost is None]
    if silent and len(silent) < len(stages):
        raise InvalidParameterError(
            "either all stages say what a call costs or none does; without `cost`: "
            f"{', '.join(map(repr, silent))} (write cost=0 where a call is free)"
        )
    return tuple(stages)
