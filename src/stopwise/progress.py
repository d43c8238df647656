"""Progress callbacks of long operations."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], object]  # called as progress(stage, done, of)


def no_progress(stage: str, done: int, of: int) -> None:
    """Report nothing: the default wherever a `Progress` is accepted.

    Examples
    --------
    >>> no_progress("reading", 1, 2)
    """
