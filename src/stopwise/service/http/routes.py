"""The routes of the API.

The application serves the routes in `ROUTES`. The OpenAPI document is generated from them.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from stopwise.service.domain import messages as m
from stopwise.service.domain.errors import Unavailable
from stopwise.service.http.errors import Forbidden
from stopwise.service.http.keys import Scope
from stopwise.service.http.request import JSON, Request, Response
from stopwise.service.labels import report_label, requested_labels
from stopwise.service.metrics import CONTENT_TYPE, metrics_page

if TYPE_CHECKING:
    from stopwise.service.http.app import App

Reply: TypeAlias = tuple[int, msgspec.Struct]  # status and body
Operation: TypeAlias = Callable[["App", Request], Awaitable[Reply | Response]]

PUBLIC = "public"  # in place of a scope: the route requires no key
Required: TypeAlias = Scope | Literal["public"] | None  # None: any valid key


class HealthAnswer(msgspec.Struct, frozen=True):
    """The state of the process."""

    status: Literal["alive", "ready"]


class Route(msgspec.Struct, frozen=True):
    """A route, described in the OpenAPI document by the docstring of its operation."""

    method: Literal["GET", "POST"]
    path: str  # with the parameters {name} and {id}
    operation: Operation
    scope: Required
    responses: Mapping[int, tuple[Any, str]]  # success status → type of the body, description
    body: Any = None  # type of the request body
    errors: tuple[str, ...] = ()  # in addition to the error codes that all similar routes have
    idempotency_key: bool = False  # whether it accepts an Idempotency-Key
    media_type: str = JSON

    @property
    def id(self) -> str:
        """The name of the route in metrics, and its operationId in the OpenAPI document."""
        return self.operation.__name__.rstrip("_")


ROUTES: list[Route] = []


def route(
    method: Literal["GET", "POST"],
    path: str,
    scope: Required,
    answer: Any,
    description: str,
    *,
    repeated: str = "",
    **options: Any,
) -> Callable[[Operation], Operation]:
    """Return a decorator that adds an operation to `ROUTES`.

    ``answer`` is the type of the response body, and ``description`` describes the response. If the
    route accepts an Idempotency-Key, ``repeated`` describes the response to a repeated request.
    """
    if repeated:
        responses = {201: (answer, description), 200: (answer, repeated)}
    else:
        responses = {200: (answer, description)}

    def add(operation: Operation) -> Operation:
        entry = Route(
            method,
            path,
            operation,
            scope,
            responses,
            idempotency_key=bool(repeated),
            **options,
        )
        ROUTES.append(entry)
        return operation

    return add


def check_unrestricted(request: Request) -> None:
    """Reject a key that is restricted to some cascades."""
    if request.key is not None and request.key.cascades:
        cascades = ", ".join(request.key.cascades)
        raise Forbidden(
            "this request requires a key for all cascades; "
            f"key {request.key.id} is restricted to: {cascades}"
        )


_get = partial(route, "GET")
_post = partial(route, "POST")
_CASCADE = "/v1/cascades/{name}"
_ROUND = "/v1/cascades/{name}/rounds/{id}"
_OPENING: dict[str, Any] = {
    "repeated": "Already opened with this Idempotency-Key.",
    "errors": ("unknown_cascade", "conflict", "retired"),
}
_LOOKUP_ERRORS = ("unknown_cascade", "unknown_round")
_REPORT_ERRORS = (*_LOOKUP_ERRORS, "conflict", "gone")

# -- cascades ------------------------------------------------------------------------------------


@_get("/v1/cascades", None, m.CascadeList, "All cascades.")
async def cascades(app: "App", request: Request) -> Reply:
    """List all cascades, including retired ones.

    A key that is restricted to some cascades lists only these.
    """
    allowed = () if request.key is None else request.key.cascades
    views = await app.service.cascades()
    return 200, m.CascadeList([view for view in views if not allowed or view.spec.name in allowed])


@_post(
    "/v1/cascades",
    "admin",
    m.CascadeView,
    "Created.",
    repeated="Already created by an identical request.",
    body=m.CascadeSpec,
    errors=("conflict",),
)
async def create_cascade(app: "App", request: Request) -> Reply:
    """Create a cascade.

    A name can be used only once. Repeating the request is safe: it returns the existing cascade.
    """
    if request.key is not None and request.content.name not in request.key.cascades:
        check_unrestricted(request)
    view, new = await app.service.create(request.content, request.idempotency_key)
    return (201 if new else 200), view


@_get(_CASCADE, None, m.CascadeView, "The cascade.", errors=("unknown_cascade",))
async def cascade(app: "App", request: Request) -> Reply:
    """Show a cascade and its counts."""
    return 200, await app.service.cascade(request.params["name"])


@_post(f"{_CASCADE}/retire", "admin", m.CascadeView, "Retired.", errors=("unknown_cascade",))
async def retire_cascade(app: "App", request: Request) -> Reply:
    """Retire a cascade: it accepts no new rounds, only outputs and labels of existing ones.

    This cannot be undone. Repeating the request has no effect.
    """
    return 200, await app.service.retire(request.params["name"])


# -- rounds --------------------------------------------------------------------------------------


async def _open(app: "App", request: Request) -> tuple[int, list[m.RoundAnswer]]:
    name, key = request.params["name"], request.idempotency_key
    rounds, new = await app.service.open_rounds(name, request.content, key)
    return (201 if new else 200), rounds


@_post(f"{_CASCADE}/rounds", "decide", m.RoundAnswer, "Opened.", body=m.RoundRequest, **_OPENING)
async def open_round(app: "App", request: Request) -> Reply:
    """Open a round: decide how far to go for a context.

    If the complete context is known, the response has `stop`: run the arms up to it and report
    their outputs. If stages reveal the context, send the part that is known before the first arm.
    The response then has `next`: run that arm, and report its output and the numbers it revealed.
    """
    status, rounds = await _open(app, request)
    return status, rounds[0]


@_post(
    f"{_CASCADE}/rounds:batch", "decide", m.RoundList, "Opened.", body=m.BatchRequest, **_OPENING
)
async def open_rounds(app: "App", request: Request) -> Reply:
    """Open several rounds.

    Either all rounds are opened or none: one invalid context rejects the batch.
    """
    status, rounds = await _open(app, request)
    return status, m.RoundList(rounds)


@_get(_ROUND, None, m.RoundView, "The round.", errors=_LOOKUP_ERRORS)
async def round_(app: "App", request: Request) -> Reply:
    """Look up a round: its state, its context and the outputs of its arms."""
    return 200, await app.service.round(request.params["name"], request.params["id"])


@_post(
    f"{_ROUND}/outputs",
    "observe",
    m.RoundAnswer,
    "Reported.",
    body=m.OutputsRequest,
    errors=_REPORT_ERRORS,
)
async def report_outputs(app: "App", request: Request) -> Reply:
    """Report outputs of a round; the response names the next arm, if any.

    If the complete context is known, send the outputs together or one by one, in any order, at any
    time. If stages reveal the context, send the output of the arm at index `next` and the numbers
    it revealed. Repeating a report has no effect. The policy learns once the last arm has
    answered, or when you send `final`. An arm that should not have run, or a different output of
    an arm that has answered, is rejected (409).
    """
    name, id_ = request.params["name"], request.params["id"]
    return 200, await app.service.report(name, id_, request.content)


@_post(
    f"{_ROUND}/label",
    "observe",
    m.LabelAnswer,
    "Labelled.",
    body=m.LabelReport,
    errors=_REPORT_ERRORS,
)
async def label_round(app: "App", request: Request) -> Reply:
    """Report the label of a round that has ended: the right answer, or which arms were right.

    Label the rounds that `label-requests` lists, and others only if you choose them at random.
    """
    name, id_ = request.params["name"], request.params["id"]
    return 200, await report_label(app.service, name, id_, request.content)


@_get(
    f"{_CASCADE}/label-requests",
    "observe",
    m.WantedLabels,
    "The oldest requests.",
    errors=("unknown_cascade",),
)
async def label_requests(app: "App", request: Request) -> Reply:
    """List the rounds whose labels the policy requests, oldest first."""
    return 200, await requested_labels(app.service, request.params["name"])


# -- the service itself --------------------------------------------------------------------------


@_get("/v1/state", "admin", m.StateAnswer, "The state of this replica.")
async def state(app: "App", request: Request) -> Reply:
    """Show the position in the log and a digest of the state, for comparing replicas."""
    check_unrestricted(request)
    return 200, await app.service.state_hash()


@_get("/healthz", PUBLIC, HealthAnswer, "Alive.")
async def healthz(app: "App", request: Request) -> Reply:
    """Check that the process is alive."""
    return 200, HealthAnswer("alive")


@_get("/readyz", PUBLIC, HealthAnswer, "Ready.")
async def readyz(app: "App", request: Request) -> Reply:
    """Check that the service accepts requests; 503 while it starts, stops or cannot write."""
    service, reason = app.service, app.service.not_ready
    if not reason:
        return 200, HealthAnswer("ready")
    if app.access.keys is not None:  # the reason names files and hosts; the log has it
        starting = service.recovering or service.draining or service.preparing
        reason = "the service is starting or stopping" if starting else "cannot write the log"
    raise Unavailable(reason, retry_after=1)


@_get("/metrics", None, str, "Prometheus metrics.", media_type="text/plain")
async def metrics(app: "App", request: Request) -> Response:
    """Return the metrics in the Prometheus text format."""
    check_unrestricted(request)
    await app.service.readable()
    return Response(200, await metrics_page(app.service), CONTENT_TYPE)


@_get("/openapi.json", None, dict[str, Any], "OpenAPI 3.1.")
async def openapi(app: "App", request: Request) -> Response:
    """Return this document."""
    return Response(200, app.document)
