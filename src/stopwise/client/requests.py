"""The sans-I/O client, whose methods `Client` and `AsyncClient` share."""

import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.checks import short_repr
from stopwise.client.json_values import (
    ContextLike,
    Features,
    OutputsLike,
    cascade_spec,
    context_value,
    context_values,
    label_report,
    numbers,
    output_values,
)
from stopwise.client.retries import (
    ConnectionLost,
    Exchange,
    Pause,
    Reply,
    Retries,
    Send,
    service_error,
)
from stopwise.errors import InvalidParameterError
from stopwise.running.stage import seconds
from stopwise.service.domain import messages as m
from stopwise.service.validation import explain
from stopwise.version import __version__

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8350"
POLL_INTERVAL = 0.1  # seconds between requests while the service is not ready


class Requests:
    """A sans-I/O client: each method returns an exchange, which its caller performs.

    `Client` describes the parameters, and `stopwise.client.retries` the exchanges.

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
        if url is None:
            url = os.environ.get("STOPWISE_URL") or DEFAULT_URL
        self.url = _service_url(url)
        self.retries = retries
        self._specs: dict[str, m.CascadeSpec] = {}
        self._headers = {"Accept": "application/json", "User-Agent": f"stopwise/{__version__}"}
        if key is None:
            key = os.environ.get("STOPWISE_KEY") or None
        if key is not None:
            self._headers["Authorization"] = f"Bearer {_header_value(key, 'the API key')}"

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
        """Create a cascade. Creating an identical one again returns the existing cascade.

        Parameters
        ----------
        spec : CascadeSpec or str
            The name of the cascade, or its complete definition.
        cascade : Cascade
            The arms, their costs and the trade-off.
        context : int or sequence of str
            The names of the numbers in a context, or only how many there are.
        features : feature map or dict, optional
            By default ``Standard()``. `Custom` features cannot be sent because they are code.
        policy : str
            The name of a policy, as in `sw.make`.
        keep_open : int, optional
            The maximum number of rounds waiting for outputs.
        idempotency_key : str, optional
            Requests with the same key are executed once. By default a random key, which makes
            the retries of this call safe.
        **settings
            Parameters of the policy, such as ``delta=0.1``.

        Raises
        ------
        ServiceError
            With the ``code`` "conflict" if the name is or was used by a different cascade, and
            "invalid" if the definition is not valid.
        """
        if isinstance(spec, str):
            spec = cascade_spec(spec, cascade, context, features, policy, keep_open, settings)
        elif cascade is not None or context is not None or settings:
            raise InvalidParameterError(
                "pass a CascadeSpec alone: it already contains the arms, the context and the policy"
            )
        key = _idempotency_key(idempotency_key)
        return self._post("/v1/cascades", m.CascadeView, spec, key)

    def cascades(self) -> Exchange[list[m.CascadeView]]:
        """List all cascades."""
        listed = yield from self._get("/v1/cascades", m.CascadeList)
        return listed.cascades

    def cascade(self, name: str) -> Exchange[m.CascadeView]:
        """Return a cascade: its definition and its counts."""
        return self._get(_path(name), m.CascadeView)

    def spec(self, name: str) -> Exchange[m.CascadeSpec]:
        """Return the definition of a cascade; it never changes, so it is cached."""
        if name not in self._specs:
            view = yield from self.cascade(name)
            self._specs[name] = view.spec
        return self._specs[name]

    def retire(self, name: str) -> Exchange[m.CascadeView]:
        """Retire a cascade: it accepts no new rounds, and its name cannot be reused."""
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
        """Open a round: decide how far to go for a context.

        Parameters
        ----------
        name : str
            Name of the cascade.
        context : array_like or mapping
            The context, as numbers in order or by name. If stages reveal the context, the part
            that is known before the first arm.
        evidence : bool
            Whether the answer explains the decision.
        idempotency_key : str, optional
            As in `create`.

        Returns
        -------
        RoundAnswer
            Run the arms from ``next`` to ``stop`` and `report` their outputs. While ``stop`` is
            None, run and report only the arm at index ``next``.
        """
        body = m.RoundRequest(context_value(context), evidence)
        key = _idempotency_key(idempotency_key)
        return self._post(_path(name, "rounds"), m.RoundAnswer, body, key)

    def open_many(
        self,
        name: str,
        contexts: ArrayLike | Iterable[ContextLike],
        evidence: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> Exchange[list[m.RoundAnswer]]:
        """Open several rounds in one request; they do not learn from each other.

        ``contexts`` is an array with a context in each row, or an iterable of contexts. By default,
        the service accepts at most 1,000. The other parameters are the same as in `open`.
        """
        body = m.BatchRequest(context_values(contexts), evidence)
        if not body.contexts:
            return []
        path = _path(name, "rounds:batch")
        key = _idempotency_key(idempotency_key)
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
        """Report outputs of a round: all of them, or those available so far.

        Repeating a report has no effect. A different output of an arm that has answered raises
        `ServiceError` with the ``code`` "conflict".

        Parameters
        ----------
        name, id : str
            The name of the cascade and the id of the round.
        outputs : sequence or mapping
            In the order of the arms (None: not yet available), or by arm name. Outputs are any
            JSON values, compared by equality.
        revealed : array_like
            The numbers that the reported arm adds to the context, if stages reveal the context.
        final : bool
            Whether the remaining outputs will never arrive because a stage failed. The policy
            then learns from the arms before the first missing output.
        """
        body = m.OutputsRequest(output_values(outputs), numbers(revealed, "revealed"), final)
        return self._post(_path(name, "rounds", id, "outputs"), m.RoundAnswer, body)

    def label(
        self, name: str, id: str, label: Any = None, *, right: Mapping[str, bool] | None = None
    ) -> Exchange[m.LabelAnswer]:
        """Report the label of a round, as either ``label`` or ``right``.

        Label the rounds for which the policy requests it (``wants_label``); label other rounds only
        if you choose them at random.

        Parameters
        ----------
        name, id : str
            The name of the cascade and the id of the round.
        label : Any, optional
            The right answer: a JSON value like the outputs.
        right : mapping, optional
            Whether each arm that answered was right, by arm name. Use it if several answers can
            be right, as with free text.
        """
        body = label_report(label, right)
        return self._post(_path(name, "rounds", id, "label"), m.LabelAnswer, body)

    def label_requests(self, name: str) -> Exchange[m.WantedLabels]:
        """Return the rounds whose labels the policy requests, oldest first."""
        return self._get(_path(name, "label-requests"), m.WantedLabels)

    def look_up(self, name: str, id: str) -> Exchange[m.RoundView]:
        """Look up a round: its state, context and outputs."""
        return self._get(_path(name, "rounds", id), m.RoundView)

    # -- the service itself -----------------------------------------------------------------------

    def state(self) -> Exchange[m.StateAnswer]:
        """Return the digests of the log and of the state, for comparing replicas."""
        return self._get("/v1/state", m.StateAnswer)

    def ready(self, wait: float = 0.0) -> Exchange[bool]:
        """Return whether the service is ready, waiting up to ``wait`` seconds for it."""
        deadline = self.retries.clock() + seconds(wait, "wait", zero=True, most=None)
        while True:
            try:
                reply: Reply = yield self._send("GET", "/readyz")
            except ConnectionLost as lost:
                if lost.permanent:
                    return False
            else:
                if reply.status == 200:
                    return True
                if reply.status < 500 and reply.status != 429:
                    raise service_error(reply, self.url)
            if self.retries.clock() + POLL_INTERVAL > deadline:
                return False
            yield Pause(POLL_INTERVAL)

    def _send(self, method: str, path: str, content: bytes | None = None, **headers: str) -> Send:
        return Send(method, self.url + path, self._headers | headers, content, self.retries.timeout)

    def _get(self, path: str, answer_type: type[T]) -> Exchange[T]:
        return self.retries.request(self._send("GET", path), answer_type)

    def _post(
        self,
        path: str,
        answer_type: type[T],
        body: msgspec.Struct | None = None,
        key: str | None = None,
    ) -> Exchange[T]:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = b"{}" if body is None else msgspec.json.encode(body)
        return self.retries.request(self._send("POST", path, content, **headers), answer_type)


def _path(name: str, *parts: str) -> str:
    """Return the path of a cascade, or of a resource below it."""
    try:
        msgspec.convert(name, m.Name)
    except msgspec.ValidationError as error:
        raise InvalidParameterError(f"name {explain(error, name)[1]}") from None
    for part in parts:
        if not (isinstance(part, str) and part.strip(". ")):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
            raise InvalidParameterError(
                f"id must be the id of a round, as returned by open, got {short_repr(part)}"
            )
    return "/".join(("/v1/cascades", name, *(quote(part, safe=":") for part in parts)))


def _idempotency_key(key: str | None) -> str:
    """Return the Idempotency-Key of a call; its retries send the same key."""
    return uuid.uuid4().hex if key is None else _header_value(key, "idempotency_key")


def _header_value(value: str, description: str) -> str:
    """Return a valid header value; errors do not show it, because it may be secret."""
    value = value.strip() if isinstance(value, str) else ""  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
    if not re.fullmatch(r"[!-~]{1,200}", value):
        raise InvalidParameterError(
            f"{description} must be 1 to 200 printable ASCII characters without spaces"
        )
    return value


def _service_url(url: str) -> str:
    """Return a valid URL of a service, without a trailing slash."""
    import httpx  # the client uses httpx, so httpx must accept the URL

    try:
        parts = httpx.URL(url)
        valid = parts.scheme in ("http", "https") and parts.host and (parts.port or 80) < 1 << 16
        valid = valid and not (parts.query or parts.fragment or re.search(r"\s", url))
        has_password = bool(parts.userinfo)
    except (httpx.InvalidURL, ValueError):
        valid = False
        has_password = "@" in url  # a guess, because the URL cannot be parsed
    if has_password:  # the message must not show the password
        raise InvalidParameterError(
            "url must not contain a user or a password; pass the API key as key="
        )
    if not valid:
        raise InvalidParameterError(f"url must look like {DEFAULT_URL}, got {url!r}")
    return url.rstrip("/")
