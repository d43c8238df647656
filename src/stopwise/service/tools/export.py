"""Export the rounds of a cascade as a table."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Floats
from stopwise.files import private_file
from stopwise.logs.log import format_suffix
from stopwise.logs.writer import LogWriter
from stopwise.progress import Progress
from stopwise.records import Failure, Round
from stopwise.service.domain import spec as specs
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.events import Created, Event, Labelled, Opened, Reported
from stopwise.service.domain.ledger import LEARNED
from stopwise.service.domain.outputs import decode_output
from stopwise.service.domain.state import State
from stopwise.service.persistence.blocks import events_of
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.tools import log_reader
from stopwise.service.tools.log_reader import Start

Contexts: TypeAlias = Literal["plain", "none"]
Events: TypeAlias = AsyncIterator[Event]
Ended: TypeAlias = tuple[Reported, Floats | None, float]  # event, context, time
FORMULA = re.compile("'*[=+@\t\r-]")  # spreadsheets execute cells that begin like this


async def _events(store: EventStore, start: Start, progress: Progress, stage: str) -> Events:
    async for block in log_reader.checked_blocks(store, start):
        for event in events_of(block):
            yield event
        progress(stage, block.end, start.end)


class Export(msgspec.Struct, frozen=True):
    """Summary of an export."""

    counts: Counter[str]  # of rounds: written, labelled, failed, complete; open, expired, lost
    as_json: bool  # whether outputs are written as JSON because their types differ
    costs: list[float]  # of the arms, in units of a wrong answer
    without_context: bool  # whether the context before the first arm has no columns


async def export_rounds(
    store: EventStore,
    out: Path,
    name: str | None,
    contexts: Contexts,
    progress: Progress,
    *,
    complete_only: bool = False,
) -> Export:
    """Write the rounds of a cascade in the order in which the policy learned from them.

    A damaged log is rejected. ``complete_only`` exports only rounds opened with ``complete``.
    """
    format_suffix(out)
    await log_reader.check_end(store)
    state = await recover_state(store, progress=progress)
    # The log may have grown since; export only events that the state includes.
    start = msgspec.structs.replace(
        await log_reader.start_of(store), end=state.position, digest=state.log_digest
    )
    cascade = log_reader.select_cascade(state, name)
    ledger, arms, policy = cascade.ledger, cascade.arms.names, cascade.policy
    events = _events(store, start, progress, "reading outputs")
    labels, as_json = await _survey(events, cascade)
    # A log has one kind of label. Right answers can be converted to labels by arm, not vice versa.
    by_arm = any(label.right is not None for label in labels.values())
    initial_size = specs.context_size(cascade.spec)
    context_sizes = [initial_size] * len(arms)  # available before each arm
    if policy.reveals is not None:
        context_sizes[1:] = [initial_size + n for n in accumulate(policy.reveals)]
    names: tuple[str, ...] = ()
    if contexts == "plain":
        names = specs.context_names(cascade.spec) or tuple(f"x{k}" for k in range(initial_size))
        names += tuple(f"x{k}" for k in range(initial_size, context_sizes[-1]))

    def escaped(value: Any) -> Any:  # injective: different texts stay different
        formula = out.suffix.lower() == ".csv" and isinstance(value, str) and FORMULA.match(value)
        return f"'{value}" if formula else value

    def cell(encoded: bytes) -> Any:
        return escaped(encoded.decode() if as_json else decode_output(encoded))

    columns = [escaped(arm) for arm in arms]
    revealed = {
        arm: names[before:after]
        for arm, before, after in zip(columns, context_sizes, context_sizes[1:], strict=False)
    }
    counts = Counter(open=len(ledger.open), expired=len(ledger) - ledger.learned - len(ledger.open))
    with (
        private_file(out) as path,
        LogWriter(
            path,
            columns,
            names[:initial_size],
            revealed,
            labels=bool(labels) and not by_arm,
            right=by_arm,
        ) as writer,
    ):
        events = _events(store, start, progress, "exporting")
        async for event, context, time in _ended(events, start.state, cascade, complete_only):
            if context is None:
                counts["lost"] += 1
                continue
            n, number, early = len(event.outputs), event.number, event.early
            size = context_sizes[min(n, len(arms) - 1)] if names else 0
            outputs = tuple(map(cell, event.outputs))
            round_ = Round(
                ledger.id(number),
                time,
                tuple(context[:size].tolist()),
                outputs,
                outputs,
                n - 1 if n else None,
                ledger.rule_stops[ledger.row(number)],
                failure=Failure(n, "error", "no output was reported") if early else None,
            )
            label = labels.get(number)
            if label is None:
                writer.write(round_)
            elif by_arm:
                writer.write(round_, right=label.right_arms)
            else:
                writer.write(round_, cell(label.label))
            counts.update(
                written=1, labelled=label is not None, failed=early, complete=n == len(arms)
            )
    costs = (cascade.arms.costs * cascade.arms.tradeoff).tolist()
    return Export(counts, as_json, costs, not names[:initial_size])


async def _survey(events: Events, cascade: ServedCascade) -> tuple[dict[int, Labelled], bool]:
    """Return the labels by round, and whether outputs must be written as JSON."""
    labels, kinds = dict[int, Labelled](), set[str]()
    async for event in events:
        if isinstance(event, Created) or event.cascade != cascade.index:
            continue
        if isinstance(event, Reported):
            kinds.update(map(_kind, event.outputs))
        elif isinstance(event, Labelled):
            labels[event.number] = event
            if event.right is None:
                kinds.add(_kind(event.label))
    return labels, "other" in kinds or len(kinds) > 1


@lru_cache(100_000)
def _kind(encoded: bytes) -> str:
    value = decode_output(encoded)
    if isinstance(value, str | bool):
        return type(value).__name__
    exact = isinstance(value, float) or (isinstance(value, int) and abs(value) <= 1 << 53)
    return "number" if exact else "other"  # larger integers are not exact as floats


async def _ended(
    events: Events, before: State, cascade: ServedCascade, complete_only: bool
) -> AsyncIterator[Ended]:
    """Yield events that ended rounds, with the round's context (None: deleted) and start time."""
    index = cascade.index
    opened: dict[int, tuple[Floats | None, float]] = {}
    if index < len(before.order):  # rounds that are open where a compacted log begins
        for number, context in before.order[index].ledger.open.items():
            if isinstance(context, bytes):
                opened[number] = np.frombuffer(context), 0.0
    async for event in events:
        if isinstance(event, Opened) and event.cascade == index:
            if complete_only and not event.complete:
                continue
            contexts = np.frombuffer(event.contexts).reshape(event.count, -1)
            for number, context in enumerate(contexts, event.first):
                if cascade.ledger.status[cascade.ledger.row(number)] == LEARNED:
                    opened[number] = context, event.time
        elif isinstance(event, Reported) and event.cascade == index and event.ended:
            if complete_only and event.number not in opened:
                continue
            context, time = opened.pop(event.number, (None, 0.0))
            context = np.frombuffer(event.context) if cascade.staged else context
            yield event, context, time or event.time
