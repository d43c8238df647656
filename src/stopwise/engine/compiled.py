"""How the engine compiles: one decorator, so that the reasons are written down once.

* ``cache=True``: a user pays for compilation once per machine, not once per process.
* ``error_model="numpy"``: a division by zero gives ±∞ or NaN as in numpy and costs no branch.
* ``no_cfunc_wrapper``: nobody calls these from C, and the wrapper costs time to compile.
* no ``fastmath``: re-association would let a kernel give other bits when it is inlined in the
  whole-run loop than when it is called for one round.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a kernel that holds the GIL: safe for state that a caller's threads share."""
    return _jit(function)


def compiled_nogil(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a long loop that lets go of the GIL, for runs that own their state."""
    return _jit(function, nogil=True)


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a small kernel into its callers: handing over a `Bank` copies a kilobyte."""
    return _jit(function, inline="always")


def _jit(function: Callable[_P, _R], **options: bool | str) -> Callable[_P, _R]:
    # numba's stubs do not carry a signature through njit; the cast restores the one we wrote.
    njit = cast(Any, numba.njit)
    jit = njit(cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)
    return cast(Callable[_P, _R], jit(function))
