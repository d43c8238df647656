"""The events of the log; replaying them rebuilds the state.

Cascades are numbered in the order of creation. Contexts are float64, little-endian; outputs are
canonical JSON (`stopwise.service.domain.outputs`).
"""

from typing import TypeAlias

import msgspec

from stopwise.service.domain.messages import CascadeSpec


class Created(msgspec.Struct, frozen=True, array_like=True, tag="created"):
    """A cascade was created."""

    spec: CascadeSpec
    time: float
    key: str | None = None  # the Idempotency-Key of the request


class Retired(msgspec.Struct, frozen=True, array_like=True, tag="retired"):
    """A cascade was retired and accepts no new rounds."""

    cascade: int
    time: float


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """``count`` rounds were opened, numbered from ``first``.

    ``stops`` has the last arm of each round, and ``rule_stops`` the arm at which the rule would
    stop without exploration (empty if the two are equal). Both are empty if stages reveal the
    context, because the stop is then decided later.
    """

    cascade: int
    first: int
    count: int
    contexts: bytes  # all of the same length
    stops: bytes
    rule_stops: bytes
    time: float
    key: str | None = None
    digest: bytes = b""  # of the request, if it has a key
    complete: bool = False  # every arm runs, wherever the rule would stop


class Reported(msgspec.Struct, frozen=True, array_like=True, tag="reported"):
    """Outputs of a round were reported.

    If ``ended``, the policy learned from the round, and the event has the outputs of all arms that
    ran. If ``early``, the round ended because no more outputs will arrive. If stages reveal the
    context, ``revealed`` holds the numbers that the newest arm added; once the round has ended,
    ``context`` holds the complete context. If a function compares answers, the outputs are
    equivalence classes; once the round has ended, ``answers`` holds the compressed answers, so that
    a label can be compared with them.
    """

    cascade: int
    number: int
    arms: list[int]
    outputs: list[bytes]
    ended: bool
    time: float
    early: bool = False
    revealed: bytes = b""
    context: bytes = b""
    answers: bytes = b""


def context_of(opened: Opened, reported: Reported | None, number: int) -> bytes:
    """Return the context of a round from its events."""
    if reported is not None and reported.context:
        return reported.context
    k, size = number - opened.first, len(opened.contexts) // opened.count
    return opened.contexts[k * size : (k + 1) * size]


class Labelled(msgspec.Struct, frozen=True, array_like=True, tag="labelled"):
    """The label of a round was reported; the event repeats the round's context and outputs.

    The label is the right answer (``label``), or whether each arm that answered was right
    (``right``, with an empty ``label``).
    """

    cascade: int
    number: int
    label: bytes
    context: bytes
    outputs: list[bytes]
    rule_stop: int
    time: float
    right: list[bool] | None = None

    @property
    def right_arms(self) -> tuple[bool, ...]:
        """For each arm that answered, whether it was right."""
        if self.right is not None:
            return tuple(self.right)
        return tuple(output == self.label for output in self.outputs)


Event: TypeAlias = Created | Retired | Opened | Reported | Labelled


def is_about(event: Event, cascade: int, number: int) -> bool:
    """Return whether an event changes a given round of a cascade."""
    match event:
        case Opened():
            within = event.first <= number < event.first + event.count
            return event.cascade == cascade and within
        case Reported() | Labelled():
            return (event.cascade, event.number) == (cascade, number)
        case _:
            return False
