"""The configuration of a proxy: one TOML file, checked as a whole before anything starts."""

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import fields
from yarl import URL

from stopwise.errors import InvalidParameterError, StopwiseError
from stopwise.policies.registry import POLICIES, takes
from stopwise.proxy.chat import MAX_ANSWER
from stopwise.proxy.compare import Comparison
from stopwise.proxy.context import REVEALED, Known
from stopwise.service.domain import spec as specs
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.messages import Arm, CascadeSpec, Name
from stopwise.service.settings import Settings, combined_settings
from stopwise.service.validation import UNKNOWN_FIELD, explain
from stopwise.text import closest, suggestion

Money = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Positive = Annotated[float, Meta(gt=0)]
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Bytes = Annotated[int, Meta(ge=1)]
MAX_BODY = 20_000_000  # bytes: requests may hold images


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm: an upstream, or a function ``python = "module:function"``."""

    name: Text
    url: str | None = None
    model: str | None = None
    key_env: str | None = None
    python: str | None = None
    price_in: Money | None = None
    price_out: Money | None = None
    cost: Money | None = None
    timeout: Seconds = 60.0
    extra: dict[str, Any] = {}

    def price(self, tokens: Sequence[float]) -> float | None:
        """Return what these tokens cost, of the prompt and of the answer; None without prices."""
        if self.price_in is None or self.price_out is None:
            return self.cost
        return (tokens[0] * self.price_in + tokens[1] * self.price_out) / 1e6


class Embedding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where embeddings come from, and how they are reduced."""

    python: str | None = None
    url: str | None = None
    model: str | None = None
    key_env: str | None = None
    size: Annotated[int, Meta(ge=1, le=16)] = 8
    seed: Annotated[int, Meta(ge=0)] = 0
    timeout: Seconds = 5.0


