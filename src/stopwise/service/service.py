"""A running service, used by its entry points: HTTP, dashboard, metrics and proxy."""

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
from stopwise.service.writer import RETRY_AFTER, EarlyCheck, Writer, unavailable

T = TypeVar("T")
# Takes a label and the event that ended its round; returns the output that matches the label, or a
# value that differs from every output.
LabelReader: TypeAlias = Callable[[object, Reported], bytes]
BEYOND_END = 1 << 60  # a position after any event
# A snapshot is due when the log has grown by 1/4, so that their total cost is linear in the log.
SNAPSHOT_GROWTH = 4
CHECK_INTERVAL = 1.0  # seconds between checks whether a snapshot is due
UNUSED_SECONDS = 600.0  # seconds without a request after which a replica unloads a cascade
MAX_WORK_ON_LOOP = 2e7  # multiplications, about 5 ms; longer requests run in a thread


class Service:
    """A service that runs on one event loop and owns its store."""

    def __init__(self, store: EventStore, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        # By cascade, where labels cannot be compared with the outputs themselves.
        self.label_readers: dict[str, LabelReader] = {}
        self.recovering = "the service has not started"  # the progress of recovery; "" once done
        self.draining = False  # before stopping: requests are served, but `ready` is False
        self.preparing = ""  # what an application on top of the service is still loading
        # The fatal error, once there is one.
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._store = store
        self._reader = open_store(settings.store)  # a second connection, to look up events
        self._reading = asyncio.Lock()
        self._last_snapshot = 0
        self._reloader = Reloader(lambda: self.state.failed, self._reload)
        self.writer = Writer(
            store, settings, self.counters, self._recover, on_failure=self._reloader.wake
        )
        self._loading: dict[str, asyncio.Task[None]] = {}  # by the name of the cascade
        self._tasks: list[asyncio.Task[None]] = []

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, and read the log in the background; `ready` is True once it is read."""
        await self._store.open()
        if not self._store.shared:
            await self._store.begin(BEYOND_END)  # fails if another process serves this file
        self.recovering = "reading the log"
        self._tasks = [
            asyncio.create_task(self._run_writer()),
            asyncio.create_task(self._write_snapshots()),
            asyncio.create_task(self._reloader.run()),
        ]

    async def _run_writer(self) -> None:
        try:
            await self.writer.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.recovering = f"failed: {error}"
            LOG.critical("fatal error, shutting down", extra={"reason": str(error)}, exc_info=error)
            self.failed.set_result(error)

    async def _recover(self) -> State:
        def progress(_stage: str, done: int, total: int) -> None:
            self.recovering = f"recovering: {done:,} of {total:,} events"

        follows = (self.state.follows or ()) if self._store.shared else None
        state = await recover_state(self._store, follows, progress, isolate_failures=True)
        self._last_snapshot = max(await self._store.snapshots(), default=0)
        if not self.state.position:  # the first recovery
            gc.collect()
            gc.freeze()  # these objects live as long as the process: the collector can skip them
        self.recovering = ""
        LOG.info("ready", extra={"events": state.position})
        return state

    async def stop(self) -> None:
        """Finish waiting requests, write a snapshot, and close the store."""
        writer_task, writer = self._tasks[:1], self.writer
        if not self.recovering:
            writer.stop()
            await asyncio.wait(writer_task, timeout=self.settings.stop_timeout)
        finished = all(task.done() for task in writer_task) and not self.failed.done()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        complete = finished and writer.settled and not self.writer.write_error
        if complete and self.state.position > self._last_snapshot:
            state = None if self._store.shared or self.state.failed else self.state
            await self._save_snapshot(write_snapshot(self.settings.store, state))
        for store in (self._store, self._reader):
            await store.close()

    async def _write_snapshots(self) -> None:
        """Write a snapshot whenever the log has grown enough since the last one."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if self.recovering:
                continue
            try:
                await self._free_memory()
            except (RequestError, StopwiseError):  # the store is unavailable: try later
                pass
            except Exception as error:
                LOG.error("cannot free memory", exc_info=error)
            position = self.state.position
            due = max(self.settings.snapshot_every, position // SNAPSHOT_GROWTH)
            if position - self._last_snapshot >= due:
                await self._save_snapshot(snapshot_process(self.settings.store))

    async def _free_memory(self) -> None:
        """Unload unused cascades, and forget rounds that were compacted away."""
        async with self._reading:
            await self._reader.open()
            log_start = await self._reader.first() or 0

        def free(state: State) -> None:
            state.unload_unused(UNUSED_SECONDS)
            state.forget(log_start)

        if self.state.follows or log_start > self.state.log_start:
            await self.writer.read(free)

    async def _save_snapshot(self, writing: Awaitable[int]) -> None:
        """Write a snapshot; errors are logged, because the log is complete without it."""
        position = self.state.position
        try:
            written = await writing
        except Exception as error:
            LOG.warning("cannot write a snapshot", extra={"reason": str(error)})
        else:
            if written:  # 0 if another replica is writing one
                position = written
                self.counters.snapshots += 1
                LOG.info("snapshot written", extra={"events": position})
        self._last_snapshot = max(self._last_snapshot, position)

    # -- state and health ---------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state at the end of the log; read it only after `readable`, and do not change it."""
        return self.writer.state

    @property
    def ready(self) -> bool:
        """Whether the service accepts requests."""
        return not self.not_ready

    @property
    def not_ready(self) -> str:
        """The reason why the service does not accept requests; "" if it does."""
        return (
            (self.draining and "the service is about to stop")
            or self.writer.write_error
            or self.recovering
            or self.preparing
        )

    @property
    def lag(self) -> float:
        """Seconds since the state was up to date; 0 for the only writer unless writing fails."""
        only_writer = not self._store.shared and not self.writer.write_error
        return 0.0 if only_writer else time.monotonic() - self.writer.up_to_date_at

    async def readable(self) -> None:
        """Wait until no thread is changing the state."""
        while not self.writer.idle.is_set():
            await self.writer.idle.wait()

    def check_recovered(self) -> None:
        """Raise `Unavailable` while the log is being read."""
        if self.recovering:
            message = f"the service is not ready ({self.not_ready}); try again later"
            raise Unavailable(message, retry_after=RETRY_AFTER)

    # -- cascades -----------------------------------------------------------------------------

    async def cascades(self) -> list[m.CascadeView]:
        """Return all cascades in the order of creation."""
        return await self.look_up(lambda: [self._view(name) for name in self.state.cascades])

    def _view(self, name: str) -> m.CascadeView:
        """Return the list entry of a cascade, even if the cascade has failed."""
        try:
            return self.state.cascade(name).view()
        except CascadeNotLoaded:
            raise
        except CascadeFailed:
            pass
        except Exception as error:
            LOG.error("cannot show a cascade", extra={"cascade": name}, exc_info=error)
        cascade = self.state.cascades[name]
        return m.CascadeView(cascade.spec, "failed", cascade.created, 0, 0, 0, 0, 0, 0, [], None)

    async def cascade(self, name: str) -> m.CascadeView:
        """Return one cascade."""
        return await self.look_up(lambda: self.state.cascade(name).view())

    async def create(self, spec: m.CascadeSpec, key: str | None) -> tuple[m.CascadeView, bool]:
        """Create a cascade; return its view and whether it is new."""
        # Normalise the spec as the log does, where a cost of 0 is 0.0.
        spec = msgspec.convert(msgspec.to_builtins(spec), m.CascadeSpec)
        try:
            msgspec.msgpack.encode(spec)  # fails for integers of more than 64 bits
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
        """Retire a cascade, so that it accepts no new rounds."""

        def retire(state: State, time: float) -> CommandResult:
            return commands.retire_cascade(state, time, name)

        return await self.load_and_retry(lambda: self.submit(retire, name))

    # -- rounds -------------------------------------------------------------------------------

    async def open_rounds(
        self,
        name: str,
        request: m.RoundRequest | m.BatchRequest,
        key: str | None,
        early: EarlyCheck | None = None,
    ) -> tuple[list[m.RoundAnswer], bool]:
        """Open one round or a batch; return the answers and whether the rounds are new."""
        single = isinstance(request, m.RoundRequest)
        evidence = request.evidence
        complete = isinstance(request, m.RoundRequest) and request.complete is True
        contexts: Contexts = [request.context] if single else request.contexts
        if len(contexts) > self.settings.max_batch:
            message = (
                f"a batch may contain at most {self.settings.max_batch:,} contexts (max_batch), "
                f"got {len(contexts):,}"
            )
            raise RequestTooLarge(message, field="contexts")
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

        def submit() -> Awaitable[Any]:
            slow = self.is_slow(name, len(contexts), evidence)
            return self.submit(open_rounds, name, slow=slow, early=early)

        return await self.load_and_retry(submit)

    async def report(
        self,
        name: str,
        id_: str,
        request: m.OutputsRequest,
        early: EarlyCheck | None = None,
        answers: Sequence[StoredAnswer] = (),
    ) -> m.RoundAnswer:
        """Add outputs to a round; for ``answers``, see `ServedCascade.report`."""

        def report(state: State, time: float) -> CommandResult:
            return commands.report_outputs(state, time, name, id_, request, answers)

        return await self.load_and_retry(
            lambda: self.submit(report, name, slow=self.is_slow(name), early=early)
        )

    async def round(self, name: str, id_: str) -> m.RoundView:
        """Return a round with its context and outputs, which are read from the log."""
        cascade, number = await self.look_up(lambda: self.find(name, id_))
        # Read all that may change before the first await: the round may continue meanwhile.
        answer, ledger, arms = cascade.answer(number), cascade.ledger, cascade.arms.names
        labelled, wants_label = number in ledger.labels, number in ledger.label_requests
        partial, context = dict(ledger.partial.get(number, {})), None
        waiting = ledger.open.get(number)
        if isinstance(waiting, RoundInProgress):
            partial = dict(enumerate(cast(list[bytes], waiting.outputs)))
            context = np.array(waiting.context).tobytes()
        opened, reported = await self.round_events(cascade, number)
        if opened is not None and context is None:
            context = context_of(opened, reported, number)
        outputs = {arms[arm]: decode_output(output) for arm, output in sorted(partial.items())}
        if reported is not None:
            outputs = outputs_by_arm(reported, arms)
        return m.RoundView(
            id=id_,
            status=answer.status,
            stop=answer.stop,
            next=answer.next,
            arm=answer.arm,
            cost=answer.cost,
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
            # Follow all cascades; another replica may create one in the meantime.
            await self.cascades()
            if (answer := await self.writer.read(compute)) is not None:
                return answer

    # -- execution of requests ----------------------------------------------------------------

    def submit(
        self,
        command: Command,
        cascade: str | None,
        *,
        slow: bool = False,
        early: EarlyCheck | None = None,
    ) -> "asyncio.Future[Any]":
        """Submit a command; return the future of its answer (see `Writer.submit`)."""
        self.check_recovered()
        return self.writer.submit(command, cascade=cascade, slow=slow, early=early)

    def is_slow(self, name: str, rounds: int = 1, evidence: bool = False) -> bool:
        """Return whether a request for a cascade may block the event loop for too long."""
        cascade = self.state.cascades.get(name)
        return cascade is not None and cascade.work(rounds, evidence=evidence) > MAX_WORK_ON_LOOP

    async def load_and_retry(self, request: Callable[[], Awaitable[T]]) -> T:
        """Execute a request; if this replica does not follow the cascade, load it and try again."""
        while True:
            try:
                return await request()
            except CascadeNotLoaded as not_loaded:
                name = not_loaded.name
            if name not in self._loading:
                self._loading[name] = asyncio.create_task(self._load(name))
            await asyncio.shield(self._loading[name])

    async def _load(self, name: str) -> None:
        """Load a cascade on the first request for it."""
        try:
            await self._read(name)
            LOG.info("cascade loaded", extra={"cascade": name, "events": self.state.position})
        except StoreError as error:
            raise unavailable(str(error)) from error
        except RequestError:
            raise
        except Exception as error:  # from then on the reloader retries, with pauses
            self.writer.fail(name, error)
        finally:
            del self._loading[name]

    async def _reload(self, name: str) -> None:
        """Reload a failed cascade, unless the entire log has been read again in the meantime."""
        if not self.recovering and name in self.state.failed:
            await self._read(name)

    async def _read(self, name: str) -> None:
        """Read a cascade from the log and follow it; other cascades are served meanwhile."""
        store = open_store(self.settings.store)
        try:
            await store.open()
            state = await recover_state(store, follows=[name])
            await self.writer.follow(state, name)
        finally:
            await store.close()

    async def look_up(self, query: Callable[[], T]) -> T:
        """Query the state; if that fails and there are replicas, catch up and try once more."""

        async def read() -> T:
            await self.readable()
            self.check_recovered()
            return query()

        try:
            return await self.load_and_retry(read)
        except RequestError:
            if not self._store.shared:
                raise
        await self.submit(commands.no_change, None)
        return await self.load_and_retry(read)

    async def round_events(
        self, cascade: ServedCascade, number: int
    ) -> tuple[Opened | None, Reported | None]:
        """Return the events that opened and ended a round; None for an event not in the log."""
        ledger, row = cascade.ledger, cascade.ledger.row(number)
        positions = ledger.opened_at[row], ledger.ended_at[row]
        unstored = self.writer.unstored()
        if unstored is None or any(is_about(event, cascade.index, number) for event in unstored):
            # The events may be in the block that is being written; wait until it is stored.
            await self.submit(commands.no_change, None)
        events: list[Event | None] = []
        try:
            async with self._reading:
                await self._reader.open()
                for position in positions:
                    block = await self._reader.block_of(position)
                    events.append(block and decode_events(block.payload)[position - block.base])
        except StopwiseError as error:
            message = f"cannot read this round ({error}); try again"
            raise Unavailable(message, retry_after=RETRY_AFTER) from error
        return cast(tuple[Opened | None, Reported | None], tuple(events))

    def find(self, name: str, id_: str) -> tuple[ServedCascade, int]:
        """Return a cascade and the number of a round; raise if ``name`` or ``id_`` is unknown."""
        cascade = self.state.cascade(name)
        return cascade, cascade.ledger.number(id_)


def outputs_by_arm(reported: Reported, arms: Sequence[str]) -> dict[str, Any]:
    """Return the stored answers of a round by arm, or its outputs if no answers are stored."""
    answers = [answer.text for answer in unpack_answers(reported.answers)]
    outputs = answers or map(decode_output, reported.outputs)
    return dict(zip(arms, outputs, strict=False))
