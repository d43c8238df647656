"""The rounds of a cascade as a table: the log that ``stopwise replay`` and ``diagnose`` read."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from stopwise.errors import InvalidParameterError
from stopwise.logs.diagnosis.sampling import SMALL_GROUP
from stopwise.logs.log import SUFFIXES, format_of
from stopwise.logs.writer import LogWriter
from stopwise.policies.contextual import Contextual
from stopwise.records import Failure, Round
from stopwise.service import spec as specs
from stopwise.service.events import (
    Created,
    Decided,
    Ended,
    Event,
    Labelled,
    Started,
    Stepped,
    Told,
)
from stopwise.service.learner import Learner
from stopwise.service.ledger import EXPIRED, OPEN
from stopwise.service.outputs import plain
from stopwise.service.state import State
from stopwise.service.store.base import Store
from stopwise.service.tools.files import beside
from stopwise.service.tools.folding import (
    Beginning,
    Progress,
    beginning,
    no_progress,
    read_events,
    state_of,
    whole,
)

Contexts: TypeAlias = Literal["plain", "hashed", "none"]
LARGEST = 1 << 53  # whole numbers up to here are exact as floats too


class Exported(msgspec.Struct, frozen=True):
    """What was exported.

    Attributes
    ----------
    rounds : int
        Written, in the order in which the policy learned them.
    labelled : int
        Of these, with a label.
    failed : int
        Of these, ended early.
    complete : int
        Of these, with an output of every arm.
    balanced : int
        As many of the complete as a diagnosis can use: every place where the rule wanted to stop
        has the share that it has among all.
    open, expired : int
        Decisions without outputs, which are left out.
    lost : int
        Rounds whose beginning was compacted away, which are left out.
    as_json : str
        Why outputs are written as JSON in text; "" if they are written as they are.
    costs : list of float
        Of the arms, in units of what one wrong answer costs.
    bare : bool
        Whether nothing that was known before the first arm is in it.
    """

    rounds: int
    labelled: int
    failed: int
    complete: int
    balanced: int
    open: int
    expired: int
    lost: int
    as_json: str
    costs: list[float]
    bare: bool


class _Begun(msgspec.Struct, frozen=True):
    context: bytes
    time: float


async def export_rounds(
    store: Store,
    out: Path,
    cascade: str | None = None,
    *,
    contexts: Contexts = "plain",
    progress: Progress = no_progress,
) -> Exported:
    """Write the rounds of a cascade as a log that `stopwise.Log` reads.

    Parameters
    ----------
    store : Store
        Of the event log.
    out : Path
        The file; its suffix says in which format. There whole, or not at all.
    cascade : str, optional
        Its name; may be left out where there is only one.
    contexts : {"plain", "none"}
        Whether contexts are written.
    progress : callable
        Called as ``progress(stage, event, of)``.

    Raises
    ------
    InvalidParameterError
        If there is no such cascade, or no such format.
    CorruptLogError
        If the log is damaged; then there is no file.
    """
    if contexts == "hashed":
        raise InvalidParameterError(
            "hashes are no contexts that a policy could decide by: export rounds with their "
            "contexts plain, or none; hashed ones go with --events"
        )
    if out.suffix.lower() not in SUFFIXES:
        raise InvalidParameterError(
            f"{out.name} does not tell its format; it should end in {', '.join(SUFFIXES)}"
        )
    kind = format_of(out)
    log = _Log(store, await state_of(store, progress), await beginning(store), progress)
    learner = chosen(log.state, cascade)
    survey = await _survey(log, learner)
    names = list(specs.context_names(learner.spec) or _numbered(specs.context_size(learner.spec)))
    sees = _sees(learner, survey.first_numbers)
    revealed = {
        arm: names[a:b]
        for arm, a, b in zip(learner.cascade.names[:-1], sees, sees[1:], strict=False)
        if b > a
    }
    shown = contexts == "plain"
    rounds = labelled = failed = lost = 0
    wanted, complete = Counter[int](), Counter[int]()
    with ExitStack() as stack:
        writer = stack.enter_context(
            LogWriter(
                stack.enter_context(beside(out)),
                learner.cascade.names,
                names[: sees[0]] if shown else (),
                revealed if shown else None,
                labels=bool(survey.labels),
                format=kind,
            )
        )
        async for number, done in _ended(log, learner, sees, survey.written):
            if done is None:
                lost += 1
                continue
            label = survey.labels.get(number)
            rounds += 1
            labelled += label is not None
            failed += done.failure is not None
            wanted[done.wanted] += 1
            complete[done.wanted] += len(done.outputs) == learner.cascade.n_arms
            writer.write(
                done if shown else msgspec.structs.replace(done, context=()),
                None if label is None else survey.written(label),
            )
    ledger = learner.ledger
    states = [ledger.state_of(n) for n in range(len(ledger))]
    return Exported(
        rounds,
        labelled,
        failed,
        complete.total(),
        _balanced(wanted, complete),
        states.count(OPEN),
        states.count(EXPIRED),
        lost,
        survey.as_json,
        (learner.cascade.costs * learner.cascade.tradeoff).tolist(),
        bare=not shown or sees[0] == 0,
    )


def chosen(state: State, name: str | None) -> Learner:
    """Return a cascade by name, or the only one."""
    if name is not None and name in state.cascades:
        return state.cascades[name]
    there = ", ".join(state.cascades) or "none"
    if name is not None:
        raise InvalidParameterError(f"no cascade is called {name!r}; there are: {there}")
    if len(state.order) != 1:
        raise InvalidParameterError(f"say which cascade, with --cascade; there are: {there}")
    return state.order[0]


def _balanced(wanted: Counter[int], complete: Counter[int]) -> int:
    """Return how many rows a diagnosis would keep, as `survey` balances them."""
    deep = +complete  # where the rule wanted to stop, and some rounds went on to the last arm
    covered = sum(wanted[arm] for arm in deep)
    most = [
        deep[arm] * covered / wanted[arm] for arm in deep if wanted[arm] >= SMALL_GROUP * covered
    ]
    return sum(round(min(most) * wanted[arm] / covered) for arm in deep) if deep else 0


# -- rounds as rows -------------------------------------------------------------------------------


class _Survey(msgspec.Struct, frozen=True):
    """What must be known of a log before its first row is written."""

    labels: dict[int, bytes]
    first_numbers: int  # the least that a round began with
    as_json: str
    written: Callable[[bytes], Any]  # an output as it is written


class _Log(msgspec.Struct, frozen=True):
    """A log that is read more than once, and checked each time."""

    store: Store
    state: State  # at the last event that is exported
    start: Beginning
    progress: Progress

    async def events(self, stage: str, index: int) -> AsyncIterator[Event]:
        """Yield the events of one cascade."""
        end = self.state.position
        async for block in whole(self.store, self.start, end, self.state.log_digest):
            for event in read_events(block):
                if _index(event) == index:
                    yield event
            self.progress(stage, block.end, end)


async def _survey(log: _Log, learner: Learner) -> _Survey:
    labels: dict[int, bytes] = {}
    first_numbers = specs.context_size(learner.spec)
    forms: set[bytes] = set()
    families = _Families()
    async for event in log.events("looking", learner.index):
        if isinstance(event, Started):
            first_numbers = min(first_numbers, len(event.context) // 8)
        elif isinstance(event, Labelled):
            labels[event.number] = event.label
        for form in _outputs(event):
            if form not in forms:
                families.add(plain(form))
                if len(forms) < 100_000:  # a bound on memory; the rest is looked at each time
                    forms.add(form)
    reason = families.reason
    return _Survey(labels, first_numbers, reason, bytes.decode if reason else plain)


class _Families:
    """Finds out whether outputs can be written as they are: a log holds text, or numbers."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def add(self, value: Any) -> None:
        if isinstance(value, str):
            self._found.add("text")
        elif isinstance(value, bool):
            self._found.add("true or false")
        elif isinstance(value, float):
            self._found.add("fractions")
        elif isinstance(value, int):
            self._found.add("numbers" if abs(value) <= LARGEST else "large numbers")
        else:
            self._found.add("lists or objects")

    @property
    def reason(self) -> str:
        found = self._found
        if len(found) > 1 and found != {"fractions", "numbers"}:
            return f"they are of several kinds ({', '.join(sorted(found))})"
        alone = found & {"lists or objects", "large numbers"}
        return f"they are {alone.pop()}" if alone else ""


