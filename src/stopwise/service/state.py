"""All that the log amounts to: the cascades, folded from events one after the other."""

import hashlib
from typing import Any

import msgspec

from stopwise.errors import CorruptLogError, StopwiseError
from stopwise.policies.persistence import decode as decode_policy
from stopwise.policies.persistence import encode as encode_policy
from stopwise.service import events as codec
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
from stopwise.service.learner import Learner, Recent
from stopwise.service.ledger import KeptLedger
from stopwise.service.messages import CascadeSpec
from stopwise.service.refusals import Refusal
from stopwise.service.store.base import START, Block, Snapshot, chained
from stopwise.service.tally import Tally

FORMAT = 2  # of snapshots; an older one is ignored, and the log read from before it


class State:
    """The cascades after some number of events.

    Attributes
    ----------
    position : int
        Events that have happened.
    log_digest : bytes
        Of the log up to the last block that is known to be stored.
    time : float
        Of the last event, in seconds since 1970; 0 before the first.
    cascades : dict of Learner
        By name, in the order of creation.

    Examples
    --------
    >>> State().position, len(State().hash())
    (0, 64)
    """

    def __init__(self) -> None:
        self.position = 0
        self.log_digest = START
        self.time = 0.0
        self.cascades: dict[str, Learner] = {}
        self.order: list[Learner] = []
        self.keys: dict[str, str] = {}  # Idempotency-Keys of creations → the cascade's name

    def learner(self, name: str) -> Learner:
        """Return a cascade by name, or refuse: there is none."""
        learner = self.cascades.get(name)
        if learner is None:
            raise Refusal(404, "unknown_cascade", f"no cascade is called {name[:80]!r}")
        return learner

    # -- the fold -----------------------------------------------------------------------------

    def apply(self, block: Block) -> None:
        """Let the events of a stored block happen."""
        if block.base != self.position + 1:
            raise CorruptLogError(
                f"the log goes on at event {block.base} where {self.position + 1} should be"
            )
        if chained(self.log_digest, block.payload) != block.digest:
            raise CorruptLogError(
                f"the block of events {block.base} to {block.end} is not what was written: its "
                "digest does not match"
            )
        try:
            events = codec.decode(block.payload)
        except msgspec.MsgspecError as error:
            raise CorruptLogError(
                f"the block of events {block.base} to {block.end} cannot be read: {error}"
            ) from error
        if len(events) != block.count:
            raise CorruptLogError(f"the block at event {block.base} has lost some of its events")
        for event in events:
            try:
                self.happen(event, self.position + 1)
            except (StopwiseError, Refusal, LookupError, ValueError, TypeError) as error:
                raise CorruptLogError(
                    f"event {self.position + 1} contradicts those before it: {error}"
                ) from error
            self.position += 1
            self.time = event.time
        self.log_digest = block.digest

    def happen(self, event: Event, position: int) -> None:
        """Let one recorded event happen, at its place in the log."""
        match event:
            case Decided():
                self.order[event.cascade].decided(event, position)
            case Told():
                self.order[event.cascade].told(event, position)
            case Started():
                self.order[event.cascade].started(event, position)
            case Stepped():
                self.order[event.cascade].stepped(event, position)
            case Ended():
                self.order[event.cascade].ended(event, position)
            case Labelled():
                self.order[event.cascade].labelled(event, position)
            case Created():
                self._created(event)
            case Retired():
                self.order[event.cascade].status = "retired"

    def _created(self, event: Created) -> None:
        learner = Learner(len(self.order), event.spec, event.time)
        self._enter(learner)
        if event.key is not None:
            self.keys[event.key] = event.spec.name

    def _enter(self, learner: Learner) -> None:
        self.cascades[learner.spec.name] = learner
        self.order.append(learner)

    # -- snapshots ----------------------------------------------------------------------------

    def hash(self) -> str:
        """Return a digest of all that matters: equal exactly where states are, bit for bit."""
        return hashlib.sha256(_encode(self._kept())).hexdigest()

    def snapshot(self) -> Snapshot:
        """Return all of it, at a moment when every event is in the log."""
        core = _encode(self._kept())
        recent = [
            [(r.number, r.time, r.stop, r.cost, r.words()) for r in learner.recent]
            for learner in self.order
        ]
        divergences = [learner.divergences for learner in self.order]
        body = _encode((FORMAT, hashlib.sha256(core).digest(), core, recent, divergences))
        return Snapshot(self.position, self.log_digest, body)

    @staticmethod
    def restored(snapshot: Snapshot) -> "State | None":
        """Return the state that a snapshot holds; None if another version wrote it."""
        try:
            version, checksum, core, recent, divergences = msgspec.msgpack.decode(
                snapshot.payload, type=tuple[int, bytes, bytes, list[Any], list[int]]
            )
        except msgspec.MsgspecError:
            return None
        if version != FORMAT:
            return None
        if hashlib.sha256(core).digest() != checksum:
            raise CorruptLogError(
                f"the snapshot at event {snapshot.position} is damaged: its checksum does not match"
            )
        try:
            kept = msgspec.msgpack.decode(core, type=_KeptState)
        except msgspec.MsgspecError:
            return None
        state = State()
        state.position = snapshot.position
        state.log_digest = snapshot.digest
        state.time = kept.time
        state.keys = kept.keys
        for one, latest, diverged in zip(kept.cascades, recent, divergences, strict=True):
            policy = decode_policy(one.policy, f"the policy of {one.spec.name!r} in a snapshot")
            learner = Learner(len(state.order), one.spec, one.created, policy)
            learner.status = "retired" if one.retired else "active"
            learner.ledger.take_up(one.ledger, policy.resume)
            learner.tally = one.tally
            learner.divergences = diverged
            learner.recent.extend(Recent(learner.ledger, *fields) for fields in latest)
            state._enter(learner)
        return state

    def _kept(self) -> "_KeptState":
        return _KeptState(
            self.position,
            self.time,
            self.keys,
            [
                _KeptCascade(
                    learner.spec,
                    learner.created,
                    learner.status == "retired",
                    encode_policy(learner.policy),
                    learner.ledger.kept(),
                    learner.tally,
                )
                for learner in self.order
            ],
        )


class _KeptCascade(msgspec.Struct, frozen=True, array_like=True):
    spec: CascadeSpec
    created: float
    retired: bool
    policy: bytes
    ledger: KeptLedger
    tally: Tally


class _KeptState(msgspec.Struct, frozen=True, array_like=True):
    position: int
    time: float
    keys: dict[str, str]
    cascades: list[_KeptCascade]


_encode = msgspec.msgpack.Encoder().encode
