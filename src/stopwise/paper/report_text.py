"""How the report words a claim, whatever its format."""

CRITERION = " (criterion:"


def headline(text: str) -> str:
    """Return a claim without the criterion it is held against.

    Examples
    --------
    >>> headline("Regret falls (criterion: each step is down)")
    'Regret falls'
    """
    return text.partition(CRITERION)[0]


def criterion(text: str) -> str:
    """Return the criterion of a claim as a sentence; nothing where the claim is its own.

    Examples
    --------
    >>> criterion("Regret falls (criterion: each step is down)")
    'Criterion: each step is down.'
    """
    rest = text.partition(CRITERION)[2].strip().removesuffix(".").removesuffix(")")
    return f"Criterion: {rest}." if rest else ""
