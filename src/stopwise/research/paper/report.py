"""The report of a reproduction: an HTML page, figures, and tables in CSV and Parquet format."""

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

# Verdicts differ in text and sign, not only in colour.
SIGNS: dict[Verdict, str] = {HELD: "✓", FAILED: "✗", UNDECIDED: "?"}
CLASSES: dict[Verdict, str] = {HELD: "held", FAILED: "failed", UNDECIDED: "open"}

ABOUT = (
    "The experiments of “Online Algorithm for Unsupervised Sequential Selection with Contextual "
    "Information” (Verma, Hanawal, Szepesvári and Saligrama, NeurIPS 2020), repeated with "
    "Stopwise. Each of the paper's claims about them *held*, *did not hold*, or is *undecided*. A "
    "claim is undecided if the 95 % confidence interval covers both answers, or if the growth of a "
    "curve is not clear at this horizon. `I_t=3` is the policy that always stops at arm 3, `I_t=2` "
    "at arm 2, `I_t=1` at arm 1."
)
REPEAT = (
    "The same seeds give the same numbers with any executor and any number of parallel runs. "
    "Finished runs are stored, so after an interruption the same command resumes."
)
SUFFIXES = (".png", ".svg", ".csv", ".parquet")

Facts: TypeAlias = tuple[tuple[str, str], ...]  # pairs of a name and a text
Row: TypeAlias = Mapping[str, str | float | int | None]  # a row of a file in numbers/


class Report(msgspec.Struct, frozen=True):
    """The content of a report.

    ``command`` reproduces the numbers. ``settings`` contains the name and the explanation of each
    parameter setting, in the order of the verdict columns. ``scale`` states the number of rounds
    and repetitions. ``quick`` is true if there are too few repetitions to decide every claim.
    """

    title: str
    command: str
    sections: tuple[Section, ...]
    choices: tuple[Choice, ...]
    settings: Facts
    provenance: Facts
    scale: str
    quick: bool = False


def claims_by_setting(section: Section) -> list[dict[str, Claim]]:
    """Return one dict per claim text, from each setting to the claim tested under it."""
    groups: dict[str, dict[str, Claim]] = {}
    for claim in section.claims:
        groups.setdefault(claim.text, {})[claim.setting] = claim
    return list(groups.values())


def tally(*sections: Section) -> dict[Verdict, int]:
    """Count how often each verdict occurs."""
    counts = Counter(claim.verdict for section in sections for claim in section.claims)
    return {verdict: counts[verdict] for verdict in SIGNS}


def headline(report: Report) -> str:
    """Return a sentence with the number of exhibits, tests and verdicts.

    A claim that is tested in two settings counts as two tests.
    """
    counts = tally(*report.sections)
    exhibits = plural(len(report.sections), "table or figure", "tables and figures")
    tests = plural(sum(counts.values()), "test")
    return (
        f"Reproduced {exhibits} of the paper, with {tests} of its claims: {counts[HELD]} held, "
        f"{counts[FAILED]} did not hold and {counts[UNDECIDED]} remained undecided."
    )


def undecided_note(report: Report) -> str:
    """Explain why claims are undecided and how to decide them; empty if all are decided."""
    if not tally(*report.sections)[UNDECIDED]:
        return ""
    if report.quick:
        return (
            "A quick run has too few repetitions to decide most claims: a comparison is decided "
            f"only if its {STRICT:.1%} interval lies on one side of zero, and growth is not "
            "tested. Run without --quick to decide more of them."
        )
    return (
        "A claim is undecided if the interval covers both answers, or if the growth of a curve is "
        "not clear at this horizon."
    )


def write_report(
    report: Report, out: Path, progress: Progress = no_progress, curves: Sequence[Row] = ()
) -> None:
    """Write ``report.html``, ``figures`` and ``numbers`` into a folder (all files or none).

    The same report gives the same bytes. Figures and numbers of an earlier report are removed.

    ``progress`` is called as ``progress("drawing", done, total)``, counting pictures; ``curves``
    are the rows of ``numbers/curves``.
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
        if path.suffix in SUFFIXES and path.relative_to(out).as_posix() not in files:
            path.unlink()
    if pictures:
        progress("drawing", len(pictures), len(pictures))


def html(report: Report, drawn: dict[str, FigureFiles]) -> str:
    """Return the report as an HTML page; ``drawn`` maps picture names to files."""
    links = [("summary", "Summary of verdicts")]
    links += [(section.name, section.title) for section in report.sections]
    links += [("choices", "Choices the paper leaves open"), ("settings", "Settings")]
    links += [("provenance", "Provenance")]
    return render(
        Path(__file__).parent / "templates",
        "report.html",
        title=report.title,
        skip=("summary", "Skip to the verdicts"),
        contents=links,
        report=report,
        sections=[(section, claims_by_setting(section)) for section in report.sections],
        headline=headline(report),
        tally=tally(*report.sections),
        undecided=undecided_note(report),
        drawn=drawn,
        signs=SIGNS,
        classes=CLASSES,
        about=ABOUT,
        repeat=REPEAT,
    )


def number_files(name: str, table: Sequence[Row]) -> dict[str, bytes]:
    r"""Convert rows with the same columns to the files ``name.csv`` and ``name.parquet``.

    The same rows give the same bytes. Missing values are empty, and floats are exact.
    """
    text, parquet = io.StringIO(), io.BytesIO()
    writer = csv.DictWriter(text, table[0] if table else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    arrow: Any = import_module("pyarrow")  # slow to import
    import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(table), parquet)
    return {f"{name}.csv": text.getvalue().encode(), f"{name}.parquet": parquet.getvalue()}


def table_rows(table: Table) -> list[Row]:
    """Return a table of the report in long form, one row per cell.

    ``line`` is the index of the table's row, ``label`` contains the row's leading text cells, and
    ``column`` is the name of the column. A text is in ``text``; a number is in ``value``, with
    ``low``, ``high`` and ``n`` if it is a mean.
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
    """Return one row per claim, with its verdict."""
    return [
        {"section": section.name, "where": section.where, **msgspec.structs.asdict(claim)}
        for section in sections
        for claim in section.claims
    ]
