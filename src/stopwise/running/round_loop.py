"""The loop of one round, shared by the runner, the client and the proxy.

The loop is a generator that yields steps: an `Ask` for each stage call, and the steps returned by
its `Decisions`. `drive` and `drive_async` execute them, so sync and async code share one loop.
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
    """Step: call a stage; the outcome is its answer or the exception that it raised."""

    call: Callable[[Any], Any]
    case: Any
    timeout: float | None


class Decisions(Protocol):
    """Decides which arm runs next."""

    def next(self) -> int | None:
        """Return the arm to run next, or None to stop."""
        ...

    def give(self, output: Hashable, revealed: tuple[float, ...]) -> Iterable[Any]:
        """Record the output of the arm from `next` and the numbers that the arm reveals.

        Returns the steps to execute. Raises `InvalidInputError` if the answer cannot be used; the
        stage then counts as failed.
        """
        ...


class RoundLoop:
    """One round: calls the stages chosen by ``decisions`` until none is chosen or a stage fails.

    If steps are awaited, ``instead`` is None. Otherwise, async stages are rejected, and ``instead``
    is the call that the error recommends.
    """

    def __init__(
        self, stages: Sequence[Stage], case: Any, decisions: Decisions, instead: str | None
    ) -> None:
        self._stages = stages
        self._case = case
        self._decisions = decisions
        self._instead = instead
        self.answers: list[Any] = []
        self.newest: Any = None  # the last answer, even if the decisions did not receive it
        self.costs: list[float] = []  # of the calls that answered, if the stages have costs
        self.failure: Failure | None = None  # why the round ended early
        self.error: Exception | None = None

    def steps(self) -> Generator[Any, Any, None]:
        """Run the round, until the decisions stop it or a stage fails."""
        while self.failure is None and (arm := self._decisions.next()) is not None:
            stage = self._stages[arm]
            try:
                answer: Any = yield Ask(stage.call, self._case, stage.timeout)
            except Exception as error:
                self._fail(arm, error)
                continue
            if self._instead is not None and isawaitable(answer):  # from a plain function
                if iscoroutine(answer):
                    answer.close()  # avoids the warning that it was never awaited
                _raise_async(stage, self._instead)
            try:
                output, revealed, cost = stage.interpret(answer, last=arm + 1 == len(self._stages))
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
        except Exception:  # raised by __str__ of a user's exception
            text = ""
        if not (text and (late or isinstance(error, InvalidInputError))):
            text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        self.failure = Failure(arm, "timeout" if late else "error", text)
        self.error = error


def drive(steps: Generator[Any, Any, T], do: Callable[[Any], Any]) -> T:
    """Execute each step of a generator with ``do``, and return the generator's result."""
    advance: Callable[[Any], Any] = steps.send
    outcome: Any = None
    try:
        while True:
            step = advance(outcome)
            try:
                advance, outcome = steps.send, do(step)
            except Exception as error:  # thrown above, so that it is not the context of others
                advance, outcome = steps.throw, error
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


async def drive_async(steps: Generator[Any, Any, T], do: Callable[[Any], Awaitable[Any]]) -> T:
    """Await each step of a generator with ``do``, and return the generator's result."""
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
    """Raise if a stage is async; ``instead`` is the call that the error recommends."""
    for stage in stages:
        if stage.is_async:
            _raise_async(stage, instead)


def _raise_async(stage: Stage, instead: str) -> NoReturn:
    raise InvalidParameterError(
        f"stage {stage.name!r} is async, which `run` cannot await; use {instead}"
    )


def stages_for(
    names: Sequence[str],
    stages: Sequence[StageLike],
    *,
    reveal: bool,
    canonical: Callable[[Any], Hashable] | None = None,
    timeout: float | None = None,
) -> tuple[Stage, ...]:
    """Return a `Stage` for every arm, with defaults filled in; raise if stages do not fit arms.

    ``reveal`` is whether stages may reveal numbers; ``canonical`` and ``timeout`` are the defaults.
    """
    if len(stages) != len(names):
        raise InvalidParameterError(
            f"got {len(stages)} stages for a cascade of {len(names)} arms ({', '.join(names)}); "
            "pass one stage per arm, in cascade order"
        )
    complete: list[Stage] = []
    for i, (name, stage_or_run) in enumerate(zip(names, stages, strict=True)):
        stage = stage_or_run if isinstance(stage_or_run, Stage) else Stage(stage_or_run)
        if stage.name not in (None, name) and name != f"arm {i}":  # the cascade's default
            raise InvalidParameterError(
                f"stage {i} is named {stage.name!r}, but arm {i} is named {name!r}; pass the "
                "stages in the order of the arms"
            )
        if stage.reveals is not None and not reveal and i < len(names) - 1:
            raise InvalidParameterError(
                f"stage {name!r} reveals numbers, but the policy expects the complete context at "
                "the start; give the policy reveals=[…], the count of numbers from each arm"
            )
        complete.append(
            replace(
                stage,
                name=stage.name or name,
                canonical=stage.canonical or canonical,
                timeout=timeout if stage.timeout is None else stage.timeout,
            )
        )
    without_cost = [stage.name for stage in complete if stage.cost is None]
    if without_cost and len(without_cost) < len(complete):
        raise InvalidParameterError(
            "set `cost` for all stages or for none; it is missing for "
            f"{', '.join(map(repr, without_cost))} (use cost=0 for free calls)"
        )
    return tuple(complete)
