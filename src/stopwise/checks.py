"""Checks of arguments where they enter: each returns the value in one form or raises."""

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

ENOUGH = 30  # labelled rounds from which they show anything (heuristic: normal intervals hold)
FLOAT64 = np.dtype(np.float64)
NOT_NUMBERS = (bool, np.bool_, str, bytes)  # though Python would make numbers of them


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
    """Return a finite float within the limits; rejects strings and booleans."""
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
        limits = {"above": above, "at least": least, "below": below, "at most": most}
        text = " and ".join(f"{word} {b:g}" for word, b in limits.items() if b is not None)
        raise error(f"{name} must be a number{text and ' ' + text}, not {value!r}")
    return v


def size_in_bytes(name: str, value: object) -> int:
    """Return an amount of memory, such as "256 MB" or a number of bytes, as bytes."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B?)\s*", str(value).upper())
    if found is None or isinstance(value, bool) or found[2] not in units:
        raise InvalidParameterError(f'{name} is a text like "256 MB", not {value!r}')
    return int(float(found[1]) * units[found[2]])


def integer(
    name: str,
    value: object,
    least: int = 0,
    most: int | None = None,
    error: Error = InvalidParameterError,
) -> int:
    """Return a whole number within the limits; accepts 2.0, which JSON may hold, but not True."""
    whole = _whole(value)
    if whole is None or whole < least or (most is not None and whole > most):
        limits = f", {least} or more" if most is None else f" from {least} to {most}"
        raise error(f"{name} must be a whole number{limits}, not {value!r}")
    return whole


def _whole(value: object) -> int | None:
    if type(value) is int:  # not bool
        return value
    if isinstance(value, NOT_NUMBERS):
        return None
    try:
        whole = int(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return whole if whole == value else None


def checked_seed(seed: int) -> int:
    """Return a seed as a plain integer."""
    return integer("seed", seed, most=(1 << 63) - 1)


def choice(name: str, value: object, options: Iterable[str]) -> str:
    """Return one of several words."""
    options = tuple(options)
    if value not in options:
        words = " or ".join(f'"{option}"' for option in options)
        raise InvalidParameterError(f"{name} must be {words}, not {value!r}")
    return cast(str, value)


def numbers(name: str, values: ArrayLike, error: Error = InvalidParameterError) -> Floats:
    """Return a float64 array, copied only if the values were not one."""
    try:
        array = np.asarray(values)
        if array.dtype is FLOAT64:
            return array
        # Text is refused even where numpy could parse it: it is a sign of unprepared data.
        # Object arrays come from tables of mixed columns and may hold numbers only.
        text = array.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in array.flat)
        if array.dtype.kind not in "biufO" or text:
            raise TypeError(f"of type {array.dtype}")
        with np.errstate(over="ignore"):  # a long double may become inf
            return array.astype(np.float64)
    except (TypeError, ValueError) as reason:
        raise error(f"{name} must be real numbers ({reason})") from None


def vector(
    name: str,
    values: ArrayLike,
    size: int | None = None,
    *,
    above: float | None = None,
    least: float | None = None,
    error: Error = InvalidParameterError,
) -> Floats:
    """Return a fresh flat array of numbers within the limits; with a size, repeat a single one."""
    given = np.array(values, dtype=object)  # which keeps True apart from 1
    if given.ndim == 0 and size is not None:
        given = np.full(size, given)
    if given.ndim != 1 or size not in (None, given.size):
        count = "" if size is None else f"{size} "
        raise error(f"{name} must be a flat list of {count}numbers; its shape is {given.shape}")
    limits: Any = {"above": above, "least": least, "error": error}
    checked = [real(f"{name}[{i}]", value, **limits) for i, value in enumerate(given)]
    return np.array(checked, dtype=np.float64)


def table(name: str, values: ArrayLike, error: Error = InvalidParameterError) -> Floats:
    """Return a table of finite numbers with at least one row and one column."""
    array = numbers(name, values, error)
    if array.ndim != 2 or 0 in array.shape:
        raise error(
            f"{name} must be a table with at least one row and one column; the shape is "
            f"{array.shape}"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise error(
            f"{name}: row {row}, column {column} is {array[row, column]}; it must be finite"
        )
    return array


def as_table(values: ArrayLike) -> NDArray[Any]:
    """Return values as an array that keeps each as it is: "1" and 1 must not become equal."""
    if isinstance(values, np.ndarray):
        return cast(NDArray[Any], values)
    return np.array(values, dtype=np.object_)


def rounds_in(contexts: NDArray[Any]) -> int:
    """Return how many rounds a table of contexts has."""
    if contexts.ndim == 0:
        raise InvalidContextError("contexts must be a table with one row per round, not one value")
    return len(contexts)


def comparable(output: object) -> bool:
    """Return whether a value can be compared with others: hashable, and equal to itself."""
    try:
        hash(output)
        return bool(output == output)
    except Exception:  # whatever a foreign type does when it is compared
        return False


def unlike_labels(equal: bool, rows: int, label: str, output: str) -> str | None:
    """Return how labels differ from outputs, if no label of many is ``equal`` to any output."""
    words = f"no label is the output of any arm, in {rows:,} labelled rounds: a label is {label}, "
    words += f"for instance, where an output is {output}, and every answer counts as wrong"
    return None if equal or rows < ENOUGH else words


def short_repr(value: object) -> str:
    """Return a value for a message, in at most 80 characters, whatever it is."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return shorten(text, 80)
