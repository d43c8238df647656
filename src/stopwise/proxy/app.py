"""The application: the service with two more routes, those of OpenAI's API."""

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
from stopwise.proxy import config as configured
from stopwise.proxy.chat import DONE, Chat, StageFailure, error_body
from stopwise.proxy.context import REVEALED_NAMES
from stopwise.proxy.report import MIN_ROUNDS
from stopwise.proxy.shadow_page import ShadowPage
from stopwise.proxy.shadow_queue import ShadowQueue, ShadowRound
from stopwise.proxy.turns import UNLIMITED, CannotLearn, Live, Outcome, OverLimit, Turn, play
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
EVENTS = "text/event-stream"
WAITING, WORKERS = 200, 8  # rounds in shadow that may wait, and that run at the same time
RETRY = 1.0  # seconds
MOST_ECHOED = 200  # characters of the name of an unknown model in an error
SHADOW = "shadow mode: always this stage"
_encode = msgspec.json.Encoder().encode


class ModelNotFound(HttpError):
    """The proxy has no cascade of this name."""

    code = "model_not_found"


class ProxyApp(App):
    """The service, and a proxy for chat completions in front of its cascades."""

    statuses: ClassVar[Mapping[str, int]] = {**App.statuses, ModelNotFound.code: 404}

    def __init__(self, service: Service, settings: Settings, config: configured.Config) -> None:
        super().__init__(service, settings)
        service.preparing = "the proxy has not loaded its cascades"
        self._session = new_session()
        limits = config.limits
        self.cascades = {
            name: Live(one, self._session, limits) for name, one in config.cascades.items()
        }
        for name, live in self.cascades.items():
            service.label_readers[name] = live.comparison.label
        self.reader_pause = limits.caller_pause
        self._random = random.Random()
        self._shadow = ShadowQueue(WAITING, limits.shadow_queue)
        self._tasks: set[asyncio.Task[Any]] = set()
        # Money spent in shadow, by cascade and day.
        self._spent: defaultdict[tuple[str, float], float] = defaultdict(float)
        self._reasons: dict[str, str] = {}  # what went wrong with a cascade, as logged last
        self.add("POST", CHAT, self._chat, "chat_completions")
        self.add("GET", MODELS, self._models, "models")
        pages = Pages(self)
        shadow = ShadowPage(config, pages, self._background)
        pages.proxied = {
            name: Proxied(
                in_shadow=one.mode == "shadow",
                answered_by=one.stage[one.answer_arm].name,
                revealed=REVEALED_NAMES,
                least_rounds=MIN_ROUNDS,
                report=partial(shadow.latest, name),
            )
            for name, one in config.cascades.items()
        }
        pages.add("/cascades/{name}/shadow", shadow.show)

    # -- start and stop -----------------------------------------------------------------------

    async def started(self) -> None:
        """Create the cascades, once the log has been read; until then answer without them."""
        for live in self.cascades.values():
            if not await self._load(live):  # it has failed, and others need not wait for it
                self._background(self._load_later(live))
        self.service.preparing = ""
        for _ in range(WORKERS):
            self._background(self._shadow_rounds())

    async def _load(self, live: Live) -> bool:
        """Create a cascade, unless it is there; return False if it has failed."""
        config, day = live.config, _midnight()
        self._spent[config.name, day] = math.inf  # nothing is spent before it is known how much was
        if not await self._create(config):
            return False
        counts = self.service.state.cascades[config.name].counts
        # Failed rounds count as a whole: what they really cost is not in the log.
        self._spent[config.name, day] = counts.opened_on(day) * live.shadow_cost
        LOG.info("proxy ready", extra={"cascade": config.name, "mode": config.mode})
        return True

    async def _load_later(self, live: Live) -> None:
        while not await self._load(live):
            await asyncio.sleep(RETRY)

    async def _create(self, config: configured.Cascade) -> bool:
        while True:
            try:
                await self.service.create(config.spec(), None)
                return True
            except CascadeFailed:
                return False
            except Conflict:
                raise InvalidParameterError(
                    f"cascade {config.name!r} is in the store with other stages, costs, "
                    "context or policy, and what was learned belongs to those. Give it another "
                    f'name in the configuration (name = "{config.name}-2"), or name another '
                    "store"
                ) from None
            except (TooManyRequests, Unavailable):
                await asyncio.sleep(RETRY)
            except RequestError as error:
                raise InvalidParameterError(f"cascade {config.name!r}: {error}") from None

    async def stopped(self) -> None:
        """Give up what runs in the background, and close the connections to the upstreams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def _background(self, work: Awaitable[Any]) -> None:
        async def done() -> None:
            try:
                await work
            except Exception as error:
                LOG.debug("not done in the background", extra={"reason": str(error)})

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the routes ---------------------------------------------------------------------------

    def error_response(self, request: Request, error: RequestError) -> Response:
        """Return an error, in OpenAI's shape on OpenAI's routes."""
        answer = super().error_response(request, error)
        if request.path not in (CHAT, MODELS):
            return answer
        body = error_body(answer.status, error.message, error.code, error.field)
        return msgspec.structs.replace(answer, body=_encode(body))

    async def _models(self, request: Request) -> Response:
        self.access.check_key(request, None)
        seen = () if request.key is None else request.key.cascades
        more = {"object": "model", "created": 0, "owned_by": "stopwise"}
        data = [{"id": name, **more} for name in self.cascades if not seen or name in seen]
        return Response(200, _encode({"object": "list", "data": data}))

    async def _chat(self, request: Request) -> Response:
        began = time.monotonic()
        if self.access.keys is not None:  # before a large body is read
            request.key = self.access.keys.identify(request.headers.get("authorization"))
            self.access.keys.count_request(request.key)  # whatever is wrong with it
        request.check_media_type()
        chat = Chat(await request.body())
        live = self.cascades.get(chat.model)
        if live is None:
            shown = shorten(repr(chat.model), MOST_ECHOED)
            words = f"unknown model {shown}; GET {MODELS} lists the available ones"
            raise ModelNotFound(words, field="model")
        request.params = {"name": chat.model}
        if self.access.keys is not None and request.key is not None:
            self.access.keys.check_rights(request.key, "decide", chat.model)
        until = began + _deadline(request, live.config.deadline)
        shadow = live.config.mode == "shadow"
        turn = Turn(live, chat, until, Relay(untouched=shadow) if chat.stream else None)
        work = asyncio.create_task(self._worked(turn, shadow))
        gone = asyncio.create_task(request.disconnected())
        others: list[asyncio.Task[Any]] = [gone]
        if turn.relay is not None:
            others.append(asyncio.create_task(turn.relay.started.wait()))
        streams = False  # whether the response goes on with the work
        try:
            await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
            if turn.relay is not None and turn.streaming:
                streams = True
                others.remove(gone)  # it may still go away
                why = SHADOW if shadow else "the last stage that was needed"
                head = self._headers(turn, turn.streamed, why)
                return Response(200, _sent(turn.relay, work, gone), turn.relay.media_type, head)
            if not work.done():
                raise BadRequest("the caller went away")
            return self._response(turn, work.result())
        except StageFailure as failure:
            return self._failed(turn, failure, shadow)
        finally:
            for one in others:
                one.cancel()
            if not streams:
                work.cancel()
            del work  # or the task, its exception and this frame would keep each other

    async def _worked(self, turn: Turn, shadow: bool) -> Outcome:
        try:
            outcome = await (self._as_before(turn) if shadow else self._decided(turn))
        except Exception as error:
            if turn.relay is not None:  # or the caller of a stream would wait for ever
                turn.relay.fail(str(error) or type(error).__name__)
            raise
        if turn.relay is not None and turn.streaming:
            turn.relay.end(b"" if shadow else DONE)
        return outcome

    # -- who answers --------------------------------------------------------------------------

    async def _decided(self, turn: Turn) -> Outcome:
        """Answer as deep as Stopwise decides."""
        config, last = turn.live.config, turn.live.last
        rest = range(config.answer_arm, last + 1)
        try:
            loop = await play(self.service, turn, self._background)
        except CannotLearn as error:
            self._warn(config.name, "not learned", str(error))
            return await self._first(turn, rest, "Stopwise could not decide; see its log")
        self._reasons.pop(config.name, None)
        if loop.failure is None:
            arm = max(turn.answers)
            return Outcome(arm, turn.answers[arm], self._reason(config.name, turn.round))
        arm, error = loop.failure.arm, loop.error
        if isinstance(error, OverLimit):
            return await self._first(turn, (), str(error))
        if arm in turn.answers:  # it answered, but the answer could not be compared
            self._warn(config.name, "not learned", loop.failure.message)
            return await self._first(turn, rest, "the answers could not be compared; see the log")
        self._warn(config.name, "stage failed", loop.failure.message)
        why = f"{config.stage[arm].name} failed; the next stage that answers counts"
        return await self._first(turn, range(arm + 1, last + 1), why)

    async def _first(self, turn: Turn, arms: Iterable[int], why: str) -> Outcome:
        """Return the first answer of some stages, or the newest there is."""
        turn.final = True
        for arm in arms:
            if turn.streaming:
                break
            try:
                return Outcome(arm, await turn.ask(arm, turn.chat), why)
            except OverLimit:
                break
            except StageFailure as failure:
                self._warn(turn.live.config.name, "stage failed", str(failure))
        arm = turn.streamed if turn.streaming else max(turn.answers, default=-1)
        if arm in turn.answers:
            return Outcome(arm, turn.answers[arm], why)
        raise turn.failures[-1].copy() if turn.failures else StageFailure(why)

    async def _as_before(self, turn: Turn) -> Outcome:
        """Answer from the stage that the user named; perhaps learn from it in the background."""
        config, turn.final = turn.live.config, True
        answer = await turn.ask(config.answer_arm, turn.chat)
        if self._random.random() < config.sample:
            one = ShadowRound(turn.live, turn.chat.raw, answer.raw, answer.cost)
            if not self._shadow.put(one):
                self._count(config.name, "shadow dropped")
        return Outcome(config.answer_arm, answer, SHADOW)

    async def _shadow_rounds(self) -> None:
        """Run sampled requests through all stages, one after another."""
        while True:
            one = await self._shadow.get()
            try:
                await self._shadow_round(one)
            finally:
                self._shadow.done(one)

    async def _shadow_round(self, one: ShadowRound) -> None:
        """Run a request through all stages, within the budget."""
        live, config, name = one.live, one.live.config, one.live.config.name
        needed, day = live.shadow_cost, (name, _midnight())
        if config.budget is not None and self._spent[day] + needed > config.budget:
            self._count(name, "over budget")
            return
        self._spent[day] += needed  # others may begin before this one has ended
        chat, answer = one.decoded()
        turn = Turn(live, chat, math.inf, None)
        turn.answers[config.answer_arm] = answer  # paid for already
        try:
            loop = await play(self.service, turn, self._background, complete=True)
            if loop.failure is None:
                self._count(name, "shadowed")
                self._reasons.pop(name, None)
            else:
                self._warn(name, "shadow failed", loop.failure.message)
        except CannotLearn as error:
            self._warn(name, "not learned", str(error))
        except Exception as error:
            LOG.error("a round in shadow failed", extra={"cascade": name}, exc_info=error)
        self._spent[day] += turn.spent - needed

    # -- what is said about it ----------------------------------------------------------------

    def _response(self, turn: Turn, outcome: Outcome) -> Response:
        answer, usage = outcome.answer, turn.usage()
        head = self._headers(turn, outcome.arm, outcome.reason)
        if turn.relay is None or turn.relay.untouched:
            return Response(200, answer.with_usage(usage), headers=head)
        events = answer.events(usage, include_usage=turn.chat.include_usage)
        return Response(200, events, EVENTS, head)

    def _headers(self, turn: Turn, arm: int, reason: str) -> tuple[tuple[str, str], ...]:
        config, spent = turn.live.config, turn.spent
        if arm not in turn.answers:  # a stream: what it really costs is known at its end
            spent += config.expected(arm)
        head = {"arm": config.stage[arm].name, "depth": str(arm + 1), "cost": f"{spent:.6g}"}
        head |= {"reason": reason} | ({} if turn.round is None else {"round": turn.round})
        plain = {name: one.encode("ascii", "replace").decode() for name, one in head.items()}
        return tuple((f"x-stopwise-{name}", " ".join(one.split())) for name, one in plain.items())

    def _reason(self, name: str, id_: str | None) -> str:
        """Return why a round ended where it did, in a sentence."""
        cascade = self.service.state.cascades.get(name)
        recent = () if cascade is None else reversed(cascade.recent)
        return next((one.explanation() for one in recent if one.id == id_), "as the policy decided")

    def _failed(self, turn: Turn, failure: StageFailure, shadow: bool) -> Response:
        reply = failure.reply
        self._warn(turn.live.config.name, "failed", str(failure))
        more = _retry(None if reply is None else reply.retry_after)
        if shadow and reply is not None:  # as the caller would have got it without the proxy
            return Response(reply.status, reply.body, reply.media_type, more)
        kind = {504: "timeout", 429: "rate_limit_exceeded"}.get(failure.status, "upstream_error")
        body = _encode(error_body(failure.status, str(failure), kind))
        head = {} if turn.round is None else {"x-stopwise-round": turn.round}
        return Response(failure.status, body, JSON, (*head.items(), *more))

    def _warn(self, name: str, what: str, reason: str) -> None:
        """Count something that went wrong; log it unless it is the same as before."""
        self._count(name, what)
        if self._reasons.get(name) != reason:  # not a line for each of a thousand requests
            self._reasons[name] = reason
            LOG.warning(what, extra={"cascade": name, "reason": reason})

    def _count(self, name: str, what: str) -> None:
        self.service.counters.proxy[name, what] += 1


async def _sent(
    relay: Relay, work: "asyncio.Task[Any]", gone: "asyncio.Task[Any]"
) -> AsyncGenerator[bytes, None]:
    """Yield a stream; once the caller is gone, or the generator is closed, cancel the work."""
    gone.add_done_callback(lambda _: work.cancel())
    work.add_done_callback(lambda _: relay.end(b""))
    try:
        if relay.untouched:
            yield b""  # sends the headers, as the upstream did
        async for part in relay.parts():
            yield part
    finally:
        gone.cancel()
        work.cancel()
        with suppress(asyncio.CancelledError, StageFailure):
            await work


def _deadline(request: Request, most: float | None) -> float:
    given = request.headers.get("x-stopwise-deadline")
    most = UNLIMITED if most is None else most
    if given is None:
        return most
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= UNLIMITED:
        words = f"x-stopwise-deadline is {given!r}: it must be a number of seconds"
        raise BadRequest(words, field="x-stopwise-deadline")
    return min(seconds, most)


def _midnight() -> float:
    """Return when this day began (UTC), in seconds since 1970."""
    now = time.time()
    return now - now % 86_400


def _retry(after: object) -> tuple[tuple[str, str], ...]:
    return () if after is None else (("retry-after", str(after)),)
