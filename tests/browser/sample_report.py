"""A small report with every element, extreme numbers and hostile names."""

from datetime import UTC, datetime
from math import inf, nan
from typing import Any

from stopwise.intervals import Interval
from stopwise.reporting.elements import Picture, Table
from stopwise.research.paper.choices import Choice
from stopwise.research.paper.report import Report
from stopwise.research.paper.reproduce import provenance
from stopwise.research.paper.section import FAILED, HELD, UNDECIDED, Claim, Section

EVIL = '<script>alert(1)</script> & "quoted" | piped'


def _draw() -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4))
    axes = figure.subplots()
    axes.plot([0, 1000, 5000], [0, 50, 70], label="USS-PD")
    axes.fill_between([0, 5000], [0, 60], [0, 80], alpha=0.3)
    axes.set_xlabel("rounds")
    axes.legend()
    return figure


def _claims(text: str, first: Any, second: Any) -> tuple[Claim, ...]:
    criterion, why = "by a paired interval", "The radius is large."
    return (
        Claim(text, first, "regret 1.5 ± 0.2", criterion, why, "literal"),
        Claim(text, second, "regret 0.5 ± 0.1", criterion, "", "near-greedy"),
    )


REGRET = Section(
    "regret",
    "Regret on synthetic data",
    "Figure 1a",
    "The first paragraph has `code_in_it` and *emphasis*.\n\nThe second says 2*3*4 and " + EVIL,
    tables=(
        Table(
            "final",
            "Regret after 5,000 rounds",
            ("setting", "policy", *(f"instance {k}" for k in range(1, 9))),
            (
                ("literal", "USS-PD", *[Interval(123.456, 122.2, 124.712, 100)] * 8),
                ("near-greedy", EVIL, 0.0692, -12345.6, nan, inf, 7, "–", 1e-7, 20000),
            ),
            note="Cut off | here.",
        ),
    ),
    pictures=(Picture("curves", "Regret of USS-PD", f"A rising line. {EVIL}", _draw),),
    claims=(
        *_claims("Regret falls from 2 to 3", FAILED, HELD),
        *_claims(f"Regret is linear {EVIL}", UNDECIDED, HELD),
    ),
)
FRACTIONS = Section(
    "fractions",
    "Weak dominance fractions",
    "Table 1 (supplement)",
    "Counted.",
    claims=(Claim("Fractions are the printed ones", HELD, "largest gap 0.0002"),),
)
REPORT = Report(
    title="USS-PD, reproduced",
    command="stopwise reproduce --quick --only regret --only fractions --seed 12345678901234567890",
    sections=(FRACTIONS, REGRET),
    choices=(Choice("κ", "0.25", "The slope at even odds."), Choice(EVIL, "`I_t=1`", EVIL)),
    settings=(("literal", "As printed."), ("near-greedy", "Less exploration.")),
    provenance=provenance(datetime(2024, 5, 1, 12, tzinfo=UTC), 75.0, "0 to 99", "threads", 2),
    scale="5,000 rounds, 100 repetitions",
)
