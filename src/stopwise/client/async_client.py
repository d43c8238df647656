"""The client for async code."""

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.client import transport
from stopwise.client.core import Core
from stopwise.client.exchange import Ask, Exchange, Pause, Reply, Send, Step
from stopwise.client.plain import ContextLike, OutputsLike
from stopwise.client.playing import UNCHANGED, Outcome, play
from stopwise.client.rounds import AsyncOpenRound
from stopwise.client.specs import Features
from stopwise.errors import InvalidParameterError
from stopwise.running.calls import ask_async
from stopwise.running.stage import StageLike
from stopwise.service.messages import (
    CascadeSpec,
    CascadeView,
    DecisionAnswer,
    DecisionView,
    LabelAnswer,
    OutputsAnswer,
    RoundAnswer,
    StateAnswer,
)

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncClient:
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

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        deadline: float = 30.0,
        rng: np.random.Generator | None = None,
        http: "httpx.AsyncClient | None" = None,
    ) -> None:
        self._core = Core(url, key, timeout=timeout, deadline=deadline, rng=rng)
        transport.check(self._core.url)
        import httpx

        self._lost = httpx.RequestError
        self._own = http is None
        self._http = httpx.AsyncClient(trust_env=not self._core.local) if http is None else http

    # -- cascades ---------------------------------------------------------------------------------

    async def create(
        self,
        spec: CascadeSpec | str,
        cascade: Cascade | None = None,
        *,
        context: int | Sequence[str] | None = None,
        features: Features | None = None,
        policy: str = "uss-pd",
        keep_open: int | None = None,
        idempotency_key: str | None = None,
        **settings: Any,
    ) -> CascadeView:
        """Make a cascade that the service will decide for; see `Client.create`."""
        return await self._do(
            self._core.create(
                spec, cascade, context, features, policy, keep_open, idempotency_key, settings
            )
        )

    async def cascades(self) -> list[CascadeView]:
        """List every cascade."""
        return await self._do(self._core.cascades())

    async def cascade(self, name: str) -> CascadeView:
        """Show one cascade; see `Client.cascade`."""
        return await self._do(self._core.cascade(name))

    async def retire(self, name: str) -> CascadeView:
        """End a cascade; see `Client.retire`."""
        return await self._do(self._core.retire(name))

    # -- decisions --------------------------------------------------------------------------------

    async def decide(
        self,
        name: str,
        context: ContextLike,
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> DecisionAnswer:
        """Ask how deep to go for one context; see `Client.decide`."""
        return await self._do(self._core.decide(name, context, evidence, idempotency_key))

    async def decide_many(
        self,
        name: str,
        contexts: ArrayLike | Iterable[ContextLike],
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> list[DecisionAnswer]:
        """Ask how deep to go for several contexts at once; see `Client.decide_many`."""
        return await self._do(self._core.decide_many(name, contexts, evidence, idempotency_key))

    async def outputs(
        self,
        name: str,
        id: str,
        outputs: OutputsLike,
        final: bool = False,
    ) -> OutputsAnswer:
        """Tell what arms said; see `Client.outputs`."""
        return await self._do(self._core.outputs(name, id, outputs, final))

    async def label(self, name: str, id: str, label: Any) -> LabelAnswer:
        """Tell the right answer of a round that was chosen at random for an audit."""
        return await self._do(self._core.label(name, id, label))

    async def decision(self, name: str, id: str) -> DecisionView:
        """Look up what was decided, and what was told since."""
        return await self._do(self._core.decision(name, id))

    async def run(
        self, name: str, context: ContextLike, arms: Sequence[StageLike], *, case: Any = UNCHANGED
    ) -> Outcome:
        """Ask how deep to go, ask the stages, tell what they said; see `Client.run`.

        Async stages are awaited; each other stage runs in a thread of its own.
        """
        return await self._do(play(self._core, name, context, arms, case, blocking=False))

    # -- rounds decided step by step --------------------------------------------------------------

    def round(
        self, name: str, context: ArrayLike = (), *, idempotency_key: str | None = None
    ) -> AsyncOpenRound:
        """Return a round to go through arm by arm, where arms reveal the context.

        Examples
        --------
        ::

            async with client.round("ward", [age]) as visit:
                async for arm in visit:
                    answer = await stages[arm](patient)
                    await visit.give(answer.says, revealed=answer.values)
        """
        return AsyncOpenRound(self, name, context, idempotency_key)

    async def start_round(
        self, name: str, context: ArrayLike = (), *, idempotency_key: str | None = None
    ) -> RoundAnswer:
        """Begin a round that is decided step by step; ``next`` is the arm to run."""
        return await self._do(self._core.start_round(name, context, idempotency_key))

    async def step(
        self,
        name: str,
        id: str,
        arm: int,
        output: Any,
        revealed: ArrayLike = (),
    ) -> RoundAnswer:
        """Tell what one arm said and what it revealed; ``next`` is the arm to run now."""
        return await self._do(self._core.step(name, id, arm, output, revealed))

    async def end_round(self, name: str, id: str) -> RoundAnswer:
        """End a round whose arm failed; the service learns from the arms that answered."""
        return await self._do(self._core.end_round(name, id))

    async def round_answer(self, name: str, id: str) -> RoundAnswer:
        """Look up where a round stands."""
        return await self._do(self._core.round_answer(name, id))

    # -- the service itself -----------------------------------------------------------------------

    async def ready(self, wait: float = 0.0) -> bool:
        """Say whether the service can decide now, or within so many seconds."""
        return await self._do(self._core.ready(wait))

    async def state(self) -> StateAnswer:
        """Ask what the log amounts to; replicas with equal hashes have equal states."""
        return await self._do(self._core.state())

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._core.url!r})"

    # -- doing it ---------------------------------------------------------------------------------

    async def _do(self, exchange: Exchange[T]) -> T:
        try:
            step = next(exchange)
            while True:
                outcome, error = None, None
                try:
                    outcome = await self._outcome(step)
                except Exception as caught:
                    error = caught  # thrown below, where it is not taken for the cause of others
                step = exchange.send(outcome) if error is None else exchange.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            exchange.close()

    async def _outcome(self, step: Step) -> Any:
        match step:
            case Send():
                return await self._reply(step)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Ask():
                return await ask_async(step.call, step.case, step.timeout)

    async def _reply(self, send: Send) -> Reply:
        if self._http.is_closed:
            raise InvalidParameterError("this client was closed: make a new one")
        try:
            async with (
                asyncio.timeout(send.timeout),
                self._http.stream(
                    send.method,
                    send.url,
                    headers=send.headers,
                    content=send.content,
                    timeout=transport.time_limits(send.timeout),
                ) as response,
            ):
                return await transport.read_async(response)
        except TimeoutError:
            raise transport.late() from None
        except self._lost as error:
            raise transport.lost(error) from error
