"""What the report and the summary of a diagnosis have in common: headlines and the main numbers."""

from typing import NamedTuple

from stopwise.experiments.summary import Interval
from stopwise.logs.diagnosis.findings import Answer, Diagnosis, Estimate
from stopwise.reporting.wording import (
    PERCENT,
    Value,
    code,
    interval,
    number,
    percent,
    percent_interval,
)

MUCH_UNSEEN = 0.10  # a share of rows of which nothing is known, large enough to name first

# Headline, sign (so that colour is never needed) and colour class of the badge.
ANSWERS: dict[Answer, tuple[str, str, str]] = {
    "learnable": ("This cascade can learn where to stop, without labels", "✓", "held"),
    "probably": ("This cascade can probably learn where to stop, without labels", "?", "open"),
    "not from disagreement alone": (
        "Disagreement alone cannot teach this cascade where to stop",
        "✗",
        "failed",
    ),
}


class Number(NamedTuple):
    """One of the numbers that matter: its label, itself, and what to know about it."""

    label: str
    number: str
    words: str


def percent_between(estimate: Estimate) -> str:
    r"""Write a share with its interval.

    Examples
    --------
    >>> percent_between(Estimate(0.061, 0.058, 0.064))
    '6.1\xa0% (5.8 to 6.4)'
    """
    return percent_interval(estimate.value, estimate.low, estimate.high)


def cell(estimate: Estimate, rows: int, scale: float = 1.0) -> Value:
    """Return an estimate as a value for a table; `scale` 100 makes a share a percentage."""
    value, low, high = (scale * end for end in (estimate.value, estimate.low, estimate.high))
    return value if low == high else Interval(value, low, high, rows)


def main_numbers(diagnosis: Diagnosis) -> tuple[Number, Number]:
    """Return the saving and the share of changed answers."""
    saved, changed = diagnosis.saving.per_round, diagnosis.saving.disagreement
    last = code(diagnosis.arms[-1].name)
    reach = interval(1000 * saved.low, 1000 * saved.high)
    covered = (
        f"; for {percent(1 - diagnosis.unseen)} of the rows only, as the others are of kinds that "
        "never went there"
        if diagnosis.unseen > MUCH_UNSEEN
        else ""
    )
    share, _, ends = percent_between(changed).partition(" (")
    ends = f" (95 %: {ends.removesuffix(')')}{PERCENT})" if ends else ""
    return (
        Number(
            "Saved in 1,000 rounds",
            number(1000 * saved.value),
            f"in units of one wrong answer{f' (95 %: {reach})' if reach else ''}: "
            f"{percent(diagnosis.saving.share.value)} of what always running {last} costs{covered}",
        ),
        Number(
            "Answers that would change",
            share,
            f"of rounds end with another answer than {last} would give{ends}; not all of these "
            "are errors",
        ),
    )
