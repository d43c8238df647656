"""A policy's own random stream: created from a seed, saved and resumed bit for bit."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stopwise.checks import integer


def checked_seed(seed: int) -> int:
    """Return a seed as a plain integer."""
    return integer("seed", seed, most=(1 << 63) - 1)


def generator(seed: int | list[int]) -> np.random.Generator:
    """Return the stream of a seed."""
    return np.random.Generator(np.random.PCG64(seed))


def stored(random: np.random.Generator) -> NDArray[np.uint8]:
    """Return the state of a stream as bytes."""
    state = json.dumps(random.bit_generator.state)
    texts = json.loads(state, parse_int=str)  # JSON readers lose digits of 128-bit integers
    return np.frombuffer(json.dumps(texts, separators=(",", ":")).encode(), dtype=np.uint8)


def restored(state: NDArray[np.uint8]) -> np.random.Generator:
    """Return the stream that `stored` wrote, at the same place; ValueError if it is none."""
    bits = np.random.PCG64()
    try:
        bits.state = json.loads(state.tobytes(), object_hook=_numbers)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its random state cannot be read ({error})") from error
    return np.random.Generator(bits)


def _numbers(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: int(v) if isinstance(v, str) and v.isdigit() else v for k, v in fields.items()}
