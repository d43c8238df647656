"""Every route of the API: where it is, who may use it, what it takes and gives, and what it does.

The table `ROUTES` is all there is: the application serves it, and the published OpenAPI document
is made from it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from stopwise.service.keys import Scope
from stopwise.service.messages import (
    BatchAnswer,
    BatchRequest,
    CascadeList,
    CascadeSpec,
    CascadeView,
    DecisionAnswer,
    DecisionRequest,
    DecisionView,
    LabelAnswer,
    LabelRequest,
    OutputsAnswer,
    OutputsRequest,
    RoundAnswer,
    RoundRequest,
    StateAnswer,
    StepRequest,
)
from stopwise.service.metrics import CONTENT_TYPE, Metrics
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service

JSON = "application/json"
WRITES_FAIL = "the log cannot be written now"


class HealthAnswer(msgspec.Struct, frozen=True):
    """How a service is."""

    status: Literal["alive", "ready"]


class Digests:
    """The digest of the state, computed once for each state and by one caller at a time.

    Parameters
    ----------
    service : Service
        Of which.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._one = asyncio.Lock()
        self._last: StateAnswer | None = None

    async def now(self) -> StateAnswer:
        """Return it: to compute it, the whole state is encoded; to be told again is free."""
        async with self._one:
            self._service.check_ready()
            state, last = self._service.state, self._last
            # The digest of the log stands for all that is in it, and that for the state.
            if last is None or (last.position, last.log) != (
                state.position,
                state.log_digest.hex(),
            ):
                self._last = last = await self._service.settled_hash()
            return last


@dataclass(frozen=True, slots=True)
class Call:
    """A request that has passed the guard.

    Attributes
    ----------
    service : Service
        Who carries it out.
    metrics : Metrics
        What it tells Prometheus.
    document : bytes
        The OpenAPI document.
    digests : Digests
        Of the state.
    path : mapping
        What stands in the path: ``name`` of a cascade, ``id`` of a decision or round.
    key : str or None
        The Idempotency-Key.
    body : Any
        Of the type that the route takes; None if it takes none.
    trusted : bool
        Whether whoever asks may know details: has a valid key, or is not asked for one.
    """

    service: Service
    metrics: Metrics
    document: bytes
    digests: Digests
    path: Mapping[str, str]
    key: str | None = None
    body: Any = None
    trusted: bool = False

    @property
    def name(self) -> str:
        """The cascade."""
        return self.path["name"]

    @property
    def id(self) -> str:
        """The decision or round."""
        return self.path["id"]


@dataclass(frozen=True, slots=True)
class Text:
    """A body that is no message: its bytes, and what they are."""

    content: bytes
    media_type: str


