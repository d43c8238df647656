"""Progress callbacks for long operations."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], object]  # called as progress(stage, done, of)


def no_progress(stage: str, done: int, of: int) -> None:
    """Do nothing; the default for parameters of type `Progress`.

    Examples
    --------
    >>> no_progress("reading", 1, 2)
    """
