"""What became of every decision of a cascade: in a few bytes each, for as long as it lives.

Decisions are numbered from 0. What must be known of old ones (a repeat, a conflict, a place in the
log) takes 19 bytes and 8 for each arm; only those still waiting for outputs hold their context.
"""

from array import array
from collections import OrderedDict
from typing import Any, cast
from zlib import crc32

import msgspec

from stopwise.policies.descent import Descent
from stopwise.service.refusals import Refusal

OPEN, LEARNED, EXPIRED = range(3)
STEPPED = 0x10  # a round taken step by step
STATUS = 0x0F
NAMES = ("open", "learned", "expired")

KEEP_KEYS = 100_000  # Idempotency-Keys remembered for each cascade; the oldest go first


class Key(msgspec.Struct, frozen=True, array_like=True):
    """What an Idempotency-Key stands for: the decisions it made, and from which contexts."""

    first: int
    count: int
    contexts: bytes  # their digest


class Ledger:
    """The decisions of one cascade.

    Parameters
    ----------
    name : str
        Of the cascade; ids contain a trace of it, so that those of another are found out.
    n_arms : int
        K.
    keep_open : int
        How many may wait for their outputs.

    Examples
    --------
    >>> ledger = Ledger("triage", n_arms=2, keep_open=10)
    >>> ledger.add(bytes(24), [1], [1], position=7)
    >>> ledger.id(0), ledger.number(ledger.id(0)), len(ledger.open)
    ('0-47859', 0, 1)
    """

    def __init__(self, name: str, n_arms: int, keep_open: int) -> None:
        self.n_arms = n_arms
        self.keep_open = keep_open
        self._salt = crc32(name.encode())
        self._blank = bytes(8 * n_arms)
        self.status = array("B")
        self.stops = array("b")
        self.wanted = array("b")
        self.told = array("Q")  # of every arm the fingerprint of what it said; 0: not told
        self.decided_at = array("q")  # position in the log
        self.ended_at = array("q")
        # Waiting for outputs, oldest first: the context, or the round if taken step by step.
        self.open: dict[int, bytes | Descent] = {}
        self.partial: dict[int, dict[int, bytes]] = {}  # outputs of open ones
        self.labels: dict[int, int] = {}  # fingerprints of labels told
        self.keys: OrderedDict[str, Key] = OrderedDict()  # oldest first
        self.learned = 0
        self._oldest = 0  # no decision before this one is open

    def __len__(self) -> int:
        return len(self.status)

    # -- names --------------------------------------------------------------------------------

    def id(self, number: int) -> str:
        """Return the name by which the world knows a decision."""
        return f"{number}-{(number * 2654435761 ^ self._salt) >> 7 & 0xFFFFF:05x}"

    def opening(self, number: int) -> str:
        """Return how the JSON of a decision begins, its name included."""
        return f'{{"id":"{number}-{(number * 2654435761 ^ self._salt) >> 7 & 0xFFFFF:05x}'

    def texts(self, first: int, end: int, tails: list[str]) -> list[str]:
        """Return the JSON of several decisions; each goes on with the tail of its stop."""
        salt = self._salt
        return [
            f'{{"id":"{n}-{(n * 2654435761 ^ salt) >> 7 & 0xFFFFF:05x}{tails[stop]}'
            for n, stop in enumerate(self.stops[first:end], first)
        ]

    def number(self, text: str, kind: str = "decision") -> int:
        """Return the number of a decision by its name, or refuse: there is none."""
        digits = text.partition("-")[0]
        if digits.isascii() and digits.isdecimal() and len(digits) < 19:
            number = int(digits)
            if number < len(self.status) and self.id(number) == text:
                return number
        raise Refusal(404, f"unknown_{kind}", f"this cascade has no {kind} {_shown(text)}")

    # -- what happens -------------------------------------------------------------------------

    def add(self, contexts: bytes, stops: list[int], wanted: list[int], position: int) -> None:
        """Note decisions, which wait for their outputs from now on."""
        first, n = len(self.status), len(stops)
        size = len(contexts) // n
        self.status.frombytes(bytes(n))
        self.stops.extend(stops)
        self.wanted.extend(wanted)
        self.told.frombytes(self._blank * n)
        self.decided_at.extend([position] * n)
        self.ended_at.extend([0] * n)
        for k in range(n):  # each has its own bytes: none keeps the whole batch in memory
            self.open[first + k] = contexts[k * size : (k + 1) * size]
        self._expire()

    def add_one(self, context: bytes, stop: int, wanted: int, position: int) -> None:
        """Note one decision."""
        number = len(self.status)
        self.status.append(OPEN)
        self.stops.append(stop)
        self.wanted.append(wanted)
        self.told.frombytes(self._blank)
        self.decided_at.append(position)
        self.ended_at.append(0)
        self.open[number] = context
        if number >= self.keep_open:
            self._expire()

    def start(self, descent: Descent, position: int) -> int:
        """Note a round taken step by step; return its number."""
        number = len(self.status)
        self.status.append(OPEN | STEPPED)
        self.stops.append(-1)
        self.wanted.append(-1)
        self.told.frombytes(self._blank)
        self.decided_at.append(position)
        self.ended_at.append(0)
        self.open[number] = descent
        self._expire()
        return number

    def end(self, number: int, position: int) -> None:
        """Note that the policy has learned from a decision."""
        self.status[number] = (self.status[number] & ~STATUS) | LEARNED
        self.ended_at[number] = position
        self.learned += 1
        del self.open[number]
        self.partial.pop(number, None)

    def remember(self, key: str, first: int, count: int, contexts: bytes) -> None:
        """Note what an Idempotency-Key stands for."""
        self.keys[key] = Key(first, count, contexts)
        if len(self.keys) > KEEP_KEYS:
            self.keys.popitem(last=False)

    def _expire(self) -> None:
        # A function of the log alone, so that every replica gives up the same ones.
        waiting, status, number = self.open, self.status, self._oldest
        for _ in range(len(waiting) - self.keep_open):
            # (The first key of a dict is slow to find once many before it were deleted.)
            while number not in waiting:
                number += 1
            del waiting[number]
            if self.partial:
                self.partial.pop(number, None)
            status[number] = (status[number] & ~STATUS) | EXPIRED
        self._oldest = number

    # -- looking ------------------------------------------------------------------------------

    def state_of(self, number: int) -> int:
        """Return OPEN, LEARNED or EXPIRED."""
        return self.status[number] & STATUS

    def print_of(self, number: int, arm: int) -> int:
        """Return the fingerprint of what an arm said; 0 if that is not known."""
        return self.told[number * self.n_arms + arm]

    def stamp(self, number: int, arm: int, fingerprint: int) -> None:
        """Note the fingerprint of what an arm said."""
        self.told[number * self.n_arms + arm] = fingerprint

    # -- to and from a snapshot ---------------------------------------------------------------

    def kept(self) -> "KeptLedger":
        """Return all of it as plain values."""
        return KeptLedger(
            [
                part.tobytes()
                for part in (
                    self.status,
                    self.stops,
                    self.wanted,
                    self.told,
                    self.decided_at,
                    self.ended_at,
                )
            ],
            list(self.open),
            [one for one in self.open.values() if isinstance(one, bytes)],
            [d.state() for d in self.open.values() if isinstance(d, Descent)],
            self.partial,
            self.labels,
            dict(self.keys),
            self.learned,
        )

    def take_up(self, kept: "KeptLedger", resume: Any) -> None:
        """Become what `kept` saw; ``resume`` makes descents of their states."""
        parts = (
            self.status,
            self.stops,
            self.wanted,
            self.told,
            self.decided_at,
            self.ended_at,
        )
        for part, content in zip(parts, kept.arrays, strict=True):
            part.frombytes(content)
        rows, descents = iter(kept.rows), iter(kept.descents)
        for number in kept.open:
            if self.status[number] & STEPPED:
                self.open[number] = cast(Descent, resume(next(descents)))
            else:
                self.open[number] = next(rows)
        self.partial = kept.partial
        self.labels = kept.labels
        self.keys = OrderedDict(kept.keys)
        self._oldest = min(kept.open, default=len(self))
        self.learned = kept.learned


class KeptLedger(msgspec.Struct, frozen=True, array_like=True):
    """A ledger in a snapshot."""

    arrays: list[bytes]
    open: list[int]
    rows: list[bytes]
    descents: list[dict[str, Any]]
    partial: dict[int, dict[int, bytes]]
    labels: dict[int, int]
    keys: dict[str, Key]
    learned: int


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
