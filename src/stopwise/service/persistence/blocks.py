"""Blocks, the units in which events are logged, and the chain of their digests."""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from stopwise.errors import CorruptLogError
from stopwise.service.domain.events import Event
from stopwise.service.domain.state import State

START = bytes(16)  # the digest of an empty log

_encode = msgspec.msgpack.Encoder().encode
_decode_one = msgspec.msgpack.Decoder(Event).decode
decode_events = msgspec.msgpack.Decoder(list[Event]).decode  # the events of a payload


def encode_event(event: Event) -> bytes:
    """Encode an event."""
    return _encode(event)


def decode_event(encoded: bytes) -> Event:
    """Decode an event."""
    return _decode_one(encoded)


def join_events(encoded: Iterable[bytes]) -> bytes:
    """Return the payload of a block of encoded events.

    Examples
    --------
    >>> from stopwise.service.domain.events import Retired
    >>> retired = Retired(0, 1.0)
    >>> decode_events(join_events([encode_event(retired)])) == [retired]
    True
    """
    return _encode([msgspec.Raw(event) for event in encoded])


class Block(msgspec.Struct, frozen=True):
    """Events that were committed together; the first event of a log has position 1."""

    base: int  # position of the first event
    count: int
    time: float  # of the commit, in seconds since 1970
    digest: bytes  # of the log up to and including this block
    payload: bytes  # the encoded events

    @property
    def end(self) -> int:
        """The position of the last event."""
        return self.base + self.count - 1


def events_of(block: Block) -> list[Event]:
    """Return the events of a block; raise `CorruptLogError` if it is damaged."""
    try:
        events = decode_events(block.payload)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(
            f"cannot decode events {block.base} to {block.end}: {error}"
        ) from error
    if len(events) != block.count:
        raise CorruptLogError(
            f"the block of events {block.base} to {block.end} contains {len(events)} events"
        )
    return events


def chain_digest(before: bytes, payload: bytes) -> bytes:
    """Return the digest of a log once ``payload`` is appended; ``before`` is the current digest.

    Examples
    --------
    >>> chain_digest(START, b"one").hex()
    '428bea961709c1b41606d8c5622fd530'
    """
    return blake2b(before + payload, digest_size=16).digest()


def apply_block(state: State, block: Block) -> None:
    """Apply the events of the next stored block."""
    if block.base != state.position + 1:
        raise CorruptLogError(
            f"the next event in the log must be {state.position + 1}, got {block.base}"
        )
    if chain_digest(state.log_digest, block.payload) != block.digest:
        events = f"events {block.base} to {block.end}"
        raise CorruptLogError(f"{events} were modified after they were written: digests differ")
    for event in events_of(block):
        state.apply(event)
    state.log_digest = block.digest


def apply_blocks(state: State, blocks: Iterable[Block]) -> None:
    """Apply the events of several blocks."""
    for block in blocks:
        apply_block(state, block)
