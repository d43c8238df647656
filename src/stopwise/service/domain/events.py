"""Events, in blocks: what the log holds, with all that is needed to replay it.

A cascade is identified by its number in the order of creation. Contexts are float64, little-endian;
outputs are canonical JSON (`stopwise.service.domain.outputs`).
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from stopwise.errors import CorruptLogError
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
    """The right answer of a round was reported; the event holds the round itself."""

    cascade: int
    number: int
    label: bytes
    context: bytes
    outputs: list[bytes]
    rule_stop: int
    time: float


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


_encode = msgspec.msgpack.Encoder().encode
_decode_one = msgspec.msgpack.Decoder(Event).decode
decode = msgspec.msgpack.Decoder(list[Event]).decode  # the events of a payload


def encode_one(event: Event) -> bytes:
    """Return an event as bytes."""
    return _encode(event)


def decode_one(encoded: bytes) -> Event:
    """Return the event of such bytes."""
    return _decode_one(encoded)


def joined(encoded: Iterable[bytes]) -> bytes:
    """Return the payload of a block of encoded events.

    Examples
    --------
    >>> retired = Retired(0, 1.0)
    >>> decode(joined([encode_one(retired)])) == [retired]
    True
    """
    return _encode([msgspec.Raw(one) for one in encoded])


START = bytes(16)  # the digest before the first block


class Block(msgspec.Struct, frozen=True):
    """Events that were committed together; the first event of a log has position 1."""

    base: int  # position of the first event in it
    count: int
    time: float  # when it was written, in seconds since 1970
    digest: bytes  # of the log up to and including this block
    payload: bytes  # the encoded events

    @property
    def end(self) -> int:
        """Position of its last event."""
        return self.base + self.count - 1


def events_of(block: Block) -> list[Event]:
    """Return the events of a block, or raise `CorruptLogError`: it is damaged."""
    try:
        found = decode(block.payload)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(f"events {block.base} to {block.end}: {error}") from error
    if len(found) != block.count:
        raise CorruptLogError(f"the block at event {block.base} does not hold {block.count} events")
    return found


def chain_digest(before: bytes, payload: bytes) -> bytes:
    """Return the digest of a log with digest ``before`` after ``payload`` was appended.

    Examples
    --------
    >>> chain_digest(START, b"one").hex()
    '428bea961709c1b41606d8c5622fd530'
    """
    return blake2b(before + payload, digest_size=16).digest()
