"""What an exhibit (a table or figure of the paper) hands to the report: plain values."""

from typing import Literal, TypeAlias

import msgspec

from stopwise.experiments.summary import Interval
from stopwise.reporting.parts import Picture, Table

Verdict: TypeAlias = Literal["held", "did not hold", "undecided"]

HELD: Verdict = "held"
FAILED: Verdict = "did not hold"
UNDECIDED: Verdict = "undecided"


class Claim(msgspec.Struct, frozen=True):
    """One thing the paper says, and what became of it.

    Attributes
    ----------
    text : str
        The claim, with the criterion it was held against.
    where : str
        The place in the paper.
    setting : str
        The setting it was tested under; empty where none matters.
    verdict : Verdict
        "undecided" if the confidence interval covers both answers: repeat more often.
    numbers : str
        What was measured.
    why : str
        Where it did not hold: what shows the reason.
    """

    text: str
    where: str
    setting: str
    verdict: Verdict
    numbers: str
    why: str = ""


class Section(msgspec.Struct, frozen=True):
    """Everything about one table or figure of the paper."""

    name: str
    title: str
    where: str
    text: str
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    claims: tuple[Claim, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """Something the paper leaves open: what was chosen, and why."""

    question: str
    chosen: str
    why: str


def verdict(difference: Interval) -> Verdict:
    """Judge a claim that says: this difference is above zero.

    Examples
    --------
    >>> verdict(Interval(2.0, 1.0, 3.0, 100)), verdict(Interval(2.0, -1.0, 5.0, 3))
    ('held', 'undecided')
    """
    if difference.low > 0:
        return HELD
    return FAILED if difference.high < 0 else UNDECIDED


def all_of(verdicts: "list[Verdict]") -> Verdict:
    """Judge a claim that says several things at once.

    Examples
    --------
    >>> all_of(["held", "undecided"]), all_of(["undecided", "did not hold"])
    ('undecided', 'did not hold')
    """
    if FAILED in verdicts:
        return FAILED
    return UNDECIDED if UNDECIDED in verdicts else HELD
