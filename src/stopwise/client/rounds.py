"""Complete rounds, as run by `Client.run`, and their outcome."""

from collections.abc import Sequence
from typing import Any

import msgspec
from numpy.typing import ArrayLike

from stopwise.checks import short_repr
from stopwise.client.json_values import ContextLike, OutputsLike, required_value
from stopwise.client.requests import Requests
from stopwise.client.retries import Exchange
from stopwise.errors import ServiceError
from stopwise.records import Failure
from stopwise.running.round_loop import RoundLoop, check_blocking, stages_for
from stopwise.running.stage import StageLike
from stopwise.service.domain.messages import RoundAnswer

CONTEXT: Any = object()  # default of `case`: the stages get the context
ASYNC_ALTERNATIVE = "`await client.run(...)` with an `AsyncClient`"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a round run by `Client.run`.

    Attributes
    ----------
    id : str
        Id of the round, for labelling it or looking it up.
    stop : int or None
        Index of the last arm that answered; None if no arm did.
    outputs : tuple
        Outputs of the arms that answered, as reported to the service.
    answers : tuple
        Answers of these arms, as returned by the stages.
    failure : Failure or None
        The failure that ended the round early, if any.

    Examples
    --------
    >>> Outcome("17-0c3fa", stop=0, outputs=("spam",), answers=("Spam!",)).answer
    'Spam!'
    """

    id: str
    stop: int | None
    outputs: tuple[Any, ...]
    answers: tuple[Any, ...]
    failure: Failure | None = None

    @property
    def answer(self) -> Any:
        """The answer of the last arm that answered; None if no arm did."""
        return self.answers[-1] if self.answers else None


class RemoteRound:
    """An open round of the service; tells a `RoundLoop` which arm to run next.

    If the complete context is known when the round is opened, all outputs are reported together
    after the last arm. If stages reveal the context, each output is reported at once.
    """

    def __init__(self, requests: Requests, name: str, opened: RoundAnswer) -> None:
        self._requests = requests
        self._name = name
        self.answer = opened  # the latest answer of the service
        self.outputs: list[Any] = []  # in the order of the arms

    def next(self) -> int | None:
        """Return the next arm to run, or None to stop."""
        answer = self.answer
        if answer.next is None or answer.stop is None:
            return answer.next
        return len(self.outputs) if len(self.outputs) <= answer.stop else None

    def give(self, output: Any, revealed: ArrayLike = ()) -> Exchange[None]:
        """Report the output of the next arm, or store it until the last arm has answered."""
        value = required_value(output, f"the output of arm {self.next()}")
        if self.answer.stop is None:
            yield from self._report({self.answer.arm: value}, revealed)
        elif len(self.outputs) == self.answer.stop:
            yield from self._report([*self.outputs, value])
        self.outputs.append(value)

    def end(self) -> Exchange[None]:
        """End the round early, because a stage failed."""
        yield from self._report({} if self.answer.stop is None else self.outputs, final=True)

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
    """Run a complete round; see `Client.run`, and `RoundLoop` for ``instead``."""
    spec = yield from requests.spec(name)
    reveal = "reveals" in spec.policy
    stages = stages_for([arm.name for arm in spec.arms], arms, reveal=reveal)
    if instead is not None:
        check_blocking(stages, instead)
    remote = RemoteRound(requests, name, (yield from requests.open(name, context)))
    loop = RoundLoop(stages, context if case is CONTEXT else case, remote, instead)
    try:
        yield from loop.steps()
        if loop.failure is not None:
            yield from remote.end()
    except ServiceError as error:
        error.add_note(
            f"The outputs of round {remote.answer.id} were not reported. Its latest answer was "
            f"{short_repr(loop.newest)}."
        )
        if error.status == 422:  # the outputs are invalid: the round would stay open
            try:
                yield from remote.end()
            except ServiceError as failed:
                error.add_note(f"Ending the round failed too: {failed}")
        raise
    stop = len(loop.answers) - 1 if loop.answers else None
    outputs, answers = tuple(remote.outputs), tuple(loop.answers)
    return Outcome(remote.answer.id, stop, outputs, answers, loop.failure)
