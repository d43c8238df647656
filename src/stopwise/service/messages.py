"""What travels over HTTP: the bodies of requests and of answers, for the service and its client."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,63}\Z",
        description="Lower-case letters, digits, - and _; at most 64.",
        examples=["triage"],
    ),
]
Number = Annotated[float, Meta(description="A finite number.")]
Context = (
    Annotated[list[float], Meta(description="The numbers, in order.", examples=[[0.2, 0.7]])]
    | Annotated[dict[str, float], Meta(description="The numbers, by the names of the context.")]
)


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One arm of a cascade: a test, a model, a person to ask."""

    name: Annotated[str, Meta(min_length=1, max_length=100, examples=["glucose"])]
    cost: Annotated[float, Meta(ge=0, description="What running it costs.", examples=[0.24])]


class CascadeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cascade as a person describes it: arms, costs, context, features, policy.

    Attributes
    ----------
    name : str
        By which it is asked for; never used again, even once retired.
    arms : list of Arm
        In the order in which they run.
    context : list of str or int
        Names of the numbers in a context, or just how many there are.
    tradeoff : float
        λ, what a unit of cost is worth in error probability.
    features : dict
        A feature map as `to_spec` writes it: ``{"kind": "polynomial", "degree": 2}``; or
        ``{"kind": "per_stage", "maps": […], "sees": […]}`` where stages reveal the context.
    policy : dict
        ``{"kind": "uss-pd", …}`` with the parameters of that policy.
    keep_open : int
        Decisions that may wait for their outputs; the oldest beyond that are given up.
    """

    name: Name
    arms: Annotated[list[Arm], Meta(min_length=2, max_length=15)]
    context: (
        Annotated[int, Meta(ge=1)]
        | Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(min_length=1)]
    )
    tradeoff: Annotated[float, Meta(gt=0)] = 1.0
    features: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"kind": "polynomial", "degree": 1}
    )
    policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "uss-pd"})
    keep_open: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000


class CascadeView(msgspec.Struct, frozen=True):
    """A cascade as the service has it now."""

    spec: CascadeSpec
    status: Literal["active", "retired"]
    created: Annotated[float, Meta(description="Seconds since 1970.")]
    n_features: int
    decisions: Annotated[int, Meta(description="Decided so far.")]
    open: Annotated[int, Meta(description="Of these, waiting for outputs.")]
    learned: Annotated[int, Meta(description="Rounds that the policy has learned from.")]
    audited: Annotated[int, Meta(description="Rounds whose right answer was told.")]
    stops: Annotated[list[int], Meta(description="How many stopped at each arm.")]
    mean_cost: Annotated[
        float | None, Meta(description="Cost per decision; null before the first.")
    ]


class CascadeList(msgspec.Struct, frozen=True):
    """Every cascade there is."""

    cascades: list[CascadeView]


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask how deep to go."""

    context: Context
    evidence: Annotated[bool, Meta(description="Whether to tell why.")] = False


class Evidence(msgspec.Struct, frozen=True):
    """One comparison that a decision rested on: whether going on to a deeper arm is worth it."""

    first: str
    second: str
    gap: Annotated[float, Meta(description="What going on costs more.")]
    disagreement: Annotated[float, Meta(description="Estimated chance that they disagree.")]
    disagreement_ucb: Annotated[float, Meta(description="The optimistic value compared.")]
    gap_won: Annotated[bool, Meta(description="Whether going on is not worth it.")]


class DecisionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How deep to go: run the arms up to ``stop``, then tell what they said."""

    id: Annotated[str, Meta(examples=["17-0c3fa"])]
    stop: Annotated[int, Meta(ge=0, description="Index of the last arm to run, from 0.")]
    arm: Annotated[str, Meta(description="Its name.")]
    cost: Annotated[float, Meta(description="Of all arms up to it.")]
    reason: (
        Annotated[str, Meta(description="In words, where evidence was asked for.")] | UnsetType
    ) = UNSET
    evidence: list[Evidence] | UnsetType = UNSET


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask how deep to go for several contexts; none learns from another."""

    contexts: Annotated[list[Context], Meta(min_length=1)]
    evidence: bool = False


class BatchAnswer(msgspec.Struct, frozen=True):
    """The decisions, in the order of the contexts."""

    decisions: list[DecisionAnswer]


class OutputsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tell what arms said: all of them, or those that have answered so far.

    Attributes
    ----------
    outputs : list or dict
        By position from arm 0 (null: not known yet), or by the name of the arm. Any JSON values;
        they are compared by equality.
    final : bool
        No more will come (a stage failed): learn from the arms before the first one missing.
    """

    outputs: list[Any] | dict[str, Any]
    final: bool = False


Status = Literal["open", "learned", "expired"]


class OutputsAnswer(msgspec.Struct, frozen=True):
    """Where a decision stands once outputs were told."""

    id: str
    status: Status
    missing: Annotated[list[str], Meta(description="Arms whose outputs are still to come.")]
    repeated: Annotated[bool, Meta(description="Nothing in it was new.")]


class LabelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tell the right answer of a round chosen at random for an audit."""

    label: Annotated[Any, Meta(description="A JSON value like the outputs; not null.")]


class LabelAnswer(msgspec.Struct, frozen=True):
    """An audited round."""

    id: str
    audited: Annotated[int, Meta(description="Rounds audited so far.")]
    repeated: bool


class DecisionView(msgspec.Struct, frozen=True):
    """A decision looked up again."""

    id: str
    status: Status
    stop: int | None
    arm: str | None
    cost: float | None
    time: float | None
    context: list[float] | None
    outputs: dict[str, Any] | None
    audited: bool


class RoundRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a round that is decided step by step."""

    context: Annotated[list[float], Meta(description="What is known before the first arm.")] = []


class StepRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tell what one arm said, and what it revealed."""

    arm: Annotated[int, Meta(ge=0, description="The arm that ran, from 0.")]
    output: Annotated[Any, Meta(description="A JSON value; not null.")]
    revealed: Annotated[list[float], Meta(description="Numbers it adds to the context.")] = []


class RoundAnswer(msgspec.Struct, frozen=True):
    """Where a round stands: which arm to run next, or that it has ended."""

    id: str
    status: Status
    next: Annotated[int | None, Meta(description="The arm to run now; null: stop here.")]
    arm: Annotated[str | None, Meta(description="Its name, or that of the arm it ended at.")]
    stop: Annotated[int | None, Meta(description="The last arm that ran, once it has ended.")]
    cost: Annotated[float, Meta(description="Of all arms that ran so far.")]


class StateAnswer(msgspec.Struct, frozen=True):
    """What the log amounts to: equal hashes, equal states, bit for bit."""

    position: Annotated[int, Meta(description="Events in the log.")]
    log: Annotated[str, Meta(description="Digest of the log up to there.")]
    hash: Annotated[str, Meta(description="Digest of the state.")]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, for a program (code) and for a person (message)."""

    code: Annotated[str, Meta(examples=["unknown_decision"])]
    message: str
    field: Annotated[str, Meta(description="Where in the body.")] | UnsetType = UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Fault
