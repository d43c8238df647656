"""The client for ordinary, blocking code."""

import time
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
from stopwise.client.rounds import OpenRound
from stopwise.client.specs import Features
from stopwise.errors import InvalidParameterError
from stopwise.running.calls import ask
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


class Client:
    """Asks a Stopwise service: how deep to go, and tells it what the arms said.

    Whatever can be lost on the way is tried again: when the connection breaks, when no answer
    comes in time, and when the service says "later" (429, 503; also 502 and 504, which proxies
    say). Waits grow from try to try and are random (exponential back-off, full jitter); a
    Retry-After is kept to, up to 5 s. No request can count twice: what makes something new carries
    an Idempotency-Key, made once and sent with each try; all else names what it is about.

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
            decision = client.decide("triage", [0.2, 0.7])
            said = [stage(case) for stage in stages[: decision.stop + 1]]
            client.outputs("triage", decision.id, said)
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 10.0,
        deadline: float = 30.0,
        rng: np.random.Generator | None = None,
        http: "httpx.Client | None" = None,
    ) -> None:
        self._core = Core(url, key, timeout=timeout, deadline=deadline, rng=rng)
        transport.check(self._core.url)
        import httpx

        self._lost = httpx.RequestError
        self._own = http is None
        self._http = httpx.Client(trust_env=not self._core.local) if http is None else http

    # -- cascades ---------------------------------------------------------------------------------

    def create(
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
        """Make a cascade that the service will decide for.

        Parameters
        ----------
        spec : CascadeSpec or str
            The whole of it, or its name.
        cascade : Cascade
            The arms, their costs and the trade-off.
        context : int or sequence of str
            How many numbers a context has, or their names.
        features : feature map, PerStage or dict, optional
            By default ``Polynomial(degree=1)``. Not your own functions: code cannot be sent.
        policy : str
            Its name, as in `sw.make`.
        keep_open : int, optional
            How many decisions may wait for their outputs.
        idempotency_key : str, optional
            The same key makes the same thing once, whoever sends it; by default a random one, so
            that tries of this call count once.
        **settings
            Of the policy: ``delta=0.1``, …

        Raises
        ------
        ServiceError
            ``code`` "conflict" if there is, or was, another cascade of this name; "invalid" if
            the service cannot use what was described.
        """
        return self._do(
            self._core.create(
                spec, cascade, context, features, policy, keep_open, idempotency_key, settings
            )
        )

    def cascades(self) -> list[CascadeView]:
        """List every cascade."""
        return self._do(self._core.cascades())

    def cascade(self, name: str) -> CascadeView:
        """Show one cascade: how it was described, and what was decided and learned so far."""
        return self._do(self._core.cascade(name))

    def retire(self, name: str) -> CascadeView:
        """End a cascade: nothing is decided for it any more, and its name stays taken."""
        return self._do(self._core.retire(name))

    # -- decisions --------------------------------------------------------------------------------

    def decide(
        self,
        name: str,
        context: ContextLike,
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> DecisionAnswer:
        """Ask how deep to go for one context.

        Parameters
        ----------
        name : str
            The cascade.
        context : array_like or mapping
            The numbers in order, or by their names.
        evidence : bool
            Whether to tell why.
        idempotency_key : str, optional
            As in `create`.

        Returns
        -------
        DecisionAnswer
            Run the arms up to ``stop``, then tell what they said with `outputs`.
        """
        return self._do(self._core.decide(name, context, evidence, idempotency_key))

    def decide_many(
        self,
        name: str,
        contexts: ArrayLike | Iterable[ContextLike],
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> list[DecisionAnswer]:
        """Ask how deep to go for several contexts at once; none learns from another.

        Parameters
        ----------
        name, evidence, idempotency_key
            As in `decide`.
        contexts : array_like or iterable
            The rows of a table, or contexts one by one; at most 1,000, unless the service is set
            otherwise.
        """
        return self._do(self._core.decide_many(name, contexts, evidence, idempotency_key))

    def outputs(
        self,
        name: str,
        id: str,
        outputs: OutputsLike,
        final: bool = False,
    ) -> OutputsAnswer:
        """Tell what arms said, all of them or those that have answered; repeats do no harm.

        Parameters
        ----------
        name : str
            The cascade.
        id : str
            Of the decision.
        outputs : sequence or mapping
            In the order of the arms (None: not known yet), or by their names. Anything that JSON
            has; compared by equality.
        final : bool
            No more will come (a stage failed): learn from the arms before the first one missing.

        Raises
        ------
        ServiceError
            ``code`` "conflict" if an arm is said to have said something else before.
        """
        return self._do(self._core.outputs(name, id, outputs, final))

    def label(self, name: str, id: str, label: Any) -> LabelAnswer:
        """Tell the right answer of a round that was chosen at random for an audit."""
        return self._do(self._core.label(name, id, label))

    def decision(self, name: str, id: str) -> DecisionView:
        """Look up what was decided, and what was told since."""
        return self._do(self._core.decision(name, id))

    def run(
        self, name: str, context: ContextLike, arms: Sequence[StageLike], *, case: Any = UNCHANGED
    ) -> Outcome:
        """Ask how deep to go, ask the stages, tell what they said.

        A stage that fails (it raises, is late, or gives what cannot be used) ends the round; the
        service learns from those before it.

        Parameters
        ----------
        name : str
            The cascade.
        context : array_like or mapping
            As in `decide`.
        arms : sequence
            One for each arm, in order: a function of the case, something with ``predict``, or a
            `Stage`. If one ``reveals`` numbers, the round is decided step by step.
        case : object, optional
            What stages are asked about; by default the context.

        Returns
        -------
        Outcome
            Its ``answer`` is that of the last arm that gave one.
        """
        return self._do(play(self._core, name, context, arms, case, blocking=True))

    # -- rounds decided step by step --------------------------------------------------------------

    def round(
        self, name: str, context: ArrayLike = (), *, idempotency_key: str | None = None
    ) -> OpenRound:
        """Return a round to go through arm by arm, where arms reveal the context.

        Examples
        --------
        ::

            with client.round("ward", [age]) as visit:
                for arm in visit:
                    answer = stages[arm](patient)
                    visit.give(answer.says, revealed=answer.values)
            print(visit.arm, visit.cost)
        """
        return OpenRound(self, name, context, idempotency_key)

    def start_round(
        self, name: str, context: ArrayLike = (), *, idempotency_key: str | None = None
    ) -> RoundAnswer:
        """Begin a round that is decided step by step; ``next`` is the arm to run."""
        return self._do(self._core.start_round(name, context, idempotency_key))

    def step(
        self,
        name: str,
        id: str,
        arm: int,
        output: Any,
        revealed: ArrayLike = (),
    ) -> RoundAnswer:
        """Tell what one arm said and what it revealed; ``next`` is the arm to run now."""
        return self._do(self._core.step(name, id, arm, output, revealed))

    def end_round(self, name: str, id: str) -> RoundAnswer:
        """End a round whose arm failed; the service learns from the arms that answered."""
        return self._do(self._core.end_round(name, id))

    def round_answer(self, name: str, id: str) -> RoundAnswer:
        """Look up where a round stands."""
        return self._do(self._core.round_answer(name, id))

    # -- the service itself -----------------------------------------------------------------------

    def ready(self, wait: float = 0.0) -> bool:
        """Say whether the service can decide now, or within so many seconds."""
        return self._do(self._core.ready(wait))

    def state(self) -> StateAnswer:
        """Ask what the log amounts to; replicas with equal hashes have equal states."""
        return self._do(self._core.state())

    def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._core.url!r})"

    # -- doing it ---------------------------------------------------------------------------------

    def _do(self, exchange: Exchange[T]) -> T:
        try:
            step = next(exchange)
            while True:
                outcome, error = None, None
                try:
                    outcome = self._outcome(step)
                except Exception as caught:
                    error = caught  # thrown below, where it is not taken for the cause of others
                step = exchange.send(outcome) if error is None else exchange.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            exchange.close()

    def _outcome(self, step: Step) -> Any:
        match step:
            case Send():
                return self._reply(step)
            case Pause():
                return time.sleep(step.seconds)
            case Ask():
                return ask(step.call, step.case, step.timeout)

    def _reply(self, send: Send) -> Reply:
        if self._http.is_closed:
            raise InvalidParameterError("this client was closed: make a new one")
        until = time.monotonic() + send.timeout
        try:
            with self._http.stream(
                send.method,
                send.url,
                headers=send.headers,
                content=send.content,
                timeout=transport.time_limits(send.timeout),
            ) as response:
                return transport.read(response, until)
        except self._lost as error:
            raise transport.lost(error) from error
