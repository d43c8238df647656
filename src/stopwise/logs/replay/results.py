"""The result of a replay, ready for JSON."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stopwise.arrays import Bytes
from stopwise.intervals import Interval
from stopwise.logs.recommendation import Recommendation
from stopwise.logs.vocabulary import AnswerTable

Criterion = Literal["total loss", "cost + disagreement"]


class CandidateResult(msgspec.Struct, frozen=True):
    """The numbers of a policy, or of a fixed depth.

    All are per round, over the rounds that can be evaluated; None where nothing is known, and for
    means (not shares) also where it is known of a single round, from which no interval follows.
    Intervals are at 95 %, Wilson's for shares and normal ones for means. Amounts are in the unit of
    the costs that were given, whatever the weight that a policy was created with.
    """

    name: str  # as it was given; for a fixed depth the arm
    rounds: int  # that can be evaluated
    beyond: int  # decided deeper than the log goes: not among ``rounds``, and nothing was learned
    depths: tuple[Interval, ...]  # the share of rounds that ended at each arm
    cost: Interval | None  # mean of C_stop; exact if no round is ``beyond``
    compared: int  # rounds whose deepest output is known
    disagreement: Interval | None  # share of these whose answer differs from the deepest arm's
    cost_and_disagreement: Interval | None  # mean of C_stop + disagreement·error_cost over these
    labelled: int  # rounds whose right answer is known
    error: Interval | None  # share of wrong answers in these
    loss: Interval | None  # mean of C_stop + error·error_cost over these
    priced: int  # rounds whose real cost is known
    money: Interval | None  # mean of what these really cost up to the stop
    as_played: Interval | None  # share of all rounds decided as recorded, if the log says how
    # by how much its `Replay.judged_by` exceeds that of each fixed depth, round by round; None
    # unless all are exact, and for the fixed depths themselves
    over_fixed: tuple[Interval, ...] | None

    @property
    def exact(self) -> bool:
        """Whether the log has the outcome of every decision (and so its cost)."""
        return self.beyond == 0

    def value(self, by: Criterion) -> Interval | None:
        """Return the number by which lines are compared."""
        return self.loss if by == "total loss" else self.cost_and_disagreement


class Replay(msgspec.Struct, frozen=True, eq=False):
    """What policies would have done with the rounds of a log; returned by `replay`.

    Attributes
    ----------
    log : str
        The name of the file.
    arms, costs : tuple
        Of the cascade; costs are cumulative, C_i, in the unit in which they were given.
    error_cost : float
        What one wrong answer costs in that unit; 1 if costs are in units of one wrong answer.
    rounds, labelled : int
        Rounds of the log, and those with a right answer.
    failed, unanswered : int
        Rounds in which an arm failed; in which it was the first arm.
    truncated : int
        Rounds without the outputs of the deeper arms, though no arm failed.
    seed : int
        As given.
    asked, answered : dict of str to int
        How many labels each policy asked for, of those that did, and how many the log had.
    judged_by : {"total loss", "cost + disagreement"}
        What lines are compared by: the loss, if at least 30 rounds have labels.
    policies : tuple of CandidateResult
        Best first; in the order given where they cannot be compared.
    fixed : tuple of CandidateResult
        Every fixed depth, the shallowest first.
    best_fixed : int or None
        The best of them in hindsight; None where the log does not say.
    notes : tuple of str
        Warnings: what is likely to be wrong with the log.
    columns : dict of str to str
        What was done to each column of the context.
    answers : AnswerTable
        The distinct answers of each arm, counted.
    recommendation : Recommendation or None
        The policy or fixed depth to take; None if nothing can be compared.
    decisions : dict of str to ndarray of uint8
        Every policy's stops, round by round. Not in the JSON, and empty for several
        tenants.
    weight : float
        By which costs were multiplied for the policies; all amounts are at weight 1.
    tenants : dict of str to Replay
        The same for each tenant.
    grid : dict of float to Replay
        The same for each of several weights: this is that of the recommended policy, or the one
        nearest to 1.
    """

    log: str
    arms: tuple[str, ...]
    costs: tuple[float, ...]
    error_cost: float
    rounds: int
    labelled: int
    failed: int
    unanswered: int
    truncated: int
    seed: int
    asked: dict[str, int]
    answered: dict[str, int]
    judged_by: Criterion
    policies: tuple[CandidateResult, ...]
    fixed: tuple[CandidateResult, ...]
    best_fixed: int | None
    notes: tuple[str, ...]
    columns: dict[str, str]
    answers: AnswerTable
    decisions: dict[str, Bytes]
    recommendation: Recommendation | None = None
    weight: float = 1.0
    tenants: "Mapping[str, Replay]" = {}
    grid: "Mapping[float, Replay]" = {}

    @property
    def exact(self) -> bool:
        """Whether the log has the outcome of every decision of every line."""
        return all(one.exact for one in (*self.policies, *self.fixed))

    @property
    def sentences(self) -> list[str]:
        """The conclusions, in words."""
        from stopwise.logs.replay.conclusions import sentences

        return sentences(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the decisions; of each tenant, what policies did."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        del fields["decisions"], fields["tenants"], fields["grid"]
        if self.tenants:
            fields["tenants"] = {
                name: {"rounds": one.rounds, "policies": one.policies}
                for name, one in self.tenants.items()
            }
        if self.grid:
            fields["grid"] = [one.as_dict() | {"weight": w} for w, one in self.grid.items()]
        return fields | {"exact": self.exact, "sentences": self.sentences}

    def to_json(self) -> bytes:
        """Return everything but the decisions, as JSON for people and programs."""
        fields = {"format": 1} | self.as_dict()
        return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
