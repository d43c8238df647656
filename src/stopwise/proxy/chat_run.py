"""Run one chat request through the stages of a cascade."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiohttp import ClientSession
from msgspec import UNSET

from stopwise.errors import StopwiseError
from stopwise.proxy.chat import Answer, ChatRequest, StageFailure, total_usage
from stopwise.proxy.config import CascadeConfig, Limits
from stopwise.proxy.context import Projection, answer_features, request_features
from stopwise.proxy.upstream import Relay, StageClient, embed, make_post
from stopwise.running.round_loop import Ask, RoundLoop, drive_async
from stopwise.running.stage import Stage
from stopwise.service.domain.messages import OutputsRequest, RoundAnswer, RoundRequest
from stopwise.service.domain.outputs import StoredAnswer
from stopwise.service.service import Service

T = TypeVar("T")
SERVICE_TIMEOUT = 2.0  # seconds; afterwards the request is answered without the policy
MAX_SECONDS = 86_400.0


class PolicyUnavailable(StopwiseError):
    """The service could not decide in time; the request is answered without the policy."""


class LimitReached(StageFailure):
    """A stage was not called because of the deadline, ``max_cost`` or ``max_calls``."""


class ServedCascade:
    """A cascade with a client for each stage."""

    def __init__(self, config: CascadeConfig, session: ClientSession, limits: Limits) -> None:
        self.config = config
        self.clients = [
            StageClient(stage, config.expected(arm), session, limits)
            for arm, stage in enumerate(config.stage)
        ]
        self.comparison = config.comparison()
        self.last = len(self.clients) - 1
        # Expected cost of a shadow round: the stage that answered the caller is already paid for.
        answer_arm = config.answer_arm
        self.shadow_cost = sum(
            client.expected for arm, client in enumerate(self.clients) if arm != answer_arm
        )
        if (embedding := config.embedding) is not None:
            self._projection = Projection(embedding.size, embedding.seed)
            post = make_post(embedding, "embeddings", session)
            self._embed = partial(embed, embedding, post, max_bytes=limits.max_answer)

    async def context(self, chat: ChatRequest, seconds: float) -> list[float]:
        """Return the context before the first stage.

        If embedding the prompt takes longer than ``seconds``, the embedding's features are zeros.
        """
        features = request_features(chat, self.config.context)
        if self.config.embedding is None:
            return features

        async def embed_in_time(text: str) -> Sequence[float]:
            async with asyncio.timeout(seconds):
                return await self._embed(text)

        return features + await self._projection.embed_prompt(chat, embed_in_time)


class ChatRun:
    """State of one chat request: answers and failures so far, calls made, and money spent."""

    def __init__(
        self, cascade: ServedCascade, chat: ChatRequest, until: float, relay: Relay | None
    ) -> None:
        self.cascade = cascade
        self.chat = chat
        self.until = until  # deadline in time.monotonic() seconds; if infinite, there are no limits
        self.relay = relay
        self.final = False  # whether the next answer goes to the caller, regardless of its stage
        self.answers: dict[int, Answer] = {}
        self.failures: list[StageFailure] = []
        self.calls = 0
        self.spent = 0.0
        self.round: str | None = None  # ID of the service's round, once it is in the log
        self.streamed_arm = cascade.last

    async def ask(self, arm: int, chat: ChatRequest) -> Answer:
        """Return a stage's answer; call the stage only the first time."""
        if arm in self.answers:
            return self.answers[arm]
        seconds = self._timeout(arm)
        relay = self.relay if arm == self.cascade.last or self.final else None
        if relay is not None:
            relay.earlier_usage = [answer.usage for answer in self.answers.values()]
            self.streamed_arm = arm
        self.calls += 1
        try:
            left = self.until - time.monotonic()
            answer = await self.cascade.clients[arm].ask(chat, seconds, left, relay)
        except StageFailure as failure:
            failure.__context__ = None  # its traceback holds the partial answer
            self.failures.append(failure.copy())  # the original would create a reference cycle
            self.spent += failure.cost
            raise
        self.answers[arm] = answer
        self.spent += answer.cost
        return answer

    def _timeout(self, arm: int) -> float:
        """Return a stage's timeout in seconds; raise `LimitReached` if it must not run."""
        config, left = self.cascade.config, self.until - time.monotonic()
        if self.until == math.inf:  # shadow round: limited by the budget only
            return config.stage[arm].timeout
        if left <= 0:
            raise self._limit_reached("the deadline has passed", 504)
        if config.max_calls is not None and self.calls >= config.max_calls:
            message = f"the limit of max_calls = {config.max_calls} has been reached"
            raise self._limit_reached(message, 502)
        needed = self.spent + config.expected(arm)
        if self.calls and config.max_cost is not None and needed > config.max_cost:
            message = f"running another stage would exceed max_cost = {config.max_cost:g}"
            raise self._limit_reached(message, 502)
        return min(left, config.stage[arm].timeout)

    def _limit_reached(self, message: str, status: int) -> LimitReached:
        failure = LimitReached(message, self.failures[-1].status if self.failures else status)
        self.failures.append(failure.copy())
        return failure

    @property
    def streaming(self) -> bool:
        """Whether part of a stream has already been sent to the caller."""
        return self.relay is not None and self.relay.started.is_set()

    def usage(self) -> dict[str, Any]:
        """Return the total usage of the stages that answered."""
        return total_usage(answer.usage for answer in self.answers.values())


