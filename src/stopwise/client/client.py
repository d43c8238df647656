"""The clients: one for ordinary, blocking code, one for async code."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import numpy as np

from stopwise.client import transport
from stopwise.client.requests import Requests, as_method
from stopwise.client.retries import Exchange, Pause, Reply, Send, Step
from stopwise.client.rounds import INSTEAD, UNCHANGED, AsyncOpenRound, OpenRound, Outcome, run
from stopwise.client.values import ContextLike
from stopwise.errors import InvalidParameterError
from stopwise.running.calls import ask, ask_async
from stopwise.running.round_loop import Ask, drive, drive_async
from stopwise.running.stage import StageLike

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
P = ParamSpec("P")
H = TypeVar("H", "httpx.Client", "httpx.AsyncClient")


def _blocking(
    method: Callable[Concatenate[Requests, P], Exchange[T]],
) -> Callable[Concatenate["Client", P], T]:
    def call(self: "Client", *args: P.args, **more: P.kwargs) -> T:
        return self._do(method(self._requests, *args, **more))  # pyright: ignore[reportPrivateUsage] (its own)

    return as_method(call, method)


def _awaited(
    method: Callable[Concatenate[Requests, P], Exchange[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def call(self: "AsyncClient", *args: P.args, **more: P.kwargs) -> T:
        return await self._do(method(self._requests, *args, **more))  # pyright: ignore[reportPrivateUsage] (its own)

    return as_method(call, method)


class _ClientBase(Generic[H]):
    """What both clients share: the requests, and the connections to send them with."""

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
        self._requests = Requests(url, key, timeout=timeout, deadline=deadline, rng=rng)
        transport.check(self._requests.url)
        self._own = http is None
        self._http: H = self._connections(not self._requests.local) if http is None else http

    def _connections(self, trust_env: bool) -> H:
        raise NotImplementedError

    def _sending(self, send: Send) -> dict[str, Any]:
        """Return the arguments with which httpx sends a request."""
        if self._http.is_closed:
            raise InvalidParameterError("this client was closed: make a new one")
        return {
            "method": send.method,
            "url": send.url,
            "headers": send.headers,
            "content": send.content,
            "timeout": transport.time_limits(send.timeout),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._requests.url!r})"


class Client(_ClientBase["httpx.Client"]):
    """Asks a Stopwise service how deep to go, and reports the outputs of the arms.

    A request is tried again when the connection breaks, when no answer comes in time, and when the
    service says "later" (429, 503; also 502 and 504, which proxies answer). Waits grow from try to
    try and are random (exponential back-off, full jitter); a Retry-After is kept to, up to 5 s. No
    request can count twice: one that creates something carries an Idempotency-Key, made once and
    sent with each try; all others name what they are about.

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

    create = _blocking(Requests.create)
    cascades = _blocking(Requests.cascades)
    cascade = _blocking(Requests.cascade)
    retire = _blocking(Requests.retire)
    open = _blocking(Requests.open)
    open_many = _blocking(Requests.open_many)
    report = _blocking(Requests.report)
    label = _blocking(Requests.label)
    look_up = _blocking(Requests.look_up)
    ready = _blocking(Requests.ready)
    state = _blocking(Requests.state)

    def run(
        self, name: str, context: ContextLike, arms: Sequence[StageLike], *, case: Any = UNCHANGED
    ) -> Outcome:
        """Run a complete round: open it, ask the stages, report their outputs.

        A stage that fails (it raises, is late, or gives what cannot be used) ends the round; the
        service learns from those before it.

        Parameters
        ----------
        name, context
            As in `open`.
        arms : sequence
            One for each arm, in order: a function of the case, something with ``predict``, or a
            `Stage`.
        case : object, optional
            What stages are asked about; by default the context.

        Returns
        -------
        Outcome
            Its ``answer`` is that of the last arm that gave one.
        """
        return self._do(run(self._requests, name, context, arms, case, INSTEAD))

    def round(
        self, name: str, context: ContextLike = (), *, idempotency_key: str | None = None
    ) -> OpenRound:
        """Return a round to go through arm by arm.

        Examples
        --------
        ::

            with client.round("ward", [age]) as visit:
                for arm in visit:
                    answer = stages[arm](patient)
                    visit.give(answer.diagnosis, revealed=answer.values)
            print(visit.answer.arm, visit.answer.cost)
        """
        opening = self._requests.open(name, context, idempotency_key=idempotency_key)
        return OpenRound(self._do, opening, self._requests, name)

    def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *left: object) -> None:
        self.close()

    def _connections(self, trust_env: bool) -> "httpx.Client":
        import httpx

        return httpx.Client(trust_env=trust_env)

    def _do(self, exchange: Exchange[T]) -> T:
        return drive(exchange, self._outcome)

    def _outcome(self, step: Step) -> Any:
        match step:
            case Send():
                return self._reply(step)
            case Pause():
                return time.sleep(step.seconds)
            case Ask():
                return ask(step.call, step.case, step.timeout)

    def _reply(self, send: Send) -> Reply:
        import httpx

        until, how = time.monotonic() + send.timeout, self._sending(send)
        try:
            with self._http.stream(**how) as response:
                return transport.read(response, until)
        except httpx.RequestError as error:
            raise transport.lost(error) from error


