"""The state of the service: the cascades, folded from the events of the log one after the other."""

import hashlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from stopwise.errors import CorruptLogError, StopwiseError, UnsupportedVersionError
from stopwise.policies.persistence import decode as decode_policy
from stopwise.policies.persistence import encode as encode_policy
from stopwise.service.domain import events as ev
from stopwise.service.domain.cascade import Learner, RecentDecision
from stopwise.service.domain.errors import CascadeFailed, NotFollowed, RequestError, UnknownCascade
from stopwise.service.domain.ledger import Counts, LedgerSnapshot, Repeat, Repeats
from stopwise.service.domain.messages import CascadeSpec
from stopwise.service.persistence.stores.base import Snapshot

# A snapshot: magic, format (4 bytes), SHA-256 of all that follows; then what the dashboard shows
# and the state, each with its length before it (8 bytes); then policies and columns, raw.
MAGIC = b"STOPSNAP"
# An older one is ignored, and the log read from before it. Format 8 may have wrong counts: rounds
# opened after a pause were not counted in their bucket.
FORMAT = 10
PART = 256 << 10  # bytes that are copied, and written, at once
_HEAD = len(MAGIC) + 4 + 32
# What an event raises that is not possible after those before it; anything else is a defect.
_CONTRADICTIONS = (StopwiseError, RequestError, LookupError, ValueError, TypeError)


