"""The report on a reproduction: one HTML page, figures, and the numbers as files."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stopwise.errors import InvalidParameterError
from stopwise.paper.numbers import claim_rows, table_rows, write_numbers
from stopwise.paper.provenance import Provenance, facts
from stopwise.paper.section import FAILED, HELD, UNDECIDED, Choice, Claim, Section, Verdict
from stopwise.records import Progress, no_progress
from stopwise.reporting.drawing import Drawn, draw, need_matplotlib
from stopwise.reporting.files import write_file
from stopwise.reporting.pages import render
from stopwise.reporting.wording import plural

# Verdicts differ in words and signs; colour only helps.
SIGNS: dict[Verdict, str] = {HELD: "✓", FAILED: "✗", UNDECIDED: "?"}
CLASSES: dict[Verdict, str] = {HELD: "held", FAILED: "failed", UNDECIDED: "open"}

ABOUT = (
    "The experiments of “Online Algorithm for Unsupervised Sequential Selection with Contextual "
    "Information” (Verma, Hanawal, Szepesvári and Saligrama, NeurIPS 2020), done again with "
    "Stopwise. Each claim of the paper about them is tested and *held*, *did not hold*, or is "
    "*undecided*: the 95 % confidence interval of what was measured covers both answers. `I_t=3` "
    "is the policy that always stops at arm 3, `I_t=2` at arm 2, `I_t=1` at arm 1."
)
REPEAT = (
    "The same seeds give the same numbers, whatever does the runs and however many at a time. "
    "Finished runs are stored: the same command resumes after an interrupt."
)
CRITERION = " (criterion:"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class Report(msgspec.Struct, frozen=True):
    """Everything in the report.

    ``command`` gives the same numbers again; ``settings`` are names and explanations, in the
    order of the columns of verdicts; ``scale`` is how much was run, in words; ``quick`` means
    that it was too little to decide every claim.
    """

    title: str
    command: str
    sections: tuple[Section, ...]
    choices: tuple[Choice, ...]
    settings: tuple[tuple[str, str], ...]
    provenance: Provenance
    scale: str
    quick: bool = False


class JudgedClaim(NamedTuple):
    """One claim, with its verdict under each setting."""

    anchor: str
    text: str
    where: str
    verdicts: tuple[Claim, ...]

    @property
    def headline(self) -> str:
        """The claim without its criterion."""
        return self.text.partition(CRITERION)[0]

    @property
    def criterion(self) -> str:
        """The criterion as a sentence; empty where the claim has none."""
        rest = self.text.partition(CRITERION)[2].strip().removesuffix(".").removesuffix(")")
        return f"Criterion: {rest}." if rest else ""

    def under(self, setting: str) -> tuple[Claim, ...]:
        """Return the verdicts under a setting."""
        return tuple(claim for claim in self.verdicts if claim.setting == setting)


def judged(section: Section) -> list[JudgedClaim]:
    """Bring together the verdicts on the same claim.

    Examples
    --------
    >>> a, b = (Claim("regret falls", "Figure 1", s, HELD, "2 < 3") for s in ("new", "old"))
    >>> [(j.anchor, len(j.verdicts)) for j in judged(Section("f", "F", "", "", claims=(a, b)))]
    [('f-claim-1', 2)]
    """
    found: dict[tuple[str, str], list[Claim]] = {}
    for claim in section.claims:
        found.setdefault((claim.text, claim.where), []).append(claim)
    return [
        JudgedClaim(f"{section.name}-claim-{k}", text, where, tuple(claims))
        for k, ((text, where), claims) in enumerate(found.items(), start=1)
    ]


def settings_of(report: Report) -> list[str]:
    """Return the settings claims were tested under, in the report's order, without the empty."""
    used = dict.fromkeys(c.setting for section in report.sections for c in section.claims)
    ordered = [name for name, _ in report.settings if name in used]
    return ordered + [name for name in used if name and name not in ordered]


def tally(report: Report) -> dict[Verdict, int]:
    """Count the verdicts."""
    counts = Counter(claim.verdict for section in report.sections for claim in section.claims)
    return {verdict: counts[verdict] for verdict in SIGNS}


def undecided_note(report: Report) -> str:
    """Return why claims are undecided and what decides them; empty where none is.

    A quick run has few repetitions, and many intervals are too wide to decide a claim.
    """
    n = tally(report)[UNDECIDED]
    if not n:
        return ""
    cause = "with so few repetitions" if report.quick else "by these repetitions"
    cure = " Run without --quick to decide them." if report.quick else ""
    return f"{plural(n, 'verdict')} undecided {cause}: the intervals are too wide.{cure}"


def write_report(report: Report, out: Path, progress: Progress = no_progress) -> None:
    """Write ``report.html``, ``figures`` and ``numbers`` into a folder, each file in one step.

    The same report gives the same bytes.

    Parameters
    ----------
    report : Report
        What to write.
    out : Path
        The folder; created if it is missing.
    progress : callable, optional
        Called with ``("drawing", done, of)``, in pictures.

    Raises
    ------
    InvalidParameterError
        If two pictures, tables or sections have one name, or a name is no name for a file.
    MissingPackageError
        If jinja2, matplotlib or pyarrow is not installed.
    """
    tables = [table for section in report.sections for table in section.tables]
    pictures = [picture for section in report.sections for picture in section.pictures]
    _check_names("section", [section.name for section in report.sections])
    _check_names("table", [*(table.name for table in tables), "claims"])
    _check_names("picture", [picture.name for picture in pictures])
    if pictures:
        need_matplotlib("paper")
    drawn: dict[str, Drawn] = {}
    for done, picture in enumerate(pictures):
        progress("drawing", done, len(pictures))
        drawn[picture.name] = files = draw(picture)
        write_file(out / "figures" / f"{picture.name}.svg", files.svg)
        write_file(out / "figures" / f"{picture.name}.png", files.png)
    for table in tables:
        write_numbers(table_rows(table), out / "numbers" / table.name)
    write_numbers(claim_rows(report.sections), out / "numbers" / "claims")
    write_file(out / "report.html", html(report, drawn).encode())
    if pictures:
        progress("drawing", len(pictures), len(pictures))


def html(report: Report, drawn: dict[str, Drawn]) -> str:
    """Return the report as a page; ``drawn`` has its pictures by name."""
    links = [("glance", "Verdicts at a glance")]
    links += [(section.name, section.title) for section in report.sections]
    links += [("choices", "What the paper leaves open")] * bool(report.choices)
    links += [("settings", "Settings")] * bool(report.settings)
    links += [("provenance", "Where the numbers come from")]
    return render(
        Path(__file__).parent / "templates",
        "report.html",
        title=report.title,
        skip=("glance", "Skip to the verdicts"),
        contents=links,
        report=report,
        sections=[(section, judged(section)) for section in report.sections],
        settings=settings_of(report),
        tally=tally(report),
        undecided=undecided_note(report),
        facts=facts(report.provenance),
        drawn=drawn,
        signs=SIGNS,
        classes=CLASSES,
        about=ABOUT,
        repeat=REPEAT,
    )


def _check_names(what: str, names: Sequence[str]) -> None:
    for name, n in Counter(names).items():
        if n > 1:
            raise InvalidParameterError(f"{n} {what}s are called {name!r}; one name each")
        if NAME.fullmatch(name) is None:
            raise InvalidParameterError(
                f"a {what} is called {name!r}: letters, digits, - and _ only, as it names a file"
            )
