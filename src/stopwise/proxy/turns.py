"""One request on its way through the stages of a cascade."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiohttp import ClientSession
from msgspec import UNSET

from stopwise.errors import StopwiseError
from stopwise.proxy import config as configured
from stopwise.proxy.chat import Answer, Chat, StageFailure, total_usage
from stopwise.proxy.context import Projection, of_answer, of_request
from stopwise.proxy.upstream import Relay, Source, embed, poster
from stopwise.running.round_loop import Ask, RoundLoop, drive_async
from stopwise.running.stage import Stage
from stopwise.service.domain.messages import OutputsRequest, RoundAnswer, RoundRequest
from stopwise.service.domain.outputs import StoredAnswer
from stopwise.service.service import Service

T = TypeVar("T")
LEARN_SECONDS = 2.0  # that a request waits for the service, before it does without
UNLIMITED = 86_400.0


class CannotLearn(StopwiseError):
    """The service takes no part in this request; it is answered without."""


class OverLimit(StageFailure):
    """A stage may not be asked: the deadline, the cost or the number of calls is used up."""


class Live:
    """A cascade that answers: its stages can be asked."""

    def __init__(
        self, config: configured.Cascade, session: ClientSession, limits: configured.Limits
    ) -> None:
        self.config = config
        self.sources = [
            Source(stage, config.expected(arm), session, limits)
            for arm, stage in enumerate(config.stage)
        ]
        self.comparison = config.comparison()
        self.last = len(self.sources) - 1
        # Expected of one round in shadow, in which the stage that answers is paid for already.
        own = config.answer_arm
        self.shadow_cost = sum(one.expected for k, one in enumerate(self.sources) if k != own)
        if (by := config.embedding) is not None:
            self._projection = Projection(by.size, by.seed)
            post = poster(by, "embeddings", session)
            self._embed = partial(embed, by, post, most=limits.max_answer)

    async def context(self, chat: Chat, seconds: float) -> list[float]:
        """Return what is known before the first arm, within some seconds."""
        known = of_request(chat, self.config.context)
        if self.config.embedding is None:
            return known

        async def embedded(text: str) -> Sequence[float]:
            async with asyncio.timeout(seconds):
                return await self._embed(text)

        return known + await self._projection.of_prompt(chat, embedded)


class Turn:
    """One request: the stages asked so far, their answers, and what is left of its limits."""

    def __init__(self, live: Live, chat: Chat, until: float, relay: Relay | None) -> None:
        self.live = live
        self.chat = chat
        self.until = until  # on the clock of time.monotonic; infinite: no limits
        self.relay = relay
        self.final = False  # whether the next answer is the last, whichever stage it comes from
        self.answers: dict[int, Answer] = {}
        self.failures: list[StageFailure] = []
        self.calls = 0
        self.spent = 0.0
        self.round: str | None = None  # its id in the service, once that is in the log
        self.streamed = live.last  # the stage whose answer is streamed, if any

    async def ask(self, arm: int, chat: Chat) -> Answer:
        """Return the answer of a stage, asked unless it has answered already."""
        if arm in self.answers:
            return self.answers[arm]
        seconds = self._seconds(arm)
        relay = self.relay if arm == self.live.last or self.final else None
        if relay is not None:
            relay.used = [one.usage for one in self.answers.values()]
            self.streamed = arm
        self.calls += 1
        try:
            left = self.until - time.monotonic()
            answer = await self.live.sources[arm].ask(chat, seconds, left, relay)
        except StageFailure as failure:
            failure.__context__ = None  # its traceback holds the answer as far as it was read
            self.failures.append(failure.copy())  # this object is in the traceback of the other
            self.spent += failure.cost
            raise
        self.answers[arm] = answer
        self.spent += answer.cost
        return answer

    def _seconds(self, arm: int) -> float:
        """Return how long a stage may take, or raise `OverLimit`."""
        config, left = self.live.config, self.until - time.monotonic()
        if self.until == math.inf:  # in shadow nobody waits, and the budget is the limit
            return config.stage[arm].timeout
        if left <= 0:
            raise self._over("the deadline has passed", 504)
        if config.max_calls is not None and self.calls >= config.max_calls:
            raise self._over(f"max_calls = {config.max_calls} stages were asked", 502)
        needed = self.spent + config.expected(arm)
        if self.calls and config.max_cost is not None and needed > config.max_cost:
            raise self._over(f"one more stage would cost more than {config.max_cost:g}", 502)
        return min(left, config.stage[arm].timeout)

    def _over(self, words: str, status: int) -> OverLimit:
        failure = OverLimit(words, self.failures[-1].status if self.failures else status)
        self.failures.append(failure.copy())
        return failure

    @property
    def streaming(self) -> bool:
        """Whether the caller has got the beginning of a stream, which cannot be taken back."""
        return self.relay is not None and self.relay.started.is_set()

    def usage(self) -> dict[str, Any]:
        """Return what all stages used."""
        return total_usage(one.usage for one in self.answers.values())


class Outcome(NamedTuple):
    """What the caller gets, and why."""

    arm: int
    answer: Answer
    reason: str


class ServedRound:
    """A round of the service in this process: the source of decisions of a `RoundLoop`.

    ``answers`` grows as stages answer; what of it the log needs is stored with the round's end.
    """

    def __init__(
        self,
        service: Service,
        name: str,
        opened: RoundAnswer,
        answers: Sequence[StoredAnswer] = (),
    ) -> None:
        self._service = service
        self._name = name
        self._answers = answers
        self.answer = opened

    def next(self) -> int | None:
        """Return the arm to run now; None: stop here."""
        return self.answer.next

    def give(self, output: Any, revealed: tuple[float, ...]) -> Generator[Any, Any, None]:
        """Report the output of that arm, with what it reveals."""
        newest: RoundAnswer = yield self._report({self.answer.arm: output}, list(revealed))
        self.answer = newest

    def end(self) -> Awaitable[RoundAnswer]:
        """End the round: no more arms will answer."""
        return self._report({}, [], final=True)

    def _report(
        self, outputs: dict[str, Any], revealed: list[float], final: bool = False
    ) -> Awaitable[RoundAnswer]:
        request = OutputsRequest(outputs, revealed, final)
        told = self._name, self.answer.id, request
        return self._service.report(*told, early=_goes_on, answers=self._answers)


def _always(_: object) -> bool:
    return True


def _goes_on(answer: RoundAnswer) -> bool:
    """Return whether a round has more steps, of which the last waits until all are in the log."""
    return answer.next is not None


def _share(until: float) -> float:
    """Return the seconds that Stopwise itself may take: a part of what is left for the stages."""
    return min(LEARN_SECONDS, max((until - time.monotonic()) / 4, 0.02))


async def learned(work: Awaitable[T], until: float) -> T:
    """Await something of the service; whatever goes wrong there is `CannotLearn`."""
    try:
        async with asyncio.timeout(_share(until)):
            return await work
    except TimeoutError:
        raise CannotLearn("the service took too long") from None
    except Exception as error:
        raise CannotLearn(str(error) or type(error).__name__) from error


async def play(
    service: Service,
    turn: Turn,
    background: Callable[[Awaitable[Any]], object],
    *,
    complete: bool = False,
) -> RoundLoop:
    """Run a round, as deep as the service decides; `CannotLearn` if it cannot decide."""
    live, chat = turn.live, turn.chat
    name = live.config.name
    # The beginning of a stream already names its round, which must be in the log then.
    early = None if chat.stream else _always
    context = await live.context(chat, _share(turn.until))
    request = RoundRequest(context, complete=complete or UNSET)
    opening = asyncio.ensure_future(service.open_rounds(name, request, None, early))

    async def give_up() -> None:
        (left,), _ = await opening
        await ServedRound(service, name, left).end()

    try:
        (opened,), _ = await learned(asyncio.shield(opening), turn.until)
    except BaseException:
        background(give_up())  # it may be opened yet
        raise
    compared = live.comparison.start()
    served = ServedRound(service, name, opened, compared.kept)
    stages = [
        Stage(partial(turn.ask, arm), reveals=of_answer, canonical=compared.value)
        for arm in range(live.last + 1)
    ]

    async def do(step: Any) -> Any:
        if isinstance(step, Ask):
            return await step.call(step.case)  # async, with its own time limit
        return await learned(step, turn.until)

    loop = RoundLoop(stages, chat, served, None)
    turn.round = None if early else opened.id
    try:
        await drive_async(loop.steps(), do)
        if loop.failure is not None:
            if loop.error is not None:  # it would keep this frame, and the frame keeps it
                loop.error = loop.error.with_traceback(None)
            await learned(served.end(), turn.until)  # learn from the stages that answered
    except BaseException:
        turn.round = None
        background(served.end())
        raise
    turn.round = opened.id
    return loop
