"""Bodies of HTTP requests and answers, shared by the service and its client."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from stopwise.service.validation import NAME

Name = Annotated[
    str,
    Meta(
        pattern=NAME,
        description="Lower-case letters, digits, - and _; at most 64.",
        examples=["triage"],
    ),
]
Context = (
    Annotated[list[float], Meta(description="The numbers, in order.", examples=[[0.2, 0.7]])]
    | Annotated[
        dict[str, float | str | bool | None],
        Meta(description="The numbers by name; with an encoding, values as the columns have them."),
    ]
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
        In the path of requests; never used again, even once retired.
    arms : list of Arm
        In the order in which they run.
    context : list of str, int or dict
        Names of the numbers in a context, or just how many there are; or an encoding, as
        `Encoding.to_spec` writes it, of texts, dates and gaps.
    tradeoff : float
        λ, what a unit of cost is worth in error probability.
    features : dict
        A feature map as `to_spec` writes it: ``{"kind": "polynomial", "degree": 2}``; by default
        ``{"kind": "standard"}``, which scales itself.
    policy : dict
        ``{"kind": "uss-laplace", "labels": 100}``, for instance: the parameters of that policy.
        With ``"reveals": 1``, each stage but the last adds a number to the context, and rounds are
        decided arm by arm.
    keep_open : int
        Rounds that may wait for their outputs; the oldest beyond that are given up.
    note : str, optional
        What else belongs to the description, such as how answers are compared.
    """

    name: Name
    arms: Annotated[list[Arm], Meta(min_length=2, max_length=15)]
    context: (
        Annotated[int, Meta(ge=0)]
        | Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(min_length=1)]
        | dict[str, Any]
    )
    tradeoff: Annotated[float, Meta(gt=0)] = 1.0
    features: dict[str, Any] = field(default_factory=lambda: {"kind": "standard"})
    policy: dict[str, Any] = field(default_factory=lambda: {"kind": "uss-laplace"})
    keep_open: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    note: Annotated[str, Meta(max_length=1000)] | UnsetType = UNSET


class CascadeView(msgspec.Struct, frozen=True):
    """A cascade as the service has it now."""

    spec: CascadeSpec
    status: Annotated[
        Literal["active", "retired", "failed"],
        Meta(
            description="failed: it is being read from the log again; its counts are 0 until then."
        ),
    ]
    created: Annotated[float, Meta(description="Seconds since 1970.")]
    n_features: int
    rounds: Annotated[int, Meta(description="Opened so far.")]
    open: Annotated[int, Meta(description="Of these, waiting for outputs.")]
    learned: Annotated[int, Meta(description="Rounds that the policy has learned from.")]
    labelled: Annotated[int, Meta(description="Rounds whose label was reported.")]
    labels_wanted: Annotated[int, Meta(description="Labels that the policy asks for.")]
    stops: Annotated[list[int], Meta(description="How many stopped at each arm.")]
    mean_cost: Annotated[float | None, Meta(description="Cost per round; null before the first.")]
    labels_asked: Annotated[int, Meta(description="Labels that the policy asked for so far.")] = 0
    labels_missing: Annotated[
        int, Meta(description="Of these, the labels that count as missing: at worst.")
    ] = 0


class CascadeList(msgspec.Struct, frozen=True):
    """Every cascade there is."""

    cascades: list[CascadeView]


class RoundRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Open a round: ask how deep to go, or, where stages reveal the context, which arm is first."""

    context: Context = []
    evidence: Annotated[bool, Meta(description="Whether to explain the decision.")] = False
    complete: Annotated[
        bool | msgspec.UnsetType,
        Meta(
            description="Run every arm, whatever the rule says, where stages reveal the context; "
            "where it would have stopped is recorded."
        ),
    ] = msgspec.UNSET  # not sent by clients that do not use it


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Open several rounds; none learns from another."""

    contexts: Annotated[list[Context], Meta(min_length=1)]
    evidence: bool = False


class Evidence(msgspec.Struct, frozen=True):
    """One comparison behind a decision: whether going on to a deeper arm is worth it."""

    first: str
    second: str
    gap: Annotated[float, Meta(description="What going on costs more.")]
    disagreement: Annotated[float, Meta(description="Estimated chance that they disagree.")]
    disagreement_ucb: Annotated[float, Meta(description="Its upper confidence bound.")]
    gap_won: Annotated[bool, Meta(description="Whether going on is not worth it.")]
    gain: Annotated[float, Meta(description="The most it gains on disagreement, by labels.")] = 1.0
    response: Annotated[
        float, Meta(description="Share of labels that came, if missing ones raise the gain.")
    ] = 1.0