class State:
    """The cascades after some number of events; of those it does not follow, their descriptions.

    If ``contains_failures``, an event that cannot be applied fails its own cascade only: until it
    is followed again, its events are skipped and requests for it are refused.
    """

    def __init__(
        self, follows: Iterable[str] | None = None, *, contains_failures: bool = False
    ) -> None:
        self.contains_failures = contains_failures
        self.failed: dict[str, Exception] = {}  # cascades whose memory may be wrong, and why
        self.position = 0  # events that were applied
        self.log_digest = ev.START  # of the log up to the last block that is known to be stored
        self.time = 0.0  # of the last event, in seconds since 1970
        self.cascades: dict[str, Learner] = {}  # by name, in the order of creation
        self.order: list[Learner] = []
        self.logged_from = 0  # events before this one are known to be compacted away; not saved
        self.repeats = Repeats()  # requests that created cascades
        # When each cascade that it follows was last asked for; None: it follows all.
        self.follows = None if follows is None else dict.fromkeys(follows, time.monotonic())

    def learner(self, name: str) -> Learner:
        """Return a cascade by name, or refuse: unknown, failed, or it must be loaded first."""
        learner = self.cascades.get(name)
        if learner is None:
            raise UnknownCascade(name)
        if self.follows is not None:
            if name not in self.follows:
                raise NotFollowed(name)
            self.follows[name] = time.monotonic()
        if name in self.failed:
            raise CascadeFailed(name)
        return learner

    def followed(self) -> list[Learner]:
        """Return the cascades that are followed and have not failed, in the order of creation."""
        return [learner for learner in self.order if self._follows(learner.spec.name)]

    def _follows(self, name: str) -> bool:
        return name not in self.failed and (self.follows is None or name in self.follows)

    def fail(self, name: str, error: Exception) -> None:
        """Stop using a cascade, which may have half of a change, until it is followed again."""
        if name in self.cascades:
            self.failed[name] = error
            if self.follows is not None:
                self.follows.setdefault(name, time.monotonic())

    def follow(self, learner: Learner) -> None:
        """Follow a cascade, which has all of its events up to here."""
        name, before = learner.spec.name, self.order[learner.index]
        learner.status = before.status
        self.order[learner.index] = self.cascades[name] = learner
        self.failed.pop(name, None)
        if self.follows is not None:
            self.follows[name] = time.monotonic()

    def unfollow(self, seconds: float) -> None:
        """Drop what was learned of cascades that nobody has asked for in so many seconds."""
        follows = self.follows or {}
        for name in [name for name, at in follows.items() if time.monotonic() - at > seconds]:
            old = self.cascades[name]
            self.follow(Learner(old.index, old.spec, old.created))
            del follows[name]

    def forget(self, logged_from: int) -> None:
        """Forget what only events before this one tell: they were compacted away."""
        self.logged_from = logged_from
        for learner in self.followed():
            try:
                learner.ledger.forget(logged_from)
            except Exception as error:
                if not self.contains_failures:
                    raise
                self.fail(learner.spec.name, error)

    # -- applying events ----------------------------------------------------------------------

    def apply(self, block: ev.Block) -> None:
        """Apply the events of a stored block."""
        if block.base != self.position + 1:
            raise CorruptLogError(
                f"the log goes on at event {block.base} where {self.position + 1} should be"
            )
        if ev.chain_digest(self.log_digest, block.payload) != block.digest:
            events = f"events {block.base} to {block.end}"
            raise CorruptLogError(f"{events} were changed after they were written: digests differ")
        for event in ev.events_of(block):
            try:
                self.apply_event(event)
            except Exception as error:
                if not self._contained(event, error):
                    if not isinstance(error, _CONTRADICTIONS):
                        raise
                    raise CorruptLogError(
                        f"event {self.position + 1} contradicts those before it: {error}"
                    ) from error
            self.position += 1
            self.time = event.time
        self.log_digest = block.digest

    def _contained(self, event: ev.Event, error: Exception) -> bool:
        """Fail the cascade of an event that cannot be applied; return whether that is enough."""
        if not self.contains_failures or isinstance(event, ev.Created):
            return False
        if event.cascade >= len(self.order):
            return False
        self.fail(self.order[event.cascade].spec.name, error)
        return True

    def apply_event(self, event: ev.Event) -> None:
        """Apply the recorded event that comes next."""
        if isinstance(event, ev.Created):
            self.created(event)
            return
        learner = self.order[event.cascade]
        followed = self._follows(learner.spec.name)
        match event:
            case ev.Retired():
                learner.status = "retired"
            case _ if not followed:
                pass
            case ev.Opened():
                learner.opened(event, self.position + 1)
            case ev.Reported():
                learner.reported(event, self.position + 1)
            case ev.Labelled():
                learner.labelled(event)

    def created(self, event: ev.Created, new: Learner | None = None) -> None:
        """Apply a creation; ``new`` is the cascade if it was created here."""
        # What can fail comes first: then nothing has changed.
        learner = new or Learner(len(self.order), event.spec, event.time)
        repeat = Repeat(learner.index, 1, spec_digest(event.spec))
        if event.key is not None:
            self.repeats.add(event.key, repeat)
        self._enter(learner)
        if new is not None:
            self.follow(new)

    def _enter(self, learner: Learner) -> None:
        self.order.append(learner)
        self.cascades[learner.spec.name] = learner

    # -- snapshots ----------------------------------------------------------------------------

    def hash(self) -> str:
        """Return a digest of everything that the log determines."""
        return _sha256(self._core(hashed=True)).hex()

    def snapshot(self) -> Snapshot:
        """Return all of it in parts, at a moment when every event is in the log."""
        recent = [
            [(r.number, r.time, r.stop, r.cost, r.words()) for r in learner.recent]
            for learner in self.order
        ]
        shown = _encode((recent, [learner.divergences for learner in self.order]))
        parts = [_sized(shown), *self._core()]
        head = MAGIC + FORMAT.to_bytes(4, "little") + _sha256(parts)
        return Snapshot(self.position, self.log_digest, (head, *parts))

    @staticmethod
    def restored(
        snapshot: Snapshot,
        follows: Iterable[str] | None = None,
        *,
        contains_failures: bool = False,
    ) -> "State | None":
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
        state = State(follows, contains_failures=contains_failures)
        state.position, state.log_digest = snapshot.position, snapshot.digest
        state.time, state.repeats = saved.time, Repeats(saved.repeats)
        for one, latest, diverged in zip(saved.cascades, recent, divergences, strict=True):
            if state.follows is not None and one.spec.name not in state.follows:
                read.at += one.policy_bytes + sum(one.ledger.sizes)
                state._enter(Learner(len(state.order), one.spec, one.created))
                state.order[-1].status = "retired" if one.retired else "active"
                continue
            try:
                policy = decode_policy(read(one.policy_bytes), f"the policy of {one.spec.name!r}")
            except UnsupportedVersionError:
                return None
            except StopwiseError as error:
                raise damaged from error
            learner = Learner(len(state.order), one.spec, one.created, policy)
            learner.status = "retired" if one.retired else "active"
            learner.ledger.restore(one.ledger, read, policy.resume)
            learner.counts = one.counts
            learner.divergences = diverged
            learner.recent.extend(RecentDecision(learner.ledger, *fields) for fields in latest)
            state._enter(learner)
        return state

    def _core(self, *, hashed: bool = False) -> Iterator[bytes]:
        """Yield everything that the log determines, in parts; rounds as a digest if ``hashed``."""
        policies = [encode_policy(one.policy) for one in self.order]
        cascades = [
            _CascadeSnapshot(
                one.spec,
                one.created,
                one.status == "retired",
                len(policy),
                one.ledger.saved(hashed=hashed),
                one.counts,
            )
            for one, policy in zip(self.order, policies, strict=True)
        ]
        state = _StateSnapshot(self.position, self.time, dict(self.repeats), cascades)
        yield from _in_parts(_sized(_encode(state)))
        for one, policy in zip(self.order, policies, strict=True):
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
    repeats: dict[str, Repeat]
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
_encode_ordered: Any = msgspec.msgpack.Encoder(order="deterministic").encode


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


def spec_digest(spec: CascadeSpec) -> bytes:
    """Return a digest of a cascade's description, to recognise a repeated request."""
    return hashlib.blake2b(_encode_ordered(spec), digest_size=16).digest()
