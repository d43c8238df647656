"""Text for messages: shortening, and suggestions for unknown names."""

from collections.abc import Iterable


def shorten(text: str, length: int = 100) -> str:
    """Return a text of at most so many characters, with an ellipsis if it was cut.

    Examples
    --------
    >>> shorten("a long name", 7)
    'a long…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def closest(name: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the known name that is most like another; None if none is similar.

    Examples
    --------
    >>> closest("uss-dp", ["uss-pd", "thompson"])
    'uss-pd'
    """
    from difflib import get_close_matches  # only errors need it

    return next(iter(get_close_matches(name, list(known), 1, similarity)), None)


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return what to write in place of an unknown name.

    Examples
    --------
    >>> suggestion("uss-dp", ["uss-pd", "thompson"])
    "did you mean 'uss-pd'?"
    >>> suggestion("x", ["uss-pd", "thompson"])
    'choose from uss-pd, thompson'
    """
    names = list(known)
    near = closest(str(name), names)
    return f"choose from {', '.join(names)}" if near is None else f"did you mean {near!r}?"