Status = Literal["open", "learned", "expired"]


class RoundAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a round; what is not known yet is absent.

    Attributes
    ----------
    status : str
        open: outputs are missing. learned: the policy has learned from it. expired: too many newer
        rounds were open, and this one was given up.
    arm : str
        The name of `stop` if that is known, else of `next`; empty if no arm answered.
    cost : float
        Of all arms up to `stop` if that is known, else of those that have answered.
    stop : int
        The last arm to run, from 0. Known at once, unless stages reveal the context.
    next : int
        The first arm whose output is missing; absent once the round has ended.
    reason : str
        Why it stops there, in words, where evidence was requested.
    repeated : bool
        Nothing in the request was new.
    wants_label : bool
        The policy asks for the round's label.
    """

    id: Annotated[str, Meta(examples=["17-0c3fa"])]
    status: Status
    arm: str
    cost: float
    stop: Annotated[int, Meta(ge=0)] | None = None
    next: Annotated[int, Meta(ge=0)] | None = None
    reason: str | None = None
    evidence: list[Evidence] | None = None
    repeated: bool = False
    wants_label: bool = False


class RoundList(msgspec.Struct, frozen=True):
    """The rounds, in the order of the contexts."""

    rounds: list[RoundAnswer]


class OutputsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report what arms answered: all of them, or those that have answered so far.

    Attributes
    ----------
    outputs : list or dict
        By position from arm 0 (null: not known yet), or by the name of the arm. Any JSON values;
        they are compared by equality. Of a value longer than 1,024 bytes a hash is stored.
    revealed : list of float
        Numbers that the arm adds to the context, where stages reveal it.
    final : bool
        No more will come (a stage failed): learn from the arms before the first one missing.
    """

    outputs: list[Any] | dict[str, Any]
    revealed: list[float] = []
    final: bool = False


class LabelReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report the label of a round, best of one that wants it: `label` or `right`.

    Attributes
    ----------
    label : Any
        The right answer: a JSON value like the outputs; not null.
    right : dict
        By the name of each arm that answered, whether it was right: for outputs of which several
        can be right, such as free text.
    """

    label: Any | UnsetType = UNSET
    right: dict[str, bool] | UnsetType = UNSET


class LabelAnswer(msgspec.Struct, frozen=True):
    """A labelled round."""

    id: str
    labelled: Annotated[int, Meta(description="Rounds labelled so far.")]
    repeated: bool
    warning: (
        Annotated[str, Meta(description="The latest labels equal no arm's output.")] | UnsetType
    ) = UNSET


class WantedLabel(msgspec.Struct, frozen=True):
    """A round whose label is asked for: what was known of it, and what its arms said."""

    id: str
    time: float
    context: list[float]
    outputs: dict[str, Any]
    probability: Annotated[float, Meta(description="Of asking for the label of such a round.")]


class WantedLabels(msgspec.Struct, frozen=True):
    """Labels that the policy asks for, the oldest first."""

    wanted: Annotated[int, Meta(description="How many there are.")]
    rounds: Annotated[list[WantedLabel], Meta(description="The first of them.")]


class RoundView(msgspec.Struct, frozen=True):
    """A round looked up: its state, and what the log has of it (null: compacted away)."""

    id: str
    status: Status
    stop: int | None
    next: int | None
    arm: str
    cost: float
    time: float | None
    context: list[float] | None
    outputs: dict[str, Any] | None
    labelled: bool
    wants_label: bool


class StateAnswer(msgspec.Struct, frozen=True):
    """The state of a replica: equal hashes, equal states, bit for bit."""

    position: Annotated[int, Meta(description="Events in the log.")]
    log: Annotated[str, Meta(description="Digest of the log up to there.")]
    hash: Annotated[str, Meta(description="Digest of the state.")]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, for a program (code) and for a person (message)."""

    code: Annotated[str, Meta(examples=["unknown_round"])]
    message: str
    field: Annotated[str, Meta(description="Where in the body.")] | UnsetType = UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Fault
