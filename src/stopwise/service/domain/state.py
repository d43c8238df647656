"""The state of the service, computed by applying the events of the log in order."""

import hashlib
import time
from collections.abc import Iterable

from stopwise.canonical import canonical_json
from stopwise.errors import CorruptLogError, StopwiseError
from stopwise.service.domain import events as ev
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.errors import (
    CascadeFailed,
    CascadeNotLoaded,
    RequestError,
    UnknownCascade,
)
from stopwise.service.domain.ledger import IdempotencyKeys, KeyedRequest
from stopwise.service.domain.messages import BatchRequest, CascadeSpec, RoundRequest

# Raised if an event contradicts earlier ones; any other exception is a bug.
_CONTRADICTIONS = (StopwiseError, RequestError, LookupError, ValueError, TypeError)


class State:
    """The cascades after some number of events.

    A replica may follow only some cascades; the state then has only the specs of the others. With
    ``isolate_failures``, an event that cannot be applied marks only the cascade it is about as
    failed. Until that cascade is followed again, its later events are skipped, and requests to it
    are rejected.
    """

    def __init__(
        self, follows: Iterable[str] | None = None, *, isolate_failures: bool = False
    ) -> None:
        self.isolate_failures = isolate_failures
        self.failed: dict[str, Exception] = {}  # cascades that may be inconsistent, and why
        self.position = 0  # number of applied events
        self.log_digest = bytes(16)  # of the log, up to the last block that is certainly stored
        self.time = 0.0  # of the last event, in seconds since 1970
        self.cascades: dict[str, ServedCascade] = {}  # by name, in the order of creation
        self.order: list[ServedCascade] = []
        self.log_start = 0  # earlier events were compacted away; not part of snapshots
        self.idempotency_keys = IdempotencyKeys()  # requests that created cascades
        # When each followed cascade was last requested; None: all are followed.
        self.follows = None if follows is None else dict.fromkeys(follows, time.monotonic())

    def cascade(self, name: str) -> ServedCascade:
        """Return a cascade; raise if it is unknown, failed or not loaded."""
        cascade = self.cascades.get(name)
        if cascade is None:
            raise UnknownCascade(name)
        if self.follows is not None:
            if name not in self.follows:
                raise CascadeNotLoaded(name)
            self.follows[name] = time.monotonic()
        if name in self.failed:
            raise CascadeFailed(name)
        return cascade

    def followed(self) -> list[ServedCascade]:
        """Return the followed cascades that have not failed, in the order of creation."""
        return [cascade for cascade in self.order if self._follows(cascade.spec.name)]

    def _follows(self, name: str) -> bool:
        return name not in self.failed and (self.follows is None or name in self.follows)

    def fail(self, name: str, error: Exception) -> None:
        """Disable a cascade until it is followed again; an event may have been applied in part."""
        if name in self.cascades:
            self.failed[name] = error
            if self.follows is not None:
                self.follows.setdefault(name, time.monotonic())

    def follow(self, cascade: ServedCascade) -> None:
        """Follow a cascade to which all its events up to `position` have been applied."""
        name = cascade.spec.name
        cascade.status = self.order[cascade.index].status
        self.order[cascade.index] = self.cascades[name] = cascade
        self.failed.pop(name, None)
        if self.follows is not None:
            self.follows[name] = time.monotonic()

    def unload_unused(self, seconds: float) -> None:
        """Unload cascades that were not requested for this many seconds."""
        follows = self.follows or {}
        for name in [name for name, at in follows.items() if time.monotonic() - at > seconds]:
            old = self.cascades[name]
            self.follow(ServedCascade(old.index, old.spec, old.created))
            del follows[name]

    def forget(self, log_start: int) -> None:
        """Forget rounds whose events before ``log_start`` were compacted away."""
        self.log_start = log_start
        for cascade in self.followed():
            try:
                cascade.ledger.forget(log_start)
            except Exception as error:
                if not self.isolate_failures:
                    raise
                self.fail(cascade.spec.name, error)

    # -- applying events ----------------------------------------------------------------------

    def apply(self, event: ev.Event) -> None:
        """Apply the next recorded event."""
        try:
            self._apply(event)
        except Exception as error:
            if not self._isolate_failure(event, error):
                if not isinstance(error, _CONTRADICTIONS):
                    raise
                raise CorruptLogError(
                    f"event {self.position + 1} contradicts earlier events: {error}"
                ) from error
        self.position += 1
        self.time = event.time

    def _isolate_failure(self, event: ev.Event, error: Exception) -> bool:
        """Mark the cascade of an event as failed; return False if that is not possible."""
        if not self.isolate_failures or isinstance(event, ev.Created):
            return False
        if event.cascade >= len(self.order):
            return False
        self.fail(self.order[event.cascade].spec.name, error)
        return True

    def _apply(self, event: ev.Event) -> None:
        if isinstance(event, ev.Created):
            self.apply_created(event)
            return
        cascade = self.order[event.cascade]
        followed = self._follows(cascade.spec.name)
        match event:
            case ev.Retired():
                cascade.status = "retired"
            case _ if not followed:
                pass
            case ev.Opened():
                cascade.apply_opened(event, self.position + 1)
            case ev.Reported():
                cascade.apply_reported(event, self.position + 1)
            case ev.Labelled():
                cascade.apply_labelled(event)

    def apply_created(self, event: ev.Created, new: ServedCascade | None = None) -> None:
        """Apply a `Created` event; ``new`` is its cascade if this process has already built it."""
        # Build the cascade first: if that fails, the state is unchanged.
        cascade = new or ServedCascade(len(self.order), event.spec, event.time)
        repeat = KeyedRequest(cascade.index, 1, request_digest(event.spec))
        if event.key is not None:
            self.idempotency_keys.add(event.key, repeat)
        self.add(cascade)
        if new is not None:
            self.follow(new)

    def add(self, cascade: ServedCascade) -> None:
        """Add the next cascade, in the order of creation."""
        self.order.append(cascade)
        self.cascades[cascade.spec.name] = cascade


def request_digest(request: CascadeSpec | RoundRequest | BatchRequest) -> bytes:
    """Return a digest of a request, by which repeats are recognised."""
    return hashlib.blake2b(canonical_json(request), digest_size=16).digest()
