"""Rounds that the service decides about: run as a whole, or as a loop over the arms to run."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from stopwise.checks import short_repr
from stopwise.client.requests import Requests
from stopwise.client.retries import Exchange
from stopwise.client.values import ContextLike, OutputsLike, known_value
from stopwise.errors import (
    InvalidContextError,
    InvalidOutputsError,
    InvalidParameterError,
    ServiceError,
)
from stopwise.records import Failure
from stopwise.running.calls import refuse_async
from stopwise.running.round_loop import RoundLoop, stages_for
from stopwise.running.stage import StageLike
from stopwise.service.messages import RoundAnswer

UNCHANGED: Any = object()
INSTEAD = "`await client.run(...)` with an `AsyncClient`"


class Outcome(msgspec.Struct, frozen=True):
    """One round that `Client.run` has run.

    Attributes
    ----------
    id : str
        Of the round, to report a label or to look it up.
    stop : int
        The last arm that answered; −1 if none did.
    outputs : tuple
        Of the arms that answered, as they were reported.
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


class RemoteRound:
    """A round of the service, as a source of decisions.

    Where the whole context is known at first, the outputs are reported together once the last arm
    has answered; where stages reveal it, after each arm.

    Attributes
    ----------
    answer : RoundAnswer
        The newest answer of the service.
    outputs : list
        Given here, in the order of the arms.
    """

    def __init__(self, requests: Requests, name: str, opened: RoundAnswer) -> None:
        self._requests = requests
        self._name = name
        self._first = opened.next or 0  # a round that is opened again may have outputs already
        self.answer = opened
        self.outputs: list[Any] = []

    def next(self) -> int | None:
        """Return the arm to run now; None: stop here."""
        answer = self.answer
        if answer.next is None or answer.stop is None:
            return answer.next
        arm = self._first + len(self.outputs)
        return arm if arm <= answer.stop else None

    def give(self, output: Any, revealed: ArrayLike = ()) -> Exchange[None]:
        """Take the output of that arm, and report it or keep it until the last arm's."""
        arm, stop = self.next(), self.answer.stop
        if arm is None:
            raise InvalidOutputsError("the round has ended: no more outputs are expected")
        value = known_value(output, f"the output of arm {arm}")
        if stop is None:
            yield from self._report({self.answer.arm: value}, revealed)
        elif np.size(revealed):
            raise InvalidContextError(
                f"arm {arm} reveals numbers, but this cascade sees the whole context from the "
                "start; to let it see more from stage to stage create it with "
                "features=PerStage(maps, sees=[...])"
            )
        elif arm == stop:
            yield from self._report([*self._given(), value])
        self.outputs.append(value)

    def end(self) -> Exchange[None]:
        """End the round: no more arms will answer."""
        yield from self._report({} if self.answer.stop is None else self._given(), final=True)

    def leave(self, error: ServiceError) -> Exchange[None]:
        """End a round whose outputs were refused (422): else it would stay open for ever."""
        if error.status == 422 and self.answer.next is not None:
            try:
                yield from self.end()
            except ServiceError as failed:
                error.add_note(f"Round {self.answer.id} could not be ended: {failed}")

    def _given(self) -> list[Any]:
        return [None] * self._first + self.outputs

    def _report(
        self, outputs: OutputsLike, revealed: ArrayLike = (), final: bool = False
    ) -> Exchange[None]:
        self.answer = yield from self._requests.report(
            self._name, self.answer.id, outputs, revealed=revealed, final=final
        )


