"""The proxy application: the service plus OpenAI's chat completion routes."""

import asyncio
import math
import random
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import msgspec

from stopwise.errors import InvalidParameterError
from stopwise.proxy.chat import DONE, ChatRequest, StageFailure, error_body
from stopwise.proxy.chat_run import (
    MAX_SECONDS,
    ChatRun,
    LimitReached,
    Outcome,
    PolicyUnavailable,
    ServedCascade,
    run_round,
)
from stopwise.proxy.config import CascadeConfig, Config
from stopwise.proxy.context import REVEALED_NAMES
from stopwise.proxy.report import MIN_ROUNDS
from stopwise.proxy.shadow_page import ShadowPage
from stopwise.proxy.shadow_queue import ShadowQueue, ShadowRound
from stopwise.proxy.upstream import Relay, new_session
from stopwise.service.dashboard.pages import Pages
from stopwise.service.dashboard.views import Proxied
from stopwise.service.domain.errors import (
    CascadeFailed,
    Conflict,
    RequestError,
    TooManyRequests,
    Unavailable,
)
from stopwise.service.http.app import App
from stopwise.service.http.errors import BadRequest, HttpError
from stopwise.service.http.request import JSON, Request, Response
from stopwise.service.server_log import LOG
from stopwise.service.service import Service
from stopwise.service.settings import Settings
from stopwise.text import shorten

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
EVENT_STREAM = "text/event-stream"
QUEUE_SIZE = 200  # shadow rounds that may wait
WORKERS = 8  # shadow rounds that may run at the same time
RETRY_DELAY = 1.0  # seconds
MAX_ECHOED = 200  # characters of an unknown model's name to repeat in the error
SHADOW_REASON = "shadow mode: always this stage"
_encode = msgspec.json.Encoder().encode


class ModelNotFound(HttpError):
    """The proxy has no cascade with this name."""

    code = "model_not_found"


