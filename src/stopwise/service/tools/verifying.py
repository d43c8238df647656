"""Whether a log is what was written, whether it can have happened, and whether snapshots are it."""

from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.errors import CorruptLogError, StopwiseError
from stopwise.policies.base import Policy
from stopwise.policies.contextual import Contextual
from stopwise.service.learner import Learner
from stopwise.service.state import State
from stopwise.service.store.base import Snapshot, Store
from stopwise.service.tools.folding import (
    Beginning,
    Chain,
    Progress,
    beginning,
    between,
    check_reached,
    no_progress,
    read_events,
)

LAST_BITS = 1e-6  # relative: far more than another version's rounding, far less than a round


class Verified(msgspec.Struct, frozen=True):
    """A log without damage.

    Attributes
    ----------
    first, end : int
        Positions of its first and last event.
    folded : int
        Events that happened again, each checked against those before it.
    unfolded : int
        Events at the beginning of a compacted log that lie before its oldest snapshot. They are
        what was written; but what they amounted to cannot be computed any more.
    hash : str
        Of the state at the end.
    snapshots : list of int
        Positions of snapshots that equal the fold, bit for bit.
    unlike : list of int
        Positions of snapshots that tell the same facts, and differ in the last bits of what was
        learned: another version wrote them.
    unread : list of int
        Positions of snapshots in a format of another version.
    divergences : dict of str to int
        By cascade, recorded decisions that would be other ones here.
    diverged_at : int
        The event at which, or shortly after which, the first of them is; 0 if there is none.
    """

    first: int
    end: int
    folded: int
    unfolded: int
    hash: str
    snapshots: list[int]
    unlike: list[int]
    unread: list[int]
    divergences: dict[str, int]
    diverged_at: int

    @property
    def exact(self) -> bool:
        """Whether this machine computes, bit for bit, what the log says."""
        return not self.unlike and not self.divergences


async def verify(store: Store, progress: Progress = no_progress) -> Verified:
    """Check a log from beginning to end.

    Parameters
    ----------
    store : Store
        Of the log; a service may be writing it.
    progress : callable
        Called as ``progress("checking", event, of)``.

    Raises
    ------
    CorruptLogError
        At the first damage; the message names the event.
    """
    start = await beginning(store)
    positions = [p for p in await store.snapshots() if p >= start.state.position]
    check = _Check(store, start, positions)
    try:
        return await check.run(progress)
    except CorruptLogError as error:
        whole = check.whole
        said = f" Events {start.first:,} to {whole:,} are whole." if whole >= start.first else ""
        raise CorruptLogError(f"{error}.{said}") from error