class Same(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function of two texts, ``python = "module:same"``, that says whether they agree."""

    python: str


class Cascade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cascade: the model that callers ask for."""

    name: Name
    stage: Annotated[list[Stage], Meta(min_length=2, max_length=15)]
    mode: Literal["shadow", "on"] = "shadow"
    answer: str = ""  # "": the last
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.1
    budget: Money | None = None
    error_cost: Positive = 1.0
    tokens_in: Money = 500.0
    tokens_out: Money = 200.0
    policy: str | dict[str, Any] | None = None
    labels: Positive | None = None
    compare: str | Same = "text"
    context: tuple[Known, ...] = ("length", "turns", "tools", "schema")
    embedding: Embedding | None = None
    deadline: Seconds | None = None
    max_cost: Money | None = None
    max_calls: Annotated[int, Meta(ge=1)] | None = None

    @property
    def answer_arm(self) -> int:
        """The stage that answers in shadow mode, and where Stopwise cannot decide."""
        names = [stage.name for stage in self.stage]
        return names.index(self.answer) if self.answer else len(names) - 1

    def expected(self, arm: int) -> float:
        """Return what one call of a stage is expected to cost, in the money of the prices."""
        stage, tokens = self.stage[arm], (self.tokens_in, self.tokens_out)
        return (stage.price(tokens) or 0.0) if stage.cost is None else stage.cost

    def spec(self) -> CascadeSpec:
        """Return the cascade as the service knows it."""
        policy = self.policy or ("uss-anchor" if self.labels is None else "uss-laplace")
        given: dict[str, Any] = {"kind": policy} if isinstance(policy, str) else dict(policy)
        given["reveals"] = REVEALED
        if self.labels is not None:
            given["labels"] = self.labels
        compared = self.compare if isinstance(self.compare, str) else self.compare.python
        context, embedded = list[str](self.context), ""
        if (by := self.embedding) is not None:
            context += [f"embedding {k} (seed {by.seed})" for k in range(by.size)] + ["embedded"]
            embedded = f"; prompts embedded by {by.python or by.model}"
        return CascadeSpec(
            name=self.name,
            arms=[Arm(one.name, self.expected(arm)) for arm, one in enumerate(self.stage)],
            context=context or 0,
            tradeoff=1 / self.error_cost,
            policy=given,
            note=f"answers compared by {compared}{embedded}",
        )

    def comparison(self) -> Comparison:
        """Return how answers are compared."""
        if isinstance(self.compare, str):
            return Comparison(self.compare)
        same = function(self.compare.python)
        if iscoroutinefunction(same):
            raise InvalidParameterError(f"{self.compare.python!r} is async: it must be a function")
        return Comparison("text", same)


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what upstreams send and slow callers hold, in decompressed bytes and seconds."""

    max_answer: Bytes = MAX_ANSWER
    max_stream: Bytes = 200_000_000
    max_line: Bytes = 4_000_000
    shadow_queue: Bytes = 32_000_000
    caller_pause: Seconds = 60.0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The tables of a file."""

    cascade: Annotated[list[Cascade], Meta(min_length=1)]
    service: dict[str, Any] = {}
    limits: Limits = Limits()


class Config(msgspec.Struct, frozen=True):
    """Everything in the file."""

    settings: Settings
    cascades: dict[str, Cascade]
    file: Path
    limits: Limits = Limits()


_TABLES = (_File, Limits, Cascade, Stage, Embedding)
_KEYS = [field.name for table in _TABLES for field in fields(table)]


def function(place: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names.

    Examples
    --------
    >>> function("math:sqrt")(9)
    3.0
    """
    module, _, name = place.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module of the user's may raise anything
        raise InvalidParameterError(
            f'{place!r} cannot be imported ({error}): write "module:function", of a module beside '
            "this file or installed"
        ) from error
    if not callable(found):
        raise InvalidParameterError(f"{place!r} is no function")
    return found


def load(file: Path, environment: Mapping[str, str], *, serves: bool = True) -> Config:
    """Read a configuration, or refuse it: `InvalidParameterError`.

    Keys of upstreams must be set where it ``serves``.
    """
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidParameterError(
            f"there is no file {file}: stopwise proxy --example > {file}"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidParameterError(f"cannot read {file}: {error}") from error
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # where functions of the user's are
    try:
        given = msgspec.convert(table, _File)
    except msgspec.ValidationError as error:
        place, problem = explain(error, table)
        near = closest(place.rpartition(".")[2], _KEYS)
        hint = f": did you mean {near!r}?" if near and problem == UNKNOWN_FIELD else ""
        raise InvalidParameterError(f"{file}: {place} {problem}{hint}") from None
    settings = combined_settings(
        {"max_body": MAX_BODY, **given.service}, f"{file}: service.", environment, {}
    )
    problems = [
        f"cascade[{k}].{problem}"
        for k, cascade in enumerate(given.cascade)
        for problem in _faults(cascade, environment if serves else None)
    ]
    cascades = {cascade.name: cascade for cascade in given.cascade}
    if len(cascades) < len(given.cascade):
        problems.append("cascade: two cascades have the same name")
    if problems:
        raise InvalidParameterError("\n  ".join([f"{file} cannot be used:", *problems]))
    return Config(settings, cascades, file.resolve(), given.limits)


def _faults(cascade: Cascade, environment: Mapping[str, str] | None) -> list[str]:
    """Return what is wrong with a cascade whose fields have the right types."""
    names = [stage.name for stage in cascade.stage]
    found = [f"stage: two stages are called {one!r}" for one in names if names.count(one) > 1][:1]
    if cascade.answer and cascade.answer not in names:
        found.append(
            f"answer: no stage is called {cascade.answer!r}; {suggestion(cascade.answer, names)}"
        )
    for k, stage in enumerate(cascade.stage):
        found += [f"stage[{k}].{one}" for one in _source_faults(stage, environment)]
        prices = stage.price_in, stage.price_out
        if stage.cost is None and None in prices and stage.url is not None:
            found.append(f"stage[{k}].cost is missing: write it, or price_in and price_out")
        if not stage.name.isprintable():
            found.append(f"stage[{k}].name is {stage.name!r}: it must be printable")
        if own := {"model", "messages", "stream"} & stage.extra.keys():
            found.append(f"stage[{k}].extra: the proxy itself sends {', '.join(sorted(own))}")
        if (prices[0] is None) != (prices[1] is None):
            found.append(f"stage[{k}].price_in and price_out belong together: write both or none")
    if cascade.embedding is not None:
        found += [f"embedding.{one}" for one in _source_faults(cascade.embedding, environment)]
    found += _raised("compare: ", cascade.comparison)
    cap = cascade.max_cost
    if not found and cap is not None and cap < (first := cascade.expected(0)):
        found.append(f"max_cost is {cap:g}, less than one call of {names[0]!r}, {first:g}")
    kind = cascade.spec().policy.get("kind")
    usable = [name for name, one in POLICIES.items() if takes(one, "features")]
    if kind not in usable:
        found.append(f"policy is {kind!r}: it must be one of {', '.join(usable)}")
    return found or _raised("", lambda: specs.build(cascade.spec()))


def _source_faults(source: Stage | Embedding, environment: Mapping[str, str] | None) -> list[str]:
    if (source.url is None) is (source.python is None):
        return ['url: write either url = "https://…/v1" or python = "module:function"']
    if source.python is not None:
        return _raised("python: ", lambda: function(str(source.python)))
    found: list[str] = []
    try:
        url = URL(str(source.url))
        valid = url.scheme in ("http", "https") and url.host and not url.query_string
    except ValueError:
        valid = False
    if not valid:
        found.append(f"url is {source.url!r}: write http:// or https://, a host, perhaps a path")
    if source.model is None:
        found.append('model is missing: write the name that the upstream knows, model = "…"')
    if source.key_env and environment is not None:
        key = environment.get(source.key_env, "")
        if not (key and key.isascii() and key.isprintable()):
            found.append(f"key_env: {source.key_env} holds no key: export {source.key_env}=…")
    return found


def _raised(place: str, work: Callable[[], object]) -> list[str]:
    try:
        work()
    except (StopwiseError, RequestError) as error:
        return [f"{place}{error}"]
    return []
