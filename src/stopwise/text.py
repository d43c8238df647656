"""Helpers for messages: shortening, and suggestions for unknown names."""

from collections.abc import Iterable

MAX_COMPARED = 1000  # no name is longer, and comparing long texts is slow


def shorten(text: str, length: int = 100) -> str:
    """Truncate a text to at most ``length`` characters, including an ellipsis.

    Examples
    --------
    >>> shorten("a long name", 7)
    'a long…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def closest(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """Return the name that is most similar to ``name``, or None if all differ too much.

    Examples
    --------
    >>> closest("uss-dp", ["uss-pd", "thompson"])
    'uss-pd'
    """
    from difflib import get_close_matches  # imported late: it is slow, and only errors need it

    if len(name) > MAX_COMPARED:
        return None
    return next(iter(get_close_matches(name, list(names), 1, similarity)), None)


def suggestion(name: object, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest match, or else all names.

    Examples
    --------
    >>> suggestion("uss-dp", ["uss-pd", "thompson"])
    "did you mean 'uss-pd'?"
    >>> suggestion("x", ["uss-pd", "thompson"])
    'choose from uss-pd, thompson'
    """
    choices = list(names)
    match = closest(str(name), choices)
    return f"choose from {', '.join(choices)}" if match is None else f"did you mean {match!r}?"