class _Check:
    def __init__(self, store: Store, start: Beginning, snapshots: list[int]) -> None:
        self.store = store
        self.start = start
        self.whole = 0  # the last event known to be what was written
        self.due = snapshots  # positions, the next one first
        self.equal: list[int] = []
        self.unlike: list[int] = []
        self.unread: list[int] = []
        self.diverged_at = 0

    async def run(self, progress: Progress) -> Verified:
        start, state = self.start, self.start.state
        folded_from = state.position
        known = [learner.divergences for learner in state.order]
        await self._margin(progress)
        await self._compare(state)
        async for block in between(self.store, folded_from, start.end):
            before = _divergences(state)
            state.apply(block)
            self.whole = block.end
            if not self.diverged_at and _divergences(state) > before:
                self.diverged_at = block.base
            await self._compare(state)
            progress("checking", state.position, start.end)
        check_reached(state.position, start.end)
        if self.due and self.due[0] <= start.end:
            raise CorruptLogError(
                f"there is a snapshot of event {self.due[0]}, at which no block of events ends"
            )
        if self.due and self.due[0] > (await self.store.end())[0]:
            raise CorruptLogError(
                f"there is a snapshot of event {self.due[0]}, but the log ends with event "
                f"{start.end}: its end is missing"
            )
        if state.log_digest != start.digest:
            raise CorruptLogError(f"the digest at the end, event {start.end}, does not match")
        known += [0] * (len(state.order) - len(known))
        return Verified(
            first=start.first,
            end=start.end,
            folded=start.end - folded_from,
            unfolded=max(0, folded_from - start.first + 1),
            hash=state.hash(),
            snapshots=self.equal,
            unlike=self.unlike,
            unread=self.unread,
            divergences={
                learner.spec.name: learner.divergences - then
                for learner, then in zip(state.order, known, strict=True)
                if learner.divergences > then
            },
            diverged_at=self.diverged_at,
        )

    async def _margin(self, progress: Progress) -> None:
        """Check what a compacted log keeps from before its oldest snapshot."""
        start = self.start
        if start.first > start.state.position:
            return
        chain = Chain(start.first - 1, None)
        async for block in between(self.store, start.first - 1, start.state.position):
            chain.add(block)
            read_events(block)
            self.whole = block.end
            progress("checking", block.end, start.end)
        if (chain.position, chain.digest) != (start.state.position, start.state.log_digest):
            raise CorruptLogError(
                f"the snapshot at event {start.state.position} is not one of this log: the digest "
                "there is another"
            )

    async def _compare(self, state: State) -> None:
        """Compare a snapshot with the fold, if there is one at this position."""
        if not self.due or self.due[0] != state.position:
            return
        position = self.due.pop(0)
        snapshot = await self.store.latest_snapshot(position)
        if snapshot is None or snapshot.position != position:
            return  # a running service has dropped it for a newer one
        if snapshot.digest != state.log_digest:
            raise CorruptLogError(
                f"the snapshot at event {position} is not one of this log: the digest there is "
                "another"
            )
        kept = _restored(snapshot)
        if kept is None:
            self.unread.append(position)
        elif kept.hash() == state.hash():
            self.equal.append(position)
        elif _same_facts(kept, state):
            self.unlike.append(position)
        else:
            raise CorruptLogError(
                f"the snapshot at event {position} is not what the events up to there amount to"
            )


def _restored(snapshot: Snapshot) -> State | None:
    try:
        return State.restored(snapshot)
    except CorruptLogError:
        raise
    except StopwiseError as error:
        raise CorruptLogError(
            f"the snapshot at event {snapshot.position} cannot be read: {error}"
        ) from error


def _divergences(state: State) -> int:
    return sum(learner.divergences for learner in state.order)


def _same_facts(one: State, other: State) -> bool:
    """Say whether two states differ in the last bits of what was learned, and in nothing else."""
    return _facts(one) == _facts(other) and all(
        _alike(mine, theirs) for mine, theirs in zip(one.order, other.order, strict=True)
    )


def _facts(state: State) -> object:
    """Return what does not depend on how numbers are rounded."""
    return (
        state.time,
        state.keys,
        [
            (
                one.spec,
                one.created,
                one.status,
                one.tally,
                list(one.ledger.open),
                one.ledger.partial,
            )
            for one in state.order
        ],
        [one.ledger.kept().arrays for one in state.order],
        [(one.ledger.labels, one.ledger.keys, one.ledger.learned) for one in state.order],
    )


def _alike(one: Learner, other: Learner) -> bool:
    """Say whether what was learned is the same but for the last bits."""
    mine, theirs = _learned(one.policy), _learned(other.policy)
    return mine.keys() == theirs.keys() and all(
        _close(array, theirs[name]) for name, array in mine.items()
    )


def _learned(policy: Policy) -> dict[str, NDArray[Any]]:
    """Return what a policy has learned as numbers, of which rounding moves only the last digits."""
    numbers = policy.state()
    if not isinstance(policy, Contextual):
        return numbers
    del numbers["learner"]  # bytes of the engine: these are the numbers in them
    numbers["counts"] = np.array([policy.rounds, policy.audits])
    for i, j in policy.cascade.pairs():
        numbers[f"seen {i} {j}"] = np.array([policy.observations(i, j)])
        numbers[f"gram {i} {j}"], _ = policy.gram(i, j)
        with suppress(StopwiseError):  # an estimate that does not settle, in neither
            numbers[f"theta {i} {j}"] = policy.theta(i, j)
    return numbers


def _close(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    size = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=LAST_BITS, atol=LAST_BITS * size, equal_nan=True))