class AsyncClient(_ClientBase["httpx.AsyncClient"]):
    """Asks a Stopwise service without blocking the event loop; otherwise as `Client`.

    One client serves any number of tasks of one event loop.

    Parameters
    ----------
    url, key, timeout, deadline, rng
        As in `Client`.
    http : httpx.AsyncClient, optional
        To send with, for certificates and proxies of your own; you close it.

    Examples
    --------
    >>> async def main():
    ...     async with AsyncClient("http://127.0.0.1:8350") as client:
    ...         return repr(client)
    >>> asyncio.run(main())
    "AsyncClient('http://127.0.0.1:8350')"
    """

    create = _awaited(Requests.create)
    cascades = _awaited(Requests.cascades)
    cascade = _awaited(Requests.cascade)
    retire = _awaited(Requests.retire)
    open = _awaited(Requests.open)
    open_many = _awaited(Requests.open_many)
    report = _awaited(Requests.report)
    label = _awaited(Requests.label)
    look_up = _awaited(Requests.look_up)
    ready = _awaited(Requests.ready)
    state = _awaited(Requests.state)

    async def run(
        self, name: str, context: ContextLike, arms: Sequence[StageLike], *, case: Any = UNCHANGED
    ) -> Outcome:
        """Run a complete round; see `Client.run`.

        Async stages are awaited; each other stage runs in a thread of its own.
        """
        return await self._do(run(self._requests, name, context, arms, case, None))

    def round(
        self, name: str, context: ContextLike = (), *, idempotency_key: str | None = None
    ) -> AsyncOpenRound:
        """Return a round to go through arm by arm.

        Examples
        --------
        ::

            async with client.round("ward", [age]) as visit:
                async for arm in visit:
                    answer = await stages[arm](patient)
                    await visit.give(answer.diagnosis, revealed=answer.values)
        """
        opening = self._requests.open(name, context, idempotency_key=idempotency_key)
        return AsyncOpenRound(self._do, opening, self._requests, name)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left: object) -> None:
        await self.close()

    def _connections(self, trust_env: bool) -> "httpx.AsyncClient":
        import httpx

        return httpx.AsyncClient(trust_env=trust_env)

    async def _do(self, exchange: Exchange[T]) -> T:
        return await drive_async(exchange, self._outcome)

    async def _outcome(self, step: Step) -> Any:
        match step:
            case Send():
                return await self._reply(step)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Ask():
                return await ask_async(step.call, step.case, step.timeout)

    async def _reply(self, send: Send) -> Reply:
        import httpx

        how = self._sending(send)
        try:
            async with asyncio.timeout(send.timeout), self._http.stream(**how) as response:
                return transport.reply(response, await response.aread())
        except TimeoutError:
            raise transport.late() from None
        except httpx.RequestError as error:
            raise transport.lost(error) from error
