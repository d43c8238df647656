"""Export a log: the rounds of a cascade as a table, or every event as a line of JSON."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidParameterError
from stopwise.logs.formats.registry import SUFFIXES
from stopwise.logs.writer import LogWriter
from stopwise.records import Failure, Round
from stopwise.service import spec as specs
from stopwise.service.events import Created, Event, Labelled, Opened, Reported
from stopwise.service.learner import Learner
from stopwise.service.ledger import EXPIRED, LEARNED, OPEN
from stopwise.service.outputs import decode_output
from stopwise.service.recovery import recover_state
from stopwise.service.state import State
from stopwise.service.store.base import EventStore
from stopwise.service.tools import reading
from stopwise.service.tools.reading import Progress, Start, no_progress

Contexts: TypeAlias = Literal["plain", "none"]
Events: TypeAlias = AsyncIterator[tuple[int, Event]]  # with their positions
Numbers: TypeAlias = NDArray[np.float64]
Ended: TypeAlias = tuple[Reported, Numbers | None, float]
FORMULA = re.compile("'*[=+@\t\r-]")  # a spreadsheet may run a cell that begins like this


async def _opened(store: EventStore, progress: Progress) -> tuple[State, Start]:
    await reading.check_end(store)
    state = await recover_state(store, progress=partial(progress, "reading"))
    start = await reading.start_of(store)
    # The log may have grown since: what is exported ends where the state does.
    return state, msgspec.structs.replace(start, end=state.position, digest=state.log_digest)


async def _events(store: EventStore, start: Start, progress: Progress, stage: str) -> Events:
    async for block in reading.checked_blocks(store, start):
        for position, event in enumerate(reading.read_events(block), start=block.base):
            yield position, event
        progress(stage, block.end, start.end)


class Exported(msgspec.Struct, frozen=True):
    """What was exported."""

    counts: Counter[str]  # of rounds: written, labelled, failed, complete; open, expired, lost
    as_json: bool  # outputs are not all text or all numbers, and written as JSON
    costs: list[float]  # of the arms, in units of a wrong answer
    bare: bool  # no number is known before the first arm


async def export_rounds(
    store: EventStore, out: Path, cascade: str | None, contexts: Contexts, progress: Progress
) -> Exported:
    """Write the rounds of a cascade, in the order of learning; of a damaged log write nothing."""
    if out.suffix.lower() not in SUFFIXES:
        raise InvalidParameterError(f"the name {out.name} must end in {', '.join(SUFFIXES)}")
    state, start = await _opened(store, progress)
    learner = reading.chosen(state, cascade)
    ledger, arms, policy = learner.ledger, learner.cascade.names, learner.policy
    events = _events(store, start, progress, "reading outputs")
    labels, begin_with, as_json = await _survey(events, learner)
    # How many numbers are known before the first arm, and after each but the last.
    sees = [specs.context_size(learner.spec)] * len(arms)
    if policy.features is not None and policy.features.sees is not None:
        sees[1:] = policy.features.sees[: len(arms) - 1]
        sees[0] = min(begin_with, sees[1])
    given = specs.context_names(learner.spec) or tuple(f"x{k}" for k in range(sees[-1]))
    names = given if contexts == "plain" else ()

    def escaped(value: Any) -> Any:  # different texts stay different
        formula = out.suffix.lower() == ".csv" and isinstance(value, str) and FORMULA.match(value)
        return f"'{value}" if formula else value

    def shown(form: bytes) -> Any:
        return escaped(form.decode() if as_json else decode_output(form))

    columns = [escaped(arm) for arm in arms]
    revealed = {arm: names[a:b] for arm, a, b in zip(columns, sees, sees[1:], strict=False)}
    counts = Counter(open=ledger.status.count(OPEN), expired=ledger.status.count(EXPIRED))
    with (
        reading.private_file(out) as path,
        LogWriter(path, columns, names[: sees[0]], revealed, labels=bool(labels)) as writer,
    ):
        events = _events(store, start, progress, "exporting")
        async for event, context, time in _ended(events, start.state, learner):
            if context is None:
                counts["lost"] += 1
                continue
            n, k, early = len(event.outputs), event.number, event.early
            known = sees[min(n, len(sees) - 1)] if names else 0
            numbers, outputs = tuple(context[:known].tolist()), tuple(map(shown, event.outputs))
            failure = Failure(n, "error", "no output was reported") if early else None
            row = (
                ledger.id(k),
                time,
                numbers,
                outputs,
                outputs,
                n - 1 if n else None,
                ledger.rule_stops[k],
            )
            writer.write(Round(*row, failure=failure), shown(labels[k]) if k in labels else None)
            counts.update(written=1, labelled=k in labels, failed=early, complete=n == len(arms))
    costs = (learner.cascade.costs * learner.cascade.tradeoff).tolist()
    return Exported(counts, as_json, costs, not names[: sees[0]])


async def _survey(events: Events, learner: Learner) -> tuple[dict[int, bytes], int, bool]:
    """Return labels, the fewest numbers a round began with, and whether outputs must be JSON."""
    labels, kinds, begin_with = dict[int, bytes](), set[str](), specs.context_size(learner.spec)
    async for _, event in events:
        if isinstance(event, Created) or event.cascade != learner.index:
            continue
        if isinstance(event, Opened):
            begin_with = min(begin_with, _contexts(event).shape[1])
        elif isinstance(event, Reported):
            kinds.update(map(_kind, event.outputs))
        elif isinstance(event, Labelled):
            labels[event.number] = event.label
            kinds.add(_kind(event.label))
    return labels, begin_with, "other" in kinds or len(kinds) > 1


@lru_cache(100_000)
def _kind(form: bytes) -> str:
    value = decode_output(form)
    if isinstance(value, str | bool):
        return type(value).__name__
    exact = isinstance(value, float) or (isinstance(value, int) and abs(value) <= 1 << 53)
    return "number" if exact else "other"  # of all whole numbers, these are exact as floats


async def _ended(events: Events, before: State, learner: Learner) -> AsyncIterator[Ended]:
    """Yield the events that ended rounds, with context (None: compacted away) and time."""
    index = learner.index
    begun: dict[int, tuple[Numbers | None, float]] = {}
    for one in before.order[index : index + 1]:  # rounds open where a compacted log begins
        waiting = one.ledger.open.items()
        begun = {k: (np.frombuffer(x), 0.0) for k, x in waiting if isinstance(x, bytes)}
    async for _, event in events:
        if isinstance(event, Opened) and event.cascade == index:
            for k, context in enumerate(_contexts(event), event.first):
                if learner.ledger.status[k] == LEARNED:
                    begun[k] = context, event.time
        elif isinstance(event, Reported) and event.cascade == index and event.ended:
            context, time = begun.pop(event.number, (None, 0.0))
            context = np.frombuffer(event.context) if learner.staged else context
            yield event, context, time or event.time


def _contexts(event: Opened) -> Numbers:
    return np.frombuffer(event.contexts).reshape(event.count, -1)


async def export_events(
    store: EventStore,
    out: Path,
    cascade: str | None = None,
    contexts: Contexts = "plain",
    progress: Progress = no_progress,
) -> int:
    """Write every event, or those of one cascade, as a line of JSON; return how many."""
    state, start = await _opened(store, progress)
    only = None if cascade is None else reading.chosen(state, cascade).spec.name
    written = 0
    with reading.private_file(out) as path, path.open("wb") as file:
        async for position, event in _events(store, start, progress, "exporting"):
            line = _line(position, event, state, contexts)
            if only in (None, line["cascade"]):
                file.write(msgspec.json.encode(line) + b"\n")
                written += 1
    return written


def _line(position: int, event: Event, state: State, contexts: Contexts) -> dict[str, Any]:
    time, kind = datetime.fromtimestamp(event.time, UTC), type(event).__name__.lower()
    line: dict[str, Any] = {"event": position, "time": time, "kind": kind}
    if isinstance(event, Created | Opened) and event.key is not None:
        line["key"] = event.key
    if isinstance(event, Created):
        return {**line, "cascade": event.spec.name, "spec": event.spec}
    learner = state.order[event.cascade]
    arms, id_ = learner.cascade.names, learner.ledger.id

    def numbers(name: str, row: Numbers) -> dict[str, Any]:
        return {name: row.tolist()} if len(row) and contexts == "plain" else {}

    line["cascade"] = learner.spec.name
    if isinstance(event, Opened):
        rounds = enumerate(_contexts(event), event.first)
        line["rounds"] = [{"id": id_(k), **numbers("context", x)} for k, x in rounds]
        rule_stops = event.rule_stops or event.stops  # empty where stages reveal the context
        for one, stop, rule_stop in zip(line["rounds"], event.stops, rule_stops, strict=False):
            one |= {"stop": arms[stop], "rule_stop": arms[rule_stop]}
    elif isinstance(event, Reported):
        pairs = zip(event.arms, event.outputs, strict=True)
        line |= {"id": id_(event.number), "outputs": {arms[k]: decode_output(y) for k, y in pairs}}
        line |= numbers("revealed", np.frombuffer(event.revealed))
        line |= {"ended": event.ended, "early": event.early}
    elif isinstance(event, Labelled):
        line |= {"id": id_(event.number), "label": decode_output(event.label)}
    return line
