"""A running service, as its entry points (HTTP, dashboard, metrics) use it."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import numpy as np

from stopwise.errors import StopwiseError, StoreError
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.service.counters import Counters
from stopwise.service.domain import commands
from stopwise.service.domain import messages as m
from stopwise.service.domain import spec as specs
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.commands import Command, CommandResult
from stopwise.service.domain.contexts import Contexts
from stopwise.service.domain.errors import (
    CascadeFailed,
    CascadeNotLoaded,
    InvalidRequest,
    RequestError,
    RequestTooLarge,
    Unavailable,
)
from stopwise.service.domain.events import (
    Event,
    Opened,
    Reported,
    context_of,
    is_about,
)
from stopwise.service.domain.outputs import StoredAnswer, decode_output, unpack_answers
from stopwise.service.domain.state import State, request_digest
from stopwise.service.persistence.blocks import decode_events
from stopwise.service.persistence.recovery import recover_state, snapshot_process, write_snapshot
from stopwise.service.persistence.reloader import Reloader
from stopwise.service.persistence.snapshots import state_hash
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.persistence.stores.opening import open_store
from stopwise.service.server_log import LOG
from stopwise.service.settings import Settings
from stopwise.service.writer import WAIT, Early, Writer, unavailable

T = TypeVar("T")
# Takes a label and how its round ended; returns the output that it equals, or one that none equals.
LabelReader: TypeAlias = Callable[[object, Reported], bytes]
END = 1 << 60  # beyond any event
GROWTH = 4  # a new snapshot when the log has grown by a quarter: their cost stays in proportion
LOOK_EVERY = 1.0  # seconds between looks whether a snapshot is due
KEEP_UNUSED = 600.0  # seconds that a replica follows a cascade about which nobody asks it
ON_LOOP = 2e7  # multiplications, about 5 ms: what may take longer runs in a thread


class Service:
    """One service, on one event loop; nobody else uses its store."""

    def __init__(self, store: EventStore, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        # By cascade: how a label becomes an output, where that is more than equality.
        self.label_readers: dict[str, LabelReader] = {}
        self.recovering = "the service has not started"  # how far it has come; "" once done
        self.draining = False  # about to stop: requests are answered, and `ready` is False
        self.preparing = ""  # what an application on top of it still does after the start
        # The error, should it be unable to go on.
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._store = store
        self._reader = open_store(settings.store)  # a connection of its own, to look up events
        self._reading = asyncio.Lock()
        self._last_snapshot = 0
        self._reloader = Reloader(lambda: self.state.failed, self._reload)
        woken = self._reloader.wake
        self.writer = Writer(store, settings, self.counters, self._recover, failed=woken)
        self._loading: dict[str, asyncio.Task[None]] = {}  # by the name of the cascade
        self._tasks: list[asyncio.Task[None]] = []

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and begin to read the log in the background, until `ready`."""
        await self._store.open()
        if not self._store.shared:
            await self._store.begin(END)  # or fail: another process serves this file
        self.recovering = "reading the log"
        work = (self._live(), self._snapshots(), self._reloader.run())
        self._tasks = [asyncio.create_task(one) for one in work]

    async def _live(self) -> None:
        try:
            await self.writer.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.recovering = f"failed: {error}"
            LOG.critical("the service cannot go on", extra={"reason": str(error)}, exc_info=error)
            self.failed.set_result(error)

    async def _recover(self) -> State:
        def progress(_stage: str, done: int, of: int) -> None:
            self.recovering = f"recovering: {done:,} of {of:,} events"

        follows = (self.state.follows or ()) if self._store.shared else None
        state = await recover_state(self._store, follows, progress, isolate_failures=True)
        self._last_snapshot = max(await self._store.snapshots(), default=0)
        if not self.state.position:  # the first time
            gc.collect()
            gc.freeze()  # what is here now stays; the collector need not look at it again
        self.recovering = ""
        LOG.info("ready", extra={"events": state.position})
        return state

    async def stop(self) -> None:
        """Finish what is waiting, write a snapshot, and close."""
        live, writer = self._tasks[:1], self.writer
        if not self.recovering:
            writer.stop()
            await asyncio.wait(live, timeout=self.settings.stop_timeout)
        finished = all(task.done() for task in live) and not self.failed.done()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        complete = finished and writer.settled and not self.writer.write_error
        if complete and self.state.position > self._last_snapshot:
            state = None if self._store.shared or self.state.failed else self.state
            await self._save(write_snapshot(self.settings.store, state))
        for store in (self._store, self._reader):
            await store.close()

    async def _snapshots(self) -> None:
        """Write a snapshot whenever the log has grown enough since the last."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self.recovering:
                continue
            try:
                await self._forget()
            except (RequestError, StopwiseError):  # nothing can be read or written: later
                pass
            except Exception as error:
                LOG.error("memory could not be freed", exc_info=error)
            position = self.state.position
            due = max(self.settings.snapshot_every, position // GROWTH)
            if position - self._last_snapshot >= due:
                await self._save(snapshot_process(self.settings.store))

    async def _forget(self) -> None:
        """Forget cascades that nobody asks about, and rounds that were compacted away."""
        async with self._reading:
            await self._reader.open()
            first = await self._reader.first() or 0
        if self.state.follows or first > self.state.log_start:
            await self.writer.read(lambda state: (state.unfollow(KEEP_UNUSED), state.forget(first)))

    async def _save(self, writing: Awaitable[int]) -> None:
        """Write a snapshot. Whatever goes wrong, the log has it all, and the next may succeed."""
        position = self.state.position
        try:
            written = await writing
        except Exception as error:
            LOG.warning("no snapshot could be written", extra={"reason": str(error)})
        else:
            if written:  # else another replica writes one
                position = written
                self.counters.snapshots += 1
                LOG.info("snapshot", extra={"events": position})
        self._last_snapshot = max(self._last_snapshot, position)

    # -- state and health ---------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state at the end of the log; read it, do not change it (see `readable`)."""
        return self.writer.state

    @property
    def ready(self) -> bool:
        """Whether requests should be sent here."""
        return not self.not_ready

    @property
    def not_ready(self) -> str:
        """Why requests should not be sent here; "" if they should."""
        return (
            (self.draining and "the service is about to stop")
            or self.writer.write_error
            or self.recovering
            or self.preparing
        )

    @property
    def lag(self) -> float:
        """Seconds since memory last had all of the log; 0 where nobody else writes."""
        alone = not self._store.shared and not self.writer.write_error
        return 0.0 if alone else time.monotonic() - self.writer.up_to_date_at

    async def readable(self) -> None:
        """Wait until no request is being applied in a thread: then the state can be read."""
        while not self.writer.idle.is_set():
            await self.writer.idle.wait()

    def check_recovered(self) -> None:
        """Refuse if the log has not been read yet."""
        if self.recovering:
            words = f"the service is not ready: {self.not_ready}. Try again a little later"
            raise Unavailable(words, retry_after=WAIT)

    # -- cascades -----------------------------------------------------------------------------

    async def cascades(self) -> list[m.CascadeView]:
        """Return every cascade, in the order of creation."""
        return await self.look_up(lambda: [self._view(name) for name in self.state.cascades])

    def _view(self, name: str) -> m.CascadeView:
        """Return a cascade in a list, which others must not make impossible to show."""
        try:
            return self.state.cascade(name).view()
        except CascadeNotLoaded:
            raise
        except CascadeFailed:
            pass
        except Exception as error:
            LOG.error("a cascade could not be shown", extra={"cascade": name}, exc_info=error)
        cascade = self.state.cascades[name]
        return m.CascadeView(cascade.spec, "failed", cascade.created, 0, 0, 0, 0, 0, 0, [], None)

    async def cascade(self, name: str) -> m.CascadeView:
        """Return one cascade."""
        return await self.look_up(lambda: self.state.cascade(name).view())

    async def create(self, spec: m.CascadeSpec, key: str | None) -> tuple[m.CascadeView, bool]:
        """Create a cascade; also return whether it is new."""
        # As the log will have it: a cost of 0 is 0.0 there.
        spec = msgspec.convert(msgspec.to_builtins(spec), m.CascadeSpec)
        try:
            msgspec.msgpack.encode(spec)  # as the log will hold it: integers have 64 bits
        except (OverflowError, UnicodeEncodeError) as error:
            raise InvalidRequest(f"this cascade cannot be stored: {error}") from None
        limits = self.settings
        policy = await asyncio.to_thread(
            specs.build, spec, max_context=limits.max_context, max_features=limits.max_features
        )

        def create(state: State, time: float) -> CommandResult:
            return commands.create_cascade(
                state,
                time,
                spec,
                policy,
                key=key,
                digest=request_digest(spec),
                max_cascades=limits.max_cascades,
                max_tables=limits.max_tables,
            )

        return await self.load_and_retry(lambda: self.submit(create, spec.name))

    async def retire(self, name: str) -> m.CascadeView:
        """Retire a cascade: it takes no new rounds."""

        def retire(state: State, time: float) -> CommandResult:
            return commands.retire_cascade(state, time, name)

        return await self.load_and_retry(lambda: self.submit(retire, name))

    # -- rounds -------------------------------------------------------------------------------

    async def open_rounds(
        self,
        name: str,
        request: m.RoundRequest | m.BatchRequest,
        key: str | None,
        early: Early | None = None,
    ) -> tuple[list[m.RoundAnswer], bool]:
        """Open one round or a batch; also return whether they are new."""
        single = isinstance(request, m.RoundRequest)
        evidence = request.evidence
        complete = isinstance(request, m.RoundRequest) and request.complete is True
        contexts: Contexts = [request.context] if single else request.contexts
        if len(contexts) > self.settings.max_batch:
            words = f"{len(contexts):,} contexts; a batch has {self.settings.max_batch:,} at most"
            raise RequestTooLarge(words, field="contexts")
        digest = b"" if key is None else request_digest(request)

        def open_rounds(state: State, time: float) -> CommandResult:
            return commands.open_rounds(
                state,
                time,
                name,
                contexts,
                key=key,
                digest=digest,
                evidence=evidence,
                complete=complete,
            )

        work = name, len(contexts), evidence
        return await self.load_and_retry(
            lambda: self.submit(open_rounds, name, slow=self.is_slow(*work), early=early)
        )

    async def report(
        self,
        name: str,
        id_: str,
        request: m.OutputsRequest,
        early: Early | None = None,
        answers: Sequence[StoredAnswer] = (),
    ) -> m.RoundAnswer:
        """Add outputs of a round; ``answers`` are those behind them, where a label needs them."""

        def report(state: State, time: float) -> CommandResult:
            return commands.report_outputs(state, time, name, id_, request, answers)

        return await self.load_and_retry(
            lambda: self.submit(report, name, slow=self.is_slow(name), early=early)
        )

    async def round(self, name: str, id_: str) -> m.RoundView:
        """Return a round, with what the log has of it."""
        cascade, number = await self.look_up(lambda: self.find(name, id_))
        # All that may change comes first: the round may go on while its events are read.
        answer, ledger, arms = cascade.answer(number), cascade.ledger, cascade.arms.names
        labelled, wants_label = number in ledger.labels, number in ledger.label_requests
        known, context = dict(ledger.partial.get(number, {})), None
        waiting = ledger.open.get(number)
        if isinstance(waiting, RoundInProgress):
            known = dict(enumerate(cast(list[bytes], waiting.outputs)))
            context = np.array(waiting.context).tobytes()
        opened, reported = await self.round_events(cascade, number)
        if opened is not None and context is None:
            context = context_of(opened, reported, number)
        outputs = {arms[arm]: decode_output(output) for arm, output in sorted(known.items())}
        if reported is not None:
            outputs = outputs_by_arm(reported, arms)
        return m.RoundView(
            id=id_,
            **{name: getattr(answer, name) for name in ("status", "stop", "next", "arm", "cost")},
            time=None if opened is None else opened.time,
            context=None if context is None else np.frombuffer(context).tolist(),
            outputs=None if opened is None else outputs,
            labelled=labelled,
            wants_label=wants_label,
        )

    async def state_hash(self) -> m.StateAnswer:
        """Return the digests of the log and of the state."""

        def compute(state: State) -> m.StateAnswer | None:
            if state.failed:
                raise CascadeFailed(next(iter(state.failed)))
            if len(state.followed()) < len(state.order):
                return None
            return m.StateAnswer(state.position, state.log_digest.hex(), state_hash(state))

        self.check_recovered()
        while True:
            await self.cascades()  # all are followed, unless another replica created one just now
            if (answer := await self.writer.read(compute)) is not None:
                return answer

    # -- how requests are carried out ---------------------------------------------------------

    def submit(
        self,
        command: Command,
        cascade: str | None,
        *,
        slow: bool = False,
        early: Early | None = None,
    ) -> "asyncio.Future[Any]":
        """Return a future of the answer to a command (see `Writer.submit`)."""
        self.check_recovered()
        return self.writer.submit(command, cascade=cascade, slow=slow, early=early)

    def is_slow(self, name: str, rounds: int = 1, evidence: bool = False) -> bool:
        """Return whether a request for a cascade may hold up the event loop."""
        cascade = self.state.cascades.get(name)
        return cascade is not None and cascade.work(rounds, evidence=evidence) > ON_LOOP

    async def load_and_retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask; where a replica does not follow a cascade yet, load it and ask again."""
        while True:
            try:
                return await ask()
            except CascadeNotLoaded as missing:
                name = missing.name
            if name not in self._loading:
                self._loading[name] = asyncio.create_task(self._load(name))
            await asyncio.shield(self._loading[name])

    async def _load(self, name: str) -> None:
        """Load a cascade that a replica is asked about for the first time."""
        try:
            await self._read(name)
            LOG.info("follows", extra={"cascade": name, "events": self.state.position})
        except StoreError as error:
            raise unavailable(str(error)) from error
        except RequestError:
            raise
        except Exception as error:  # then it is read again as one that has failed, with pauses
            self.writer.fail(name, error)
        finally:
            del self._loading[name]

    async def _reload(self, name: str) -> None:
        """Load a cascade that has failed, unless everything was read again meanwhile."""
        if not self.recovering and name in self.state.failed:
            await self._read(name)

    async def _read(self, name: str) -> None:
        """Read a cascade from the log, and follow it from then on; others are served meanwhile."""
        store = open_store(self.settings.store)
        try:
            await store.open()
            state = await recover_state(store, follows=[name])
            await self.writer.follow(state, name)
        finally:
            await store.close()

    async def look_up(self, look: Callable[[], T]) -> T:
        """Look something up; what another replica did just now is read before it is refused."""

        async def found() -> T:
            await self.readable()
            self.check_recovered()
            return look()

        try:
            return await self.load_and_retry(found)
        except RequestError:
            if not self._store.shared:
                raise
        await self.submit(commands.no_change, None)
        return await self.load_and_retry(found)

    async def round_events(
        self, cascade: ServedCascade, number: int
    ) -> tuple[Opened | None, Reported | None]:
        """Return how a round was opened and how it ended; None: not in the log, or not yet."""
        ledger, row = cascade.ledger, cascade.ledger.row(number)
        positions = ledger.opened_at[row], ledger.ended_at[row]
        unstored = self.writer.unstored()
        if unstored is None or any(is_about(one, cascade.index, number) for one in unstored):
            # What is being written now is what is looked for.
            await self.submit(commands.no_change, None)
        found: list[Event | None] = []
        try:
            async with self._reading:
                await self._reader.open()
                for position in positions:
                    block = await self._reader.block_of(position)
                    found.append(block and decode_events(block.payload)[position - block.base])
        except StopwiseError as error:
            words = f"this round cannot be read now ({error}). Try again"
            raise Unavailable(words, retry_after=WAIT) from error
        return cast(tuple[Opened | None, Reported | None], tuple(found))

    def find(self, name: str, id_: str) -> tuple[ServedCascade, int]:
        """Return the cascade and the number of a round, or refuse: there is none."""
        cascade = self.state.cascade(name)
        return cascade, cascade.ledger.number(id_)


def outputs_by_arm(reported: Reported, arms: Sequence[str]) -> dict[str, Any]:
    """Return what the arms of a round said: their answers where the log has them."""
    kept = unpack_answers(reported.answers)
    answers = [one.text for one in kept] or map(decode_output, reported.outputs)
    return dict(zip(arms, answers, strict=False))
