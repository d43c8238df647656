"""The clients: one for ordinary, blocking code, one for async code."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from inspect import signature
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    get_args,
)

import numpy as np

from stopwise.client.exchanges import ConnectionLost, Exchange, Pause, Reply, Retries, Send, Step
from stopwise.client.requests import Requests
from stopwise.client.rounds import CONTEXT, INSTEAD, Outcome, run
from stopwise.client.values import ContextLike
from stopwise.errors import MissingPackageError
from stopwise.running.round_loop import Ask, drive, drive_async
from stopwise.running.stage import StageLike, ask, ask_async

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C", bound=Callable[..., Any])
H = TypeVar("H", "httpx.Client", "httpx.AsyncClient")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
LONGEST_CONNECT = 5.0  # seconds: a machine that is there answers sooner (heuristic)


def _blocking(
    method: Callable[Concatenate[Requests, P], Exchange[T]],
) -> Callable[Concatenate["Client", P], T]:
    def call(self: "Client", *args: P.args, **more: P.kwargs) -> T:
        return self._do(method(self._requests, *args, **more))  # pyright: ignore[reportPrivateUsage] (its own)

    return _as_method(call, method)


def _awaited(
    method: Callable[Concatenate[Requests, P], Exchange[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def call(self: "AsyncClient", *args: P.args, **more: P.kwargs) -> T:
        return await self._do(method(self._requests, *args, **more))  # pyright: ignore[reportPrivateUsage] (its own)

    return _as_method(call, method)


def _as_method(call: C, request: Callable[..., Any]) -> C:
    """Give a client's method the name, the docstring and the signature of its request."""
    declared = signature(request)
    result = get_args(declared.return_annotation)[-1]
    vars(call)["__signature__"] = declared.replace(return_annotation=result)
    return update_wrapper(call, request)  # pyright: ignore[reportReturnType] (the same function)


@contextmanager
def _losses() -> Generator[None]:
    """Raise `ConnectionLost` where httpx got no response."""
    import httpx

    try:
        yield
    except (TimeoutError, httpx.TimeoutException):
        raise ConnectionLost("no answer in time", "timeout") from None
    except httpx.RequestError as error:
        lasting = isinstance(
            error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | httpx.DecodingError
        )
        cause: BaseException | None = error
        while cause is not None and not lasting:  # a certificate will be as wrong next time
            lasting = isinstance(cause, ssl.SSLError)
            cause = cause.__cause__ or cause.__context__
        reason = str(error) or type(error).__name__
        text = f"the service cannot be reached ({reason})"
        raise ConnectionLost(text, lasting=lasting) from error


def _arguments(send: Send) -> dict[str, Any]:
    """Return the arguments with which httpx sends a request."""
    import httpx

    limits = httpx.Timeout(send.timeout, connect=min(send.timeout, LONGEST_CONNECT))
    return send._asdict() | {"timeout": limits}


def _reply(response: "httpx.Response", content: bytes) -> Reply:
    return Reply(response.status_code, content, response.headers.get("Retry-After"))


class _ClientBase(Generic[H]):
    """What both clients share: the requests, and the connections to send them with."""

    _kind: ClassVar[str]  # of httpx's clients

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        deadline: float = 30.0,
        rng: np.random.Generator | None = None,
        http: H | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise MissingPackageError.of("the client", "httpx", "client") from None
        self._requests = Requests(url, key, Retries(timeout, deadline, rng))
        self._own = http is None
        where = httpx.URL(self._requests.url)
        # Proxies of the environment are not for this machine; to read the certificates of the
        # system takes long, and plain HTTP has none to verify (no redirect is followed).
        own = {"trust_env": where.host not in LOOPBACK, "verify": where.scheme == "https"}
        self._http: H = getattr(httpx, self._kind)(**own) if http is None else http

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._requests.url!r})"


