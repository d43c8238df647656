"""The clients: `Client` for blocking code, `AsyncClient` for async code."""

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
    cast,
    get_args,
)

import numpy as np

from stopwise.client.json_values import ContextLike
from stopwise.client.requests import Requests
from stopwise.client.retries import ConnectionLost, Exchange, Pause, Reply, Retries, Send, Step
from stopwise.client.rounds import ASYNC_ALTERNATIVE, CONTEXT, Outcome, run
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
CONNECT_TIMEOUT = 5.0  # seconds (heuristic); reachable machines connect sooner


def _blocking(
    method: Callable[Concatenate[Requests, P], Exchange[T]],
) -> Callable[Concatenate["Client", P], T]:
    def call(self: "Client", *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(method(self._requests, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] (in the same module)

    return _as_method(call, method)


def _awaited(
    method: Callable[Concatenate[Requests, P], Exchange[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def call(self: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._do(method(self._requests, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] (in the same module)

    return _as_method(call, method)


def _as_method(call: C, request: Callable[..., Any]) -> C:
    """Copy the name, docstring and signature of a request to a client's method."""
    declared = signature(request)
    result = get_args(declared.return_annotation)[-1]
    vars(call)["__signature__"] = declared.replace(return_annotation=result)
    return update_wrapper(call, request)  # pyright: ignore[reportReturnType] (the same function)


@contextmanager
def _connection_errors() -> Generator[None]:
    """Raise `ConnectionLost` if httpx got no response."""
    import httpx

    try:
        yield
    except (TimeoutError, httpx.TimeoutException):
        raise ConnectionLost("timeout", "timeout") from None
    except httpx.RequestError as error:
        permanent = isinstance(
            error, httpx.UnsupportedProtocol | httpx.LocalProtocolError | httpx.DecodingError
        )
        cause: BaseException | None = error
        while cause is not None and not permanent:  # an invalid certificate stays invalid
            permanent = isinstance(cause, ssl.SSLError)
            cause = cause.__cause__ or cause.__context__
        reason = str(error) or type(error).__name__
        message = f"cannot reach the service ({reason})"
        raise ConnectionLost(message, permanent=permanent) from error


def _httpx_arguments(send: Send) -> dict[str, Any]:
    """Return a request as arguments for httpx."""
    import httpx

    limits = httpx.Timeout(send.timeout, connect=min(send.timeout, CONNECT_TIMEOUT))
    return send._asdict() | {"timeout": limits}


def _reply(response: "httpx.Response", content: bytes) -> Reply:
    return Reply(response.status_code, content, response.headers.get("Retry-After"))


class _ClientBase(Generic[H]):
    """Base of both clients: their requests and their HTTP client."""

    _http_class: ClassVar[str]  # name of the class in httpx

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
        self._owns_http = http is None
        if http is None:
            url_parts = httpx.URL(self._requests.url)
            http = getattr(httpx, self._http_class)(
                # Requests to this machine must not go through proxies from the environment.
                trust_env=url_parts.host not in LOOPBACK,
                # Loading the system's certificates is slow, and plain HTTP never needs them
                # because redirects are not followed.
                verify=url_parts.scheme == "https",
            )
        self._http: H = cast(H, http)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._requests.url!r})"


class Client(_ClientBase["httpx.Client"]):
    """Blocking client of a Stopwise service.

    Requests are retried if the connection fails, if they time out, after responses with status 429,
    502, 503 or 504, and once after a 500. Waits between tries follow exponential back-off with full
    jitter and respect Retry-After up to 5 s. A retried request takes effect only once: a request
    that creates something has an Idempotency-Key, which all its tries share, and all other requests
    are idempotent.

    Threads may share a client. It keeps connections open, so close it or use it as a context
    manager.

    Parameters
    ----------
    url : str, optional
        URL of the service. By default the environment variable STOPWISE_URL, or
        ``http://127.0.0.1:8350``.
    key : str, optional
        API key. By default the environment variable STOPWISE_KEY; without either, no key is
        sent. The key never appears in errors, logs or the ``repr``.
    timeout : float
        Timeout of each try in seconds.
    deadline : float
        Timeout of a call, including all its tries, in seconds.
    rng : numpy.random.Generator, optional
        Random generator for the waits between tries.
    http : httpx.Client, optional
        HTTP client to use, for example with custom certificates or proxies. Closing this client
        does not close it.

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

    _http_class = "Client"
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
        """Run a complete round: open it, call the stages, and report their outputs.

        A stage fails if it raises an exception, times out or returns an invalid output. A failure
        ends the round, and the service learns from the earlier stages.

        Parameters
        ----------
        name : str
            Name of the cascade.
        context : array_like or mapping
            The context of the round, as in `open`.
        arms : sequence
            The stage of each arm, in order: a function of the case, an object with ``predict``, or
            a `Stage`.
        case : Any, optional
            The argument of the stages; by default the context.
        """
        return self._do(run(self._requests, name, context, arms, case, ASYNC_ALTERNATIVE))

    def close(self) -> None:
        """Close the connections; closing twice is allowed."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
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
                deadline = time.monotonic() + step.timeout
                content = b""
                with _connection_errors(), self._http.stream(**_httpx_arguments(step)) as response:
                    for part in response.iter_bytes():
                        content += part
                        if time.monotonic() > deadline:  # httpx limits only the wait for each part
                            raise TimeoutError
                    return _reply(response, content)


class AsyncClient(_ClientBase["httpx.AsyncClient"]):
    """Async client of a Stopwise service; `Client` describes the parameters.

    The tasks of one event loop may share a client. ``http`` is an `httpx.AsyncClient`.
    """

    _http_class = "AsyncClient"
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

        Async stages are awaited; other stages run in threads.
        """
        return await self._do(run(self._requests, name, context, arms, case, None))

    async def close(self) -> None:
        """Close the connections; closing twice is allowed."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
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
                with _connection_errors():
                    async with (
                        asyncio.timeout(step.timeout),
                        self._http.stream(**_httpx_arguments(step)) as response,
                    ):
                        return _reply(response, await response.aread())
