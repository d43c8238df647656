"""What callers hand over, as plain JSON values: numpy's arrays and numbers are welcome."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.errors import (
    InvalidContextError,
    InvalidInputError,
    InvalidOutputsError,
    InvalidParameterError,
)

ContextLike = ArrayLike | Mapping[str, SupportsFloat]
OutputsLike = Sequence[Any] | Mapping[str, Any]


def context(given: ContextLike, where: str = "") -> list[float] | dict[str, float]:
    """Return a context as it travels: a list of numbers, or numbers by name.

    Examples
    --------
    >>> context(np.array([0.5, 1], dtype=np.float32)), context({"age": np.float64(0.25)})
    ([0.5, 1.0], {'age': 0.25})
    """
    if not isinstance(given, Mapping):
        return numbers(given, where)
    values = _floats(_flat(list(given.values()), where), list(given), where)
    return dict(zip(map(str, given), values, strict=True))


def numbers(given: ArrayLike, where: str = "") -> list[float]:
    """Return finite numbers as a list: a context, or what an arm adds to it.

    Examples
    --------
    >>> numbers((True, 0.5))
    [1.0, 0.5]
    """
    array = _flat(given, where)
    return _floats(array, range(len(array)), where)


def contexts(given: ArrayLike | Iterable[ContextLike]) -> list[list[float] | dict[str, float]]:
    """Return several contexts as they travel: the rows of a table, or one by one.

    Examples
    --------
    >>> contexts(np.eye(2))
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise InvalidContextError("give a list of contexts; for a single one there is `decide`")
    rows = cast(Iterable[ContextLike], given)
    return [context(row, f"context {number}: ") for number, row in enumerate(rows)]


def outputs(given: OutputsLike) -> list[Any] | dict[str, Any]:
    """Return what arms said as it travels; None stands for an arm that has not answered yet.

    Examples
    --------
    >>> outputs((np.int64(1), None)), outputs({"rule": ("spam", 0.5)})
    ([1, None], {'rule': ['spam', 0.5]})
    """
    if isinstance(given, np.ndarray):
        given = cast(list[Any], given.tolist())
    if isinstance(given, Mapping):
        return {str(arm): json_value(said, f"the output of {arm!r}") for arm, said in given.items()}
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            f"outputs are a list in the order of the arms, or a dict by their names, not a "
            f"{type(given).__name__}"
        )
    return [json_value(said, f"the output of arm {arm}") for arm, said in enumerate(given)]


def answer(given: Any, what: str) -> Any:
    """Return one output or label as it travels; it cannot be None, which means "not known".

    Examples
    --------
    >>> answer(np.str_("spam"), "the label")
    'spam'
    """
    if given is None:
        raise InvalidOutputsError(f"{what} is None, which says nothing")
    return json_value(given, what)


def json_value(given: Any, what: str, error: type[InvalidInputError] = InvalidOutputsError) -> Any:
    """Return a value as JSON has it, or say why it has none.

    Only what looks the same each time it is sent: sets have no order, NaN would become null.

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


def seconds(name: str, given: float, *, zero: bool = False) -> float:
    """Return a number of seconds, or say what is wrong with it.

    Examples
    --------
    >>> seconds("timeout", 2)
    2.0
    """
    try:
        value = math.nan if isinstance(given, bool | str) else float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not (0 < value < math.inf or (zero and value == 0)):
        least = "zero or more" if zero else "above zero"
        raise InvalidParameterError(f"{name} is a number of seconds, {least}, not {given!r}")
    return value


def _flat(given: Any, where: str) -> NDArray[Any]:
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise InvalidContextError(f"{where}a context is a flat list of numbers")
    return array


def _floats(array: NDArray[Any], places: Sequence[object], where: str) -> list[float]:
    text = array.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in array.flat)
    try:
        if array.dtype.kind not in "biufO" or text:
            raise TypeError
        values = cast(list[float], array.astype(np.float64).tolist())
    except (TypeError, ValueError):
        raise InvalidContextError(f"{where}a context holds numbers only") from None
    for place, value in zip(places, values, strict=True):
        if not math.isfinite(value):
            raise InvalidContextError(f"{where}number {place!r} is {value}; it must be finite")
    return values