class Outcome(NamedTuple):
    """The answer for the caller, the stage that gave it, and the reason for its choice."""

    arm: int
    answer: Answer
    reason: str


class ServiceRound:
    """A round of the service in the same process, driven by a `RoundLoop`.

    ``answers`` grows as stages answer, and is logged when the round ends.
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
        """Return the arm to run next, or None to stop."""
        return self.answer.next

    def give(self, output: Any, revealed: tuple[float, ...]) -> Generator[Any, Any, None]:
        """Report the current arm's output and the context that it reveals."""
        newest: RoundAnswer = yield self._report({self.answer.arm: output}, list(revealed))
        self.answer = newest

    def end(self) -> Awaitable[RoundAnswer]:
        """End the round before the remaining arms have answered."""
        return self._report({}, [], final=True)

    def _report(
        self, outputs: dict[str, Any], revealed: list[float], final: bool = False
    ) -> Awaitable[RoundAnswer]:
        request = OutputsRequest(outputs, revealed, final)
        return self._service.report(
            self._name, self.answer.id, request, early=_has_next, answers=self._answers
        )


def _always(_: object) -> bool:
    return True


def _has_next(answer: RoundAnswer) -> bool:
    """Return whether the round continues, so that this step need not be in the log yet."""
    return answer.next is not None


def _service_timeout(until: float) -> float:
    """Return the timeout for calls to the service: at most about a quarter of the time left."""
    return min(SERVICE_TIMEOUT, max((until - time.monotonic()) / 4, 0.02))


async def await_service(work: Awaitable[T], until: float) -> T:
    """Await a call to the service; raise `PolicyUnavailable` if it fails or times out."""
    try:
        async with asyncio.timeout(_service_timeout(until)):
            return await work
    except TimeoutError:
        raise PolicyUnavailable("the service took too long") from None
    except Exception as error:
        raise PolicyUnavailable(str(error) or type(error).__name__) from error


async def run_round(
    service: Service,
    run: ChatRun,
    background: Callable[[Awaitable[Any]], object],
    *,
    complete: bool = False,
) -> RoundLoop:
    """Run stages until the service decides to stop, or all of them if ``complete``.

    Raises `PolicyUnavailable` if the service cannot decide.
    """
    cascade, chat = run.cascade, run.chat
    name = cascade.config.name
    # A stream's headers contain the round's ID, so the round must be in the log before they are
    # sent.
    early = None if chat.stream else _always
    context = await cascade.context(chat, _service_timeout(run.until))
    request = RoundRequest(context, complete=complete or UNSET)
    opening = asyncio.ensure_future(service.open_rounds(name, request, None, early))

    async def end_once_opened() -> None:
        (opened,), _ = await opening
        await ServiceRound(service, name, opened).end()

    try:
        (opened,), _ = await await_service(asyncio.shield(opening), run.until)
    except BaseException:
        background(end_once_opened())  # the service may still open the round
        raise
    comparison = cascade.comparison.start()
    service_round = ServiceRound(service, name, opened, comparison.stored_answers)
    stages = [
        Stage(partial(run.ask, arm), reveals=answer_features, canonical=comparison.value)
        for arm in range(cascade.last + 1)
    ]

    async def perform(step: Any) -> Any:
        if isinstance(step, Ask):
            return await step.call(step.case)  # async, with its own time limit
        return await await_service(step, run.until)

    loop = RoundLoop(stages, chat, service_round, None)
    run.round = None if early else opened.id
    try:
        await drive_async(loop.steps(), perform)
        if loop.failure is not None:
            if loop.error is not None:  # the traceback and this frame would keep each other alive
                loop.error = loop.error.with_traceback(None)
            await await_service(service_round.end(), run.until)  # learn from the stages that ran
    except BaseException:
        run.round = None
        background(service_round.end())
        raise
    run.round = opened.id
    return loop
