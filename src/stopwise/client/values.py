"""What callers pass, as the service's messages: numpy's arrays and numbers become JSON values."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.errors import (
    InvalidCascadeError,
    InvalidContextError,
    InvalidInputError,
    InvalidOutputsError,
    InvalidParameterError,
)
from stopwise.features import (
    FeatureMap,
    Identity,
    PerPair,
    PerStage,
    Polynomial,
    Scaled,
    Shared,
)
from stopwise.service.messages import Arm, CascadeSpec

ContextLike = ArrayLike | Mapping[str, SupportsFloat]
OutputsLike = Sequence[Any] | Mapping[str, Any]
Features = FeatureMap | Shared | PerStage | PerPair | Mapping[str, Any]
"""What `Client.create` takes for ``features``: a map, an arrangement, or plain JSON values."""


def context_value(given: ContextLike, where: str = "") -> list[float] | dict[str, float]:
    """Return a context as JSON: a list of numbers, or numbers by name.

    Examples
    --------
    >>> context_value(np.array([0.5, 1], dtype=np.float32)), context_value({"age": np.float64(0.5)})
    ([0.5, 1.0], {'age': 0.5})
    """
    if not isinstance(given, Mapping):
        return numbers(given, where)
    names = [str(name) for name in given]
    values = numbers(cast(ArrayLike, list(given.values())), where, names)
    return dict(zip(names, values, strict=True))


def numbers(given: ArrayLike, where: str = "", names: Sequence[str] | None = None) -> list[float]:
    """Return finite numbers as a list: a context, or what an arm adds to it."""
    try:
        array = np.asarray(given)
        text = array.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in array.flat)
        if array.ndim != 1 or array.dtype.kind not in "biufO" or text:
            raise TypeError
        values = cast(list[float], array.astype(np.float64).tolist())
    except (TypeError, ValueError):  # the latter also for rows of different lengths
        raise InvalidContextError(f"{where}a context is a flat list of numbers") from None
    for place, value in enumerate(values):
        if not math.isfinite(value):
            name = place if names is None else names[place]
            raise InvalidContextError(f"{where}number {name!r} is {value}; it must be finite")
    return values


def context_values(
    given: ArrayLike | Iterable[ContextLike],
) -> list[list[float] | dict[str, float]]:
    """Return several contexts as JSON: the rows of a table, or one by one.

    Examples
    --------
    >>> context_values(np.eye(2))
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise InvalidContextError("give a list of contexts; for a single one there is `open`")
    rows = cast(Iterable[ContextLike], given)
    return [context_value(row, f"context {number}: ") for number, row in enumerate(rows)]


def output_values(given: OutputsLike) -> list[Any] | dict[str, Any]:
    """Return outputs as JSON; None stands for an arm that has not answered yet.

    Examples
    --------
    >>> output_values((np.int64(1), None)), output_values({"rule": ("spam", 0.5)})
    ([1, None], {'rule': ['spam', 0.5]})
    """
    if isinstance(given, np.ndarray):
        given = cast(list[Any], given.tolist())
    if isinstance(given, Mapping):
        return {str(arm): json_value(one, f"the output of {arm!r}") for arm, one in given.items()}
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            f"outputs are a list in the order of the arms, or a dict by their names, not a "
            f"{type(given).__name__}"
        )
    return [json_value(one, f"the output of arm {arm}") for arm, one in enumerate(given)]


def known_value(given: Any, what: str) -> Any:
    """Return one output or label as JSON; it cannot be None, which means "not known"."""
    if given is None:
        raise InvalidOutputsError(f"{what} is None, which means that it is not known")
    return json_value(given, what)


def json_value(given: Any, what: str, error: type[InvalidInputError] = InvalidOutputsError) -> Any:
    """Return a value as JSON has it, or say why it has none.

    Only what is written the same each time: sets have no order, NaN would become null.

    Examples
    --------
    >>> json_value({"says": np.bool_(True), "box": (1, 2)}, "the output")
    {'says': True, 'box': [1, 2]}
    """
    if isinstance(given, np.generic | np.ndarray):
        given = cast(Any, given.tolist())
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, str):
        return str(given)
    if isinstance(given, int):
        return int(given)
    if isinstance(given, float):
        if not math.isfinite(given):
            raise error(f"{what} holds {given}, which JSON does not have")
        return float(given)
    if isinstance(given, list | tuple):
        return [json_value(part, what, error) for part in cast(Sequence[Any], given)]
    if isinstance(given, Mapping):
        pairs = cast(Mapping[Any, Any], given).items()
        if not all(isinstance(key, str) for key, _ in pairs):
            raise error(f"{what} has keys that are not text, which JSON does not have")
        return {str(key): json_value(part, what, error) for key, part in pairs}
    raise error(
        f"{what} holds a {type(given).__name__}, which JSON does not have; make text, a number, or "
        "a list of these of it"
    )


# -- cascades -------------------------------------------------------------------------------------


def described(
    name: str,
    cascade: Cascade | None,
    context: int | Sequence[str] | None,
    features: Features | None = None,
    policy: str = "uss-pd",
    keep_open: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> CascadeSpec:
    """Describe a cascade to the service; see `Requests.create` for the parameters.

    Examples
    --------
    >>> spec = described("triage", Cascade([0.01, 0.24]), ["age", "bmi"], settings={"sigma": 0.2})
    >>> spec.arms[1], spec.policy
    (Arm(name='arm 1', cost=0.24), {'kind': 'uss-pd', 'sigma': 0.2})
    """
    if cascade is None or context is None:
        raise InvalidParameterError(
            'create needs a cascade and its context: create("triage", cascade, '
            'context=["age", "bmi"])'
        )
    weights = set(cascade.tradeoff.tolist())
    if len(weights) > 1:
        raise InvalidCascadeError(
            "the service has one trade-off for all arms, and these have one each: fold them "
            "into the costs, and give the arms no trade-off"
        )
    optional: dict[str, Any] = {} if keep_open is None else {"keep_open": keep_open}
    if features is not None:
        optional["features"] = _feature_spec(features)
    given = {
        key: json_value(value, f"the setting {key}", InvalidParameterError)
        for key, value in (settings or {}).items()
    }
    return CascadeSpec(
        name=name,
        arms=[Arm(*arm) for arm in zip(cascade.names, cascade.costs.tolist(), strict=True)],
        context=list(context) if isinstance(context, Sequence) else context,
        tradeoff=weights.pop(),
        policy={"kind": policy, **given},
        **optional,
    )


def _feature_spec(features: Features) -> dict[str, Any]:
    match features:
        case Mapping():
            return dict(features)
        case Shared():
            return _map_spec(features.map)
        case PerStage():
            maps = [_map_spec(m) for m in features.maps]
            sees = {} if features.sees is None else {"sees": list(features.sees)}
            return {"kind": features.kind, "maps": maps, **sees}
        case PerPair():
            return {"kind": features.kind, "maps": [_map_spec(m) for _, m in features.maps]}
        case _:
            return _map_spec(features)


def _map_spec(given: FeatureMap) -> dict[str, Any]:
    if isinstance(given, Identity | Polynomial | Scaled):
        return given.to_spec()
    raise InvalidParameterError(
        f"{given!r} is code, which cannot be sent: compute these features yourself and send them "
        "as the context, or use Identity, Polynomial or Scaled"
    )
