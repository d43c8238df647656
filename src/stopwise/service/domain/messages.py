"""Bodies of HTTP requests and responses, shared by the service and its client."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from stopwise.service.validation import NAME

Name = Annotated[
    str,
    Meta(
        pattern=NAME,
        description="At most 64 lower-case letters, digits, - and _.",
        examples=["triage"],
    ),
]
Context = (
    Annotated[list[float], Meta(description="Numbers in order.", examples=[[0.2, 0.7]])]
    | Annotated[
        dict[str, float | str | bool | None],
        Meta(description="Numbers by name, or raw column values if the cascade has an encoding."),
    ]
)


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm of a cascade: a test, a model or a human expert."""

    name: Annotated[str, Meta(min_length=1, max_length=100, examples=["glucose"])]
    cost: Annotated[float, Meta(ge=0, description="The cost of running the arm.", examples=[0.24])]


class CascadeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The definition of a cascade: arms, costs, context, features and policy.

    Attributes
    ----------
    name : str
        Part of the URLs. A name cannot be reused, even after the cascade is retired.
    arms : list of Arm
        The arms in the order in which they run.
    context : list of str, int or dict
        The names of the numbers in a context, or only how many there are; or an encoding of
        categories, dates and missing values, as returned by `Encoding.to_spec`.
    tradeoff : float
        λ, the error probability that one unit of cost is worth.
    features : dict
        A feature map as returned by `to_spec`, such as ``{"kind": "polynomial", "degree": 2}``;
        by default ``{"kind": "standard"}``, which standardises the contexts.
    policy : dict
        The kind of policy and its parameters, such as ``{"kind": "uss-laplace", "labels": 100}``.
        With ``"reveals": 1``, each stage but the last adds a number to the context, and rounds are
        decided arm by arm.
    keep_open : int
        The maximum number of rounds waiting for outputs; beyond it, the oldest expire.
    note : str, optional
        Anything else that distinguishes the cascade, such as how answers are compared.
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
    """A cascade and its counts."""

    spec: CascadeSpec
    status: Annotated[
        Literal["active", "retired", "failed"],
        Meta(description="failed: being reloaded from the log; until then, all counts are 0."),
    ]
    created: Annotated[float, Meta(description="Seconds since 1970.")]
    n_features: int
    rounds: Annotated[int, Meta(description="Rounds opened so far.")]
    open: Annotated[int, Meta(description="Rounds waiting for outputs.")]
    learned: Annotated[int, Meta(description="Rounds the policy has learned from.")]
    labelled: Annotated[int, Meta(description="Rounds with a label.")]
    labels_wanted: Annotated[int, Meta(description="Labels requested and not yet reported.")]
    stops: Annotated[list[int], Meta(description="Rounds that stopped at each arm.")]
    mean_cost: Annotated[
        float | None, Meta(description="Mean cost per round; null before the first stop.")
    ]
    labels_asked: Annotated[int, Meta(description="Labels requested so far.")] = 0
    labels_missing: Annotated[
        int,
        Meta(description="Requested labels that are missing; the policy assumes the worst case."),
    ] = 0


class CascadeList(msgspec.Struct, frozen=True):
    """All cascades."""

    cascades: list[CascadeView]


class RoundRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Open a round with a context, or with the part of it known before the first arm."""

    context: Context = []
    evidence: Annotated[bool, Meta(description="Whether the response explains the decision.")] = (
        False
    )
    complete: Annotated[
        bool | msgspec.UnsetType,
        Meta(
            description="If stages reveal the context: run every arm, and record where the "
            "rule would have stopped."
        ),
    ] = msgspec.UNSET  # clients that do not use it do not send it


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Open several rounds; every decision is made before the policy learns from any of them."""

    contexts: Annotated[list[Context], Meta(min_length=1)]
    evidence: bool = False


