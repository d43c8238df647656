"""Events of cascades, with all that is needed to apply them again.

A cascade is identified by its number in the order of creation. Contexts are float64, little-endian;
outputs are canonical JSON (`stopwise.service.domain.outputs`).
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
    """A cascade was retired: it takes no new rounds."""

    cascade: int
    time: float


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """Rounds ``first``, ``first + 1``, … were opened, one or a batch.

    Where all of the context is known, ``stops`` has the last arm of each round and ``rule_stops``
    the arm at which the rule itself stops (empty: the same). Where stages reveal the context both
    are empty: where the round stops is decided later.
    """

    cascade: int
    first: int
    count: int
    contexts: bytes  # all of the same length
    stops: bytes
    rule_stops: bytes
    time: float
    key: str | None = None
    digest: bytes = b""  # of the request that came with the key
    complete: bool = False  # every arm runs, whatever the rule says


class Reported(msgspec.Struct, frozen=True, array_like=True, tag="reported"):
    """Outputs of a round were reported.

    If ``ended``, the policy has learned from the round: then the arms are 0, 1, … and the outputs
    are all that it learned from. ``early``: it ended since no more outputs will come. Where stages
    reveal the context, ``revealed`` is what the newest arm added, and ``context`` (once ended)
    all that is known. Where a function compares answers, the outputs are classes of answers; then
    ``answers`` (once ended) has the answers themselves, packed, for a label to be compared with.
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
    """Return all that is known of a round's context from its events."""
    if reported is not None and reported.context:
        return reported.context
    k, size = number - opened.first, len(opened.contexts) // opened.count
    return opened.contexts[k * size : (k + 1) * size]


class Labelled(msgspec.Struct, frozen=True, array_like=True, tag="labelled"):
    """The label of a round was reported; the event holds the round itself.

    It is the right answer (``label``), or whether each arm that answered was right (``right``; then
    ``label`` is empty).
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
        """Whether each arm that answered was right."""
        if self.right is not None:
            return tuple(self.right)
        return tuple(output == self.label for output in self.outputs)


Event: TypeAlias = Created | Retired | Opened | Reported | Labelled


def is_about(event: Event, cascade: int, number: int) -> bool:
    """Return whether an event changes a round of a cascade."""
    match event:
        case Opened():
            within = event.first <= number < event.first + event.count
            return event.cascade == cascade and within
        case Reported() | Labelled():
            return (event.cascade, event.number) == (cascade, number)
        case _:
            return False
