"""A policy's own random stream: created from a seed, saved and resumed bit for bit."""

from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.checks import integer


def checked_seed(seed: int) -> int:
    """Return a seed as a plain integer.

    Examples
    --------
    >>> checked_seed(7)
    7
    """
    return integer("seed", seed, most=(1 << 63) - 1)


def generator(seed: int) -> np.random.Generator:
    """Return the stream of a seed.

    Examples
    --------
    >>> int(generator(0).integers(10)) == int(generator(0).integers(10))
    True
    """
    return np.random.Generator(np.random.PCG64(seed))


def exploration_stream(seed: int) -> np.random.Generator:
    """Return a stream that differs from ``default_rng(seed)``.

    A caller may draw contexts from the same small seed; the rounds continued at random must not
    depend on them.

    Examples
    --------
    >>> float(exploration_stream(0).random()) == float(np.random.default_rng(0).random())
    False
    """
    return np.random.Generator(np.random.PCG64([seed, *b"chance"]))


def stored(random: np.random.Generator) -> NDArray[np.uint8]:
    """Return the state of a stream as bytes."""
    return np.frombuffer(msgspec.json.encode(_texts(random.bit_generator.state)), dtype=np.uint8)


def restored(state: NDArray[np.uint8]) -> np.random.Generator:
    """Return the stream that `stored` wrote, at the same place; ValueError if it is none."""
    bits = np.random.PCG64()
    try:
        bits.state = _numbers(msgspec.json.decode(state.tobytes()))
    except (KeyError, TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueError(f"its random state cannot be read ({error})") from error
    return np.random.Generator(bits)


def _texts(value: Any) -> Any:
    """Write 128-bit integers as text: JSON readers lose their digits."""
    if isinstance(value, dict):
        return {k: _texts(v) for k, v in cast(dict[str, Any], value).items()}
    return str(value) if isinstance(value, int) else value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in cast(dict[str, Any], value).items()}
    return int(value) if isinstance(value, str) and value.isdigit() else value
