"""The writer: applies requests in groups, commits their events, then answers.

All requests waiting when a commit ends form the next group and share a commit. Slow requests form
separate groups, which are applied in a thread; `idle` is set while no such thread is running.

A request that raises an exception other than a `RequestError` may leave its cascade, and no other,
partly changed. That cascade is marked as failed: its later requests are rejected until it has been
reloaded from the log, while events before the error are committed as usual.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from stopwise.errors import CorruptLogError, StopwiseError, StoreError
from stopwise.service.counters import Counters
from stopwise.service.domain.commands import Command
from stopwise.service.domain.errors import RequestError, TooManyRequests, Unavailable
from stopwise.service.domain.events import Event
from stopwise.service.domain.state import State
from stopwise.service.persistence import blocks as codec
from stopwise.service.persistence.blocks import Block, apply_blocks, chain_digest
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.server_log import LOG
from stopwise.service.settings import Settings

T = TypeVar("T")
MAX_GROUP_SECONDS = 0.02  # maximum time to apply a group before it is committed
LOADED_GROUP = 8  # a group larger than this means that the service is under load
GATHER_SECONDS = 0.001  # under load, the wait for an equally large group; halves the commits
RETRY_SECONDS = 0.25  # between attempts to write
RETRY_AFTER = 2  # seconds after which a client may try again
EARLY_COMMIT_SECONDS = 0.1  # maximum delay of the commit after an early answer

Future: TypeAlias = "asyncio.Future[Any]"
EarlyCheck: TypeAlias = Callable[[Any], bool]  # whether an answer may be sent before its commit


class PendingRequest(NamedTuple):
    """A request in the queue."""

    command: Command
    future: Future
    cascade: str | None  # the only cascade that it may change; None: unknown
    early: EarlyCheck | None


class GroupResult(NamedTuple):
    """The events and answers of a group, in the order of its requests."""

    events: list[bytes]  # encoded
    answers: list[object]  # or exceptions
    early: list[bool]  # whether the answer may be sent before the commit


class Writer:
    """Applies requests in groups, and answers each request once its event is in the log.

    ``recover`` reads the state from the log. If other processes write to the log, their events are
    read every `follow_every` seconds. ``on_failure`` is called while any cascade has failed.
    """

    def __init__(
        self,
        store: EventStore,
        settings: Settings,
        counters: Counters,
        recover: Callable[[], Awaitable[State]],
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        self.state = State()
        self.stored = 0  # position of the last event that is certainly in the log
        self.write_error = ""
        self.up_to_date_at = time.monotonic()  # when the state last included the entire log
        self.idle = asyncio.Event()
        self.idle.set()
        self._store = store
        self._counters = counters
        self._recover = recover
        self._on_failure = on_failure
        self._follow_every = settings.follow_every if store.shared else None
        self._max_waiting = settings.max_waiting
        self._queues: dict[bool, list[PendingRequest]] = {False: [], True: []}  # by `slow`
        self._readers: list[tuple[Callable[[], Awaitable[Any]], Future]] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._held: Block | None = None  # applied to the state; its commit is not confirmed
        # Encoded events that were applied and answered; they are committed with the next group.
        self._early: list[bytes] = []
        self._early_until = 0.0
        self._current: list[PendingRequest] = []  # the group that is being applied
        self._last_group = 0  # number of requests in the last group
        self._outdated = True  # the state may differ from the log, which must be read again
        self._reported: dict[str, Exception] = {}  # failures of cascades that were logged
        self._loop = asyncio.get_running_loop()

    @property
    def settled(self) -> bool:
        """Whether the state is consistent and all of its events are certainly in the log."""
        return not self._outdated and self.stored == self.state.position

    def unstored(self) -> list[Event] | None:
        """Return the applied events that may not be in the log; None if these are uncertain."""
        events = [codec.decode_event(encoded) for encoded in self._early]
        if self._held is not None:
            events += codec.decode_events(self._held.payload)
        if self._outdated or self.stored + len(events) != self.state.position:
            return None  # the state is being changed, or may differ from the log
        return events

    @property
    def waiting(self) -> int:
        """The number of requests in the queues."""
        return len(self._queues[False]) + len(self._queues[True])

    def submit(
        self,
        command: Command,
        *,
        cascade: str | None,
        slow: bool = False,
        early: EarlyCheck | None = None,
    ) -> Future:
        """Queue a command; the future has the answer once the event of the command is logged.

        ``cascade`` is the only cascade that the command may change. If it is None and the command
        raises an unexpected exception, the entire log is read again.

        If ``early`` accepts the answer, the future has the answer as soon as the command is
        applied. Use it for the intermediate steps of a round: the answer to the last step waits
        for the commit, which includes all earlier steps.
        """
        self._check_writable()
        if self.waiting >= self._max_waiting:
            message = (
                f"{self.waiting:,} requests are already waiting (max_waiting); try again later"
            )
            raise TooManyRequests(message, retry_after=1)
        future: Future = self._loop.create_future()
        self._queues[slow].append(PendingRequest(command, future, cascade, early))
        if self.waiting == 1:
            self._wake.set()
        return future

    def _check_writable(self) -> None:
        if self.write_error or self._stopping:
            raise unavailable(self.write_error or "the service is stopping")

    async def read(self, reader: Callable[[State], T]) -> T:
        """Run a function of the state in a thread, while the state is `settled`."""
        return await self._when_settled(lambda: self._in_thread(lambda: reader(self.state)))

    async def follow(self, loaded: State, name: str) -> None:
        """Follow the cascade ``name`` from ``loaded``, a state that was read from the log."""

        async def adopt() -> None:
            await self._follow()
            async for blocks in self._store.pages(loaded.position):
                applied_here = [block for block in blocks if block.end <= self.state.position]
                await asyncio.to_thread(apply_blocks, loaded, applied_here)
            if loaded.position != self.state.position:
                raise unavailable("the log was compacted while it was read")
            self.state.follow(loaded.cascades[name])

        await self._when_settled(adopt)

    async def _when_settled(self, work: Callable[[], Awaitable[T]]) -> T:
        self._check_writable()
        future: asyncio.Future[T] = self._loop.create_future()
        self._readers.append((work, future))
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Process requests until `stop` is called and the queues are empty."""
        try:
            while not self._stopping or self.waiting or self._held or self._early:
                if not (self.waiting or self._held or self._outdated or self._readers):
                    self._wake.clear()
                    pause = RETRY_SECONDS if self.write_error else self._follow_every
                    if self._early:
                        pause = 0 if self._stopping else EARLY_COMMIT_SECONDS
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), pause)
                try:
                    await self._work()
                except StoreError as error:
                    reason = str(error)
                    _fail(self._drain_queues(), unavailable(reason))
                    if reason != self.write_error:
                        self.write_error = reason
                        self._counters.failed_writes += 1
                        LOG.error("cannot write the log", extra={"reason": reason})
                    if self._stopping:
                        return
                    await asyncio.sleep(RETRY_SECONDS)
        finally:  # answer all requests, so that none waits forever
            self._stopping = True
            futures = [request.future for request in self._current] + self._drain_queues()
            _fail(futures, unavailable("the service is stopping"))

    async def _work(self) -> None:
        if self._outdated:
            self._early = []
            self.state = await self._recover()
            self.stored = self.state.position
            self._outdated = False
            self._report_failures()
        if self._held is not None:
            await self._resolve_held()
        elif self.waiting:
            if self._queues[False]:
                if LOADED_GROUP < self._last_group > len(self._queues[False]):
                    await asyncio.sleep(GATHER_SECONDS)  # for the next requests of these clients
                await self._process_group(slow=False)
            if self._queues[True] and self._held is None and not self._outdated:
                await self._process_group(slow=True)
                await asyncio.sleep(0)  # let readers run between slow groups
        elif self._early:
            await self._process_group(slow=False)
        elif self._follow_every is not None:
            await self._follow()
        elif self.write_error:
            await self._store.begin(self.state.position)  # test whether the store works again
            await self._store.release()
        if not self._outdated:
            if self.write_error:
                self.write_error = ""
                LOG.warning("the log can be written again")
            while self._readers and self.settled:
                reader, future = self._readers.pop(0)
                try:
                    answer = await reader()
                except Exception as error:
                    _fail([future], error)
                else:
                    _succeed(future, answer)
                self._report_failures()

    def stop(self) -> None:
        """Accept no more requests; `run` returns when the waiting ones are done."""
        self._stopping = True
        self._wake.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run slow work without blocking the event loop."""
        self.idle.clear()
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            self._outdated = True  # the thread continues and may change the state further
            raise
        finally:
            self.idle.set()

    # -- groups -------------------------------------------------------------------------------

    async def _process_group(self, *, slow: bool) -> None:
        if not await self._catch_up(await self._store.begin(self.state.position)):
            return
        self._current, self._queues[slow] = self._queues[slow], []
        state, now = self.state, time.time()
        if not self._early:
            self._early_until = time.monotonic() + EARLY_COMMIT_SECONDS
        early, self._early = self._early, []
        base = self.stored + 1
        result = GroupResult(list(early), [], [])
        try:
            if slow:
                await self._in_thread(lambda: self._apply_group(now, result))
            else:
                self._apply_group(now, result)
        except Exception as error:
            # Any cascade may be partly changed, so the entire log must be read again.
            LOG.exception("a request failed while it was applied; reading the log again")
            self._outdated = True
            _fail([self._current[len(result.answers)].future], error)
            self._fail_group("the service is reading its log again")
            if early:  # these events were already answered
                payload = codec.join_events(early)
                digest = chain_digest(state.log_digest, payload)
                await self._store.commit(Block(base, len(early), now, digest, payload))
            else:
                await self._store.release()
            return
        self._report_failures()
        count = len(result.answers)
        group, remaining = self._current[:count], self._current[count:]
        self._queues[slow] = remaining + self._queues[slow]
        self._current = group
        self._last_group = 0 if slow else count
        for request, answer, is_early in zip(group, result.answers, result.early, strict=True):
            if is_early:
                _succeed(request.future, answer)
        answered = group and all(request.future.done() for request in group)
        if answered and not self._store.shared and time.monotonic() < self._early_until:
            self._early, self._current = result.events, []
            return
        if result.events:
            payload = codec.join_events(result.events)
            digest = chain_digest(state.log_digest, payload)
            self._held = Block(base, len(result.events), now, digest, payload)
            began = time.perf_counter()
            try:
                await self._store.commit(self._held)
            except StopwiseError:
                # The block may be in the log or not. No answer that ends a round was sent.
                self._fail_group("it is unknown whether this request was stored")
                raise
            self._counters.commits.add(time.perf_counter() - began)
            self._mark_stored(self._held)
        else:
            await self._store.release()
        self.up_to_date_at = time.monotonic()
        for request, answer in zip(group, result.answers, strict=True):
            if isinstance(answer, Exception):
                _fail([request.future], answer)
            else:
                _succeed(request.future, answer)
        self._current = []

    def _apply_group(self, now: float, result: GroupResult) -> None:
        """Apply requests of the current group until `MAX_GROUP_SECONDS` have passed."""
        deadline = time.perf_counter() + MAX_GROUP_SECONDS
        for request in self._current:
            try:
                encoded, answer, early = self._apply_request(request, now)
            except RequestError as error:
                encoded, answer, early = None, error, False
            except Exception as error:
                if request.cascade is None:
                    raise
                # Creating a cascade changes the state only in its last step: if the cascade does
                # not exist, the state is unchanged.
                self.state.fail(request.cascade, error)
                encoded, answer, early = None, error, False
            if encoded is not None:
                result.events.append(encoded)
                self.state.position += 1
                self.state.time = now
            result.answers.append(answer)
            result.early.append(early)
            if time.perf_counter() > deadline:
                return

    def _apply_request(
        self, request: PendingRequest, now: float
    ) -> tuple[bytes | None, object, bool]:
        """Apply a request; return the encoded event, the answer, and whether `early` accepts it."""
        event, answer = request.command(self.state, now)
        encoded = None if event is None else codec.encode_event(event)
        return encoded, answer, request.early is not None and request.early(answer)

    def _mark_stored(self, block: Block) -> None:
        """Record that a block written by this process is in the log."""
        self.state.log_digest = block.digest
        self.stored = block.end
        self._held = None

    def fail(self, name: str, error: Exception) -> None:
        """Disable a cascade until it is reloaded from the log."""
        self.state.fail(name, error)
        self._report_failures()

    def _report_failures(self) -> None:
        """Log and count cascades that have failed since the last call."""
        failed = dict(self.state.failed)
        for name, error in failed.items():
            if self._reported.get(name) is not error:
                self._counters.cascade_failures[name] += 1
                LOG.error("a cascade has failed", extra={"cascade": name}, exc_info=error)
        self._reported = failed
        if failed:
            self._on_failure()

    # -- the log and other replicas -----------------------------------------------------------

    async def _resolve_held(self) -> None:
        """Check whether a block whose commit failed is in the log; if not, commit it again."""
        held = self._held
        assert held is not None
        blocks = await self._store.begin(held.base - 1)
        if blocks:
            superseded = blocks[0].digest != held.digest
        else:
            superseded = self._store.shared and (await self._store.end())[0] >= held.base
        if blocks or superseded:
            await self._store.release()
        else:
            await self._store.commit(held)
        if superseded:  # another process wrote a different block at this position
            self._held = None
            self._outdated = True
            return
        self._mark_stored(held)
        await self._apply(blocks[1:])

    async def _follow(self) -> None:
        """Apply the blocks that other processes appended."""
        end, _ = await self._store.end()  # read first, because blocks may be appended meanwhile
        async for blocks in self._store.pages(self.state.position):
            await self._apply(blocks)
        if self.state.position < end:  # compacted while this process had no access to the log
            self._outdated = True
        else:
            self.up_to_date_at = time.monotonic()

    async def _catch_up(self, blocks: list[Block]) -> bool:
        """Apply blocks while holding the append lock; return whether the state is up to date.

        If the state is not up to date, the lock is released.
        """
        try:
            await self._apply(blocks)
            if not self._store.shared or (await self._store.end())[0] <= self.state.position:
                return True
        except StopwiseError:
            await self._store.release()
            raise
        self._outdated = True
        await self._store.release()
        return False

    async def _apply(self, blocks: list[Block]) -> None:
        if not blocks:
            return
        try:
            await self._in_thread(lambda: apply_blocks(self.state, blocks))
        except CorruptLogError as error:
            self._outdated = True  # the block may have been partly applied
            raise StoreError(str(error)) from error
        self.stored = self.state.position
        self._report_failures()

    # -- failures -----------------------------------------------------------------------------

    def _fail_group(self, reason: str) -> None:
        _fail([request.future for request in self._current], unavailable(reason))
        self._current = []

    def _drain_queues(self) -> list[Future]:
        """Empty the queues; return the futures of all waiting requests and readers."""
        futures = [request.future for slow in (False, True) for request in self._queues[slow]]
        futures += [future for _, future in self._readers]
        self._queues = {False: [], True: []}
        self._readers = []
        return futures


def unavailable(reason: str) -> Unavailable:
    """Return the error for a request that was not, or may not have been, stored."""
    advice = "with the same Idempotency-Key, the request is executed only once"
    message = f"the log is unavailable ({reason}). Try again; {advice}"
    return Unavailable(message, retry_after=RETRY_AFTER)


def _succeed(future: Future, answer: object) -> None:
    if not future.done():  # it is done if it was answered early, or if the client disconnected
        future.set_result(answer)


def _fail(futures: list[Future], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
