"""Recovery: how long a service takes to read its log back, with and without a snapshot."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.timing import progress
from stopwise.service import events as codec
from stopwise.service.commands import Decide, Tell
from stopwise.service.events import Created, Event
from stopwise.service.messages import Arm, CascadeSpec
from stopwise.service.recovery import recovered
from stopwise.service.state import State
from stopwise.service.store.base import Block, chained
from stopwise.service.store.sqlite import SqliteStore

EVENTS = 1_000_000
GROUP = 64  # events of a block: a service under load
N_CONTEXT = 9
NOTE = """\
K = 3, d' = 10; half of the events are decisions, half are outputs. Wall-clock seconds of one
process, from the file to a state that is equal to the one that wrote it, bit for bit."""


class Scribe:
    """Lets requests happen and writes them down, a block at a time."""

    def __init__(self, store: SqliteStore) -> None:
        self.state = State()
        self._store = store
        self._events: list[Event] = []

    async def ask(self, command: Any, time: float) -> Any:
        event, answer = command(self.state, time)
        await self.wrote(event)
        return answer

    async def wrote(self, event: Event) -> None:
        self._events.append(event)
        self.state.position += 1
        self.state.time = event.time
        if len(self._events) == GROUP:
            await self.flush()

    async def flush(self) -> None:
        if not self._events:
            return
        state, payload = self.state, codec.encode(self._events)
        digest = chained(state.log_digest, payload)
        base = state.position - len(self._events) + 1
        await self._store.commit(Block(base, len(self._events), 0.0, digest, payload))
        state.log_digest = digest
        self._events = []


async def written(store: SqliteStore, events: int) -> State:
    """Write a log of so many events."""
    scribe = Scribe(store)
    arms = [Arm("rule", 0.02), Arm("model", 0.1), Arm("expert", 0.25)]
    created = Created(CascadeSpec("bench", arms, context=N_CONTEXT), 0.0)
    scribe.state.happen(created, 1)
    await scribe.wrote(created)
    random = np.random.default_rng(0)
    while scribe.state.position + 1 < events:
        for x in random.uniform(-1, 1, (4096, N_CONTEXT)).round(4).tolist():
            if scribe.state.position + 1 >= events:
                break
            now = 1e-3 * scribe.state.position
            answers, _ = await scribe.ask(Decide("bench", [x], None, False), now)
            said: list[object] = [
                bool(x[0] + 0.2 * i * x[i + 1] > 0) for i in range(answers[0].stop + 1)
            ]
            await scribe.ask(Tell("bench", answers[0].id, said, False), now)
        progress(f"recovery: wrote {scribe.state.position:,} of {events:,} events")
    await scribe.flush()
    return scribe.state


async def measured(path: Path, events: int) -> tuple[str, dict[str, Any]]:
    store = SqliteStore(path)
    await store.open()
    await store.begin(0)
    expected = (await written(store, events)).hash()
    size = path.stat().st_size

    progress("recovery: from the first event")
    began = time.perf_counter()
    state = await recovered(store, snapshots=False)
    whole = time.perf_counter() - began
    equal = state.hash() == expected
    n_events = state.position

    began = time.perf_counter()
    snapshot = state.snapshot()
    making = time.perf_counter() - began
    await store.keep_snapshot(snapshot)
    del state

    progress("recovery: from a snapshot")
    began = time.perf_counter()
    state = await recovered(store)
    short = time.perf_counter() - began
    equal = equal and state.hash() == expected
    await store.close()
    result: dict[str, Any] = {
        "events": n_events,
        "seconds_from_the_first_event": whole,
        "seconds_from_a_snapshot": short,
        "seconds_the_service_pauses_for_a_snapshot": making,
        "log_bytes_per_event": size / n_events,
        "snapshot_bytes": len(snapshot.payload),
        "equal_bit_for_bit": equal,
    }
    rows = [
        ("from the first event", f"{whole:.2f}", f"{n_events / whole:,.0f}"),
        ("from a snapshot", f"{short:.2f}", ""),
        ("making a snapshot", f"{making:.2f}", ""),
    ]
    verdict = "equal bit for bit" if equal else "NOT EQUAL"
    note = (
        f"The states are {verdict}. {size / n_events:.0f} bytes of log an event; the snapshot has "
        f"{len(snapshot.payload) / 1e6:.0f} MB.\n{NOTE}"
    )
    return table(
        f"Recovery of {n_events:,} events", ("", "seconds", "events/s"), rows, note
    ), result


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Write a log, read it back, and return the table and the result."""
    with tempfile.TemporaryDirectory(prefix="stopwise-recovery-") as folder:
        events = 50_000 if quick else EVENTS
        return asyncio.run(measured(Path(folder, "log.db"), events))
