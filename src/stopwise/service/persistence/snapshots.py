"""Encode the complete state after an event as a snapshot, and restore it."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stopwise.errors import CorruptLogError, StopwiseError, UnsupportedVersionError
from stopwise.policies.persistence import decode as decode_policy
from stopwise.policies.persistence import encode as encode_policy
from stopwise.service.domain.cascade import RecentDecision, ServedCascade
from stopwise.service.domain.counts import Counts
from stopwise.service.domain.ledger import IdempotencyKeys, KeyedRequest, LedgerSnapshot
from stopwise.service.domain.messages import CascadeSpec
from stopwise.service.domain.state import State
from stopwise.service.persistence.stores.base import Snapshot

# A snapshot: magic, format (4 bytes), SHA-256 of all that follows; then the data of the dashboard
# and the state, each preceded by its length (8 bytes); then policies and columns, raw.
MAGIC = b"STOPSNAP"
# Snapshots of other formats are ignored, and the log is read from an earlier event. The counts of
# format 8 may be wrong: rounds opened after a pause were not counted in their bucket.
FORMAT = 14
PART = 256 << 10  # bytes that are copied and written at once
_HEAD = len(MAGIC) + 4 + 32


def state_hash(state: State) -> str:
    """Return a digest of the part of a state that the log determines."""
    return _sha256(_encoded_state(state, hashed=True)).hex()


def take_snapshot(state: State) -> Snapshot:
    """Encode a state; all of its events must be in the log."""
    recent = [
        [(r.number, r.time, r.stop, r.cost, r.explanation()) for r in cascade.recent]
        for cascade in state.order
    ]
    dashboard = _encode((recent, [cascade.divergences for cascade in state.order]))
    parts = [_with_length(dashboard), *_encoded_state(state)]
    head = MAGIC + FORMAT.to_bytes(4, "little") + _sha256(parts)
    return Snapshot(state.position, state.log_digest, (head, *parts))


def restore_snapshot(
    snapshot: Snapshot,
    follows: Iterable[str] | None = None,
    *,
    isolate_failures: bool = False,
) -> State | None:
    """Return the state of a snapshot, or None if an incompatible version wrote the snapshot.

    Raises `CorruptLogError` if the snapshot is damaged.
    """
    data = memoryview(b"".join(snapshot.parts))
    damaged = CorruptLogError(f"the snapshot at event {snapshot.position} is damaged")
    magic, checksum = bytes(data[: len(MAGIC)]), bytes(data[_HEAD - 32 : _HEAD])
    if magic != MAGIC or checksum != _sha256([data[_HEAD:]]):
        raise damaged
    if int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "little") != FORMAT:
        return None
    read = _Reader(data, _HEAD)
    try:
        recent, divergences = msgspec.msgpack.decode(
            read.with_length(),
            type=tuple[list[list[tuple[int, float, int, float, str]]], list[int]],
        )
        saved = msgspec.msgpack.decode(read.with_length(), type=_StateSnapshot)
    except msgspec.MsgspecError:
        return None
    if saved.position != snapshot.position:
        raise damaged
    state = State(follows, isolate_failures=isolate_failures)
    state.position, state.log_digest = snapshot.position, snapshot.digest
    state.time, state.idempotency_keys = saved.time, IdempotencyKeys(saved.repeats)
    for entry, decisions, diverged in zip(saved.cascades, recent, divergences, strict=True):
        name = entry.spec.name
        if state.follows is not None and name not in state.follows:
            read.skip(entry.policy_bytes + sum(entry.ledger.sizes))
            cascade = ServedCascade(len(state.order), entry.spec, entry.created)
            cascade.status = "retired" if entry.retired else "active"
            state.add(cascade)
            continue
        try:
            policy = decode_policy(read(entry.policy_bytes), f"the policy of {name!r}")
        except UnsupportedVersionError:
            return None
        except StopwiseError as error:
            raise damaged from error
        cascade = ServedCascade(len(state.order), entry.spec, entry.created, policy)
        cascade.status = "retired" if entry.retired else "active"
        cascade.ledger.restore(entry.ledger, read, policy.resume)
        cascade.counts = entry.counts
        cascade.divergences = diverged
        cascade.recent.extend(RecentDecision(cascade.ledger, *fields) for fields in decisions)
        state.add(cascade)
    return state


def _encoded_state(state: State, *, hashed: bool = False) -> Iterator[bytes]:
    """Yield the encoded state in parts; if ``hashed``, replace ledger columns by digests."""
    policies = [encode_policy(cascade.policy) for cascade in state.order]
    cascades = [
        _CascadeSnapshot(
            spec=cascade.spec,
            created=cascade.created,
            retired=cascade.status == "retired",
            policy_bytes=len(policy),
            ledger=cascade.ledger.snapshot(hashed=hashed),
            counts=cascade.counts,
        )
        for cascade, policy in zip(state.order, policies, strict=True)
    ]
    saved = _StateSnapshot(state.position, state.time, dict(state.idempotency_keys), cascades)
    yield from _in_parts(_with_length(_encode(saved)))
    for cascade, policy in zip(state.order, policies, strict=True):
        yield from _in_parts(policy)
        for column in () if hashed else cascade.ledger.columns():
            yield from _in_parts(memoryview(column).cast("B"))


class _CascadeSnapshot(msgspec.Struct, frozen=True, array_like=True):
    spec: CascadeSpec
    created: float
    retired: bool
    policy_bytes: int
    ledger: LedgerSnapshot
    counts: Counts


class _StateSnapshot(msgspec.Struct, frozen=True, array_like=True):
    position: int
    time: float
    repeats: dict[str, KeyedRequest]
    cascades: list[_CascadeSnapshot]


class _Reader:
    """Reads a snapshot sequentially."""

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._position = start

    def __call__(self, size: int) -> bytes:
        start = self._position
        self._position += size
        return bytes(self._data[start : start + size])

    def skip(self, size: int) -> None:
        self._position += size

    def with_length(self) -> bytes:
        """Read a section that is preceded by its length."""
        return self(int.from_bytes(self(8), "little"))


_encode: Any = msgspec.msgpack.Encoder().encode


def _sha256(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _with_length(content: bytes) -> bytes:
    return len(content).to_bytes(8, "little") + content


def _in_parts(content: bytes | memoryview) -> Iterator[bytes]:
    """Yield copies of at most `PART` bytes, so that no single copy takes long."""
    for start in range(0, len(content), PART):
        yield bytes(content[start : start + PART])
