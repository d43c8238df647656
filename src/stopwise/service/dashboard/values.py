"""What a page shows, as plain values: all that it needs, and nothing it must not show."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from stopwise.logs.diagnosis.findings import Estimate
from stopwise.logs.diagnosis.intervals import wilson

Mood = Literal["good", "quiet", "warn"]


class Stretch(msgspec.Struct, frozen=True):
    """What happened in a stretch of time.

    Attributes
    ----------
    begin, end : float
        In seconds since 1970.
    stops : tuple of int
        How many decisions stopped at each arm.
    seen, differed : tuple of int
        For each pair, in how many rounds both arms were heard, and in how many they disagreed.

    Examples
    --------
    >>> one = Stretch(0.0, 60.0, (3, 1), (1,), (0,))
    >>> one.decisions, one.cost((0.1, 0.5))
    (4, 0.2)
    """

    begin: float
    end: float
    stops: tuple[int, ...]
    seen: tuple[int, ...]
    differed: tuple[int, ...]

    @property
    def decisions(self) -> int:
        """How many decisions there were."""
        return sum(self.stops)

    def cost(self, cumulative: Sequence[float]) -> float | None:
        """Return the mean cost of a decision; None where there was none."""
        return mean_cost(self.stops, cumulative)


class Health(msgspec.Struct, frozen=True):
    """How the learner is, in one word and one sentence."""

    mood: Mood
    word: str
    sentence: str


class Glance(msgspec.Struct, frozen=True):
    """A cascade in one line.

    Attributes
    ----------
    name, status, created
        Of the cascade.
    arms : tuple of str
        Their names, in order.
    cumulative : tuple of float
        What stopping at each arm costs.
    decisions, open, learned, audited : int
        Decided so far; of these waiting for outputs, learned from, told the right answer.
    stops : tuple of int
        How many stopped at each arm.
    health : Health
        Of its learner.
    last : float or None
        When it last decided.
    exploring : bool
        Whether forced exploration is on: what stopped before the last arm ended early, because an
        arm failed or nobody went on, and not because it was enough.
    """

    name: str
    status: str
    created: float
    arms: tuple[str, ...]
    cumulative: tuple[float, ...]
    decisions: int
    open: int
    learned: int
    audited: int
    stops: tuple[int, ...]
    health: Health
    last: float | None
    exploring: bool = False

    @property
    def active(self) -> bool:
        """Whether it still decides."""
        return self.status == "active"

    @property
    def stopped(self) -> int:
        """How many have an end; rounds taken step by step may still be on their way."""
        return sum(self.stops)

    @property
    def cost(self) -> float | None:
        """Mean cost of a decision."""
        return mean_cost(self.stops, self.cumulative)

    @property
    def deepest(self) -> float:
        """What a decision costs that goes to the last arm."""
        return self.cumulative[-1]

    @property
    def saving(self) -> float | None:
        """The share of the cost of always going to the last arm that is saved."""
        cost = self.cost
        if cost is None or self.deepest == 0.0:
            return None
        return 0.0 if self.exploring else 1.0 - cost / self.deepest

    @property
    def ended_early(self) -> int:
        """How many ended before the last arm though exploration asks for it."""
        return self.stopped - self.stops[-1] if self.exploring else 0


class Sums(msgspec.Struct, frozen=True):
    """All cascades together: how many there are, and how often they decided."""

    cascades: int
    active: int
    decisions: int
    open: int


class Pair(msgspec.Struct, frozen=True):
    """Two arms, and how often they were seen to disagree.

    Attributes
    ----------
    number : int
        Its place in the order of pairs.
    first, second : int
        The arms.
    gap : float
        What going on from the one to the other costs.
    seen, differed : int
        Rounds in which both were heard, and in which they disagreed.

    Examples
    --------
    >>> print(Pair(0, 0, 1, 0.24, seen=100, differed=12).share)
    0.120 (0.070 to 0.198)
    """

    number: int
    first: int
    second: int
    gap: float
    seen: int
    differed: int

    @property
    def share(self) -> Estimate:
        """The share of disagreements, with its 95 % interval."""
        return wilson(self.differed, self.seen)


class Compared(msgspec.Struct, frozen=True):
    """One comparison behind a decision."""

    first: int
    second: int
    gap: float
    estimate: float | None
    at_most: float
    worth_it: bool


class Made(msgspec.Struct, frozen=True):
    """A recent decision and why it was made. Its context may be personal and is not shown."""

    id: str
    time: float
    stop: int
    cost: float
    words: str
    compared: tuple[Compared, ...]
    left_out: int = 0


class Fact(msgspec.Struct, frozen=True):
    """Something to know about the learner: a name, a value, and what it means."""

    name: str
    value: str
    meaning: str = ""


class Whole(msgspec.Struct, frozen=True):
    """Everything on the page of a cascade."""

    glance: Glance
    costs: tuple[float, ...]
    stretches: tuple[Stretch, ...]
    pairs: tuple[Pair, ...]
    recent: tuple[Made, ...]
    facts: tuple[Fact, ...]
    try_this: str
    tell_this: str


class Running(msgspec.Struct, frozen=True):
    """How the service is.

    Attributes
    ----------
    now : float
        When this was true.
    position : int
        Events in the log.
    last : float or None
        When the last event happened.
    lag : float
        Seconds since this process last knew that it had them all.
    waiting : int
        Requests that wait to be written.
    trouble, recovering : str
        Why nothing can be written now; how far recovery is. Empty when all is well.
    """

    now: float
    position: int
    last: float | None
    lag: float
    waiting: int
    trouble: str
    recovering: str


class Visitor(msgspec.Struct, frozen=True):
    """Who looks at a page.

    Attributes
    ----------
    name : str
        Of the key they signed in with; empty where no keys are configured.
    may_act : bool
        Whether it is an admin's key.
    token : str
        Proves that a form came from our own page.
    """

    name: str = ""
    may_act: bool = False
    token: str = ""


def mean_cost(stops: Sequence[int], cumulative: Sequence[float]) -> float | None:
    """Return the mean cost of decisions that stopped so often at each arm.

    Examples
    --------
    >>> mean_cost((1, 1), (0.25, 0.75)), mean_cost((0, 0), (0.25, 0.75))
    (0.5, None)
    """
    decisions = sum(stops)
    if decisions == 0:
        return None
    return sum(n * cost for n, cost in zip(stops, cumulative, strict=True)) / decisions


def merged(stretches: Sequence[Stretch], most: int) -> tuple[Stretch, ...]:
    """Join neighbours until there are at most so many stretches, all but the last equally long.

    Examples
    --------
    >>> hours = [Stretch(h, h + 1, (1, h), (h,), (0,)) for h in range(5)]
    >>> [(s.begin, s.end, s.stops) for s in merged(hours, 3)]
    [(0, 2, (2, 1)), (2, 4, (2, 5)), (4, 5, (1, 4))]
    """
    each = max(1, -(-len(stretches) // most))
    groups = [stretches[k : k + each] for k in range(0, len(stretches), each)]
    return tuple(
        Stretch(
            group[0].begin,
            group[-1].end,
            _added([s.stops for s in group]),
            _added([s.seen for s in group]),
            _added([s.differed for s in group]),
        )
        for group in groups
    )


def _added(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))
