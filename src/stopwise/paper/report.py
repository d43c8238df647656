"""The report on a reproduction: what it says. The two formats say how."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stopwise.errors import InvalidParameterError
from stopwise.paper.numbers import claim_rows, table_rows, write_numbers
from stopwise.paper.provenance import Provenance
from stopwise.paper.section import (
    FAILED,
    HELD,
    UNDECIDED,
    Choice,
    Claim,
    Section,
    Verdict,
)
from stopwise.reporting.drawing import Drawn, draw, need_matplotlib
from stopwise.reporting.files import write_file

VERDICTS: tuple[Verdict, ...] = (HELD, FAILED, UNDECIDED)
# Verdicts are told apart by words and signs; colour only helps.
SIGNS: dict[Verdict, str] = {HELD: "✓", FAILED: "✗", UNDECIDED: "?"}

ABOUT = (
    "The experiments of “Online Algorithm for Unsupervised Sequential Selection with Contextual "
    "Information” (Verma, Hanawal, Szepesvári and Saligrama, NeurIPS 2020), done again with "
    "Stopwise. Each claim the paper makes about them is put to the test and *held*, *did not "
    "hold*, or is *undecided*: the 95 % confidence interval of what was measured covers both "
    "answers."
)
REPEAT = (
    "The same seeds give the same numbers, whatever does the runs and however many at a time. "
    "Finished runs are kept: a command that was interrupted goes on where it was."
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Report(msgspec.Struct, frozen=True):
    """Everything the report says.

    Attributes
    ----------
    title : str
        Of the whole.
    command : str
        What to type to get the same numbers again.
    sections : tuple of Section
        One for each table or figure of the paper.
    choices : tuple of Choice
        What the paper leaves open.
    settings : tuple of (name, explanation)
        Under which claims were tested, in the order of the columns of verdicts.
    provenance : Provenance
        Machine, versions, seeds, time.
    scale : str
        How much was run, in words.
    """

    title: str
    command: str
    sections: tuple[Section, ...]
    choices: tuple[Choice, ...]
    settings: tuple[tuple[str, str], ...]
    provenance: Provenance
    scale: str


class Judged(NamedTuple):
    """One claim, with its verdict under each setting."""

    anchor: str
    text: str
    where: str
    verdicts: tuple[Claim, ...]

    def under(self, setting: str) -> tuple[Claim, ...]:
        """Return what was found under a setting."""
        return tuple(claim for claim in self.verdicts if claim.setting == setting)


def judged(section: Section) -> list[Judged]:
    """Bring together the verdicts on the same claim.

    Examples
    --------
    >>> a, b = (Claim("regret falls", "Figure 1", s, HELD, "2 < 3") for s in ("new", "old"))
    >>> [
    ...     (one.anchor, len(one.verdicts))
    ...     for one in judged(Section("f", "F", "", "", claims=(a, b)))
    ... ]
    [('f-claim-1', 2)]
    """
    found: dict[tuple[str, str], list[Claim]] = {}
    for claim in section.claims:
        found.setdefault((claim.text, claim.where), []).append(claim)
    return [
        Judged(f"{section.name}-claim-{k}", text, where, tuple(claims))
        for k, ((text, where), claims) in enumerate(found.items(), start=1)
    ]


def settings_of(report: Report) -> list[str]:
    """Return the settings claims were tested under, in the report's order, each once.

    The empty name, for claims to which no setting matters, is left out.
    """
    used = dict.fromkeys(c.setting for section in report.sections for c in section.claims)
    ordered = [name for name, _ in report.settings if name in used]
    return ordered + [name for name in used if name and name not in ordered]


def tally(report: Report) -> dict[Verdict, int]:
    """Count the verdicts."""
    counts = Counter(claim.verdict for section in report.sections for claim in section.claims)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def write_report(
    report: Report, out: Path, progress: Callable[[str, int, int], None] | None = None
) -> None:
    """Write ``report.html``, ``report.md``, ``figures`` and ``numbers`` into a folder.

    The same report gives the same bytes. Every file is written in one step.

    Parameters
    ----------
    report : Report
        What to write.
    out : Path
        The folder; made if it is not there.
    progress : callable, optional
        Called with ``("drawing", done, of)``, in pictures.

    Raises
    ------
    InvalidParameterError
        If two pictures, tables or sections have one name, or a name is no name for a file.
    MissingPackageError
        If matplotlib or pyarrow is not installed.
    """
    # these need the Report above
    from stopwise.paper.report_html import html
    from stopwise.paper.report_markdown import markdown

    tables = [table for section in report.sections for table in section.tables]
    pictures = [picture for section in report.sections for picture in section.pictures]
    _check_names("section", [section.name for section in report.sections])
    _check_names("table", [*(table.name for table in tables), "claims"])
    _check_names("picture", [picture.name for picture in pictures])

    if pictures:
        need_matplotlib("paper")
    drawn: dict[str, Drawn] = {}
    for done, picture in enumerate(pictures):
        if progress is not None:
            progress("drawing", done, len(pictures))
        drawn[picture.name] = files = draw(picture)
        write_file(out / "figures" / f"{picture.name}.svg", files.svg)
        write_file(out / "figures" / f"{picture.name}.png", files.png)
    for table in tables:
        write_numbers(table_rows(table), out / "numbers" / table.name)
    write_numbers(claim_rows(report.sections), out / "numbers" / "claims")
    write_file(out / "report.md", markdown(report).encode())
    write_file(out / "report.html", html(report, drawn).encode())
    if progress is not None and pictures:
        progress("drawing", len(pictures), len(pictures))


def _check_names(what: str, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidParameterError(f"{count} {what}s are called {name!r}; one name each")
        if NAME.fullmatch(name) is None:
            raise InvalidParameterError(
                f"a {what} is called {name!r}: letters, figures, - and _ only, as it names a file"
            )
