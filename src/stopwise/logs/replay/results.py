"""The result of a replay, serialisable as JSON."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from stopwise.arrays import Bytes
from stopwise.intervals import Interval
from stopwise.logs.recommendation import Recommendation
from stopwise.logs.vocabulary import AnswerTable

Criterion = Literal["total loss", "cost + disagreement"]


class CandidateResult(msgspec.Struct, frozen=True):
    """The results of a policy or a fixed depth.

    Shares and means are over the rounds that can be evaluated. Without such rounds, each is None
    (those in ``depths`` are 0); a mean is also None for a single round, which gives no interval.
    Intervals are at 95 %: Wilson's for shares, normal for means. Amounts are in the unit of the
    cascade's costs, regardless of the weight a policy was created with.
    """

    name: str  # of the policy as typed, or of the arm of a fixed depth
    rounds: int  # that can be evaluated
    beyond: int  # went deeper than the log: not counted in ``rounds``, and not learned from
    depths: tuple[Interval, ...]  # the share of rounds that ended at each arm
    cost: Interval | None  # mean of C_stop; exact if no round is ``beyond``
    compared: int  # rounds whose deepest output is known
    disagreement: Interval | None  # share of these whose answer differs from the deepest arm's
    cost_and_disagreement: Interval | None  # mean of C_stop + disagreement·error_cost over these
    labelled: int  # rounds whose right answer is known
    error: Interval | None  # share of wrong answers among these
    loss: Interval | None  # mean of C_stop + error·error_cost over these
    priced: int  # rounds whose actual cost is logged
    money: Interval | None  # mean of the actual cost of these up to the stop
    as_played: Interval | None  # share of all rounds decided as recorded, if the log has stops
    # paired difference of `Replay.judged_by` from each fixed depth; None unless all are exact, and
    # for the fixed depths themselves
    over_fixed: tuple[Interval, ...] | None

    @property
    def exact(self) -> bool:
        """Whether the log has the outcome of every decision of this policy or depth."""
        return self.beyond == 0

    def value(self, by: Criterion) -> Interval | None:
        """Return the value of a criterion."""
        return self.loss if by == "total loss" else self.cost_and_disagreement


class Replay(msgspec.Struct, frozen=True, eq=False):
    """The result of `replay`: what policies would have done with the rounds of a log.

    Attributes
    ----------
    log : str
        The name of the file.
    arms, costs : tuple
        Names of the arms and their cumulative costs C_i, in the unit of the cascade's costs.
    error_cost : float
        The cost of a wrong answer in that unit; 1 if costs are in units of one wrong answer.
    rounds, labelled : int
        Rounds of the log, and those with a right answer.
    failed, unanswered : int
        Rounds in which an arm failed; rounds in which the first arm failed.
    truncated : int
        Rounds without the outputs of the deeper arms, though no arm failed.
    seed : int
        The seed of policies given by name.
    asked, answered : dict of str to int
        Number of labels requested, for each policy that requested any; how many of these labels
        the log had.
    judged_by : {"total loss", "cost + disagreement"}
        The criterion: the total loss if at least 30 rounds have labels.
    policies : tuple of CandidateResult
        Best first; in the order of the arguments if they cannot be compared.
    fixed : tuple of CandidateResult
        Every fixed depth, the shallowest first.
    best_fixed : int or None
        Index in ``fixed`` of the best fixed depth in hindsight; None if they cannot be compared.
    notes : tuple of str
        Warnings about likely errors in the log.
    columns : dict of str to str
        How each context column was encoded.
    answers : AnswerTable
        The distinct answers of each arm, counted.
    recommendation : Recommendation or None
        The recommended policy or fixed depth; None if options cannot be compared.
    decisions : dict of str to ndarray of uint8
        The stops of each policy, round by round. Not in the JSON, and empty for totals over
        tenants.
    weight : float
        Factor by which costs were multiplied for the policies; amounts here are not multiplied.
    tenants : dict of str to Replay
        The result of each tenant.
    grid : dict of float to Replay
        The result for each weight, if there are several. This object is the result for the
        recommended policy's weight, or for the weight nearest to 1.
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
        """Whether the log has the outcome of every decision of every policy and fixed depth."""
        return all(row.exact for row in (*self.policies, *self.fixed))

    @property
    def sentences(self) -> list[str]:
        """The conclusions as sentences."""
        from stopwise.logs.replay.conclusions import sentences

        return sentences(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the decisions; for tenants, only the results of the policies."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        del fields["decisions"], fields["tenants"], fields["grid"]
        if self.tenants:
            fields["tenants"] = {
                name: {"rounds": tenant.rounds, "policies": tenant.policies}
                for name, tenant in self.tenants.items()
            }
        if self.grid:
            fields["grid"] = [
                replay.as_dict() | {"weight": weight} for weight, replay in self.grid.items()
            ]
        return fields | {"exact": self.exact, "sentences": self.sentences}

    def to_json(self) -> bytes:
        """Return everything except the decisions as indented JSON."""
        fields = {"format": 1} | self.as_dict()
        return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
