"""Events as lines of JSON that people can read."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stopwise.service import spec as specs
from stopwise.service.events import (
    Created,
    Decided,
    Ended,
    Event,
    Labelled,
    Retired,
    Started,
    Stepped,
    Told,
)
from stopwise.service.journal import Journal
from stopwise.service.learner import Learner
from stopwise.service.outputs import plain
from stopwise.service.settings import Settings
from stopwise.service.state import State
from stopwise.service.store.base import Store
from stopwise.service.tools.exporting import Contexts, chosen
from stopwise.service.tools.files import beside
from stopwise.service.tools.folding import (
    Progress,
    beginning,
    no_progress,
    read_events,
    state_of,
    whole,
)


async def export_events(
    store: Store,
    out: Path,
    cascade: str | None = None,
    *,
    contexts: Contexts = "plain",
    salt: str | None = None,
    progress: Progress = no_progress,
) -> int:
    """Write every event as a line of JSON; return how many.

    Parameters
    ----------
    store : Store
        Of the event log.
    out : Path
        The file; there whole, or not at all.
    cascade : str, optional
        Only events of this one.
    contexts : {"plain", "hashed", "none"}
        How contexts, and what stages revealed, are written.
    salt : str, optional
        Secret for hashed ones, so that they equal those that a service with the same secret logs.
    progress : callable
        Called as ``progress("exporting", event, of)``.

    Raises
    ------
    CorruptLogError
        If the log is damaged; then there is no file.
    """
    state = await state_of(store, progress)
    start = await beginning(store)
    only = None if cascade is None else chosen(state, cascade).spec.name
    told = Teller(state, contexts, salt)
    written = 0
    encode = msgspec.json.Encoder().encode
    with beside(out) as path, path.open("wb") as file:
        async for block in whole(store, start, state.position, state.log_digest):
            for position, event in enumerate(read_events(block), start=block.base):
                line = told(position, event)
                if only is None or line["cascade"] == only:
                    file.write(encode(line) + b"\n")
                    written += 1
            progress("exporting", block.end, state.position)
    return written


class Teller:
    """Turns events into what people can read.

    Parameters
    ----------
    state : State
        Which knows the cascades.
    contexts : {"plain", "hashed", "none"}
        How contexts are shown.
    salt : str, optional
        Secret for hashed ones.
    """

    def __init__(self, state: State, contexts: Contexts, salt: str | None = None) -> None:
        self._state = state
        self._shown = Journal(Settings(log_contexts=contexts, log_salt=salt)).shown

    def __call__(self, position: int, event: Event) -> dict[str, Any]:
        """Return an event as a JSON object."""
        line: dict[str, Any] = {
            "event": position,
            "time": _time(event.time),
            "kind": type(event).__name__.lower(),
        }
        if isinstance(event, Created):
            line |= {"cascade": event.spec.name, "spec": event.spec}
        else:
            learner = self._state.order[event.cascade]
            line |= {"cascade": learner.spec.name, **self._details(learner, event)}
        if isinstance(event, Created | Decided | Started) and event.key is not None:
            line["key"] = event.key
        return line

    def _details(self, learner: Learner, event: Event) -> dict[str, Any]:
        arms, name = learner.cascade.names, learner.ledger.id
        match event:
            case Decided():
                return {"decisions": self._decisions(learner, event)}
            case Told():
                pairs = zip(event.arms, event.outputs, strict=True)
                said = {arms[arm]: plain(output) for arm, output in pairs}
                return {"id": name(event.number), "outputs": said, "ended": event.ended}
            case Started():
                return {"id": name(event.number), **self._numbers("context", event.context)}
            case Stepped():
                return {
                    "id": name(event.number),
                    "arm": arms[event.arm],
                    "output": plain(event.output),
                    **self._numbers("revealed", event.revealed),
                    "ended": event.ended,
                }
            case Ended():
                said = dict(zip(arms, map(plain, event.outputs), strict=False))
                return {"id": name(event.number), "outputs": said}
            case Labelled():
                return {"id": name(event.number), "label": plain(event.label)}
            case Retired() | Created():
                return {}

    def _decisions(self, learner: Learner, event: Decided) -> list[dict[str, Any]]:
        arms, name = learner.cascade.names, learner.ledger.id
        size = 8 * specs.context_size(learner.spec)
        wanted = event.wanted or event.stops
        return [
            {
                "id": name(event.first + k),
                **self._numbers("context", event.contexts[k * size : (k + 1) * size]),
                "stop": arms[stop],
                "wanted": arms[want],
            }
            for k, (stop, want) in enumerate(zip(event.stops, wanted, strict=True))
        ]

    def _numbers(self, name: str, content: bytes) -> dict[str, Any]:
        numbers: list[float] = np.frombuffer(content).tolist()
        shown = self._shown(numbers) if numbers else None
        return {} if shown is None else {name: shown}


def _time(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")
