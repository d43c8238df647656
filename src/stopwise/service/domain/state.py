"""The state of the service: the cascades, folded from the events of the log one after the other."""

import hashlib
import time
from collections.abc import Iterable

from stopwise.canonical import canonical_json
from stopwise.errors import CorruptLogError, StopwiseError
from stopwise.service.domain import events as ev
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.errors import CascadeFailed, NotFollowed, RequestError, UnknownCascade
from stopwise.service.domain.ledger import IdempotencyKeys, KeyedRequest
from stopwise.service.domain.messages import BatchRequest, CascadeSpec, RoundRequest

# What an event raises that is not possible after those before it; anything else is a defect.
_CONTRADICTIONS = (StopwiseError, RequestError, LookupError, ValueError, TypeError)


class State:
    """The cascades after some number of events; of those it does not follow, their descriptions.

    If ``isolate_failures``, an event that cannot be applied fails its own cascade only: until it
    is followed again, its events are skipped and requests for it are refused.
    """

    def __init__(
        self, follows: Iterable[str] | None = None, *, isolate_failures: bool = False
    ) -> None:
        self.isolate_failures = isolate_failures
        self.failed: dict[str, Exception] = {}  # cascades whose memory may be wrong, and why
        self.position = 0  # events that were applied
        self.log_digest = bytes(16)  # of the log up to the last block that is known to be stored
        self.time = 0.0  # of the last event, in seconds since 1970
        self.cascades: dict[str, ServedCascade] = {}  # by name, in the order of creation
        self.order: list[ServedCascade] = []
        self.log_start = 0  # events before this one are known to be compacted away; not saved
        self.idempotency_keys = IdempotencyKeys()  # requests that created cascades
        # When each cascade that it follows was last asked for; None: it follows all.
        self.follows = None if follows is None else dict.fromkeys(follows, time.monotonic())

    def cascade(self, name: str) -> ServedCascade:
        """Return a cascade by name, or refuse: unknown, failed, or it must be loaded first."""
        cascade = self.cascades.get(name)
        if cascade is None:
            raise UnknownCascade(name)
        if self.follows is not None:
            if name not in self.follows:
                raise NotFollowed(name)
            self.follows[name] = time.monotonic()
        if name in self.failed:
            raise CascadeFailed(name)
        return cascade

    def followed(self) -> list[ServedCascade]:
        """Return the cascades that are followed and have not failed, in the order of creation."""
        return [cascade for cascade in self.order if self._follows(cascade.spec.name)]

    def _follows(self, name: str) -> bool:
        return name not in self.failed and (self.follows is None or name in self.follows)

    def fail(self, name: str, error: Exception) -> None:
        """Stop using a cascade, which may have half of a change, until it is followed again."""
        if name in self.cascades:
            self.failed[name] = error
            if self.follows is not None:
                self.follows.setdefault(name, time.monotonic())

    def follow(self, cascade: ServedCascade) -> None:
        """Follow a cascade, which has all of its events up to here."""
        name, before = cascade.spec.name, self.order[cascade.index]
        cascade.status = before.status
        self.order[cascade.index] = self.cascades[name] = cascade
        self.failed.pop(name, None)
        if self.follows is not None:
            self.follows[name] = time.monotonic()

    def unfollow(self, seconds: float) -> None:
        """Drop what was learned of cascades that nobody has asked for in so many seconds."""
        follows = self.follows or {}
        for name in [name for name, at in follows.items() if time.monotonic() - at > seconds]:
            old = self.cascades[name]
            self.follow(ServedCascade(old.index, old.spec, old.created))
            del follows[name]

    def forget(self, log_start: int) -> None:
        """Forget what only events before this one tell: they were compacted away."""
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
        """Apply the recorded event that comes next."""
        try:
            self._apply(event)
        except Exception as error:
            if not self._contained(event, error):
                if not isinstance(error, _CONTRADICTIONS):
                    raise
                raise CorruptLogError(
                    f"event {self.position + 1} contradicts those before it: {error}"
                ) from error
        self.position += 1
        self.time = event.time

    def _contained(self, event: ev.Event, error: Exception) -> bool:
        """Fail the cascade of an event that cannot be applied; return whether that is enough."""
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
        """Apply a creation; ``new`` is the cascade if it was created here."""
        # What can fail comes first: then nothing has changed.
        cascade = new or ServedCascade(len(self.order), event.spec, event.time)
        repeat = KeyedRequest(cascade.index, 1, request_digest(event.spec))
        if event.key is not None:
            self.idempotency_keys.add(event.key, repeat)
        self.add(cascade)
        if new is not None:
            self.follow(new)

    def add(self, cascade: ServedCascade) -> None:
        """Add a cascade after those before it."""
        self.order.append(cascade)
        self.cascades[cascade.spec.name] = cascade


def request_digest(request: CascadeSpec | RoundRequest | BatchRequest) -> bytes:
    """Return a digest of a request, to recognise a repeated one."""
    return hashlib.blake2b(canonical_json(request), digest_size=16).digest()
