"""Conversion of arguments, such as numpy arrays, to the JSON values of the API."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise import checks
from stopwise.cascade import Cascade
from stopwise.checks import short_repr
from stopwise.errors import (
    InvalidCascadeError,
    InvalidContextError,
    InvalidInputError,
    InvalidOutputsError,
    InvalidParameterError,
)
from stopwise.features import FeatureMap, PerPair, PerStage, Shared, bind, stages_of
from stopwise.service.domain.messages import Arm, CascadeSpec, Context, LabelReport

ContextLike = ArrayLike | Mapping[str, SupportsFloat | str | None]
OutputsLike = Sequence[Any] | Mapping[str, Any]
Features = FeatureMap | Shared | PerStage | PerPair | Mapping[str, Any]


def context_value(context: ContextLike, description: str = "context") -> Context:
    """Return a context as JSON: a list of numbers, or values by name.

    Error messages refer to the context by its ``description``, such as "contexts[3]" in a batch.
    """
    if not isinstance(context, Mapping):
        return numbers(context, description)
    values = {str(name): cast(Any, value) for name, value in context.items()}
    numeric = {k: v for k, v in values.items() if not isinstance(v, str | bool | None)}
    floats = numbers(list(numeric.values()), description, list(numeric))
    return values | dict(zip(numeric, floats, strict=True))


def numbers(values: ArrayLike, description: str, names: Sequence[str] | None = None) -> list[float]:
    """Return finite numbers as a list: a context, or the numbers that an arm adds to it."""
    array = checks.numbers(description, values, InvalidContextError)
    if array.ndim != 1:
        raise InvalidContextError(
            f"{description} must be a flat list of numbers, got {short_repr(values)}"
        )
    floats: list[float] = array.tolist()
    for k, value in enumerate(floats):
        if not math.isfinite(value):
            label = k if names is None else names[k]
            raise InvalidContextError(f"{description}[{label!r}] must be finite, got {value}")
    return floats


def context_values(contexts: ArrayLike | Iterable[ContextLike]) -> list[Context]:
    """Return several contexts as JSON, from an iterable or from the rows of an array."""
    if isinstance(contexts, Mapping | str | bytes) or not isinstance(contexts, Iterable):
        raise InvalidContextError(
            f"contexts must be a list of contexts, got "
            f"{short_repr(cast(object, contexts))}; use open for a single context"
        )
    rows = cast(Iterable[ContextLike], contexts)
    return [context_value(row, f"contexts[{number}]") for number, row in enumerate(rows)]


def output_values(outputs: OutputsLike) -> list[Any] | dict[str, Any]:
    """Return outputs as JSON; None stands for an arm that has not answered yet."""
    if isinstance(outputs, np.ndarray):
        outputs = cast(list[Any], outputs.tolist())
    if isinstance(outputs, Mapping):
        return {str(k): json_value(v, f"the output of {k!r}") for k, v in outputs.items()}
    if isinstance(outputs, str | bytes) or not isinstance(outputs, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            "outputs must be a list in the order of the arms or a dict by arm name, got "
            f"{type(outputs).__name__}"
        )
    return [json_value(value, f"the output of arm {arm}") for arm, value in enumerate(outputs)]


def required_value(value: Any, description: str) -> Any:
    """Return an output or a label as JSON; reject None, which stands for an unknown value."""
    if value is None:
        raise InvalidOutputsError(f"{description} must not be None")
    return json_value(value, description)


def label_report(label: Any, right: Mapping[str, bool] | None) -> LabelReport:
    """Return the request that reports a label: the right answer, or which arms were right.

    Examples
    --------
    >>> label_report(None, {"small": True, "large": np.False_}).right
    {'small': True, 'large': False}
    """
    if right is None and label is None:
        raise InvalidOutputsError("pass label (the right answer) or right (which arms were right)")
    if right is None:
        return LabelReport(required_value(label, "label"))
    if label is not None:
        raise InvalidOutputsError("pass either label or right, not both")
    if not isinstance(right, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            'right must be a dict such as {"small": True, "large": False}, got '
            f"{short_repr(right)}"
        )
    for arm, value in right.items():
        if not isinstance(value, bool | np.bool_):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
            raise InvalidOutputsError(
                f"right must be True or False for each arm, got {short_repr(value)} for {arm!r}"
            )
    return LabelReport(right={str(arm): bool(value) for arm, value in right.items()})


def json_value(
    value: Any, description: str, error: type[InvalidInputError] = InvalidOutputsError
) -> Any:
    """Return a value as JSON, or raise ``error``.

    Only values with exactly one JSON form are accepted. For example, sets are rejected because
    they have no order, and NaN because it would become null.

    Examples
    --------
    >>> json_value({"says": np.bool_(True), "box": (1, 2)}, "the output")
    {'says': True, 'box': [1, 2]}
    """
    match value:
        case np.generic() | np.ndarray():
            return json_value(cast(Any, value).tolist(), description, error)
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case list() | tuple():
            items = cast(Sequence[Any], value)
            return [json_value(item, description, error) for item in items]
        case Mapping() if all(isinstance(key, str) for key in cast(Mapping[Any, Any], value)):
            pairs = cast(Mapping[str, Any], value).items()
            return {str(key): json_value(item, description, error) for key, item in pairs}
        case _:
            raise error(
                f"{description} must be a JSON value (text, finite number, list, or dict with "
                f"text keys), got {checks.short_repr(value)}"
            )


def cascade_spec(
    name: str,
    cascade: Cascade | None,
    context: int | Sequence[str] | None,
    features: Features | None = None,
    policy: str = "uss-laplace",
    keep_open: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> CascadeSpec:
    """Return the definition of a cascade; see `Requests.create` for the parameters."""
    if cascade is None or context is None:
        raise InvalidParameterError(
            "create requires both a cascade and the names in its context, as in "
            'create("triage", cascade, context=["age", "bmi"])'
        )
    tradeoffs = set(cascade.tradeoff.tolist())
    if len(tradeoffs) > 1:
        raise InvalidCascadeError(
            "the service supports only one trade-off for all arms; fold the trade-offs into the "
            "costs with Cascade.from_cumulative(cascade.cumulative, cascade.names)"
        )
    optional: dict[str, Any] = {} if keep_open is None else {"keep_open": keep_open}
    if features is not None:
        size = len(context) if isinstance(context, Sequence) else context
        optional["features"] = _feature_spec(features, size, cascade.n_arms, settings or {})
    parameters = {
        key: json_value(value, f"the parameter {key}", InvalidParameterError)
        for key, value in (settings or {}).items()
    }
    return CascadeSpec(
        name=name,
        arms=[Arm(*arm) for arm in zip(cascade.names, cascade.costs.tolist(), strict=True)],
        context=list(context) if isinstance(context, Sequence) else context,
        tradeoff=tradeoffs.pop(),
        policy={"kind": policy, **parameters},
        **optional,
    )


def _feature_spec(
    features: Features, context_dim: int, n_arms: int, settings: Mapping[str, Any]
) -> dict[str, Any]:
    if isinstance(features, Mapping):
        return dict(features)
    stages = stages_of(settings.get("reveals"), settings.get("answers"), n_arms)
    spec = bind(features, context_dim, n_arms, stages).to_spec()
    if any(feature_map["kind"] == "custom" for feature_map in spec["maps"]):
        raise InvalidParameterError(
            f"{short_repr(features)} contains Python code, which cannot be sent to a service; "
            "compute the features yourself and send them as the context, or use Identity, "
            "Polynomial or Scaled"
        )
    if spec["kind"] == Shared.kind:
        return spec["maps"][0]
    return {key: spec[key] for key in ("kind", "maps")}
