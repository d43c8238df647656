"""What happens, as it is written into the log: small facts, in the order in which they happened.

An event holds all that is needed to repeat its effect, and what was answered. A cascade is named
by its number in the order of creation. Contexts are float64, little-endian; outputs are canonical
JSON (`stopwise.service.outputs`).
"""

from typing import TypeAlias

import msgspec

from stopwise.service.messages import CascadeSpec


class Created(msgspec.Struct, frozen=True, array_like=True, tag="created"):
    """A cascade was made."""

    spec: CascadeSpec
    time: float
    key: str | None = None  # the Idempotency-Key of the request


class Retired(msgspec.Struct, frozen=True, array_like=True, tag="retired"):
    """A cascade decides no more."""

    cascade: int
    time: float


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """Decisions were taken, one or a batch: numbers ``first``, ``first + 1``, …."""

    cascade: int
    first: int
    contexts: bytes
    stops: bytes  # an arm each
    wanted: bytes  # where the rule itself stops; empty: the same
    time: float
    key: str | None = None


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """Outputs of a decision became known.

    If ``ended``, the policy has learned from the round: then the arms are 0, 1, … and the outputs
    all that it learned from.
    """

    cascade: int
    number: int
    arms: list[int]
    outputs: list[bytes]
    ended: bool
    time: float


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """A round began that is decided step by step."""

    cascade: int
    number: int
    context: bytes
    time: float
    key: str | None = None


class Stepped(msgspec.Struct, frozen=True, array_like=True, tag="stepped"):
    """An arm of such a round answered.

    If ``ended``, the policy has learned from the round, which is then told whole: all that was
    known at the end, and what all arms said.
    """

    cascade: int
    number: int
    arm: int
    output: bytes
    revealed: bytes
    ended: bool
    time: float
    context: bytes = b""
    outputs: list[bytes] = []


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """A round ended early, because a stage failed; the policy has learned from what it had."""

    cascade: int
    number: int
    time: float
    context: bytes = b""
    outputs: list[bytes] = []


class Labelled(msgspec.Struct, frozen=True, array_like=True, tag="labelled"):
    """The right answer of a round was told, here with the round itself."""

    cascade: int
    number: int
    label: bytes
    context: bytes
    outputs: list[bytes]
    wanted: int
    time: float


Event: TypeAlias = Created | Retired | Decided | Told | Started | Stepped | Ended | Labelled

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Event]).decode


def encode(events: list[Event]) -> bytes:
    """Return events as the payload of a block.

    Examples
    --------
    >>> decode(encode([Retired(0, 1.5)]))
    [Retired(cascade=0, time=1.5)]
    """
    return _encode(events)


def decode(payload: bytes) -> list[Event]:
    """Return the events of a block's payload."""
    return _decode(payload)
