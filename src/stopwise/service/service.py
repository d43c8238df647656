"""A running service: what its doors (HTTP, pages, metrics) ask of it."""

import asyncio
import gc
import logging
import time
from typing import Any, cast

import numpy as np

from stopwise.errors import StoreError
from stopwise.service.commands import (
    Create,
    Decide,
    EndRound,
    Label,
    Retire,
    StartRound,
    Step,
    Tell,
)
from stopwise.service.events import Decided, Ended, Event, Started, Stepped, Told
from stopwise.service.events import decode as decode_events
from stopwise.service.journal import Journal
from stopwise.service.learner import Learner
from stopwise.service.ledger import LEARNED, NAMES
from stopwise.service.messages import (
    BatchAnswer,
    BatchRequest,
    CascadeSpec,
    CascadeView,
    DecisionAnswer,
    DecisionRequest,
    DecisionView,
    LabelAnswer,
    LabelRequest,
    OutputsAnswer,
    OutputsRequest,
    RoundAnswer,
    RoundRequest,
    StateAnswer,
    StepRequest,
)
from stopwise.service.numbers import Numbers
from stopwise.service.outputs import canonical, plain
from stopwise.service.recovery import recovered
from stopwise.service.refusals import Refusal
from stopwise.service.settings import Settings
from stopwise.service.state import State
from stopwise.service.store.base import Snapshot, Store
from stopwise.service.store.opening import open_store
from stopwise.service.writer import WAIT, Command, Happening, Writer, unavailable

LOG = logging.getLogger("stopwise.service")
END = 1 << 60  # beyond any event
GROWTH = 4  # a new snapshot when the log has grown by a quarter: their cost stays in proportion


