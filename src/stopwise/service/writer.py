"""The writer: applies the waiting requests, commits their events, then answers.

All that waits when a commit has ended forms the next group, so that many requests share a commit.
Requests that may take long form groups of their own, applied in a thread; `idle` is set when no
such thread is running.

A request that raises something other than a `RequestError` may leave half of a change in its
cascade, and nothing in others. So that cascade has failed: its later requests are refused until it
has been read from the log again, while the events before the error, its own too, are committed as
usual.
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
MAX_GROUP_SECONDS = 0.02  # seconds after which a group is committed, however many still wait
MANY = 8  # requests in a group, from which the service is under load
GATHER = 0.001  # seconds to wait then for a group as large as the last: half as many commits
RETRY = 0.25  # seconds between attempts to write
WAIT = 2  # seconds after which a client may try again
LATER = 0.1  # seconds after which steps that were answered early are committed at the latest

Future: TypeAlias = "asyncio.Future[Any]"
Early: TypeAlias = Callable[[Any], bool]  # whether an answer may be given before its commit


class Waiting(NamedTuple):
    """A request that waits for its turn."""

    command: Command
    future: Future
    cascade: str | None  # the only one that it may change; None: not known
    early: Early | None


class Group(NamedTuple):
    """What was made of the requests of a group, in their order."""

    events: list[bytes]  # encoded
    answers: list[object]  # an exception is one
    early: list[bool]  # whether the answer may be given before the commit


class Writer:
    """Applies requests in groups, each in the log before it is answered.

    ``recover`` reads the state from the log. Where others write to the log, the writer reads their
    events every `follow_every` seconds. ``failed`` is called while cascades have failed.
    """

    def __init__(
        self,
        store: EventStore,
        settings: Settings,
        counters: Counters,
        recover: Callable[[], Awaitable[State]],
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self.state = State()
        self.stored = 0  # position of the last event of the state that is known to be in the log
        self.write_error = ""
        self.up_to_date_at = time.monotonic()  # when memory last had all of the log
        self.idle = asyncio.Event()
        self.idle.set()
        self._store = store
        self._counters = counters
        self._recover = recover
        self._failed = failed
        self._follow_every = settings.follow_every if store.shared else None
        self._max_waiting = settings.max_waiting
        # By whether they may take long.
        self._queues: dict[bool, list[Waiting]] = {False: [], True: []}
        self._readers: list[tuple[Callable[[], Awaitable[Any]], Future]] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._held: Block | None = None  # applied in memory, perhaps not in the log
        # Encoded events that were applied and answered; they are committed with the next group.
        self._early: list[bytes] = []
        self._early_until = 0.0
        self._current: list[Waiting] = []  # the group that is being applied
        self._last_group = 0  # how many requests it had
        self._outdated = True  # memory may differ from the log, which must be read (again)
        self._noticed: dict[str, Exception] = {}  # failed cascades that were reported
        self._loop = asyncio.get_running_loop()

    @property
    def settled(self) -> bool:
        """Whether everything in memory is known to be in the log."""
        return not self._outdated and self.stored == self.state.position

    def unstored(self) -> list[Event] | None:
        """Return the events in memory that may not be in the log; None: not known now."""
        events = [codec.decode_event(one) for one in self._early]
        if self._held is not None:
            events += codec.decode_events(self._held.payload)
        if self._outdated or self.stored + len(events) != self.state.position:
            return None  # memory is being changed, or may differ from the log
        return events

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._queues[False]) + len(self._queues[True])

    def submit(
        self,
        command: Command,
        *,
        cascade: str | None,
        slow: bool = False,
        early: Early | None = None,
    ) -> Future:
        """Return a future that has the answer once the event is in the log.

        ``cascade`` is the only one that the command may change; None if that is not known: should
        it raise an error, everything is read from the log again.

        An answer that ``early`` accepts is there once it is applied: for a step of a round whose
        last step waits for the log, and so for all steps before it. They share a commit.
        """
        self._check_writable()
        if self.waiting >= self._max_waiting:
            words = f"{self.waiting:,} requests are waiting already; try again a little later"
            raise TooManyRequests(words, retry_after=1)
        future: Future = self._loop.create_future()
        self._queues[slow].append(Waiting(command, future, cascade, early))
        if self.waiting == 1:
            self._wake.set()
        return future

    def _check_writable(self) -> None:
        if self.write_error or self._stopping:
            raise unavailable(self.write_error or "the service is stopping")

    async def read(self, reader: Callable[[State], T]) -> T:
        """Run a function in a thread, at a moment when the state is exactly that of the log."""
        return await self._at_rest(lambda: self._in_thread(lambda: reader(self.state)))

    async def follow(self, loaded: State, name: str) -> None:
        """Follow a cascade from now on, which has been read from the log."""

        async def adopt() -> None:
            await self._follow()
            async for blocks in self._store.pages(loaded.position):
                known = [block for block in blocks if block.end <= self.state.position]
                await asyncio.to_thread(apply_blocks, loaded, known)
            if loaded.position != self.state.position:
                raise unavailable("the log was compacted while it was read")
            self.state.follow(loaded.cascades[name])

        await self._at_rest(adopt)

    async def _at_rest(self, work: Callable[[], Awaitable[T]]) -> T:
        self._check_writable()
        future: asyncio.Future[T] = self._loop.create_future()
        self._readers.append((work, future))
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Work until `stop`, and then until nothing waits."""
        try:
            while not self._stopping or self.waiting or self._held or self._early:
                if not (self.waiting or self._held or self._outdated or self._readers):
                    self._wake.clear()
                    pause = RETRY if self.write_error else self._follow_every
                    if self._early:
                        pause = 0 if self._stopping else LATER
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), pause)
                try:
                    await self._work()
                except StoreError as error:
                    reason = str(error)
                    _fail(self._taken(), unavailable(reason))
                    if reason != self.write_error:
                        self.write_error = reason
                        self._counters.failed_writes += 1
                        LOG.error("nothing can be written", extra={"reason": reason})
                    if self._stopping:
                        return
                    await asyncio.sleep(RETRY)
        finally:  # no request waits for ever
            self._stopping = True
            stopping = unavailable("the service is stopping")
            _fail([*(one.future for one in self._current), *self._taken()], stopping)

    async def _work(self) -> None:
        if self._outdated:
            self._early = []
            self.state = await self._recover()
            self.stored = self.state.position
            self._outdated = False
            self._notice_failures()
        if self._held is not None:
            await self._settle()
        elif self.waiting:
            if self._queues[False]:
                if MANY < self._last_group > len(self._queues[False]):
                    await asyncio.sleep(GATHER)  # those just answered may ask again
                await self._group(slow=False)
            if self._queues[True] and self._held is None and not self._outdated:
                await self._group(slow=True)
                await asyncio.sleep(0)  # those who wait to read have their turn
        elif self._early:
            await self._group(slow=False)
        elif self._follow_every is not None:
            await self._follow()
        elif self.write_error:
            await self._store.begin(self.state.position)  # does it work again?
            await self._store.release()
        if not self._outdated:
            if self.write_error:
                self.write_error = ""
                LOG.warning("writing works again")
            while self._readers and self.settled:
                reader, future = self._readers.pop(0)
                try:
                    answer = await reader()
                except Exception as error:
                    _fail([future], error)
                else:
                    _succeed(future, answer)
                self._notice_failures()

    def stop(self) -> None:
        """Take no more requests; `run` returns when those that wait are done."""
        self._stopping = True
        self._wake.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run what may take long without holding up the event loop."""
        self.idle.clear()
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            self._outdated = True  # the thread goes on, and nobody knows how far it comes
            raise
        finally:
            self.idle.set()

    # -- a group ------------------------------------------------------------------------------

    async def _group(self, *, slow: bool) -> None:
        if not await self._caught_up(await self._store.begin(self.state.position)):
            return
        self._current, self._queues[slow] = self._queues[slow], []
        state, now = self.state, time.time()
        if not self._early:
            self._early_until = time.monotonic() + LATER
        early, self._early = self._early, []
        base = self.stored + 1
        made = Group(list(early), [], [])
        try:
            if slow:
                await self._in_thread(lambda: self._apply_group(now, made))
            else:
                self._apply_group(now, made)
        except Exception as error:
            # Memory may hold half of a change, of whichever cascade: read all of the log again.
            LOG.exception("a request failed while it was applied; the log is read again")
            self._outdated = True
            _fail([self._current[len(made.answers)].future], error)
            self._fail_group("the service is reading its log again")
            if early:  # these were answered
                digest = chain_digest(state.log_digest, payload := codec.join_events(early))
                await self._store.commit(Block(base, len(early), now, digest, payload))
            else:
                await self._store.release()
            return
        self._notice_failures()
        count = len(made.answers)
        group, rest = self._current[:count], self._current[count:]
        self._queues[slow] = rest + self._queues[slow]  # after this commit
        self._current = group
        self._last_group = 0 if slow else count
        for one, answer, prompt in zip(group, made.answers, made.early, strict=True):
            if prompt:
                _succeed(one.future, answer)
        answered = group and all(one.future.done() for one in group)
        if answered and not self._store.shared and time.monotonic() < self._early_until:
            self._early, self._current = made.events, []
            return
        if made.events:
            payload = codec.join_events(made.events)
            digest = chain_digest(state.log_digest, payload)
            self._held = Block(base, len(made.events), now, digest, payload)
            began = time.perf_counter()
            try:
                await self._store.commit(self._held)
            except StopwiseError:
                # It may be in the log or not; what is certain is that no round's end was answered.
                self._fail_group("it is not known whether this was stored")
                raise
            self._counters.commits.add(time.perf_counter() - began)
            self._is_stored(self._held)
        else:
            await self._store.release()
        self.up_to_date_at = time.monotonic()
        for one, answer in zip(group, made.answers, strict=True):
            if isinstance(answer, Exception):
                _fail([one.future], answer)
            else:
                _succeed(one.future, answer)
        self._current = []

    def _apply_group(self, now: float, made: Group) -> None:
        """Apply the requests of the group, as many as there is time for."""
        until = time.perf_counter() + MAX_GROUP_SECONDS
        for one in self._current:
            try:
                encoded, answer, early = self._apply_one(one, now)
            except RequestError as error:
                encoded, answer, early = None, error, False
            except Exception as error:
                if one.cascade is None:
                    raise
                # A cascade that is not there was to be created, which changes the state at last.
                self.state.fail(one.cascade, error)
                encoded, answer, early = None, error, False
            if encoded is not None:
                made.events.append(encoded)
                self.state.position += 1
                self.state.time = now
            made.answers.append(answer)
            made.early.append(early)
            if time.perf_counter() > until:
                return

    def _apply_one(self, one: Waiting, now: float) -> tuple[bytes | None, object, bool]:
        """Return the encoded event, the answer, and whether it may be given before the commit."""
        event, answer = one.command(self.state, now)
        encoded = None if event is None else codec.encode_event(event)
        return encoded, answer, one.early is not None and one.early(answer)

    def _is_stored(self, block: Block) -> None:
        """Note that a block of this process is in the log."""
        self.state.log_digest = block.digest
        self.stored = block.end
        self._held = None

    def fail(self, name: str, error: Exception) -> None:
        """Stop using a cascade until it is read from the log."""
        self.state.fail(name, error)
        self._notice_failures()

    def _notice_failures(self) -> None:
        """Report cascades that have failed since this was called last."""
        failed = dict(self.state.failed)
        for name, error in failed.items():
            if self._noticed.get(name) is not error:
                self._counters.cascade_failures[name] += 1
                LOG.error("a cascade has failed", extra={"cascade": name}, exc_info=error)
        self._noticed = failed
        if failed:
            self._failed()

    # -- the log and other replicas -----------------------------------------------------------

    async def _settle(self) -> None:
        """Find out whether a block whose commit failed is in the log; if not, write it now."""
        held = self._held
        assert held is not None
        others = await self._store.begin(held.base - 1)
        if others:
            taken = others[0].digest != held.digest
        else:
            taken = self._store.shared and (await self._store.end())[0] >= held.base
        if others or taken:
            await self._store.release()
        else:
            await self._store.commit(held)
        if taken:  # others wrote where this block should be: memory is wrong
            self._held = None
            self._outdated = True
            return
        self._is_stored(held)
        await self._apply(others[1:])

    async def _follow(self) -> None:
        """Apply what others have appended."""
        # The end first: blocks may be appended while this reads.
        end, _ = await self._store.end()
        async for blocks in self._store.pages(self.state.position):
            await self._apply(blocks)
        if self.state.position < end:  # compacted while this process was cut off from the log
            self._outdated = True
        else:
            self.up_to_date_at = time.monotonic()

    async def _caught_up(self, blocks: list[Block]) -> bool:
        """Apply what others appended, while nobody can append; return whether that is all."""
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
            self._outdated = True  # half of the block may have been applied
            raise StoreError(str(error)) from error
        self.stored = self.state.position
        self._notice_failures()

    # -- failures -----------------------------------------------------------------------------

    def _fail_group(self, reason: str) -> None:
        _fail([one.future for one in self._current], unavailable(reason))
        self._current = []

    def _taken(self) -> list[Future]:
        """Return the futures of all that wait, and empty the queues."""
        waiting = [one.future for slow in (False, True) for one in self._queues[slow]]
        waiting += [future for _, future in self._readers]
        self._queues, self._readers = {False: [], True: []}, []
        return waiting


def unavailable(reason: str) -> Unavailable:
    """Return the error of a service that cannot write now."""
    advice = "Try again; with the same Idempotency-Key it counts once"
    message = f"nothing can be written now ({reason}). {advice}"
    return Unavailable(message, retry_after=WAIT)


def _succeed(future: Future, answer: object) -> None:
    if not future.done():  # else it was answered early, or the client went away
        future.set_result(answer)


def _fail(futures: list[Future], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
