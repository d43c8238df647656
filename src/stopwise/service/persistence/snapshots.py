"""Snapshots: the complete state after an event, encoded."""

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

# A snapshot: magic, format (4 bytes), SHA-256 of all that follows; then what the dashboard shows
# and the state, each with its length before it (8 bytes); then policies and columns, raw.
MAGIC = b"STOPSNAP"
# An older one is ignored, and the log read from before it. Format 8 may have wrong counts: rounds
# opened after a pause were not counted in their bucket.
FORMAT = 14
PART = 256 << 10  # bytes that are copied, and written, at once
_HEAD = len(MAGIC) + 4 + 32


def state_hash(state: State) -> str:
    """Return a digest of everything that the log determines."""
    return _sha256(_core(state, hashed=True)).hex()


def take_snapshot(state: State) -> Snapshot:
    """Return all of it in parts, at a moment when every event is in the log."""
    recent = [
        [(r.number, r.time, r.stop, r.cost, r.explanation()) for r in cascade.recent]
        for cascade in state.order
    ]
    shown = _encode((recent, [cascade.divergences for cascade in state.order]))
    parts = [_sized(shown), *_core(state)]
    head = MAGIC + FORMAT.to_bytes(4, "little") + _sha256(parts)
    return Snapshot(state.position, state.log_digest, (head, *parts))


def restore_snapshot(
    snapshot: Snapshot,
    follows: Iterable[str] | None = None,
    *,
    isolate_failures: bool = False,
) -> State | None:
    """Return the state that a snapshot holds; None if another version wrote it."""
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
            read.sized(), type=tuple[list[list[tuple[int, float, int, float, str]]], list[int]]
        )
        saved = msgspec.msgpack.decode(read.sized(), type=_StateSnapshot)
    except msgspec.MsgspecError:
        return None
    if saved.position != snapshot.position:
        raise damaged
    state = State(follows, isolate_failures=isolate_failures)
    state.position, state.log_digest = snapshot.position, snapshot.digest
    state.time, state.idempotency_keys = saved.time, IdempotencyKeys(saved.repeats)
    for one, latest, diverged in zip(saved.cascades, recent, divergences, strict=True):
        if state.follows is not None and one.spec.name not in state.follows:
            read.at += one.policy_bytes + sum(one.ledger.sizes)
            state.add(ServedCascade(len(state.order), one.spec, one.created))
            state.order[-1].status = "retired" if one.retired else "active"
            continue
        try:
            policy = decode_policy(read(one.policy_bytes), f"the policy of {one.spec.name!r}")
        except UnsupportedVersionError:
            return None
        except StopwiseError as error:
            raise damaged from error
        cascade = ServedCascade(len(state.order), one.spec, one.created, policy)
        cascade.status = "retired" if one.retired else "active"
        cascade.ledger.restore(one.ledger, read, policy.resume)
        cascade.counts = one.counts
        cascade.divergences = diverged
        cascade.recent.extend(RecentDecision(cascade.ledger, *fields) for fields in latest)
        state.add(cascade)
    return state


def _core(state: State, *, hashed: bool = False) -> Iterator[bytes]:
    """Yield everything that the log determines, in parts; rounds as a digest if ``hashed``."""
    policies = [encode_policy(one.policy) for one in state.order]
    cascades = [
        _CascadeSnapshot(
            one.spec,
            one.created,
            one.status == "retired",
            len(policy),
            one.ledger.snapshot(hashed=hashed),
            one.counts,
        )
        for one, policy in zip(state.order, policies, strict=True)
    ]
    saved = _StateSnapshot(state.position, state.time, dict(state.idempotency_keys), cascades)
    yield from _in_parts(_sized(_encode(saved)))
    for one, policy in zip(state.order, policies, strict=True):
        yield from _in_parts(policy)
        for column in () if hashed else one.ledger.columns():
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
    """Reads a snapshot from front to back."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at

    def __call__(self, size: int) -> bytes:
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def sized(self) -> bytes:
        return self(int.from_bytes(self(8), "little"))


_encode: Any = msgspec.msgpack.Encoder().encode


def _sha256(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(8, "little") + content


def _in_parts(content: bytes | memoryview) -> Iterator[bytes]:
    """Yield copies of parts, so that no copy takes long."""
    for start in range(0, len(content), PART):
        yield bytes(content[start : start + PART])