class Evidence(msgspec.Struct, frozen=True):
    """A comparison behind a decision: the cost and the benefit of continuing to a later arm."""

    first: str
    second: str
    gap: Annotated[float, Meta(description="The additional cost of continuing to `second`.")]
    disagreement: Annotated[
        float, Meta(description="Estimated probability that the two arms disagree.")
    ]
    disagreement_ucb: Annotated[
        float, Meta(description="Upper confidence bound of `disagreement`.")
    ]
    gap_won: Annotated[bool, Meta(description="Whether continuing is not worth its cost.")]
    gain: Annotated[
        float, Meta(description="Upper bound, from labels, on the gain per disagreement.")
    ] = 1.0
    response: Annotated[
        float,
        Meta(description="Share of requested labels that arrived; below 1, it raises `gain`."),
    ] = 1.0


Status = Literal["open", "learned", "expired"]


class RoundAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a round; fields that are not yet known are absent.

    Attributes
    ----------
    status : str
        open: outputs are missing. learned: the policy has learned from the round. expired: too
        many newer rounds were open.
    arm : str
        The name of the arm at index `stop`, or at index `next` while `stop` is unknown; empty if
        the round ended before any arm answered.
    cost : float
        The cost of all arms up to `stop`; while `stop` is unknown, of the arms that have answered.
    stop : int
        The index of the last arm to run, from 0. If stages reveal the context, it is absent until
        the policy has decided to stop.
    next : int
        The index of the first arm whose output is missing; absent once the round has ended.
    reason : str
        An explanation of the stop, if evidence was requested.
    repeated : bool
        Whether the request repeated an earlier one and changed nothing.
    wants_label : bool
        Whether the policy requests a label for this round.
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
    """Rounds in the order of the contexts."""

    rounds: list[RoundAnswer]


class OutputsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report outputs of arms: all of them, or those available so far.

    Attributes
    ----------
    outputs : list or dict
        A list in the order of the arms (null: not yet available), or an object by arm name. Outputs
        are any JSON values, compared by equality. Of an output longer than 1,024 bytes, only the
        hash is stored.
    revealed : list of float
        The numbers that the arm adds to the context, if stages reveal it.
    final : bool
        Whether the remaining outputs will never arrive because a stage failed. The policy then
        learns from the arms before the first missing one.
    """

    outputs: list[Any] | dict[str, Any]
    revealed: list[float] = []
    final: bool = False


class LabelReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report the label of a round, as either `label` or `right`.

    Attributes
    ----------
    label : Any
        The right answer: a JSON value like the outputs, not null.
    right : dict
        Whether each arm that answered was right, by arm name. Use it if several answers can be
        right, as with free text.
    """

    label: Any | UnsetType = UNSET
    right: dict[str, bool] | UnsetType = UNSET


class LabelAnswer(msgspec.Struct, frozen=True):
    """The result of labelling a round."""

    id: str
    labelled: Annotated[int, Meta(description="Labelled rounds of the cascade so far.")]
    repeated: bool
    warning: (
        Annotated[str, Meta(description="Present if the latest labels matched no output.")]
        | UnsetType
    ) = UNSET


class WantedLabel(msgspec.Struct, frozen=True):
    """A round whose label is requested, with its context and outputs."""

    id: str
    time: float
    context: list[float]
    outputs: dict[str, Any]
    probability: Annotated[
        float, Meta(description="Probability with which this label was requested.")
    ]


class WantedLabels(msgspec.Struct, frozen=True):
    """Rounds whose labels are requested, the oldest request first."""

    wanted: Annotated[int, Meta(description="Number of requested labels.")]
    rounds: Annotated[list[WantedLabel], Meta(description="The oldest requests, at most 20.")]


class RoundView(msgspec.Struct, frozen=True):
    """A round from the log; fields whose events were compacted away are null."""

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
    """The state of a replica: equal hashes mean bit-identical states."""

    position: Annotated[int, Meta(description="Number of events in the log.")]
    log: Annotated[str, Meta(description="Digest of the log up to `position`.")]
    hash: Annotated[str, Meta(description="Digest of the state.")]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error: a code for programs and a message for people."""

    code: Annotated[str, Meta(examples=["unknown_round"])]
    message: str
    field: Annotated[str, Meta(description="The invalid field of the request.")] | UnsetType = UNSET


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: Fault
