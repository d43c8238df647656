"""The report on a reproduction: one HTML page, figures, and the numbers as files."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from stopwise.files import write_files
from stopwise.intervals import Interval
from stopwise.progress import Progress, no_progress
from stopwise.reporting.drawing import FigureFiles, draw
from stopwise.reporting.elements import Table
from stopwise.reporting.pages import render
from stopwise.reporting.wording import plural
from stopwise.research.paper.choices import Choice
from stopwise.research.paper.section import FAILED, HELD, STRICT, UNDECIDED, Claim, Section, Verdict

# Verdicts differ in words and signs; colour only helps.
SIGNS: dict[Verdict, str] = {HELD: "✓", FAILED: "✗", UNDECIDED: "?"}
CLASSES: dict[Verdict, str] = {HELD: "held", FAILED: "failed", UNDECIDED: "open"}

ABOUT = (
    "The experiments of “Online Algorithm for Unsupervised Sequential Selection with Contextual "
    "Information” (Verma, Hanawal, Szepesvári and Saligrama, NeurIPS 2020), done again with "
    "Stopwise. Each claim of the paper about them is tested and *held*, *did not hold*, or is "
    "*undecided*: the 95 % confidence interval of what was measured covers both answers, or the "
    "growth of a curve is not clear at this horizon. `I_t=3` "
    "is the policy that always stops at arm 3, `I_t=2` at arm 2, `I_t=1` at arm 1."
)
REPEAT = (
    "The same seeds give the same numbers, whatever does the runs and however many at a time. "
    "Finished runs are stored: the same command resumes after an interrupt."
)
ENDINGS = (".png", ".svg", ".csv", ".parquet")

Facts: TypeAlias = tuple[tuple[str, str], ...]  # names and words
Row: TypeAlias = Mapping[str, str | float | int | None]  # of a file of numbers


class Report(msgspec.Struct, frozen=True):
    """Everything in the report.

    ``command`` gives the same numbers again; ``settings`` are names and explanations, in the
    order of the columns of verdicts; ``scale`` says how much was run; ``quick`` means that it was
    too little to decide every claim.
    """

    title: str
    command: str
    sections: tuple[Section, ...]
    choices: tuple[Choice, ...]
    settings: Facts
    provenance: Facts
    scale: str
    quick: bool = False


def judged(section: Section) -> list[dict[str, Claim]]:
    """Bring together the verdicts on the same claim, by setting."""
    found: dict[str, dict[str, Claim]] = {}
    for claim in section.claims:
        found.setdefault(claim.text, {})[claim.setting] = claim
    return list(found.values())


def tally(*sections: Section) -> dict[Verdict, int]:
    """Count the verdicts."""
    counts = Counter(claim.verdict for section in sections for claim in section.claims)
    return {verdict: counts[verdict] for verdict in SIGNS}


def undecided_note(report: Report) -> str:
    """Return why claims are undecided and what decides them; empty where none is."""
    n = tally(*report.sections)[UNDECIDED]
    if not n:
        return ""
    if report.quick:
        return (
            f"{plural(n, 'verdict')} undecided with so few repetitions: a claim needs its "
            f"{STRICT:.1%} interval on one side, and growth is not judged. Run without --quick to "
            "decide more of them."
        )
    return (
        f"{plural(n, 'verdict')} undecided: the interval covers both answers, or the growth of a "
        "curve is not clear at this horizon."
    )


def write_report(
    report: Report, out: Path, progress: Progress = no_progress, curves: Sequence[Row] = ()
) -> None:
    """Write ``report.html``, ``figures`` and ``numbers`` into a folder: all files, or none.

    The same report gives the same bytes. Figures and numbers of an earlier report are removed.

    ``progress`` is called with ``("drawing", done, of)``, in pictures; ``curves`` are the rows of
    ``numbers/curves``.
    """
    tables = [table for section in report.sections for table in section.tables]
    pictures = [picture for section in report.sections for picture in section.pictures]
    files: dict[str, bytes] = {}
    drawn: dict[str, FigureFiles] = {}
    for done, picture in enumerate(pictures):
        progress("drawing", done, len(pictures))
        drawn[picture.name] = draw(picture)
        for kind, content in drawn[picture.name]._asdict().items():
            files[f"figures/{picture.name}.{kind}"] = content
    numbers: dict[str, Sequence[Row]] = {table.name: table_rows(table) for table in tables}
    numbers["claims"] = claim_rows(report.sections)
    if curves:
        numbers["curves"] = curves
    for name, rows in numbers.items():
        files |= number_files(f"numbers/{name}", rows)
    files["report.html"] = html(report, drawn).encode()
    write_files(out, files)
    for path in (*out.glob("figures/*"), *out.glob("numbers/*")):
        if path.suffix in ENDINGS and path.relative_to(out).as_posix() not in files:
            path.unlink()
    if pictures:
        progress("drawing", len(pictures), len(pictures))


def html(report: Report, drawn: dict[str, FigureFiles]) -> str:
    """Return the report as a page; ``drawn`` has its pictures by name."""
    links = [("summary", "Summary of verdicts")]
    links += [(section.name, section.title) for section in report.sections]
    links += [("choices", "What the paper leaves open"), ("settings", "Settings")]
    links += [("provenance", "Where the numbers come from")]
    return render(
        Path(__file__).parent / "templates",
        "report.html",
        title=report.title,
        skip=("summary", "Skip to the verdicts"),
        contents=links,
        report=report,
        sections=[(section, judged(section)) for section in report.sections],
        tally=tally(*report.sections),
        undecided=undecided_note(report),
        drawn=drawn,
        signs=SIGNS,
        classes=CLASSES,
        about=ABOUT,
        repeat=REPEAT,
    )


def number_files(name: str, table: Sequence[Row]) -> dict[str, bytes]:
    r"""Return rows, which have the same columns, as ``name.csv`` and ``name.parquet``.

    The same rows give the same bytes; a missing value is left empty; floats lose no digit.
    """
    text, parquet = io.StringIO(), io.BytesIO()
    writer = csv.DictWriter(text, table[0] if table else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    arrow: Any = import_module("pyarrow")  # loaded late: it is slow
    import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(table), parquet)
    return {f"{name}.csv": text.getvalue().encode(), f"{name}.parquet": parquet.getvalue()}


def table_rows(table: Table) -> list[Row]:
    """Return a table of the report with one row for each of its cells.

    ``line`` and ``label`` identify the row of the table, ``label`` being the words it begins with;
    ``column`` names the column. Words are in ``text``; a number is in ``value``, with ``low``,
    ``high`` and ``n`` if it is a mean.
    """
    rows: list[Row] = []
    for line, cells in enumerate(table.rows):
        label = ", ".join(map(str, takewhile(lambda cell: isinstance(cell, str), cells)))
        for column, cell in zip(table.columns, cells, strict=True):
            row: dict[str, Any] = {"line": line, "label": label, "column": column}
            row |= dict.fromkeys(("text", "value", "low", "high", "n"))
            if isinstance(cell, Interval):
                row |= {"value": cell.value, "low": cell.low, "high": cell.high, "n": cell.n}
            elif isinstance(cell, str):
                row["text"] = cell
            else:
                row["value"] = float(cell)
            rows.append(row)
    return rows


def claim_rows(sections: Iterable[Section]) -> list[Row]:
    """Return a row for every claim and its verdict."""
    return [
        {"section": section.name, "where": section.where, **msgspec.structs.asdict(claim)}
        for section in sections
        for claim in section.claims
    ]
