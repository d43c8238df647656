"""A policy's own random stream: made from a seed, saved and resumed bit for bit."""

from operator import index
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.errors import InvalidParameterError


def whole_seed(seed: int) -> int:
    """Return a seed as a plain integer, or say what a seed must be.

    Examples
    --------
    >>> whole_seed(7)
    7
    """
    try:
        whole = index(seed)
    except TypeError:
        whole = -1
    if not 0 <= whole < 1 << 63:
        raise InvalidParameterError(
            f"seed must be a whole number from 0 to 2**63 - 1, not {seed!r}: a policy's draws must "
            "be repeatable"
        )
    return whole


def generator(seed: int) -> np.random.Generator:
    """Return the stream of a seed.

    Examples
    --------
    >>> int(generator(0).integers(10)) == int(generator(0).integers(10))
    True
    """
    return np.random.Generator(np.random.PCG64(seed))


def chance(seed: int) -> np.random.Generator:
    """Return a stream for what must not depend on the data: not that of ``default_rng(seed)``.

    Whoever draws contexts from the same small seed would else have them decide by themselves
    which rounds are sent on.

    Examples
    --------
    >>> float(chance(0).random()) == float(np.random.default_rng(0).random())
    False
    """
    return np.random.Generator(np.random.PCG64([seed, *b"chance"]))


def stored(random: np.random.Generator) -> NDArray[np.uint8]:
    """Return the state of a stream as bytes."""
    return np.frombuffer(msgspec.json.encode(_texts(random.bit_generator.state)), dtype=np.uint8)


def restored(state: NDArray[np.uint8]) -> np.random.Generator:
    """Return the stream that `stored` saw, at the same place; ValueError if it is none."""
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