async def _ended(
    log: _Log, learner: Learner, sees: list[int], written: Callable[[bytes], Any]
) -> AsyncIterator[tuple[int, Round | None]]:
    """Yield the rounds of a cascade as they end; None for one whose beginning is not known."""
    begun = _open_before(log.start, learner.index)
    most = learner.spec.keep_open + len(begun)
    async for event in log.events("exporting", learner.index):
        _note_beginning(event, begun)
        while len(begun) > most:  # given up, as the service did
            del begun[next(iter(begun))]
        number = _ended_number(event)
        if number is not None:
            known = begun.pop(number, None)
            yield number, _round(learner, event, number, known, sees, written)


def _outputs(event: Event) -> Iterator[bytes]:
    if isinstance(event, Told):
        yield from event.outputs
    elif isinstance(event, Stepped):
        yield event.output
    elif isinstance(event, Labelled):
        yield event.label


def _index(event: Event) -> int:
    return -1 if isinstance(event, Created) else event.cascade


def _ended_number(event: Event) -> int | None:
    """Return the round that ends with an event, if one does."""
    if isinstance(event, Told | Stepped):
        return event.number if event.ended else None
    return event.number if isinstance(event, Ended) else None


def _note_beginning(event: Event, begun: dict[int, _Begun]) -> None:
    if isinstance(event, Decided):
        size = len(event.contexts) // len(event.stops)
        for k in range(len(event.stops)):
            context = event.contexts[k * size : (k + 1) * size]
            begun[event.first + k] = _Begun(context, event.time)
    elif isinstance(event, Started):
        begun[event.number] = _Begun(event.context, event.time)