class Client(_ClientBase["httpx.Client"]):
    """Asks a Stopwise service how deep to go, and reports the outputs of the arms.

    A request is tried again when the connection breaks, when no answer comes in time, and when the
    service answers "later" (429, 503; also 502 and 504, which proxies answer). Waits grow from try
    to try and are random (exponential back-off, full jitter); a Retry-After is respected, up to
    5 s. No request can count twice: one that creates something carries an Idempotency-Key, drawn
    once and sent with each try; all others name what they are about.

    A client may be shared by threads. It keeps connections open: close it, or use it in a
    ``with``.

    Parameters
    ----------
    url : str, optional
        Of the service; by default STOPWISE_URL from the environment, else
        ``http://127.0.0.1:8350``.
    key : str, optional
        An API key; by default STOPWISE_KEY from the environment, else none is sent. It is never
        shown.
    timeout : float
        Seconds that one try may wait for its answer.
    deadline : float
        Seconds for a call with all its tries. What is left of it also limits each try.
    rng : numpy.random.Generator, optional
        Of the waits.
    http : httpx.Client, optional
        To send with, for certificates and proxies of your own; you close it.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8350", key="s3cret")
    >>> client
    Client('http://127.0.0.1:8350')
    >>> client.close()

    With a service running (``stopwise serve``)::

        with sw.Client() as client:
            client.create("triage", cascade, context=["age", "bmi"])
            opened = client.open("triage", [0.2, 0.7])
            outputs = [stage(case) for stage in stages[: opened.stop + 1]]
            client.report("triage", opened.id, outputs)
    """

    _kind = "Client"
    create = _blocking(Requests.create)
    cascades = _blocking(Requests.cascades)
    cascade = _blocking(Requests.cascade)
    retire = _blocking(Requests.retire)
    open = _blocking(Requests.open)
    open_many = _blocking(Requests.open_many)
    report = _blocking(Requests.report)
    label = _blocking(Requests.label)
    label_requests = _blocking(Requests.label_requests)
    look_up = _blocking(Requests.look_up)
    ready = _blocking(Requests.ready)
    state = _blocking(Requests.state)

    def run(
        self, name: str, context: ContextLike, arms: Sequence[StageLike], *, case: Any = CONTEXT
    ) -> Outcome:
        """Run a complete round: open it, ask the stages, report their outputs.

        A stage that fails (it raises, is late, or gives what cannot be used) ends the round; the
        service learns from those before it. ``arms`` has one for each arm, in order: a function of
        the case, something with ``predict``, or a `Stage`. They are asked about ``case``, by
        default the context.
        """
        return self._do(run(self._requests, name, context, arms, case, INSTEAD))

    def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *left: object) -> None:
        self.close()

    def _do(self, exchange: Exchange[T]) -> T:
        return drive(exchange, self._outcome)

    def _outcome(self, step: Step) -> Any:
        match step:
            case Ask():
                return ask(step.call, step.case, step.timeout)
            case Pause():
                return time.sleep(step.seconds)
            case Send():
                until, content = time.monotonic() + step.timeout, b""
                with _losses(), self._http.stream(**_arguments(step)) as response:
                    for piece in response.iter_bytes():
                        content += piece
                        if time.monotonic() > until:  # httpx limits the wait for each piece only
                            raise TimeoutError
                    return _reply(response, content)


class AsyncClient(_ClientBase["httpx.AsyncClient"]):
    """Asks a Stopwise service without blocking the event loop; otherwise as `Client`.

    One client serves any number of tasks of one event loop. ``http`` is an `httpx.AsyncClient`.
    """

    _kind = "AsyncClient"
    create = _awaited(Requests.create)
    cascades = _awaited(Requests.cascades)
    cascade = _awaited(Requests.cascade)
    retire = _awaited(Requests.retire)
    open = _awaited(Requests.open)
    open_many = _awaited(Requests.open_many)
    report = _awaited(Requests.report)
    label = _awaited(Requests.label)
    label_requests = _awaited(Requests.label_requests)
    look_up = _awaited(Requests.look_up)
    ready = _awaited(Requests.ready)
    state = _awaited(Requests.state)

    async def run(
        self, name: str, context: ContextLike, arms: Sequence[StageLike], *, case: Any = CONTEXT
    ) -> Outcome:
        """Run a complete round; see `Client.run`.

        Async stages are awaited; each other stage runs in a thread of its own.
        """
        return await self._do(run(self._requests, name, context, arms, case, None))

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left: object) -> None:
        await self.close()

    async def _do(self, exchange: Exchange[T]) -> T:
        return await drive_async(exchange, self._outcome)

    async def _outcome(self, step: Step) -> Any:
        match step:
            case Ask():
                return await ask_async(step.call, step.case, step.timeout)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Send():
                with _losses():
                    async with (
                        asyncio.timeout(step.timeout),
                        self._http.stream(**_arguments(step)) as response,
                    ):
                        return _reply(response, await response.aread())
