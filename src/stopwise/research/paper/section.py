"""Exhibits (the paper's tables and figures), their claims, and their sections in the report."""

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

FEW = 20  # with fewer runs, verdicts use the STRICT interval (heuristic)
STRICT = 0.999


class Claim(msgspec.Struct, frozen=True):
    """A claim of the paper and its verdict.

    ``criterion`` describes the test, and ``numbers`` the measured values. ``why`` explains why the
    claim did not hold (`Exhibit.build` drops it for other verdicts). ``setting`` is the name of the
    parameter setting, or empty if the claim does not depend on it.
    """

    text: str
    verdict: Verdict
    numbers: str
    criterion: str = ""
    why: str = ""
    setting: str = ""


class Section(msgspec.Struct, frozen=True):
    """A section of the report, about one exhibit."""

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
    where: str  # such as "Figure 1a"
    text: str  # introduction of the section
    tables: Callable[[ClaimEvidence], Sequence[Table]]
    claims: Callable[[ClaimEvidence, str], Sequence[Claim]]  # called for each of ``settings``
    pictures: Callable[[ClaimEvidence], Sequence[Picture]] = lambda _: []
    cells: Callable[[], list[Cell]] = list  # the runs that the exhibit needs
    many: tuple[str, ...] = ()  # policies with 500 repetitions
    settings: tuple[str, ...] = NAMES

    def build(self, evidence: ClaimEvidence) -> Section:
        """Return the exhibit's section of the report."""
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
    """Return the verdict on the claim that a difference is above zero.

    The test uses the 95 % interval. For fewer than 20 runs, it uses the 99.9 % interval, because
    Student's interval for few values relies on normality and a report contains many verdicts.
    """
    assert difference.n is not None  # set by `paired_difference`
    if difference.n < FEW:
        freedom = max(difference.n - 1, 1)
        difference = difference.stretched(t_quantile(STRICT, freedom) / t_quantile(0.95, freedom))
    if difference.low > 0:
        return HELD
    return FAILED if difference.high < 0 else UNDECIDED


def all_of(verdicts: "list[Verdict]") -> Verdict:
    """Return the verdict on a claim whose parts have these verdicts."""
    if FAILED in verdicts:
        return FAILED
    return UNDECIDED if UNDECIDED in verdicts else HELD