Reply: TypeAlias = tuple[int, msgspec.Struct | Text]


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes
    ----------
    method, path : str
        Where it is; ``{name}`` and ``{id}`` stand for what varies.
    run : callable
        Carries out a `Call`; the first line of its docstring is the summary in the document.
    needs : str or None
        The scope of the key: None, any valid key; "nothing", not even a key.
    takes : type or None
        Of the body.
    gives : dict
        Status of each success → (type of the body, when).
    refuses : tuple of str
        Codes that it can be refused with, besides those that any route of its sort can.
    repeatable : bool
        Whether an Idempotency-Key is heeded.
    tag : str
        What it belongs to, in the document.
    media_type : str
        Of what it gives.
    """

    method: Literal["GET", "POST"]
    path: str
    run: Callable[[Call], Awaitable[Reply]]
    needs: Scope | Literal["nothing"] | None
    gives: Mapping[int, tuple[Any, str]]
    takes: Any = None
    refuses: tuple[str, ...] = ()
    repeatable: bool = False
    tag: str = "cascades"
    media_type: str = JSON

    @property
    def writes(self) -> bool:
        """Whether it can change anything."""
        return self.method == "POST"

    @property
    def id(self) -> str:
        """Its name: one word, as in metrics and in the document."""
        return self.run.__name__.rstrip("_")


# -- cascades ----------------------------------------------------------------------------------


async def cascades(call: Call) -> Reply:
    """List every cascade, the retired among them."""
    return 200, CascadeList(call.service.cascades())


async def create_cascade(call: Call) -> Reply:
    """Create a cascade.

    Its name is taken for good. To send the same again is safe: the same Idempotency-Key with the
    same body gives the cascade it made.
    """
    view, new = await call.service.create(call.body, call.key)
    return (201 if new else 200), view


async def cascade(call: Call) -> Reply:
    """Show one cascade, with what it has done so far."""
    return 200, call.service.cascade(call.name)


async def retire_cascade(call: Call) -> Reply:
    """Retire a cascade: it decides no more, and still takes outputs of what it has decided.

    It cannot be undone. To retire it again changes nothing.
    """
    return 200, await call.service.retire(call.name)


# -- decisions ---------------------------------------------------------------------------------


async def decide(call: Call) -> Reply:
    """Decide how deep to go for a context.

    Run the arms up to `stop`, then tell what they said: POST …/decisions/{id}/outputs. A context
    must have as many numbers as the cascade's; a cascade whose stages reveal their context decides
    in rounds instead (409).
    """
    answer, new = await call.service.decide(call.name, call.body, call.key)
    return (201 if new else 200), answer


async def decide_batch(call: Call) -> Reply:
    """Decide how deep to go for several contexts at once.

    All or none: one context that is refused refuses the batch.
    """
    answer, new = await call.service.decide_batch(call.name, call.body, call.key)
    return (201 if new else 200), answer


async def decision(call: Call) -> Reply:
    """Look up a decision: what was decided, and what the arms said."""
    return 200, await call.service.decision(call.name, call.id)


async def outputs(call: Call) -> Reply:
    """Tell what arms of a decision said.

    All at once or as they come, in any order and as late as you like; the same again changes
    nothing. The policy learns when the last arm up to `stop` has answered, or when you say `final`.
    Arms beyond `stop` and an output that differs from one told before are refused (409).
    """
    return 200, await call.service.outputs(call.name, call.id, call.body)


async def label(call: Call) -> Reply:
    """Tell the right answer of a decision or round that was learned from, for an audit.

    Labels are of use only for rounds chosen at random, whatever their outcome.
    """
    return 200, await call.service.label(call.name, call.id, call.body)


# -- rounds ------------------------------------------------------------------------------------


async def start_round(call: Call) -> Reply:
    """Begin a round that is decided step by step, as its stages reveal their context."""
    answer, new = await call.service.start_round(call.name, call.body, call.key)
    return (201 if new else 200), answer


async def round_(call: Call) -> Reply:
    """Show where a round stands."""
    return 200, call.service.round(call.name, call.id)


async def step(call: Call) -> Reply:
    """Tell what an arm of a round said and revealed; learn which is next, if any.

    Arms come in order. The same step again changes nothing; another output of the same arm, or an
    arm out of turn, is refused (409).
    """
    return 200, await call.service.step(call.name, call.id, call.body)


async def end_round(call: Call) -> Reply:
    """End a round early because a stage failed; the policy learns from the arms that answered."""
    return 200, await call.service.end_round(call.name, call.id)


# -- the service itself ------------------------------------------------------------------------


async def state(call: Call) -> Reply:
    """Tell how far the log goes, and the digest of what it amounts to.

    Two replicas that show the same position show the same hash.
    """
    return 200, await call.digests.now()


async def healthz(call: Call) -> Reply:
    """Say that the process is alive."""
    del call
    return 200, HealthAnswer("alive")


async def readyz(call: Call) -> Reply:
    """Say whether requests would be carried out now; 503 while it recovers or cannot write."""
    why_not = call.service.recovering or call.service.trouble
    if why_not:
        if not call.trusted:  # the details name files and hosts
            starts = bool(call.service.recovering)
            why_not = "the service is getting ready" if starts else WRITES_FAIL
        raise Refusal(503, "unavailable", why_not, retry_after=1)
    return 200, HealthAnswer("ready")


async def metrics(call: Call) -> Reply:
    """Give the metrics, as Prometheus reads them."""
    return 200, Text(await call.metrics.page_aside(), CONTENT_TYPE)


async def openapi(call: Call) -> Reply:
    """Give this document."""
    return 200, Text(call.document, JSON)


_NAME, _ID = "/v1/cascades/{name}", "/v1/cascades/{name}/decisions/{id}"
_ROUND = "/v1/cascades/{name}/rounds/{id}"

ROUTES = (
    Route("GET", "/v1/cascades", cascades, None, {200: (CascadeList, "All of them.")}),
    Route(
        "POST",
        "/v1/cascades",
        create_cascade,
        "admin",
        {
            201: (CascadeView, "Created."),
            200: (CascadeView, "It was created before by the same request."),
        },
        takes=CascadeSpec,
        refuses=("conflict",),
        repeatable=True,
    ),
    Route(
        "GET", _NAME, cascade, None, {200: (CascadeView, "As it is.")}, refuses=("unknown_cascade",)
    ),
    Route(
        "POST",
        f"{_NAME}/retire",
        retire_cascade,
        "admin",
        {200: (CascadeView, "Retired.")},
        refuses=("unknown_cascade",),
    ),
    Route(
        "POST",
        f"{_NAME}/decisions",
        decide,
        "decide",
        {
            201: (DecisionAnswer, "Decided."),
            200: (DecisionAnswer, "It was decided before, under the same Idempotency-Key."),
        },
        takes=DecisionRequest,
        refuses=("unknown_cascade", "conflict", "retired"),
        repeatable=True,
        tag="decisions",
    ),
    Route(
        "POST",
        f"{_NAME}/decisions:batch",
        decide_batch,
        "decide",
        {
            201: (BatchAnswer, "Decided."),
            200: (BatchAnswer, "They were decided before, under the same Idempotency-Key."),
        },
        takes=BatchRequest,
        refuses=("unknown_cascade", "conflict", "retired"),
        repeatable=True,
        tag="decisions",
    ),
    Route(
        "GET",
        _ID,
        decision,
        None,
        {200: (DecisionView, "As the log has it.")},
        refuses=("unknown_cascade", "unknown_decision", "gone", "too_many_requests"),
        tag="decisions",
    ),
    Route(
        "POST",
        f"{_ID}/outputs",
        outputs,
        "observe",
        {200: (OutputsAnswer, "Noted.")},
        takes=OutputsRequest,
        refuses=("unknown_cascade", "unknown_decision", "conflict", "gone"),
        tag="decisions",
    ),
    Route(
        "POST",
        f"{_ID}/label",
        label,
        "observe",
        {200: (LabelAnswer, "Noted.")},
        takes=LabelRequest,
        refuses=("unknown_cascade", "unknown_decision", "conflict", "gone"),
        tag="decisions",
    ),
    Route(
        "POST",
        f"{_NAME}/rounds",
        start_round,
        "decide",
        {
            201: (RoundAnswer, "Begun: run the arm `next`."),
            200: (RoundAnswer, "It was begun before, under the same Idempotency-Key."),
        },
        takes=RoundRequest,
        refuses=("unknown_cascade", "conflict", "retired"),
        repeatable=True,
        tag="rounds",
    ),
    Route(
        "GET",
        _ROUND,
        round_,
        None,
        {200: (RoundAnswer, "As it stands.")},
        refuses=("unknown_cascade", "unknown_round"),
        tag="rounds",
    ),
    Route(
        "POST",
        f"{_ROUND}/steps",
        step,
        "observe",
        {200: (RoundAnswer, "Noted: run the arm `next`, or stop if it is null.")},
        takes=StepRequest,
        refuses=("unknown_cascade", "unknown_round", "conflict", "gone"),
        tag="rounds",
    ),
    Route(
        "POST",
        f"{_ROUND}/end",
        end_round,
        "observe",
        {200: (RoundAnswer, "Ended.")},
        refuses=("unknown_cascade", "unknown_round", "conflict", "gone"),
        tag="rounds",
    ),
    Route(
        "GET",
        "/v1/state",
        state,
        "admin",
        {200: (StateAnswer, "Now.")},
        refuses=("too_many_requests",),
        tag="service",
    ),
    Route("GET", "/healthz", healthz, "nothing", {200: (HealthAnswer, "Alive.")}, tag="service"),
    Route("GET", "/readyz", readyz, "nothing", {200: (HealthAnswer, "Ready.")}, tag="service"),
    Route(
        "GET",
        "/metrics",
        metrics,
        None,
        {200: (str, "In the text format of Prometheus.")},
        tag="service",
        media_type="text/plain",
    ),
    Route(
        "GET",
        "/openapi.json",
        openapi,
        "nothing",
        {200: (dict[str, Any], "OpenAPI 3.1.")},
        tag="service",
    ),
)
