"""Every request of the service's API, each as an exchange: the methods of both clients."""

import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.client.exchanges import ConnectionLost, Exchange, Pause, Reply, Retries, Send, refusal
from stopwise.client.values import (
    ContextLike,
    Features,
    OutputsLike,
    context_value,
    context_values,
    described,
    label_value,
    numbers,
    output_values,
)
from stopwise.errors import InvalidParameterError
from stopwise.running.stage import seconds
from stopwise.service.domain import messages as m
from stopwise.service.validation import explain
from stopwise.version import __version__

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8350"
POLL = 0.1  # seconds between requests to a service that is not ready


class Requests:
    """The service's API without the sending; see `Client` for the parameters.

    Examples
    --------
    >>> requests = Requests("http://127.0.0.1:8350/", None, Retries(10, 30, None))
    >>> step = next(requests.open("triage", [0.5, 1]))
    >>> step.method, step.url
    ('POST', 'http://127.0.0.1:8350/v1/cascades/triage/rounds')
    >>> step.content
    b'{"context":[0.5,1.0],"evidence":false}'
    """

    def __init__(self, url: str | None, key: str | None, retries: Retries) -> None:
        self.url = _address(os.environ.get("STOPWISE_URL") or DEFAULT_URL if url is None else url)
        self.retries = retries
        self._specs: dict[str, m.CascadeSpec] = {}
        self._headers = {"Accept": "application/json", "User-Agent": f"stopwise/{__version__}"}
        key = os.environ.get("STOPWISE_KEY") or None if key is None else key
        if key is not None:
            self._headers["Authorization"] = f"Bearer {_header(key, 'the API key')}"

    # -- cascades ---------------------------------------------------------------------------------

    def create(
        self,
        spec: m.CascadeSpec | str,
        cascade: Cascade | None = None,
        *,
        context: int | Sequence[str] | None = None,
        features: Features | None = None,
        policy: str = "uss-laplace",
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
        features : feature map or dict, optional
            By default ``Standard()``. Not your own functions: code cannot be sent.
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
        """Return the description of a cascade; it never changes, so it is requested once."""
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

        ``contexts`` are the rows of a table, or contexts one by one; at most 1,000, unless the
        service is set otherwise. The other parameters are as in `open`.
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

        Another output of the same arm is refused (`ServiceError`, ``code`` "conflict").

        Parameters
        ----------
        name, id : str
            Of the cascade and of the round.
        outputs : sequence or mapping
            In the order of the arms (None: not known yet), or by their names. Any JSON values;
            compared by equality.
        revealed : array_like
            The numbers that the arm adds to the context, where stages reveal it.
        final : bool
            No more will come (a stage failed): learn from the arms before the first one missing.
        """
        body = m.OutputsRequest(output_values(outputs), numbers(revealed, "revealed: "), final)
        return self._post(_path(name, "rounds", id, "outputs"), m.RoundAnswer, body)

    def label(
        self, name: str, id: str, label: Any = None, *, right: Mapping[str, bool] | None = None
    ) -> Exchange[m.LabelAnswer]:
        """Report the label of a round, best of one that wants it (``wants_label``).

        Parameters
        ----------
        name, id : str
            Of the cascade and of the round.
        label : Any, optional
            The right answer: a JSON value like the outputs.
        right : mapping, optional
            Instead: by the name of each arm that answered, whether it was right. For outputs of
            which several can be right, such as free text.
        """
        body = label_value(label, right)
        return self._post(_path(name, "rounds", id, "label"), m.LabelAnswer, body)

    def label_requests(self, name: str) -> Exchange[m.WantedLabels]:
        """Return rounds whose labels the policy asks for, the oldest first."""
        return self._get(_path(name, "label-requests"), m.WantedLabels)

    def look_up(self, name: str, id: str) -> Exchange[m.RoundView]:
        """Look up a round: its state, and what was reported."""
        return self._get(_path(name, "rounds", id), m.RoundView)

    # -- the service itself -----------------------------------------------------------------------

    def state(self) -> Exchange[m.StateAnswer]:
        """Return the digests of the log and the state; equal hashes mean equal states."""
        return self._get("/v1/state", m.StateAnswer)

    def ready(self, wait: float = 0.0) -> Exchange[bool]:
        """Return whether the service can decide now, or within so many seconds."""
        until = self.retries.clock() + seconds(wait, "wait", zero=True, most=None)
        while True:
            try:
                reply: Reply = yield self._send("GET", "/readyz")
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

    def _send(self, method: str, path: str, content: bytes | None = None, **headers: str) -> Send:
        return Send(method, self.url + path, self._headers | headers, content, self.retries.timeout)

    def _get(self, path: str, kind: type[T]) -> Exchange[T]:
        return self.retries.answer(self._send("GET", path), kind)

    def _post(
        self, path: str, kind: type[T], body: msgspec.Struct | None = None, key: str | None = None
    ) -> Exchange[T]:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = b"{}" if body is None else msgspec.json.encode(body)
        return self.retries.answer(self._send("POST", path, content, **headers), kind)


def _path(name: str, *parts: str) -> str:
    """Return the path of a cascade or of something in it."""
    try:
        msgspec.convert(name, m.Name)
    except msgspec.ValidationError as error:
        raise InvalidParameterError(f"the cascade's name {explain(error, name)[1]}") from None
    if not all(isinstance(part, str) and part.strip(". ") for part in parts):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidParameterError("an id is the text that an earlier answer gave as `id`")
    return "/".join(("/v1/cascades", name, *(quote(part, safe=":") for part in parts)))


def _once(key: str | None) -> str:
    """Return the Idempotency-Key of a call: created once, sent with every try."""
    return uuid.uuid4().hex if key is None else _header(key, "an idempotency key")


def _header(value: str, what: str) -> str:
    """Return a value that a header can carry; an error does not show it."""
    value = value.strip() if isinstance(value, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
    if not re.fullmatch(r"[!-~]{1,200}", value):
        raise InvalidParameterError(f"{what} is 1 to 200 printable ASCII characters without spaces")
    return value


def _address(url: str) -> str:
    import httpx  # which sends to it, so it must be able to read it

    try:
        parts = httpx.URL(url)
        valid = parts.scheme in ("http", "https") and parts.host and (parts.port or 80) < 1 << 16
        valid = valid and not (parts.query or parts.fragment or re.search(r"\s", url))
        secret = bool(parts.userinfo)
    except (httpx.InvalidURL, ValueError):
        valid, secret = False, "@" in url  # perhaps, where it cannot be read
    if secret:  # a message that shows it would show a password
        raise InvalidParameterError(
            "the address must not hold a user or a password: give the API key as key="
        )
    if not valid:
        raise InvalidParameterError(f"the address of a service is like {DEFAULT_URL}, not {url!r}")
    return url.rstrip("/")