class ProxyApp(App):
    """The service with chat completion routes for its cascades."""

    statuses: ClassVar[Mapping[str, int]] = {**App.statuses, ModelNotFound.code: 404}

    def __init__(self, service: Service, settings: Settings, config: Config) -> None:
        super().__init__(service, settings)
        service.preparing = "the proxy is loading its cascades"
        self._session = new_session()
        limits = config.limits
        self.cascades = {
            name: ServedCascade(cascade, self._session, limits)
            for name, cascade in config.cascades.items()
        }
        for name, cascade in self.cascades.items():
            service.label_readers[name] = cascade.comparison.label
        self.reader_pause = limits.caller_pause
        self._random = random.Random()
        self._shadow = ShadowQueue(QUEUE_SIZE, limits.shadow_queue)
        self._tasks: set[asyncio.Task[Any]] = set()
        # Cost of shadow rounds, by cascade and day.
        self._spent: defaultdict[tuple[str, float], float] = defaultdict(float)
        self._reasons: dict[str, str] = {}  # the last logged problem of each cascade
        self.add("POST", CHAT, self._chat, "chat_completions")
        self.add("GET", MODELS, self._models, "models")
        pages = Pages(self)
        shadow_page = ShadowPage(config, pages, self._background)
        pages.proxied = {
            name: Proxied(
                in_shadow=cascade.mode == "shadow",
                answered_by=cascade.stage[cascade.answer_arm].name,
                revealed=REVEALED_NAMES,
                least_rounds=MIN_ROUNDS,
                report=partial(shadow_page.latest, name),
            )
            for name, cascade in config.cascades.items()
        }
        pages.add("/cascades/{name}/shadow", shadow_page.show)

    # -- start and stop -----------------------------------------------------------------------

    async def started(self) -> None:
        """Create the cascades; until they exist, requests are answered without the policy."""
        for cascade in self.cascades.values():
            if not await self._load(cascade):  # retry in the background, so that the others load
                self._background(self._load_later(cascade))
        self.service.preparing = ""
        for _ in range(WORKERS):
            self._background(self._run_shadow_rounds())

    async def _load(self, cascade: ServedCascade) -> bool:
        """Create a cascade unless it exists; return False if the service cannot load it."""
        config, day = cascade.config, _midnight()
        self._spent[config.name, day] = math.inf  # no shadow rounds until today's spending is known
        if not await self._create(config):
            return False
        counts = self.service.state.cascades[config.name].counts
        # Failed rounds count in full, because their actual cost is not in the log.
        self._spent[config.name, day] = counts.opened_on(day) * cascade.shadow_cost
        LOG.info("proxy ready", extra={"cascade": config.name, "mode": config.mode})
        return True

    async def _load_later(self, cascade: ServedCascade) -> None:
        while not await self._load(cascade):
            await asyncio.sleep(RETRY_DELAY)

    async def _create(self, config: CascadeConfig) -> bool:
        while True:
            try:
                await self.service.create(config.spec(), None)
                return True
            except CascadeFailed:
                return False
            except Conflict:
                raise InvalidParameterError(
                    f"cascade {config.name!r} was stored with other stages, costs, context or "
                    "policy, so its learned state does not apply; rename it in the "
                    f'configuration (name = "{config.name}-2"), or use another store'
                ) from None
            except (TooManyRequests, Unavailable):
                await asyncio.sleep(RETRY_DELAY)
            except RequestError as error:
                raise InvalidParameterError(f"cascade {config.name!r}: {error}") from None

    async def stopped(self) -> None:
        """Cancel background tasks and close the connections to upstreams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def _background(self, work: Awaitable[Any]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:
                LOG.debug("background task failed", extra={"reason": str(error)})

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- routes -------------------------------------------------------------------------------

    def error_response(self, request: Request, error: RequestError) -> Response:
        """Return an error response; on OpenAI's routes, use OpenAI's error format."""
        response = super().error_response(request, error)
        if request.path not in (CHAT, MODELS):
            return response
        body = error_body(response.status, error.message, error.code, error.field)
        return msgspec.structs.replace(response, body=_encode(body))

    async def _models(self, request: Request) -> Response:
        self.access.check_key(request, None)
        allowed = () if request.key is None else request.key.cascades
        fields = {"object": "model", "created": 0, "owned_by": "stopwise"}
        data = [{"id": name, **fields} for name in self.cascades if not allowed or name in allowed]
        return Response(200, _encode({"object": "list", "data": data}))

    async def _chat(self, request: Request) -> Response:
        began = time.monotonic()
        if self.access.keys is not None:  # check keys before reading a possibly large body
            request.key = self.access.keys.identify(request.headers.get("authorization"))
            self.access.keys.count_request(request.key)  # invalid requests count as well
        request.check_media_type()
        chat = ChatRequest(await request.body())
        cascade = self.cascades.get(chat.model)
        if cascade is None:
            name = shorten(repr(chat.model), MAX_ECHOED)
            message = f"unknown model {name}; GET {MODELS} lists the available ones"
            raise ModelNotFound(message, field="model")
        request.params = {"name": chat.model}
        if self.access.keys is not None and request.key is not None:
            self.access.keys.check_rights(request.key, "decide", chat.model)
        until = began + _deadline(request, cascade.config.deadline)
        shadow = cascade.config.mode == "shadow"
        run = ChatRun(cascade, chat, until, Relay(untouched=shadow) if chat.stream else None)
        work = asyncio.create_task(self._answer(run, shadow))
        disconnected = asyncio.create_task(request.disconnected())
        others: list[asyncio.Task[Any]] = [disconnected]
        if run.relay is not None:
            others.append(asyncio.create_task(run.relay.started.wait()))
        streams = False  # whether the response is sent while the work is still running
        try:
            await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
            if run.relay is not None and run.streaming:
                streams = True
                others.remove(disconnected)  # the caller may still disconnect
                reason = SHADOW_REASON if shadow else "the last stage that was needed"
                headers = self._headers(run, run.streamed_arm, reason)
                events = _stream(run.relay, work, disconnected)
                return Response(200, events, run.relay.media_type, headers)
            if not work.done():
                raise BadRequest("the caller disconnected")
            return self._response(run, work.result())
        except StageFailure as failure:
            return self._failed(run, failure, shadow)
        finally:
            for task in others:
                task.cancel()
            if not streams:
                work.cancel()
            del work  # break the reference cycle of the task, its exception and this frame

    async def _answer(self, run: ChatRun, shadow: bool) -> Outcome:
        try:
            outcome = await (self._answer_in_shadow(run) if shadow else self._decide(run))
        except Exception as error:
            if run.relay is not None:  # otherwise a streaming caller would wait forever
                run.relay.fail(str(error) or type(error).__name__)
            raise
        if run.relay is not None and run.streaming:
            run.relay.end(b"" if shadow else DONE)
        return outcome

    # -- answers ------------------------------------------------------------------------------

    async def _decide(self, run: ChatRun) -> Outcome:
        """Run stages up to the policy's stop, and return the answer of the last one."""
        config, last = run.cascade.config, run.cascade.last
        fallback = range(config.answer_arm, last + 1)
        try:
            loop = await run_round(self.service, run, self._background)
        except PolicyUnavailable as error:
            self._warn(config.name, "not learned", str(error))
            return await self._first(run, fallback, "Stopwise could not decide; see its log")
        self._reasons.pop(config.name, None)
        if loop.failure is None:
            arm = max(run.answers)
            return Outcome(arm, run.answers[arm], self._reason(config.name, run.round))
        arm, error = loop.failure.arm, loop.error
        if isinstance(error, LimitReached):
            return await self._first(run, (), str(error))
        if arm in run.answers:  # the stage answered, but the comparison failed
            self._warn(config.name, "not learned", loop.failure.message)
            return await self._first(
                run, fallback, "the answers could not be compared; see the log"
            )
        self._warn(config.name, "stage failed", loop.failure.message)
        reason = f"{config.stage[arm].name} failed; the next available stage answers"
        return await self._first(run, range(arm + 1, last + 1), reason)

    async def _first(self, run: ChatRun, arms: Iterable[int], reason: str) -> Outcome:
        """Return the first answer from ``arms``; if all fail, that of the deepest stage so far."""
        run.final = True
        for arm in arms:
            if run.streaming:
                break
            try:
                return Outcome(arm, await run.ask(arm, run.chat), reason)
            except LimitReached:
                break
            except StageFailure as failure:
                self._warn(run.cascade.config.name, "stage failed", str(failure))
        arm = run.streamed_arm if run.streaming else max(run.answers, default=-1)
        if arm in run.answers:
            return Outcome(arm, run.answers[arm], reason)
        raise run.failures[-1].copy() if run.failures else StageFailure(reason)

    async def _answer_in_shadow(self, run: ChatRun) -> Outcome:
        """Answer from the configured stage; queue a random sample of requests as shadow rounds."""
        config = run.cascade.config
        run.final = True
        answer = await run.ask(config.answer_arm, run.chat)
        if self._random.random() < config.sample:
            shadow_round = ShadowRound(run.cascade, run.chat.raw, answer.raw, answer.cost)
            if not self._shadow.put(shadow_round):
                self._count(config.name, "shadow dropped")
        return Outcome(config.answer_arm, answer, SHADOW_REASON)

    async def _run_shadow_rounds(self) -> None:
        while True:
            shadow_round = await self._shadow.get()
            try:
                await self._run_shadow_round(shadow_round)
            finally:
                self._shadow.done(shadow_round)

    async def _run_shadow_round(self, shadow_round: ShadowRound) -> None:
        """Run a request through all stages, unless that would exceed the budget."""
        cascade = shadow_round.cascade
        config, name = cascade.config, cascade.config.name
        reserved, day = cascade.shadow_cost, (name, _midnight())
        if config.budget is not None and self._spent[day] + reserved > config.budget:
            self._count(name, "over budget")
            return
        self._spent[day] += reserved  # other rounds may start before this one ends
        chat, answer = shadow_round.decoded()
        run = ChatRun(cascade, chat, math.inf, None)
        run.answers[config.answer_arm] = answer  # already paid for
        try:
            loop = await run_round(self.service, run, self._background, complete=True)
            if loop.failure is None:
                self._count(name, "shadowed")
                self._reasons.pop(name, None)
            else:
                self._warn(name, "shadow failed", loop.failure.message)
        except PolicyUnavailable as error:
            self._warn(name, "not learned", str(error))
        except Exception as error:
            LOG.error("shadow round failed", extra={"cascade": name}, exc_info=error)
        self._spent[day] += run.spent - reserved

    # -- responses ----------------------------------------------------------------------------

    def _response(self, run: ChatRun, outcome: Outcome) -> Response:
        answer, usage = outcome.answer, run.usage()
        headers = self._headers(run, outcome.arm, outcome.reason)
        if run.relay is None or run.relay.untouched:
            return Response(200, answer.with_usage(usage), headers=headers)
        events = answer.events(usage, include_usage=run.chat.include_usage)
        return Response(200, events, EVENT_STREAM, headers)

    def _headers(self, run: ChatRun, arm: int, reason: str) -> tuple[tuple[str, str], ...]:
        config, cost = run.cascade.config, run.spent
        if arm not in run.answers:  # a stream's actual cost is unknown until it ends
            cost += config.expected(arm)
        fields = {
            "arm": config.stage[arm].name,
            "depth": str(arm + 1),
            "cost": f"{cost:.6g}",
            "reason": reason,
        }
        if run.round is not None:
            fields["round"] = run.round
        return tuple((f"x-stopwise-{name}", _header(value)) for name, value in fields.items())

    def _reason(self, name: str, id_: str | None) -> str:
        """Return a sentence that explains why a round stopped where it did."""
        cascade = self.service.state.cascades.get(name)
        recent = () if cascade is None else reversed(cascade.recent)
        explanations = (round_.explanation() for round_ in recent if round_.id == id_)
        return next(explanations, "as the policy decided")

    def _failed(self, run: ChatRun, failure: StageFailure, shadow: bool) -> Response:
        reply = failure.reply
        self._warn(run.cascade.config.name, "failed", str(failure))
        retry_after = _retry_after(None if reply is None else reply.retry_after)
        if shadow and reply is not None:  # the upstream's own error, unmodified
            return Response(reply.status, reply.body, reply.media_type, retry_after)
        code = {504: "timeout", 429: "rate_limit_exceeded"}.get(failure.status, "upstream_error")
        body = _encode(error_body(failure.status, str(failure), code))
        headers = () if run.round is None else (("x-stopwise-round", run.round),)
        return Response(failure.status, body, JSON, headers + retry_after)

    def _warn(self, name: str, event: str, reason: str) -> None:
        """Count a problem, and log it unless its reason was the last one logged for the cascade."""
        self._count(name, event)
        if self._reasons.get(name) != reason:  # so that an outage does not flood the log
            self._reasons[name] = reason
            LOG.warning(event, extra={"cascade": name, "reason": reason})

    def _count(self, name: str, event: str) -> None:
        self.service.counters.proxy[name, event] += 1


