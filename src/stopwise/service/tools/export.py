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
Ended: TypeAlias = tuple[Reported, Floats | None, float]
FORMULA = re.compile("'*[=+@\t\r-]")  # a spreadsheet may run a cell that begins like this


async def _events(store: EventStore, start: Start, progress: Progress, stage: str) -> Events:
    async for block in log_reader.checked_blocks(store, start):
        for event in events_of(block):
            yield event
        progress(stage, block.end, start.end)


class Exported(msgspec.Struct, frozen=True):
    """What was exported."""

    counts: Counter[str]  # of rounds: written, labelled, failed, complete; open, expired, lost
    as_json: bool  # outputs are not all text or all numbers, and written as JSON
    costs: list[float]  # of the arms, in units of a wrong answer
    bare: bool  # no number is known before the first arm


async def export_rounds(
    store: EventStore,
    out: Path,
    name: str | None,
    contexts: Contexts,
    progress: Progress,
    *,
    complete_only: bool = False,
) -> Exported:
    """Write the rounds of a cascade, in the order of learning; of a damaged log write nothing.

    ``complete_only`` leaves out all but those that ran every arm because they were asked to.
    """
    format_suffix(out)
    await log_reader.check_end(store)
    state = await recover_state(store, progress=progress)
    # The log may have grown since: what is exported ends where the state does.
    start = msgspec.structs.replace(
        await log_reader.start_of(store), end=state.position, digest=state.log_digest
    )
    cascade = log_reader.chosen(state, name)
    ledger, arms, policy = cascade.ledger, cascade.arms.names, cascade.policy
    events = _events(store, start, progress, "reading outputs")
    labels, as_json = await _survey(events, cascade)
    # A log has one kind of labels: which arms were right can be said of right answers as well.
    by_arm = any(label.right is not None for label in labels.values())
    # How many numbers are known before the first arm, and after each but the last.
    begin_with = specs.context_size(cascade.spec)
    sees = [begin_with] * len(arms)
    if policy.reveals is not None:
        sees[1:] = [begin_with + n for n in accumulate(policy.reveals)]
    given = specs.context_names(cascade.spec) or tuple(f"x{k}" for k in range(begin_with))
    given += tuple(f"x{k}" for k in range(begin_with, sees[-1]))
    names = given if contexts == "plain" else ()

    def escaped(value: Any) -> Any:  # different texts stay different
        formula = out.suffix.lower() == ".csv" and isinstance(value, str) and FORMULA.match(value)
        return f"'{value}" if formula else value

    def shown(form: bytes) -> Any:
        return escaped(form.decode() if as_json else decode_output(form))

    columns = [escaped(arm) for arm in arms]
    revealed = {arm: names[a:b] for arm, a, b in zip(columns, sees, sees[1:], strict=False)}
    counts = Counter(open=len(ledger.open), expired=len(ledger) - ledger.learned - len(ledger.open))
    with (
        private_file(out) as path,
        LogWriter(
            path,
            columns,
            names[: sees[0]],
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
            n, k, early = len(event.outputs), event.number, event.early
            known = sees[min(n, len(sees) - 1)] if names else 0
            numbers, outputs = tuple(context[:known].tolist()), tuple(map(shown, event.outputs))
            failure = Failure(n, "error", "no output was reported") if early else None
            stop, rule_stop = n - 1 if n else None, ledger.rule_stops[ledger.row(k)]
            row = (ledger.id(k), time, numbers, outputs, outputs, stop, rule_stop)
            done, label = Round(*row, failure=failure), labels.get(k)
            if label is None:
                writer.write(done)
            elif by_arm:
                writer.write(done, right=label.right_arms)
            else:
                writer.write(done, shown(label.label))
            counts.update(written=1, labelled=k in labels, failed=early, complete=n == len(arms))
    costs = (cascade.arms.costs * cascade.arms.tradeoff).tolist()
    return Exported(counts, as_json, costs, not names[: sees[0]])


async def _survey(events: Events, cascade: ServedCascade) -> tuple[dict[int, Labelled], bool]:
    """Return labels, and whether outputs must be JSON."""
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
def _kind(form: bytes) -> str:
    value = decode_output(form)
    if isinstance(value, str | bool):
        return type(value).__name__
    exact = isinstance(value, float) or (isinstance(value, int) and abs(value) <= 1 << 53)
    return "number" if exact else "other"  # of all whole numbers, these are exact as floats


async def _ended(
    events: Events, before: State, cascade: ServedCascade, complete_only: bool
) -> AsyncIterator[Ended]:
    """Yield the events that ended rounds, with context (None: compacted away) and time."""
    index = cascade.index
    begun: dict[int, tuple[Floats | None, float]] = {}
    for one in before.order[index : index + 1]:  # rounds open where a compacted log begins
        waiting = one.ledger.open.items()
        begun = {k: (np.frombuffer(x), 0.0) for k, x in waiting if isinstance(x, bytes)}
    async for event in events:
        if isinstance(event, Opened) and event.cascade == index:
            if complete_only and not event.complete:
                continue
            contexts = np.frombuffer(event.contexts).reshape(event.count, -1)
            for k, context in enumerate(contexts, event.first):
                if cascade.ledger.status[cascade.ledger.row(k)] == LEARNED:
                    begun[k] = context, event.time
        elif isinstance(event, Reported) and event.cascade == index and event.ended:
            if complete_only and event.number not in begun:
                continue
            context, time = begun.pop(event.number, (None, 0.0))
            context = np.frombuffer(event.context) if cascade.staged else context
            yield event, context, time or event.time
