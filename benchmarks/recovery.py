"""Recovery time of a service from its log, with and without a snapshot."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import table
from benchmarks.timing import progress
from stopwise.service.domain.events import Created, Event
from stopwise.service.domain.messages import Arm, CascadeSpec
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import Block, chain_digest, encode_event, join_events
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.snapshots import state_hash, take_snapshot
from stopwise.service.persistence.stores.sqlite import SqliteStore

EVENTS = 1_000_000
GROUP = 64  # events per block, as under load
N_CONTEXT = 9
NOTE = """\
K = 3, d' = 10; half of the events open a round, half report its outputs. Wall-clock seconds of one
process, from the file to the recovered state, which is compared bit for bit with the original."""


async def write_log(store: SqliteStore, events: int) -> State:
    """Write a log of this many events; return the state at its end."""
    state, pending = State(), list[Event]()

    async def write(event: Event | None) -> None:
        if event is not None:
            pending.append(event)
            state.position += 1
            state.time = event.time
        if len(pending) == GROUP or (event is None and pending):
            payload = join_events(map(encode_event, pending))
            digest = chain_digest(state.log_digest, payload)
            base = state.position - len(pending) + 1
            await store.commit(Block(base, len(pending), 0.0, digest, payload))
            state.log_digest = digest
            pending.clear()

    arms = [Arm("rule", 0.02), Arm("model", 0.1), Arm("expert", 0.25)]
    created = Created(CascadeSpec("bench", arms, context=N_CONTEXT), 0.0)
    state.apply_created(created)
    await write(created)
    cascade, random = state.order[0], np.random.default_rng(0)
    while state.position + 1 < events:
        for x in random.uniform(-1, 1, (4096, N_CONTEXT)).round(4).tolist():
            if state.position + 1 >= events:
                break
            now = 1e-3 * state.position
            opened, (answer,) = cascade.open([x], now, state.position + 1)
            await write(opened)
            outputs = [bool(x[0] + 0.2 * i * x[i + 1] > 0) for i in range((answer.stop or 0) + 1)]
            number = cascade.ledger.number(answer.id)
            position = state.position + 1
            await write(cascade.report(number, [*outputs], [], False, now, position)[0])
        progress(f"recovery: wrote {state.position:,} of {events:,} events")
    await write(None)
    return state


async def measure(path: Path, events: int) -> tuple[str, dict[str, Any]]:
    store = SqliteStore(path)
    await store.open()
    await store.begin(0)
    expected = state_hash(await write_log(store, events))
    size = path.stat().st_size

    progress("recovery: from the first event")
    began = time.perf_counter()
    state = await recover_state(store)  # without a snapshot
    total = time.perf_counter() - began
    equal = state_hash(state) == expected
    n_events = state.position

    began = time.perf_counter()
    snapshot = take_snapshot(state)
    snapshot_seconds = time.perf_counter() - began
    snapshot_bytes = sum(map(len, snapshot.parts))
    await store.save_snapshot(snapshot)
    del state

    progress("recovery: from a snapshot")
    began = time.perf_counter()
    state = await recover_state(store)
    from_snapshot = time.perf_counter() - began
    equal = equal and state_hash(state) == expected
    await store.close()
    result: dict[str, Any] = {
        "events": n_events,
        "seconds_from_the_first_event": total,
        "seconds_from_a_snapshot": from_snapshot,
        "seconds_making_a_snapshot": snapshot_seconds,
        "log_bytes_per_event": size / n_events,
        "snapshot_bytes": snapshot_bytes,
        "equal_bit_for_bit": equal,
    }
    rows = [
        ("from the first event", f"{total:.2f}", f"{n_events / total:,.0f}"),
        ("from a snapshot", f"{from_snapshot:.2f}", ""),
        ("taking a snapshot", f"{snapshot_seconds:.2f}", ""),
    ]
    verdict = "equal bit for bit" if equal else "NOT EQUAL"
    note = (
        f"The states are {verdict}. {size / n_events:.0f} bytes of log per event; the snapshot has "
        f"{snapshot_bytes / 1e6:.0f} MB.\n{NOTE}"
    )
    return table(
        f"Recovery of {n_events:,} events", ("", "seconds", "events/s"), rows, note
    ), result


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Write a log, read it back, and return the table and the result."""
    with tempfile.TemporaryDirectory(prefix="stopwise-recovery-") as folder:
        events = 50_000 if quick else EVENTS
        return asyncio.run(measure(Path(folder, "log.db"), events))
