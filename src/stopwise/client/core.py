"""Everything one can ask of the service, each as an exchange."""

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.client import plain
from stopwise.client.exchange import Call, Desk, Exchange, Lost, Pause, Reply, refusal
from stopwise.client.plain import ContextLike, OutputsLike
from stopwise.client.specs import Features, describe
from stopwise.errors import InvalidParameterError
from stopwise.service import messages as m

DEFAULT_URL = "http://127.0.0.1:8350"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
POLL = 0.1  # seconds between looks at a service that is not ready


class Core:
    """The service's interface without the sending; see `Client` for the parameters.

    Examples
    --------
    >>> core = Core("http://127.0.0.1:8350/", None, timeout=10, deadline=30, rng=None)
    >>> step = next(core.decide("triage", [0.5, 1]))
    >>> step.method, step.url
    ('POST', 'http://127.0.0.1:8350/v1/cascades/triage/decisions')
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
        self.desk = Desk(self.url, _secret(key), timeout, deadline, rng)
        self._arms: dict[str, list[str]] = {}

    @property
    def local(self) -> bool:
        """Whether the service is on this machine, so that no proxy can be meant."""
        return urlsplit(self.url).hostname in LOOPBACK

    # -- cascades ---------------------------------------------------------------------------------

    def create(
        self,
        spec: m.CascadeSpec | str,
        cascade: Cascade | None,
        context: int | Sequence[str] | None,
        features: Features | None,
        policy: str,
        keep_open: int | None,
        idempotency_key: str | None,
        settings: dict[str, Any],
    ) -> Exchange[m.CascadeView]:
        """Make a cascade."""
        if isinstance(spec, str):
            if cascade is None or context is None:
                raise InvalidParameterError(
                    'create needs a cascade and its context: create("triage", cascade, '
                    'context=["age", "bmi"])'
                )
            spec = describe(
                spec,
                cascade,
                context=context,
                features=features,
                policy=policy,
                keep_open=keep_open,
                **settings,
            )
        elif cascade is not None or context is not None or settings:
            raise InvalidParameterError("a CascadeSpec says it all: give nothing beside it")
        call = Call("POST", "/v1/cascades", m.CascadeView, spec, _once(idempotency_key))
        return (yield from self.desk.ask(call))

    def cascades(self) -> Exchange[list[m.CascadeView]]:
        """List every cascade."""
        listed = yield from self.desk.ask(Call("GET", "/v1/cascades", m.CascadeList))
        return listed.cascades

    def cascade(self, name: str) -> Exchange[m.CascadeView]:
        """Show one cascade."""
        return (yield from self.desk.ask(Call("GET", _path(name), m.CascadeView)))

    def arms(self, name: str) -> Exchange[list[str]]:
        """Return the names of a cascade's arms, which never change: asked for once."""
        if name not in self._arms:
            view = yield from self.cascade(name)
            self._arms[name] = [arm.name for arm in view.spec.arms]
        return self._arms[name]

    def retire(self, name: str) -> Exchange[m.CascadeView]:
        """Retire a cascade."""
        return (yield from self.desk.ask(Call("POST", _path(name, "retire"), m.CascadeView)))

    # -- decisions --------------------------------------------------------------------------------

    def decide(
        self,
        name: str,
        context: ContextLike,
        evidence: bool = False,
        idempotency_key: str | None = None,
    ) -> Exchange[m.DecisionAnswer]:
        """Decide for one context."""
        body = m.DecisionRequest(plain.context(context), evidence)
        path, key = _path(name, "decisions"), _once(idempotency_key)
        return (yield from self.desk.ask(Call("POST", path, m.DecisionAnswer, body, key)))

    def decide_many(
        self,
        name: str,
        contexts: ArrayLike | Iterable[ContextLike],
        evidence: bool = False,
        idempotency_key: str | None = None,
    ) -> Exchange[list[m.DecisionAnswer]]:
        """Decide for several contexts."""
        body = m.BatchRequest(plain.contexts(contexts), evidence)
        if not body.contexts:
            return []
        path, key = _path(name, "decisions:batch"), _once(idempotency_key)
        batch = yield from self.desk.ask(Call("POST", path, m.BatchAnswer, body, key))
        return batch.decisions

    def decision(self, name: str, id: str) -> Exchange[m.DecisionView]:
        """Look a decision up."""
        path = _path(name, "decisions", id)
        return (yield from self.desk.ask(Call("GET", path, m.DecisionView)))

    def outputs(
        self,
        name: str,
        id: str,
        outputs: OutputsLike,
        final: bool = False,
    ) -> Exchange[m.OutputsAnswer]:
        """Tell what arms said."""
        body = m.OutputsRequest(plain.outputs(outputs), final)
        path = _path(name, "decisions", id, "outputs")
        return (yield from self.desk.ask(Call("POST", path, m.OutputsAnswer, body)))

    def label(self, name: str, id: str, label: Any) -> Exchange[m.LabelAnswer]:
        """Tell the right answer."""
        body = m.LabelRequest(plain.answer(label, "the label"))
        path = _path(name, "decisions", id, "label")
        return (yield from self.desk.ask(Call("POST", path, m.LabelAnswer, body)))

    # -- rounds decided step by step --------------------------------------------------------------

    def start_round(
        self, name: str, context: ArrayLike = (), idempotency_key: str | None = None
    ) -> Exchange[m.RoundAnswer]:
        """Begin a round."""
        body = m.RoundRequest(plain.numbers(context))
        path, key = _path(name, "rounds"), _once(idempotency_key)
        return (yield from self.desk.ask(Call("POST", path, m.RoundAnswer, body, key)))

    def round_answer(self, name: str, id: str) -> Exchange[m.RoundAnswer]:
        """Look up where a round stands."""
        return (yield from self.desk.ask(Call("GET", _path(name, "rounds", id), m.RoundAnswer)))

    def step(
        self,
        name: str,
        id: str,
        arm: int,
        output: Any,
        revealed: ArrayLike = (),
    ) -> Exchange[m.RoundAnswer]:
        """Tell what one arm said."""
        said = plain.answer(output, f"the output of arm {arm}")
        body = m.StepRequest(arm, said, plain.numbers(revealed, "revealed: "))
        path = _path(name, "rounds", id, "steps")
        return (yield from self.desk.ask(Call("POST", path, m.RoundAnswer, body)))

    def end_round(self, name: str, id: str) -> Exchange[m.RoundAnswer]:
        """End a round whose arm failed."""
        path = _path(name, "rounds", id, "end")
        return (yield from self.desk.ask(Call("POST", path, m.RoundAnswer)))

    # -- the service itself -----------------------------------------------------------------------

    def state(self) -> Exchange[m.StateAnswer]:
        """Ask what the log amounts to."""
        return (yield from self.desk.ask(Call("GET", "/v1/state", m.StateAnswer)))

    def ready(self, wait: float = 0.0) -> Exchange[bool]:
        """Ask whether decisions can be made, again and again until it is so or time is up."""
        wait = plain.seconds("wait", wait, zero=True)
        until = self.desk.clock() + wait
        call = Call("GET", "/readyz", object)
        while True:
            try:
                reply: Reply = yield self.desk.send(call, self.desk.timeout)
            except Lost as lost:
                if lost.lasting:
                    return False
            else:
                if reply.status == 200:
                    return True
                if reply.status < 500 and reply.status != 429:
                    raise refusal(reply, self.url)
            if self.desk.clock() + POLL > until:
                return False
            yield Pause(POLL)


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
    if key is None:
        return uuid.uuid4().hex
    if not (isinstance(key, str) and re.fullmatch(r"[!-~]{1,200}", key)):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidParameterError(
            "an idempotency key is 1 to 200 printable ASCII characters without spaces"
        )
    return key


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


def _secret(key: str | None) -> str | None:
    """Return an API key, or say what is wrong with it without showing it."""
    if key is None:
        return None
    key = key.strip()  # read from a file, it often ends with a line break
    if not re.fullmatch(r"[!-~]+", key):
        raise InvalidParameterError(
            "the API key is empty or has characters that a header cannot carry"
        )
    return key
