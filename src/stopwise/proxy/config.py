"""Load and validate the TOML configuration of a proxy."""

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
from stopwise.proxy.context import REVEALED, RequestFeature
from stopwise.service.domain import spec as specs
from stopwise.service.domain.errors import RequestError
from stopwise.service.domain.messages import Arm, CascadeSpec, Name
from stopwise.service.settings import Settings, combined_settings
from stopwise.service.validation import UNKNOWN_FIELD, explain
from stopwise.text import closest, suggestion

Money = Annotated[float, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Positive = Annotated[float, Meta(gt=0)]
ShortText = Annotated[str, Meta(min_length=1, max_length=100)]
Bytes = Annotated[int, Meta(ge=1)]
MAX_BODY = 20_000_000  # bytes: requests may contain images


class StageConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stage: an upstream, or a Python function given as ``python = "module:function"``."""

    name: ShortText
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
        """Return the cost of (prompt, completion) tokens; ``cost`` unless both prices are set."""
        if self.price_in is None or self.price_out is None:
            return self.cost
        return (tokens[0] * self.price_in + tokens[1] * self.price_out) / 1e6


class EmbeddingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where prompt embeddings come from, and the projection that makes them smaller."""

    python: str | None = None
    url: str | None = None
    model: str | None = None
    key_env: str | None = None
    size: Annotated[int, Meta(ge=1, le=16)] = 8
    seed: Annotated[int, Meta(ge=0)] = 0
    timeout: Seconds = 5.0


class SameFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Python function, ``python = "module:same"``, that returns whether two texts agree."""

    python: str


class CascadeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cascade, whose name callers pass as ``model``."""

    name: Name
    stage: Annotated[list[StageConfig], Meta(min_length=2, max_length=15)]
    mode: Literal["shadow", "on"] = "shadow"
    answer: str = ""  # name of the stage that answers in shadow mode; by default the last
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.1
    budget: Money | None = None
    error_cost: Positive = 1.0
    tokens_in: Money = 500.0
    tokens_out: Money = 200.0
    policy: str | dict[str, Any] | None = None
    labels: Positive | None = None
    compare: str | SameFunction = "text"
    context: tuple[RequestFeature, ...] = ("length", "turns", "tools", "schema")
    embedding: EmbeddingConfig | None = None
    deadline: Seconds | None = None
    max_cost: Money | None = None
    max_calls: Annotated[int, Meta(ge=1)] | None = None

    @property
    def answer_arm(self) -> int:
        """Index of the stage that answers in shadow mode and when Stopwise cannot decide."""
        names = [stage.name for stage in self.stage]
        return names.index(self.answer) if self.answer else len(names) - 1

    def expected(self, arm: int) -> float:
        """Return the expected cost of one call to a stage, in the currency of the prices."""
        stage, tokens = self.stage[arm], (self.tokens_in, self.tokens_out)
        return (stage.price(tokens) or 0.0) if stage.cost is None else stage.cost

    def spec(self) -> CascadeSpec:
        """Return the specification from which the service creates the cascade."""
        policy = self.policy or ("uss-anchor" if self.labels is None else "uss-laplace")
        options: dict[str, Any] = {"kind": policy} if isinstance(policy, str) else dict(policy)
        options["reveals"] = REVEALED
        if self.labels is not None:
            options["labels"] = self.labels
        compare = self.compare if isinstance(self.compare, str) else self.compare.python
        note = f"answers compared by {compare}"
        context = list[str](self.context)
        if (embedding := self.embedding) is not None:
            context += [f"embedding {k} (seed {embedding.seed})" for k in range(embedding.size)]
            context.append("embedded")
            note += f"; prompts embedded by {embedding.python or embedding.model}"
        return CascadeSpec(
            name=self.name,
            arms=[Arm(stage.name, self.expected(arm)) for arm, stage in enumerate(self.stage)],
            context=context or 0,
            tradeoff=1 / self.error_cost,
            policy=options,
            note=note,
        )

    def comparison(self) -> Comparison:
        """Return the comparison of answers; raise `InvalidParameterError` if it is invalid."""
        if isinstance(self.compare, str):
            return Comparison(self.compare)
        same = import_function(self.compare.python)
        if iscoroutinefunction(same):
            raise InvalidParameterError(
                f"the comparison {self.compare.python!r} must not be an async function"
            )
        return Comparison("text", same)


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size limits in decompressed bytes, and how many seconds a caller may pause reading."""

    max_answer: Bytes = MAX_ANSWER
    max_stream: Bytes = 200_000_000
    max_line: Bytes = 4_000_000
    shadow_queue: Bytes = 32_000_000
    caller_pause: Seconds = 60.0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The top-level tables of a configuration file."""

    cascade: Annotated[list[CascadeConfig], Meta(min_length=1)]
    service: dict[str, Any] = {}
    limits: Limits = Limits()


class Config(msgspec.Struct, frozen=True):
    """The validated contents of a configuration file."""

    settings: Settings
    cascades: dict[str, CascadeConfig]
    file: Path
    limits: Limits = Limits()


_TABLES = (_File, Limits, CascadeConfig, StageConfig, EmbeddingConfig)
_KEYS = [field.name for table in _TABLES for field in fields(table)]


def import_function(path: str) -> Callable[..., Any]:
    """Import a function from a path of the form ``module:function``.

    Examples
    --------
    >>> import_function("math:sqrt")(9)
    3.0
    """
    module, _, name = path.partition(":")
    try:
        imported: Any = import_module(module)
        for attribute in name.split("."):
            imported = getattr(imported, attribute)
    except Exception as error:  # a user's module may raise anything
        raise InvalidParameterError(
            f'cannot import {path!r} ({error}); use the form "module:function", with a module that '
            "is installed or in the folder of the configuration file"
        ) from error
    if not callable(imported):
        raise InvalidParameterError(f"{path!r} is not callable")
    return imported


def load_config(file: Path, environment: Mapping[str, str], *, serves: bool = True) -> Config:
    """Load a configuration file; if invalid, raise `InvalidParameterError` with all problems.

    If ``serves``, also require the upstreams' API keys in ``environment``.
    """
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidParameterError(
            f"{file} does not exist; create one with: stopwise proxy --example > {file}"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidParameterError(f"cannot read {file}: {error}") from error
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # modules with the user's functions
    try:
        tables = msgspec.convert(table, _File)
    except msgspec.ValidationError as error:
        place, problem = explain(error, table)
        near = closest(place.rpartition(".")[2], _KEYS)
        hint = f"; did you mean {near!r}?" if near and problem == UNKNOWN_FIELD else ""
        raise InvalidParameterError(f"{file}: {place} {problem}{hint}") from None
    settings = combined_settings(
        {"max_body": MAX_BODY, **tables.service}, f"{file}: service.", environment, {}
    )
    problems = [
        f"cascade[{k}].{problem}"
        for k, cascade in enumerate(tables.cascade)
        for problem in _problems(cascade, environment if serves else None)
    ]
    cascades = {cascade.name: cascade for cascade in tables.cascade}
    names = [cascade.name for cascade in tables.cascade]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        problems.append(f"cascade: duplicate name {duplicate!r}")
    if problems:
        raise InvalidParameterError("\n  ".join([f"{file} is invalid:", *problems]))
    return Config(settings, cascades, file.resolve(), tables.limits)


def _problems(cascade: CascadeConfig, environment: Mapping[str, str] | None) -> list[str]:
    """Return the problems with a cascade whose fields have valid types."""
    names = [stage.name for stage in cascade.stage]
    duplicates = [name for name in names if names.count(name) > 1]
    problems = [f"stage: duplicate name {name!r}" for name in duplicates[:1]]
    if cascade.answer and cascade.answer not in names:
        hint = suggestion(cascade.answer, names)
        problems.append(f"answer: unknown stage {cascade.answer!r}; {hint}")
    for k, stage in enumerate(cascade.stage):
        place = f"stage[{k}]."
        problems += [place + problem for problem in _source_problems(stage, environment)]
        prices = stage.price_in, stage.price_out
        if stage.cost is None and None in prices and stage.url is not None:
            problems.append(f"{place}cost is missing: set cost, or price_in and price_out")
        if not stage.name.isprintable():
            problems.append(f"{place}name must be printable, got {stage.name!r}")
        if reserved := {"model", "messages", "stream"} & stage.extra.keys():
            fields_ = ", ".join(sorted(reserved))
            problems.append(f"{place}extra must not contain {fields_}: the proxy sets them")
        if (prices[0] is None) != (prices[1] is None):
            problems.append(f"{place}price_in and price_out must be set together")
    if cascade.embedding is not None:
        source_problems = _source_problems(cascade.embedding, environment)
        problems += [f"embedding.{problem}" for problem in source_problems]
    problems += _raised("compare: ", cascade.comparison)
    max_cost = cascade.max_cost
    if not problems and max_cost is not None and max_cost < (first := cascade.expected(0)):
        problems.append(
            f"max_cost must be at least {first:g} (the cost of one call to {names[0]!r}), "
            f"got {max_cost:g}"
        )
    kind = cascade.spec().policy.get("kind")
    usable = [name for name, policy in POLICIES.items() if takes(policy, "features")]
    if kind not in usable:
        problems.append(f"policy: invalid kind {kind!r}; {suggestion(kind, usable)}")
    return problems or _raised("", lambda: specs.build(cascade.spec()))


def _source_problems(
    source: StageConfig | EmbeddingConfig, environment: Mapping[str, str] | None
) -> list[str]:
    if (source.url is None) is (source.python is None):
        return ['url: set either url = "https://…/v1" or python = "module:function"']
    if source.python is not None:
        return _raised("python: ", lambda: import_function(str(source.python)))
    problems: list[str] = []
    try:
        url = URL(str(source.url))
        valid = url.scheme in ("http", "https") and url.host and not url.query_string
    except ValueError:
        valid = False
    if not valid:
        problems.append(
            "url must be http:// or https:// followed by a host and optionally a path, got "
            f"{source.url!r}"
        )
    if source.model is None:
        problems.append('model is missing: set model = "…", the model\'s name at the upstream')
    if source.key_env and environment is not None:
        key = environment.get(source.key_env, "")
        if not (key and key.isascii() and key.isprintable()):
            problems.append(
                f"key_env: the environment variable {source.key_env} does not contain a valid key; "
                f"run: export {source.key_env}=…"
            )
    return problems


def _raised(place: str, check: Callable[[], object]) -> list[str]:
    """Return a list with the message of the error that ``check`` raises, or an empty list."""
    try:
        check()
    except (StopwiseError, RequestError) as error:
        return [f"{place}{error}"]
    return []