def _open_before(start: Beginning, index: int) -> dict[int, _Begun]:
    """Return, from the snapshot a compacted log begins with, what was open there."""
    if not start.compacted or index >= len(start.state.order):
        return {}
    waiting = start.state.order[index].ledger.open.items()
    return {
        number: _Begun(context, 0.0) for number, context in waiting if isinstance(context, bytes)
    }


def _sees(learner: Learner, first: int) -> list[int]:
    """Return how many numbers are known before arm 0, and once each arm but the last has run."""
    size = specs.context_size(learner.spec)
    policy = learner.policy
    if not isinstance(policy, Contextual) or policy.features.sees is None:
        return [size] * len(learner.cascade.names)
    sees = list(policy.features.sees)[: len(learner.cascade.names) - 1]
    return [min(first, sees[0]), *sees]


def _round(
    learner: Learner,
    event: Event,
    number: int,
    begun: _Begun | None,
    sees: list[int],
    written: Callable[[bytes], Any],
) -> Round | None:
    """Return the round that ended with an event; None if its beginning is not known."""
    if isinstance(event, Told):
        if begun is None:
            return None
        context, told = begun.context, event.outputs
        failure = "no output was told" if len(told) <= learner.ledger.stops[number] else ""
    elif isinstance(event, Stepped | Ended):
        context, told = event.context, event.outputs
        failure = "the round was ended here" if isinstance(event, Ended) else ""
    else:
        return None
    outputs = tuple(written(form) for form in told)
    known = np.frombuffer(context)[: sees[min(len(outputs), len(sees) - 1)]]
    return Round(
        learner.ledger.id(number),
        begun.time if begun is not None and begun.time else event.time,
        tuple(known.tolist()),
        outputs,
        outputs,
        len(outputs) - 1,
        learner.ledger.wanted[number],
        failure=Failure(len(outputs), "error", failure) if failure else None,
    )


def _numbered(size: int) -> list[str]:
    return [f"x{k}" for k in range(size)]
