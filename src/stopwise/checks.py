"""Argument checks: each function returns the value in a normal form, or raises an error."""

import math
import re
from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Floats
from stopwise.errors import InvalidContextError, InvalidInputError, InvalidParameterError
from stopwise.text import shorten

Error: TypeAlias = type[InvalidInputError]

ENOUGH = 30  # labelled rounds before a warning (heuristic: from here on, normal intervals hold)
FLOAT64 = np.dtype(np.float64)
NOT_NUMBERS = (bool, np.bool_, str, bytes)  # types that float() or int() would accept


def real(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    error: Error = InvalidParameterError,
) -> float:
    """Return a finite float within the limits; reject strings and booleans."""
    try:
        v = math.nan if isinstance(value, NOT_NUMBERS) else float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        v = math.nan
    inside = (
        (above is None or v > above)
        and (least is None or v >= least)
        and (below is None or v < below)
        and (most is None or v <= most)
    )
    if not (math.isfinite(v) and inside):
        raise error(f"{name} must be {_range(above, least, below, most)}, got {value!r}")
    return v


def _range(
    above: float | None, least: float | None, below: float | None, most: float | None
) -> str:
    """Describe the limits, for example as "a number in (0, 1]" or "a number >= 0"."""
    low = least if above is None else above
    high = most if below is None else below
    if low is not None and high is not None:
        left = "[" if above is None else "("
        right = "]" if below is None else ")"
        return f"a number in {left}{low:g}, {high:g}{right}"
    if low is not None:
        return f"a number {'>=' if above is None else '>'} {low:g}"
    if high is not None:
        return f"a number {'<=' if below is None else '<'} {high:g}"
    return "a finite number"


def size_in_bytes(name: str, value: object) -> int:
    """Convert a size such as "256 MB", or a number of bytes, to bytes."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B?)\s*", str(value).upper())
    if match is None or isinstance(value, bool) or match[2] not in units:
        raise InvalidParameterError(
            f'{name} must be a size such as "256 MB" or a number of bytes, got {value!r}'
        )
    amount, unit = match.groups()
    return int(float(amount) * units[unit])


def integer(
    name: str,
    value: object,
    least: int = 0,
    most: int | None = None,
    error: Error = InvalidParameterError,
) -> int:
    """Return an integer within the limits; accept 2.0, as in JSON, but not True."""
    number = _as_integer(value)
    if number is None or number < least or (most is not None and number > most):
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise error(f"{name} must be an integer {limits}, got {value!r}")
    return number


def _as_integer(value: object) -> int | None:
    if type(value) is int:  # excludes bool
        return value
    if isinstance(value, NOT_NUMBERS):
        return None
    try:
        number = int(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == value else None


def checked_seed(seed: int) -> int:
    """Return a seed as a Python integer; raise if it is out of range."""
    return integer("seed", seed, most=(1 << 63) - 1)


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """Return a value; raise if it is not one of the options."""
    options = tuple(options)
    if value not in options:
        listed = " or ".join(f'"{option}"' for option in options)
        raise InvalidParameterError(f"{name} must be {listed}, got {value!r}")
    return cast(str, value)


def numbers(name: str, values: ArrayLike, error: Error = InvalidParameterError) -> Floats:
    """Return values as a float64 array; a float64 array is returned without a copy."""
    try:
        array = np.asarray(values)
        if array.dtype is FLOAT64:
            return array
        # Text is rejected even if numpy could parse it, since it signals unprepared data. Object
        # arrays are accepted, since tables with mixed columns may contain only numbers.
        text = array.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in array.flat)
        if array.dtype.kind not in "biufO" or text:
            raise TypeError(f"type {array.dtype}")
        with np.errstate(over="ignore"):  # a long double may overflow to inf
            return array.astype(np.float64)
    except (TypeError, ValueError) as reason:
        raise error(f"{name} must contain only numbers ({reason})") from None


def vector(
    name: str,
    values: ArrayLike,
    size: int | None = None,
    *,
    above: float | None = None,
    least: float | None = None,
    error: Error = InvalidParameterError,
) -> Floats:
    """Return a new 1-d array of numbers within the limits; broadcast a scalar to ``size``."""
    limits: Any = {"above": above, "least": least, "error": error}
    items = np.array(values, dtype=object)  # dtype object, so that True is not converted to 1
    if items.ndim == 0 and size is not None:
        return np.full(size, real(name, items.item(), **limits))
    if items.ndim != 1 or size not in (None, items.size):
        count = "" if size is None else f"{size} "
        raise error(f"{name} must be a flat list of {count}numbers, got shape {items.shape}")
    checked = [real(f"{name}[{i}]", value, **limits) for i, value in enumerate(items)]
    return np.array(checked, dtype=np.float64)


def table(name: str, values: ArrayLike, error: Error = InvalidParameterError) -> Floats:
    """Return a table of finite numbers with at least one row and one column."""
    array = numbers(name, values, error)
    if array.ndim != 2 or 0 in array.shape:
        raise error(
            f"{name} must be a table with at least one row and one column, got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise error(
            f"{name} must be finite, got {array[row, column]} in row {row}, column {column}"
        )
    return array


def as_table(values: ArrayLike) -> NDArray[Any]:
    """Return values as an array without converting them, so that "1" and 1 stay different."""
    if isinstance(values, np.ndarray):
        return cast(NDArray[Any], values)
    return np.array(values, dtype=np.object_)


def rounds_in(contexts: NDArray[Any]) -> int:
    """Return the number of rounds in a table of contexts."""
    if contexts.ndim == 0:
        raise InvalidContextError("contexts must be a table with one row per round, got a scalar")
    return len(contexts)


def comparable(output: object) -> bool:
    """Return whether a value can be an output: hashable, and equal to itself."""
    try:
        hash(output)
        return bool(output == output)
    except Exception:  # user-defined types may raise anything in a comparison
        return False


def unlike_labels(equal: bool, rows: int, label: str, output: str) -> str | None:
    """Return a warning if ``equal`` is False (no label equals an output) despite many labels.

    ``rows`` is the number of labelled rounds; ``label`` and ``output`` are examples of each.
    """
    if equal or rows < ENOUGH:
        return None
    return (
        f"no label equals any output in {rows:,} labelled rounds, so all answers count as wrong; "
        f"write labels in the same form as outputs (for example, a label is {label}, but an "
        f"output is {output})"
    )


def short_repr(value: object) -> str:
    """Return the repr of any value, shortened to at most 80 characters."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return shorten(text, 80)
