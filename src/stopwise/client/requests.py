"""Every request of the service's API, each as an exchange: the methods of both clients."""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from inspect import signature
from typing import Any, TypeVar, get_args
from urllib.parse import quote, urlsplit

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.client.retries import (
    Call,
    ConnectionLost,
    Exchange,
    Pause,
    Reply,
    Retries,
    refusal,
)
from stopwise.client.values import (
    ContextLike,
    Features,
    OutputsLike,
    context_value,
    context_values,
    described,
    known_value,
    numbers,
    output_values,
)
from stopwise.errors import InvalidParameterError
from stopwise.running.stage import seconds
from stopwise.service import messages as m

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
DEFAULT_URL = "http://127.0.0.1:8350"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
POLL = 0.1  # seconds between requests to a service that is not ready


class Requests:
    """The service's API without the sending; see `Client` for the parameters.

    The clients have these methods too, and do the steps of each exchange.

    Examples
    --------
    >>> requests = Requests("http://127.0.0.1:8350/", None, timeout=10, deadline=30, rng=None)
    >>> step = next(requests.open("triage", [0.5, 1]))
    >>> step.method, step.url
    ('POST', 'http://127.0.0.1:8350/v1/cascades/triage/rounds')
    >>> step.content
    b'{"context":[0.5,1.0],"evidence":false}'
    """

    def __init__(
        self,
        url: str | None,
        key: str | None,
        *,
        timeout: float,
        deadline: float,
        rng: np.random.Generator | None,
    ) -> None:
        rng = np.random.default_rng() if rng is None else rng
        self.url = _address(os.environ.get("STOPWISE_URL") or DEFAULT_URL if url is None else url)
        key = os.environ.get("STOPWISE_KEY") or None if key is None else key
        key = None if key is None else _header(key, "the API key")
        self.retries = Retries(self.url, key, timeout, deadline, rng)
        self._specs: dict[str, m.CascadeSpec] = {}

    @property
    def local(self) -> bool:
        """Whether the service is on this machine, so that no proxy is meant."""
        return urlsplit(self.url).hostname in LOOPBACK

    # -- cascades ---------------------------------------------------------------------------------

    def create(
        self,
        spec: m.CascadeSpec | str,
        cascade: Cascade | None = None,
        *,
        context: int | Sequence[str] | None = None,
        features: Features | None = None,
        policy: str = "uss-pd",
        keep_open: int | None = None,
        idempotency_key: str | None = None,
        **settings: Any,
    ) -> Exchange[m.CascadeView]:
        """Create a cascade for the service to decide about.

        Parameters
        ----------
        spec : CascadeSpec or str
            The complete description, or the name.
        cascade : Cascade
            The arms, their costs and the trade-off.
        context : int or sequence of str
            How many numbers a context has, or their names.
        features : feature map, PerStage or dict, optional
            By default ``Polynomial(degree=1)``. Not your own functions: code cannot be sent.
        policy : str
            Its name, as in `sw.make`.
        keep_open : int, optional
            How many rounds may wait for their outputs.
        idempotency_key : str, optional
            The same key creates the same thing once, whoever sends it; by default a random one, so
            that all tries of this call count once.
        **settings
            Of the policy: ``delta=0.1``, …

        Raises
        ------
        ServiceError
            ``code`` "conflict" if there is, or was, another cascade of this name; "invalid" if
            the service cannot use the description.
        """
        if isinstance(spec, str):
            spec = described(spec, cascade, context, features, policy, keep_open, settings)
        elif cascade is not None or context is not None or settings:
            raise InvalidParameterError("a CascadeSpec is complete: give nothing beside it")
        return self._post("/v1/cascades", m.CascadeView, spec, _once(idempotency_key))

    def cascades(self) -> Exchange[list[m.CascadeView]]:
        """List all cascades."""
        listed = yield from self._get("/v1/cascades", m.CascadeList)
        return listed.cascades

    def cascade(self, name: str) -> Exchange[m.CascadeView]:
        """Show one cascade: its description, and how many rounds were opened and learned."""
        return self._get(_path(name), m.CascadeView)

    def spec(self, name: str) -> Exchange[m.CascadeSpec]:
        """Return the description of a cascade, which never changes: asked for once."""
        if name not in self._specs:
            view = yield from self.cascade(name)
            self._specs[name] = view.spec
        return self._specs[name]

    def retire(self, name: str) -> Exchange[m.CascadeView]:
        """Retire a cascade: no more rounds are opened, and its name stays taken."""
        return self._post(_path(name, "retire"), m.CascadeView)

    # -- rounds -----------------------------------------------------------------------------------

    def open(
        self,
        name: str,
        context: ContextLike = (),
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> Exchange[m.RoundAnswer]:
        """Open a round: ask how deep to go, or, where stages reveal the context, which arm is next.

        Parameters
        ----------
        name : str
            Of the cascade.
        context : array_like or mapping
            The numbers that are known, in order or by their names.
        evidence : bool
            Whether to explain the decision.
        idempotency_key : str, optional
            As in `create`.

        Returns
        -------
        RoundAnswer
            Run the arms ``next`` to ``stop`` and `report` their outputs; while ``stop`` is None,
            run and report ``next`` alone.
        """
        body = m.RoundRequest(context_value(context), evidence)
        return self._post(_path(name, "rounds"), m.RoundAnswer, body, _once(idempotency_key))

    def open_many(
        self,
        name: str,
        contexts: ArrayLike | Iterable[ContextLike],
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> Exchange[list[m.RoundAnswer]]:
        """Open several rounds in one request; none learns from another.

        Parameters
        ----------
        name, evidence, idempotency_key
            As in `open`.
        contexts : array_like or iterable
            The rows of a table, or contexts one by one; at most 1,000, unless the service is set
            otherwise.
        """
        body = m.BatchRequest(context_values(contexts), evidence)
        if not body.contexts:
            return []
        path, key = _path(name, "rounds:batch"), _once(idempotency_key)
        listed = yield from self._post(path, m.RoundList, body, key)
        return listed.rounds

    def report(
        self,
        name: str,
        id: str,
        outputs: OutputsLike,
        *,
        revealed: ArrayLike = (),
        final: bool = False,
    ) -> Exchange[m.RoundAnswer]:
        """Report outputs of a round: all, or those that are there; repeats change nothing.

        Parameters
        ----------
        name : str
            Of the cascade.
        id : str
            Of the round.
        outputs : sequence or mapping
            In the order of the arms (None: not known yet), or by their names. Any JSON values;
            compared by equality.
        revealed : array_like
            The numbers that the arm adds to the context, where stages reveal it.
        final : bool
            No more will come (a stage failed): learn from the arms before the first one missing.

        Raises
        ------
        ServiceError
            ``code`` "conflict" if another output of the same arm was reported before.
        """
        body = m.OutputsRequest(output_values(outputs), numbers(revealed, "revealed: "), final)
        return self._post(_path(name, "rounds", id, "outputs"), m.RoundAnswer, body)

    def label(self, name: str, id: str, label: Any) -> Exchange[m.LabelAnswer]:
        """Report the right answer of a round that was chosen at random for an audit."""
        body = m.LabelRequest(known_value(label, "the label"))
        return self._post(_path(name, "rounds", id, "label"), m.LabelAnswer, body)

    def look_up(self, name: str, id: str) -> Exchange[m.RoundView]:
        """Look up a round: its state, and what was reported."""
        return self._get(_path(name, "rounds", id), m.RoundView)

    # -- the service itself -----------------------------------------------------------------------

    def state(self) -> Exchange[m.StateAnswer]:
        """Return the digests of the log and the state; equal hashes mean equal states."""
        return self._get("/v1/state", m.StateAnswer)

    def ready(self, wait: float = 0.0) -> Exchange[bool]:
        """Say whether the service can decide now, or within so many seconds."""
        until = self.retries.clock() + seconds(wait, "wait", zero=True, most=None)
        call = Call("GET", "/readyz", object)
        while True:
            try:
                reply: Reply = yield self.retries.send(call, self.retries.timeout)
            except ConnectionLost as lost:
                if lost.lasting:
                    return False
            else:
                if reply.status == 200:
                    return True
                if reply.status < 500 and reply.status != 429:
                    raise refusal(reply, self.url)
            if self.retries.clock() + POLL > until:
                return False
            yield Pause(POLL)

    def _get(self, path: str, answer: type[T]) -> Exchange[T]:
        return self.retries.answer(Call("GET", path, answer))

    def _post(
        self,
        path: str,
        answer: type[T],
        body: msgspec.Struct | None = None,
        key: str | None = None,
    ) -> Exchange[T]:
        return self.retries.answer(Call("POST", path, answer, body, key))


def as_method(call: C, request: Callable[..., Any]) -> C:
    """Give a client's method the name, the words and the signature of the request behind it."""
    declared = signature(request)
    result = get_args(declared.return_annotation)[-1]
    vars(call)["__signature__"] = declared.replace(return_annotation=result)
    return update_wrapper(call, request)  # pyright: ignore[reportReturnType] (the same function)


def _path(name: str, *parts: str) -> str:
    """Return the path of a cascade or of something in it."""
    try:
        msgspec.convert(name, m.Name)
    except msgspec.ValidationError:
        raise InvalidParameterError(
            f"no cascade can be called {name!r}: lower-case letters, digits, - and _, at most 64"
        ) from None
    if not all(isinstance(part, str) and part.strip(". ") for part in parts):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidParameterError("an id is the text that an earlier answer gave as `id`")
    return "/".join(("/v1/cascades", name, *(quote(part, safe=":") for part in parts)))


def _once(key: str | None) -> str:
    """Return the Idempotency-Key of a call: made once, sent with every try."""
    return uuid.uuid4().hex if key is None else _header(key, "an idempotency key")


def _header(value: str, what: str) -> str:
    """Return what a header can carry, or say what is wrong without showing it."""
    value = value.strip() if isinstance(value, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
    if not re.fullmatch(r"[!-~]{1,200}", value):
        raise InvalidParameterError(f"{what} is 1 to 200 printable ASCII characters without spaces")
    return value


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read only now, and may be no number
    except ValueError as reason:
        raise InvalidParameterError(f"this address of a service cannot be read: {reason}") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidParameterError(
            "the address must not hold a user or a password: give the API key as key="
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url):
        raise InvalidParameterError(f"the address of a service is like {DEFAULT_URL}, not {url!r}")
    if parts.query or parts.fragment:
        raise InvalidParameterError(f"the address of a service has no ? and no #, as in {url!r}")
    return url.rstrip("/")