async def _stream(
    relay: Relay, work: "asyncio.Task[Any]", disconnected: "asyncio.Task[Any]"
) -> AsyncGenerator[bytes, None]:
    """Yield a relay's chunks; cancel the work if the caller disconnects or the response ends."""
    disconnected.add_done_callback(lambda _: work.cancel())
    work.add_done_callback(lambda _: relay.end(b""))
    try:
        if relay.untouched:
            yield b""  # makes the server send the headers before the first chunk
        async for chunk in relay.chunks():
            yield chunk
    finally:
        disconnected.cancel()
        work.cancel()
        with suppress(asyncio.CancelledError, StageFailure):
            await work


def _deadline(request: Request, maximum: float | None) -> float:
    """Return the lower of the caller's and the cascade's time limits for a request, in seconds."""
    text = request.headers.get("x-stopwise-deadline")
    maximum = MAX_SECONDS if maximum is None else maximum
    if text is None:
        return maximum
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_SECONDS:
        raise BadRequest(
            f"x-stopwise-deadline must be a number of seconds in (0, {MAX_SECONDS:,.0f}], "
            f"got {shorten(repr(text))}",
            field="x-stopwise-deadline",
        )
    return min(seconds, maximum)


def _midnight() -> float:
    """Return the start of the current UTC day, in seconds since 1970."""
    now = time.time()
    return now - now % 86_400


def _header(value: str) -> str:
    """Convert a text to a header value: ASCII characters on one line."""
    return " ".join(value.encode("ascii", "replace").decode().split())


def _retry_after(seconds: str | None) -> tuple[tuple[str, str], ...]:
    return () if seconds is None else (("retry-after", seconds),)
