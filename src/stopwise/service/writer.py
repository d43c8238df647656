"""The one who writes: takes what is waiting, lets it happen, commits it, and only then answers.

All that waits when the last commit has ended forms the next group, so that a commit is shared by
many when there are many (group commit), and by nobody when there is one. The order in which
requests happen is the order of the log; whoever reads it repeats them.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from stopwise.errors import CorruptLogError, StoreError
from stopwise.service import events as codec
from stopwise.service.events import Event
from stopwise.service.refusals import Refusal
from stopwise.service.state import State
from stopwise.service.store.base import Block, Store, chained

LOG = logging.getLogger("stopwise.service")
LONGEST = 0.02  # seconds after which a group is committed, however many still wait
MANY = 8  # requests in a group, from which the service is under load
GATHER = 0.001  # seconds to wait then for a group as large as the last: half as many commits
RETRY = 0.25  # seconds between attempts to write
WAIT = 2  # seconds after which a client may try again

Happening: TypeAlias = tuple[Event | None, object]


class Command(Protocol):
    """A request: checks itself against the state, lets it happen, returns the event and answer.

    It raises `Refusal` before anything has changed.
    """

    def __call__(self, state: State, time: float, /) -> Happening:
        """Happen."""
        ...


Waiting: TypeAlias = tuple[Command, "asyncio.Future[object]"]


class Writer:
    """Lets requests happen in groups, each in the log before it is answered.

    Parameters
    ----------
    store : Store
        Of the log; used by the writer alone.
    state : State
        What the log amounts to so far.
    recover : callable
        Reads the state from the log again, should memory have run ahead of it.
    follow_every : float or None
        Seconds after which to look for what others have appended; None if there are none.
    max_waiting : int
        Requests that may wait; more are told to come back.
    report : callable
        Told in a sentence when writing fails, and "" when it works again.
    between : callable
        Shown the state at moments when it is exactly what the log amounts to.
    committed : callable
        Told how many seconds each commit took.
    """

    def __init__(
        self,
        store: Store,
        state: State,
        *,
        recover: Callable[[], Awaitable[State]],
        follow_every: float | None,
        max_waiting: int,
        report: Callable[[str], object] = lambda _: None,
        between: Callable[[State], object] = lambda _: None,
        committed: Callable[[float], object] = lambda _: None,
    ) -> None:
        self.state = state
        self.trouble = ""
        self.known_whole_at = time.monotonic()  # when memory last had all of the log
        self.blocks = 0
        self._store = store
        self._recover = recover
        self._follow_every = follow_every
        self._max_waiting = max_waiting
        self._report = report
        self._between = between
        self._committed = committed
        self._queue: list[Waiting] = []
        self._wake = asyncio.Event()
        self._stopping = False
        self._held: Block | None = None  # happened in memory, perhaps not in the log
        self._current: list[Waiting] = []  # the group that is happening
        self._last_group = 0  # how many requests it had
        self._tainted = False  # memory may differ from the log, which must be read again
        self._loop = asyncio.get_running_loop()

    @property
    def settled(self) -> bool:
        """Whether all that has happened in memory is known to be in the log."""
        return self._held is None and not self._tainted

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._queue)

    def submit(self, command: Command) -> "asyncio.Future[object]":
        """Ask for something to happen; the future has the answer once it is in the log."""
        if self.trouble or self._stopping:
            raise unavailable(self.trouble or "the service is stopping")
        if len(self._queue) >= self._max_waiting:
            raise Refusal(
                429,
                "too_many_requests",
                f"{len(self._queue):,} requests are waiting already; try again a little later",
                retry_after=1,
            )
        future: asyncio.Future[object] = self._loop.create_future()
        self._queue.append((command, future))
        if len(self._queue) == 1:
            self._wake.set()
        return future

    async def run(self) -> None:
        """Work until `stop`, and then until nothing waits."""
        try:
            while not self._stopping or self._queue or self._held:
                if not (self._queue or self._held or self._tainted):
                    await self._rest()
                try:
                    await self._work()
                except StoreError as error:
                    self._unwell(str(error))
                    if self._stopping:
                        return
                    await asyncio.sleep(RETRY)
        finally:  # whatever happened, nobody waits for ever
            self._stopping = True
            _fail(self._current + self._queue, unavailable("the service is stopping"))
            self._queue = []

    async def _work(self) -> None:
        if self._tainted:
            self.state = await self._recover()
            self._tainted = False
        if self._held is not None:
            await self._settle()
        elif self._queue:
            if MANY < self._last_group > len(self._queue):
                await asyncio.sleep(GATHER)  # those just answered may ask again
            await self._group()
        elif self._follow_every is not None:
            await self._follow()
        elif self.trouble:
            await self._store.begin(self.state.position)  # can it be used again?
            await self._store.release()
        if not self._tainted:
            self._well()
            self._between(self.state)

    def stop(self) -> None:
        """Take no more requests; `run` returns when those that wait are done."""
        self._stopping = True
        self._wake.set()

    async def _rest(self) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), RETRY if self.trouble else self._follow_every)

    # -- a group ------------------------------------------------------------------------------

    async def _group(self) -> None:
        if not await self._caught_up(await self._store.begin(self.state.position)):
            return
        self._current = group = self._queue
        self._queue = []
        state = self.state
        now = time.time()
        until = time.perf_counter() + LONGEST
        events: list[Event] = []
        answers: list[tuple[asyncio.Future[object], object]] = []
        base = state.position + 1
        try:
            for command, future in group:
                try:
                    event, answer = command(state, now)
                except Refusal as refusal:
                    answer = refusal
                else:
                    if event is not None:
                        events.append(event)
                        state.position += 1
                        state.time = now
                answers.append((future, answer))
                if time.perf_counter() > until:  # the rest has its turn after this commit
                    self._queue = group[len(answers) :] + self._queue
                    self._current = group = group[: len(answers)]
                    break
            payload = codec.encode(events)
        except Exception as error:
            # A defect: memory may hold half of something. The log is right, so read it again.
            LOG.exception("a request failed in the middle; the log is read again")
            self._tainted = True
            if len(answers) < len(group) and not group[len(answers)][1].done():
                group[len(answers)][1].set_exception(error)  # whose fault it was
            _fail(group, unavailable("the service is reading its log again"))
            await self._store.release()
            return
        self._last_group = len(group)
        if events:
            digest = chained(state.log_digest, payload)
            self._held = Block(base, len(events), now, digest, payload)
            began = time.perf_counter()
            try:
                await self._store.commit(self._held)
            except StoreError:
                # It may be in the log or not; what is certain is that nobody was told.
                _fail(group, unavailable("it is not known whether this was kept"))
                raise
            self._committed(time.perf_counter() - began)
            state.log_digest = digest
            self._held = None
            self.blocks += 1
        else:
            await self._store.release()
        self.known_whole_at = time.monotonic()
        for future, answer in answers:
            if future.done():  # the client went away
                continue
            if isinstance(answer, Refusal):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _settle(self) -> None:
        """Find out whether a block whose commit failed is in the log; if not, write it now."""
        held = self._held
        assert held is not None
        others = await self._store.begin(held.base - 1)
        if not others and await self._beyond(held.base - 1):
            self._held = None
            await self._read_again()
            return
        if not others:
            await self._store.commit(held)
        else:
            await self._store.release()
            if others[0].digest != held.digest:
                # Others went on where this block should be: what it did in memory never happened.
                self._held = None
                self._tainted = True
                return
        self.state.log_digest = held.digest
        self._held = None
        self.blocks += 1
        self._apply(others[1:])

    async def _follow(self) -> None:
        async for block in self._store.read(self.state.position):
            self._apply([block])
        if await self._beyond(self.state.position):
            self._tainted = True
        else:
            self.known_whole_at = time.monotonic()

    async def _caught_up(self, blocks: list[Block]) -> bool:
        """Let happen what others appended, while nobody can append; say whether that is all."""
        try:
            self._apply(blocks)
        except StoreError:
            await self._store.release()
            raise
        if await self._beyond(self.state.position):
            await self._read_again()
            return False
        return True

    async def _beyond(self, position: int) -> bool:
        """Say whether the log went on and was compacted while this process was cut off from it."""
        return self._store.shared and (await self._store.end())[0] > position

    async def _read_again(self) -> None:
        self._tainted = True
        await self._store.release()

    def _apply(self, blocks: list[Block]) -> None:
        for block in blocks:
            try:
                self.state.apply(block)
            except CorruptLogError as error:
                self._tainted = True  # half of the block may have happened
                raise StoreError(str(error)) from error
            self.blocks += 1

    # -- trouble ------------------------------------------------------------------------------

    def _unwell(self, reason: str) -> None:
        waiting, self._queue = self._queue, []
        _fail(waiting, unavailable(reason))
        if reason != self.trouble:
            self.trouble = reason
            self._report(reason)

    def _well(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._report("")


def unavailable(reason: str) -> Refusal:
    """Return the refusal of a service that cannot write now.

    Examples
    --------
    >>> unavailable("the disk is full").retry_after
    2
    """
    return Refusal(
        503,
        "unavailable",
        f"nothing can be written now ({reason}). Try again; with the same Idempotency-Key nothing "
        "happens twice",
        retry_after=WAIT,
    )


def _fail(group: list[Waiting], refusal: Refusal) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(refusal)
