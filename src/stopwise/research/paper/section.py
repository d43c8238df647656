"""A table or figure of the paper (an exhibit), and the section of the report about it."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from stopwise.intervals import Interval, t_quantile
from stopwise.reporting.elements import Picture, Table
from stopwise.research.paper.evidence import Cell, ClaimEvidence
from stopwise.research.paper.settings import NAMES

Verdict: TypeAlias = Literal["held", "did not hold", "undecided"]

HELD: Verdict = "held"
FAILED: Verdict = "did not hold"
UNDECIDED: Verdict = "undecided"

FEW = 20  # runs; with fewer, verdicts need a wider interval (heuristic)
STRICT = 0.999


class Claim(msgspec.Struct, frozen=True):
    """A claim of the paper, and whether it held.

    ``criterion`` is how it was tested, ``numbers`` what was measured, and ``why`` the reason where
    it did not hold (of another verdict, `Exhibit.build` drops it). ``setting`` is empty where none
    matters.
    """

    text: str
    verdict: Verdict
    numbers: str
    criterion: str = ""
    why: str = ""
    setting: str = ""


class Section(msgspec.Struct, frozen=True):
    """Everything about one exhibit."""

    name: str
    title: str
    where: str
    text: str
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    claims: tuple[Claim, ...] = ()


class Exhibit(msgspec.Struct, frozen=True):
    """A table or figure of the paper."""

    name: str  # for ``--only``
    title: str
    where: str  # in the paper
    text: str  # of the section
    tables: Callable[[ClaimEvidence], Sequence[Table]]
    claims: Callable[[ClaimEvidence, str], Sequence[Claim]]  # under each of ``settings``
    pictures: Callable[[ClaimEvidence], Sequence[Picture]] = lambda _: []
    cells: Callable[[], list[Cell]] = list  # which runs it needs
    many: tuple[str, ...] = ()  # policies repeated 500 times, as in the realizable plots
    settings: tuple[str, ...] = NAMES

    def build(self, evidence: ClaimEvidence) -> Section:
        """Return the section of the report."""
        claims = (
            msgspec.structs.replace(
                claim, setting=setting, why=claim.why if claim.verdict == FAILED else ""
            )
            for setting in self.settings
            for claim in self.claims(evidence, setting)
        )
        return Section(
            self.name,
            self.title,
            self.where,
            self.text,
            tables=tuple(self.tables(evidence)),
            pictures=tuple(self.pictures(evidence)),
            claims=tuple(claims),
        )


def verdict(difference: Interval) -> Verdict:
    """Judge a claim that this difference is above zero.

    By its 95 % interval; for fewer than 20 runs by the 99.9 % interval, since Student's interval of
    a few values rests on their being normal, and there are many verdicts.
    """
    assert difference.n is not None  # it is from `paired_difference`
    if difference.n < FEW:
        freedom = max(difference.n - 1, 1)
        difference = difference.stretched(t_quantile(STRICT, freedom) / t_quantile(0.95, freedom))
    if difference.low > 0:
        return HELD
    return FAILED if difference.high < 0 else UNDECIDED


def all_of(verdicts: "list[Verdict]") -> Verdict:
    """Judge a claim that has several parts."""
    if FAILED in verdicts:
        return FAILED
    return UNDECIDED if UNDECIDED in verdicts else HELD
