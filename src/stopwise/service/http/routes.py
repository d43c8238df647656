"""Every route of the API: its place, who may use it, what it takes and gives, and what it does.

The table `ROUTES` is complete: the application serves it, and the OpenAPI document is generated.
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
from stopwise.service.labelling import give_label, wanted_labels
from stopwise.service.metrics import CONTENT_TYPE, metrics_page

if TYPE_CHECKING:
    from stopwise.service.http.app import App

Reply: TypeAlias = tuple[int, msgspec.Struct]


class HealthAnswer(msgspec.Struct, frozen=True):
    """The state of the process."""

    status: Literal["alive", "ready"]


Run: TypeAlias = Callable[["App", Request], Awaitable[Reply | Response]]


class Route(msgspec.Struct, frozen=True):
    """One route; the docstring of ``run`` describes it in the OpenAPI document."""

    method: Literal["GET", "POST"]
    path: str  # {name} and {id} stand for what varies
    run: Run
    needs: Scope | Literal["nothing"] | None  # None: any valid key; "nothing": not even a key
    gives: Mapping[int, tuple[Any, str]]  # status of each success → type of the body, when
    takes: Any = None  # type of the body
    errors: tuple[str, ...] = ()  # codes in addition to those of every such route
    repeatable: bool = False  # whether an Idempotency-Key is used
    media_type: str = JSON

    @property
    def id(self) -> str:
        """Its name: one word, as in metrics and in the document."""
        return self.run.__name__.rstrip("_")


ROUTES: list[Route] = []


def route(
    method: Literal["GET", "POST"],
    path: str,
    needs: Scope | Literal["nothing"] | None,
    gives: Any,
    when: str,
    *,
    repeated: str = "",
    **more: Any,
) -> Callable[[Run], Run]:
    """Add a function to `ROUTES`; ``repeated`` says when a repeatable one answers with 200."""
    successes = {201: (gives, when), 200: (gives, repeated)} if repeated else {200: (gives, when)}

    def add(run: Run) -> Run:
        ROUTES.append(Route(method, path, run, needs, successes, repeatable=bool(repeated), **more))
        return run

    return add


def check_unrestricted(request: Request) -> None:
    """Refuse a key that may see some cascades only."""
    if request.key is not None and request.key.cascades:
        seen = f"the key {request.key.id} may see {', '.join(request.key.cascades)} only"
        raise Forbidden(f"this shows every cascade, and {seen}")


_get, _post = partial(route, "GET"), partial(route, "POST")
_NAME, _ID = "/v1/cascades/{name}", "/v1/cascades/{name}/rounds/{id}"
_OPENING: dict[str, Any] = {
    "repeated": "Opened before, under the same Idempotency-Key.",
    "errors": ("unknown_cascade", "conflict", "retired"),
}
_ROUND = ("unknown_cascade", "unknown_round", "conflict", "gone")

# -- cascades ------------------------------------------------------------------------------------


@_get("/v1/cascades", None, m.CascadeList, "All of them.")
async def cascades(app: "App", request: Request) -> Reply:
    """List every cascade, the retired ones included.

    A key that may see some cascades only gets those.
    """
    allowed = () if request.key is None else request.key.cascades
    found = await app.service.cascades()
    return 200, m.CascadeList([one for one in found if not allowed or one.spec.name in allowed])


@_post(
    "/v1/cascades",
    "admin",
    m.CascadeView,
    "Created.",
    repeated="It was created before by the same request.",
    takes=m.CascadeSpec,
    errors=("conflict",),
)
async def create_cascade(app: "App", request: Request) -> Reply:
    """Create a cascade.

    Its name cannot be used again. Repeating the request is safe: it gives the cascade that exists.
    """
    if request.key is not None and request.content.name not in request.key.cascades:
        check_unrestricted(request)
    view, new = await app.service.create(request.content, request.idempotency_key)
    return (201 if new else 200), view


@_get(_NAME, None, m.CascadeView, "Now.", errors=("unknown_cascade",))
async def cascade(app: "App", request: Request) -> Reply:
    """Show one cascade, with what it has done so far."""
    return 200, await app.service.cascade(request.params["name"])


@_post(f"{_NAME}/retire", "admin", m.CascadeView, "Retired.", errors=("unknown_cascade",))
async def retire_cascade(app: "App", request: Request) -> Reply:
    """Retire a cascade: it takes no new rounds, and still outputs of those that are open.

    It cannot be undone. To retire it again changes nothing.
    """
    return 200, await app.service.retire(request.params["name"])


# -- rounds --------------------------------------------------------------------------------------


async def _open(app: "App", request: Request) -> tuple[int, list[m.RoundAnswer]]:
    name, key = request.params["name"], request.idempotency_key
    rounds, new = await app.service.open_rounds(name, request.content, key)
    return (201 if new else 200), rounds


@_post(f"{_NAME}/rounds", "decide", m.RoundAnswer, "Opened.", takes=m.RoundRequest, **_OPENING)
async def open_round(app: "App", request: Request) -> Reply:
    """Open a round: ask how deep to go for a context.

    Where all of the context is known, the answer has `stop`: run the arms up to it, then report
    their outputs. Where stages reveal the context, give what is known before the first arm; the
    answer has `next`: run that arm and report its output with what it reveals.
    """
    status, rounds = await _open(app, request)
    return status, rounds[0]


@_post(f"{_NAME}/rounds:batch", "decide", m.RoundList, "Opened.", takes=m.BatchRequest, **_OPENING)
async def open_rounds(app: "App", request: Request) -> Reply:
    """Open several rounds at once.

    All or none: one context that is refused refuses the batch.
    """
    status, rounds = await _open(app, request)
    return status, m.RoundList(rounds)


@_get(_ID, None, m.RoundView, "As the log has it.", errors=_ROUND[:2])
async def round_(app: "App", request: Request) -> Reply:
    """Look up a round: its state, its context and the outputs of its arms."""
    return 200, await app.service.round(request.params["name"], request.params["id"])


@_post(
    f"{_ID}/outputs", "observe", m.RoundAnswer, "Reported.", takes=m.OutputsRequest, errors=_ROUND
)
async def report_outputs(app: "App", request: Request) -> Reply:
    """Report outputs of a round's arms; the answer says which arm is next, or that it has ended.

    Where all of the context is known: all at once or as they come, in any order and as late as you
    like. Where stages reveal the context: the arm `next`, with what it reveals. The same again
    changes nothing. The policy learns when the last arm has answered, or with `final`.
    Arms that should not have run, and an output that differs from one reported before, are
    refused (409).
    """
    name, id_ = request.params["name"], request.params["id"]
    return 200, await app.service.report(name, id_, request.content)


@_post(f"{_ID}/label", "observe", m.LabelAnswer, "Labelled.", takes=m.LabelReport, errors=_ROUND)
async def label_round(app: "App", request: Request) -> Reply:
    """Report the right answer of a round that was learned from, or which of its arms were right.

    Best of rounds that want it; of others only if they were chosen at random.
    """
    name, id_ = request.params["name"], request.params["id"]
    return 200, await give_label(app.service, name, id_, request.content)


@_get(
    f"{_NAME}/label-requests",
    "observe",
    m.WantedLabels,
    "The oldest.",
    errors=("unknown_cascade",),
)
async def label_requests(app: "App", request: Request) -> Reply:
    """List rounds whose labels the policy asks for, the oldest first."""
    return 200, await wanted_labels(app.service, request.params["name"])


# -- the service itself --------------------------------------------------------------------------


@_get("/v1/state", "admin", m.StateAnswer, "Now.")
async def state(app: "App", request: Request) -> Reply:
    """Show how far the log goes, and the digest of the state: equal on all replicas."""
    check_unrestricted(request)
    return 200, await app.service.state_hash()


@_get("/healthz", "nothing", HealthAnswer, "Alive.")
async def healthz(app: "App", request: Request) -> Reply:
    """Show that the process is alive."""
    return 200, HealthAnswer("alive")


@_get("/readyz", "nothing", HealthAnswer, "Ready.")
async def readyz(app: "App", request: Request) -> Reply:
    """Show whether requests should be sent here; 503 while it starts, stops or cannot write."""
    service, reason = app.service, app.service.not_ready
    if not reason:
        return 200, HealthAnswer("ready")
    if app.access.keys is not None:  # the details name files and hosts; the log has them
        starting = service.recovering or service.draining or service.preparing
        reason = "the service is starting or stopping" if starting else "it cannot write its log"
    raise Unavailable(reason, retry_after=1)


@_get("/metrics", None, str, "For Prometheus.", media_type="text/plain")
async def metrics(app: "App", request: Request) -> Response:
    """Give the metrics, as Prometheus reads them."""
    check_unrestricted(request)
    await app.service.readable()
    return Response(200, await metrics_page(app.service), CONTENT_TYPE)


@_get("/openapi.json", None, dict[str, Any], "OpenAPI 3.1.")
async def openapi(app: "App", request: Request) -> Response:
    """Give this document."""
    return Response(200, app.document)