def run(
    requests: Requests,
    name: str,
    context: ContextLike,
    arms: Sequence[StageLike],
    case: Any,
    instead: str | None,
) -> Exchange[Outcome]:
    """Run a whole round; see `Client.run`, and `RoundLoop` for ``instead``."""
    spec = yield from requests.spec(name)
    reveal = spec.features.get("sees") is not None
    stages = stages_for([arm.name for arm in spec.arms], arms, reveal=reveal)
    for stage in stages:
        if instead is not None and stage.is_async:
            refuse_async(stage.name, instead)
    remote = RemoteRound(requests, name, (yield from requests.open(name, context)))
    loop = RoundLoop(stages, context if case is UNCHANGED else case, remote, instead)
    try:
        yield from loop.steps()
        if loop.failure is not None:
            yield from remote.end()
    except ServiceError as error:
        error.add_note(
            f"The outputs of round {remote.answer.id} were not reported; the answer was "
            f"{short_repr(loop.newest)}."
        )
        yield from remote.leave(error)
        raise
    return Outcome(
        id=remote.answer.id,
        stop=len(loop.answers) - 1,
        outputs=tuple(remote.outputs),
        answers=tuple(loop.answers),
        failure=loop.failure,
    )


class _RoundBase:
    """What `OpenRound` and `AsyncOpenRound` share: all but the sending."""

    def __init__(
        self,
        do: Callable[[Exchange[Any]], Any],
        opening: Exchange[RoundAnswer],
        requests: Requests,
        name: str,
    ) -> None:
        self._do = do
        self._opening = opening
        self._requests = requests
        self._name = name
        self._round: RemoteRound | None = None

    @property
    def _opened(self) -> RemoteRound:
        if self._round is None:
            raise InvalidParameterError("the round is opened where it is entered: use a `with`")
        return self._round

    @property
    def answer(self) -> RoundAnswer:
        """The newest answer of the service."""
        return self._opened.answer

    @property
    def id(self) -> str:
        """By which the round can be looked up."""
        return self.answer.id

    def _enter(self) -> Exchange[None]:
        self._round = RemoteRound(self._requests, self._name, (yield from self._opening))

    def _leave(self, error: BaseException | None) -> Exchange[None]:
        """End a round that is left early, unless the service is away or the program is stopped."""
        if self._round is None or self.answer.next is None:
            return
        if isinstance(error, ServiceError):
            yield from self._round.leave(error)
        elif error is None or isinstance(error, Exception):
            try:
                yield from self._round.end()
            except ServiceError as failed:
                if error is None:
                    raise
                error.add_note(f"Round {self.id} could not be ended: {failed}")

    def _check_given(self, arm: int) -> None:
        if self._opened.next() == arm:
            raise InvalidOutputsError(
                f"arm {arm} was to run and has not answered: `give` its output within the loop"
            )


class OpenRound(_RoundBase):
    """A round to go through arm by arm: loop over the arms to run, and `give` each output.

    Leaving the ``with`` early, by an exception or without, ends the round: the service then learns
    from the arms that answered. Made by `Client.round`.
    """

    def give(self, output: Any, revealed: ArrayLike = ()) -> None:
        """Give the output of the arm, and the numbers that it adds to the context."""
        self._do(self._opened.give(output, revealed))

    def end(self) -> None:
        """End the round here: the arm that was to run cannot answer."""
        self._do(self._opened.end())

    def __iter__(self) -> Iterator[int]:
        while (arm := self._opened.next()) is not None:
            yield arm
            self._check_given(arm)

    def __enter__(self) -> Self:
        self._do(self._enter())
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._do(self._leave(error))


class AsyncOpenRound(_RoundBase):
    """A round to go through arm by arm in async code; see `OpenRound`. Of `AsyncClient.round`."""

    async def give(self, output: Any, revealed: ArrayLike = ()) -> None:
        """Give the output of the arm, and the numbers that it adds to the context."""
        await self._do(self._opened.give(output, revealed))

    async def end(self) -> None:
        """End the round here: the arm that was to run cannot answer."""
        await self._do(self._opened.end())

    async def __aiter__(self) -> AsyncIterator[int]:
        while (arm := self._opened.next()) is not None:
            yield arm
            self._check_given(arm)

    async def __aenter__(self) -> Self:
        await self._do(self._enter())
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        await self._do(self._leave(error))