class Service:
    """One service, on one event loop.

    Parameters
    ----------
    store : Store
        Of the log; from now on the writer's alone.
    settings : Settings
        How to run.

    Attributes
    ----------
    state : State
        What the log amounts to; look, but do not touch.
    ready : bool
        Whether the log has been read and requests can happen.
    recovering : str
        How far reading the log has come, in words; "" once it is done.
    numbers : Numbers
        What this process has counted.
    journal : Journal
        Where it writes down what it does.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self.settings = settings
        self.numbers = Numbers()
        self.journal = Journal(settings)
        self.recovering = "the service has not started"
        self.started_at = time.time()
        self._store = store
        self._reader = open_store(settings.store)
        self._reading = asyncio.Lock()
        self._archive = open_store(settings.store)
        self._archiving: asyncio.Task[None] | None = None
        self._last_snapshot = 0
        self._nothing_yet = State()
        self._writer: Writer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failure = ""

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store and begin to read the log, in the background; `ready` tells when done."""
        await self._store.open()
        if not self._store.shared:
            await self._store.begin(END)  # or say that another process serves this file
        self.recovering = "reading the log"
        self._tasks = [asyncio.create_task(self._live())]

    async def _live(self) -> None:
        try:
            state = await self._first_recovery()
            self._writer = Writer(
                self._store,
                state,
                recover=self._recover,
                follow_every=self.settings.follow_every if self._store.shared else None,
                max_waiting=self.settings.max_waiting,
                report=self._report,
                between=self._perhaps_snapshot,
                committed=self.numbers.commits.add,
            )
            gc.collect()
            gc.freeze()  # what is here now stays; the collector need not look at it again
            self.recovering = ""
            LOG.info("ready", extra={"events": state.position})
            await self._writer.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failure = str(error)
            self.recovering = f"failed: {error}"
            LOG.critical("the log cannot be read: %s", error)

    async def _first_recovery(self) -> State:
        """Read the log, however long it takes until the store can be read."""
        while True:
            try:
                state = await self._recover()
                self._last_snapshot = max(await self._store.snapshots(), default=0)
                return state
            except StoreError as error:
                self.recovering = f"the log cannot be read yet: {error}"
                LOG.error("the log cannot be read yet", extra={"reason": str(error)})
                await asyncio.sleep(1)

    async def _recover(self) -> State:
        began = time.monotonic()

        def progress(done: int, of: int) -> None:
            self.recovering = f"recovering: {done:,} of {of:,} events"

        state = await recovered(self._store, progress=progress)
        seconds = round(time.monotonic() - began, 3)
        LOG.info("recovered", extra={"events": state.position, "seconds": seconds})
        if self._writer is not None:  # not the first time: the writer goes on at once
            self.recovering = ""
        return state

    async def stop(self) -> None:
        """Finish what is waiting, write a snapshot, and close."""
        if self._writer is not None:
            self._writer.stop()
            await asyncio.wait(self._tasks, timeout=self.settings.stop_timeout)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._archiving is not None:
            await self._archiving
        if self._writer is not None and self._writer.settled and not self.trouble:
            position = self.state.position
            if position > self._last_snapshot:
                await self._keep(self.state.snapshot())
        for store in (self._store, self._reader, self._archive):
            await store.close()

    def _report(self, trouble: str) -> None:
        if trouble:
            self.numbers.failed_writes += 1
            LOG.error("nothing can be written", extra={"reason": trouble})
        else:
            LOG.warning("writing works again")

    def _perhaps_snapshot(self, state: State) -> None:
        due = max(self.settings.snapshot_every, state.position // GROWTH)
        if state.position - self._last_snapshot < due:
            return
        if self._archiving is not None and not self._archiving.done():
            return
        self._last_snapshot = state.position
        self._archiving = asyncio.create_task(self._keep(state.snapshot()))

    async def _keep(self, snapshot: Snapshot) -> None:
        try:
            await self._archive.open()
            await self._archive.keep_snapshot(snapshot)
        except StoreError as error:  # the log is whole without it; the next one may succeed
            LOG.warning("no snapshot could be written", extra={"reason": str(error)})
        else:
            self._last_snapshot = max(self._last_snapshot, snapshot.position)
            self.numbers.snapshots += 1
            LOG.info("snapshot", extra={"events": snapshot.position})

    # -- looking ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """What the log amounts to."""
        return self._nothing_yet if self._writer is None else self._writer.state

    @property
    def ready(self) -> bool:
        """Whether requests can happen."""
        return self._writer is not None and not self.recovering and not self._failure

    @property
    def trouble(self) -> str:
        """Why nothing can be written now; "" if it can."""
        return self._failure or ("" if self._writer is None else self._writer.trouble)

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return 0 if self._writer is None else self._writer.waiting

    @property
    def lag(self) -> float:
        """Seconds since memory last was known to hold the whole log; 0 where nobody else writes."""
        if self._writer is None or not (self._store.shared or self._writer.trouble):
            return 0.0
        return time.monotonic() - self._writer.known_whole_at

    def cascades(self) -> list[CascadeView]:
        """Return every cascade, in the order of creation."""
        self.check_ready()
        return [learner.view() for learner in self.state.order]

    def cascade(self, name: str) -> CascadeView:
        """Return one cascade."""
        return self._learner(name).view()

    def state_hash(self) -> StateAnswer:
        """Return what the state amounts to; equal hashes, equal states."""
        self.check_ready()
        state = self.state
        return StateAnswer(state.position, state.log_digest.hex(), state.hash())

    async def settled_hash(self) -> StateAnswer:
        """Return the same of a state that is wholly in the log."""
        if self._writer is not None and not self._writer.settled:
            await self.submit(_nothing)
        return self.state_hash()

    # -- asking -------------------------------------------------------------------------------

    def submit(self, command: Command) -> "asyncio.Future[object]":
        """Ask for something to happen; the future has the answer once it is in the log."""
        writer = self._writer
        if writer is None or self._failure:
            self.check_ready()
        return cast(Writer, writer).submit(command)

    async def create(self, spec: CascadeSpec, key: str | None) -> tuple[CascadeView, bool]:
        """Make a cascade; also tell whether it is new."""
        limits = self.settings
        command = Create(
            spec,
            key,
            max_context=limits.max_context,
            max_features=limits.max_features,
            max_cascades=limits.max_cascades,
            max_tables=limits.max_tables,
        )
        return cast(tuple[CascadeView, bool], await self.submit(command))

    async def retire(self, name: str) -> CascadeView:
        """Let a cascade decide no more."""
        return cast(CascadeView, await self.submit(Retire(name)))

    async def decide(
        self, name: str, request: DecisionRequest, key: str | None
    ) -> tuple[DecisionAnswer, bool]:
        """Decide; also tell whether the decision is new."""
        command = Decide(name, [request.context], key, request.evidence)
        answers, new = cast(tuple[list[DecisionAnswer], bool], await self.submit(command))
        if new:
            self._logged(name, answers, [request.context])
        return answers[0], new

    async def decide_batch(
        self, name: str, request: BatchRequest, key: str | None
    ) -> tuple[BatchAnswer, bool]:
        """Decide for several contexts; also tell whether the decisions are new."""
        self.check_batch(len(request.contexts))
        command = Decide(name, list(request.contexts), key, request.evidence)
        answers, new = cast(tuple[list[DecisionAnswer], bool], await self.submit(command))
        if new:
            self._logged(name, answers, request.contexts)
        return BatchAnswer(answers), new

    def _logged(
        self,
        name: str,
        answers: list[DecisionAnswer],
        contexts: "list[list[float] | dict[str, float]]",
    ) -> None:
        """Write decisions into the journal, if and as the settings allow."""
        if self.journal.decisions:
            rows = self.state.learner(name).rows(contexts).tolist()  # in the order of the names
            for answer, row in zip(answers, rows, strict=True):
                self.journal.decided(name, answer.id, answer.stop, row)

    def check_batch(self, size: int) -> None:
        """Refuse a batch that is too large."""
        if size > self.settings.max_batch:
            raise Refusal(
                413,
                "too_large",
                f"{size:,} contexts; a batch has {self.settings.max_batch:,} at most",
                field="contexts",
            )

    async def outputs(self, name: str, id_: str, request: OutputsRequest) -> OutputsAnswer:
        """Take what arms said."""
        command = Tell(name, id_, request.outputs, request.final)
        return cast(OutputsAnswer, await self.submit(command))

    async def start_round(
        self, name: str, request: RoundRequest, key: str | None
    ) -> tuple[RoundAnswer, bool]:
        """Begin a round; also tell whether it is new."""
        command = StartRound(name, request.context, key)
        return cast(tuple[RoundAnswer, bool], await self.submit(command))

    async def step(self, name: str, id_: str, request: StepRequest) -> RoundAnswer:
        """Take what an arm of a round said."""
        command = Step(name, id_, request.arm, request.output, request.revealed)
        return cast(RoundAnswer, await self.submit(command))

    async def end_round(self, name: str, id_: str) -> RoundAnswer:
        """End a round early."""
        return cast(RoundAnswer, await self.submit(EndRound(name, id_)))

    def round(self, name: str, id_: str) -> RoundAnswer:
        """Say where a round stands."""
        learner = self._learner(name)
        return learner.standing(learner.ledger.number(id_, "round"))

    # -- what only the log knows --------------------------------------------------------------

    async def label(self, name: str, id_: str, request: LabelRequest) -> LabelAnswer:
        """Take the right answer of a round that has ended."""
        label = canonical(request.label, "label")
        number = await self._number(name, id_)
        ledger = self._learner(name).ledger
        if ledger.state_of(number) != LEARNED:
            raise Refusal(
                409,
                "conflict",
                "a label is for a round whose outputs are known; tell the outputs first",
            )
        decided, ended = await self._looked_up(self._learner(name), number)
        if decided is None or ended is None:
            raise Refusal(
                410, "gone", "the events of this round were compacted away: it is too late for it"
            )
        context, outputs = _whole(decided, ended, number)
        return cast(LabelAnswer, await self.submit(Label(name, number, label, context, outputs)))

    async def decision(self, name: str, id_: str) -> DecisionView:
        """Return a decision, as the log has it."""
        number = await self._number(name, id_)
        learner = self._learner(name)
        ledger, cascade = learner.ledger, learner.cascade
        decided, ended = await self._looked_up(learner, number)
        context: list[float] | None = None
        outputs: list[bytes] | dict[int, bytes] = dict(ledger.partial.get(number, {}))
        if decided is not None:
            content, known = _whole(decided, ended, number)
            context = np.frombuffer(content).tolist()
            outputs = outputs or dict(enumerate(known))
        told = {cascade.names[arm]: plain(output) for arm, output in sorted(outputs.items())}
        stop = ledger.stops[number]
        return DecisionView(
            id=id_,
            status=NAMES[ledger.state_of(number)],
            stop=stop if stop >= 0 else None,
            arm=cascade.names[stop] if stop >= 0 else None,
            cost=cascade.cost(stop) if stop >= 0 else None,
            time=None if decided is None else decided.time,
            context=context,
            outputs=told if decided is not None else None,
            audited=number in ledger.labels,
        )

    async def _number(self, name: str, id_: str) -> int:
        """Return the number of a decision, also of one that another replica took just now."""
        ledger = self._learner(name).ledger
        try:
            return ledger.number(id_)
        except Refusal:
            if not self._store.shared:
                raise
        await self.submit(_nothing)
        return self._learner(name).ledger.number(id_)

    async def _looked_up(
        self, learner: Learner, number: int
    ) -> tuple[Decided | Started | None, Told | Stepped | Ended | None]:
        begins, ends = learner.ledger.decided_at[number], learner.ledger.ended_at[number]
        if self._writer is not None and not self._writer.settled:
            await self.submit(_nothing)  # what is being written now may be what is looked for
        try:
            async with self._reading:
                await self._reader.open()
                decided = await self._event(begins)
                ended = await self._event(ends) if ends else None
        except StoreError as error:
            raise unavailable(str(error)) from error
        return (
            decided if isinstance(decided, Decided | Started) else None,
            ended if isinstance(ended, Told | Stepped | Ended) else None,
        )

    async def _event(self, position: int) -> Event | None:
        block = await self._reader.block_of(position)
        return None if block is None else decode_events(block.payload)[position - block.base]

    # -- checks -------------------------------------------------------------------------------

    def _learner(self, name: str) -> Learner:
        self.check_ready()
        return self.state.learner(name)

    def check_ready(self) -> None:
        """Refuse if requests cannot happen yet."""
        if not self.ready:
            raise Refusal(
                503,
                "unavailable",
                f"the service is not ready: {self.recovering or self.trouble}. Try again a little "
                "later",
                retry_after=WAIT,
            )


def _nothing(state: State, time: float, /) -> Happening:
    """Ask for nothing: once it is answered, all before it is in the log, and the log is read."""
    del state, time
    return None, None


def _whole(decided: Decided | Started, ended: Any, number: int) -> tuple[bytes, list[bytes]]:
    """Return the context and the outputs of a round from the events at its ends."""
    if isinstance(decided, Started):
        return (decided.context, []) if ended is None else (ended.context, ended.outputs)
    k, n = number - decided.first, len(decided.stops)
    size = len(decided.contexts) // n
    context = decided.contexts[k * size : (k + 1) * size]
    return context, [] if ended is None else ended.outputs
