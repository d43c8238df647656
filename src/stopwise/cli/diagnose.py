"""The command ``stopwise diagnose``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stopwise.cli.log_options import LogOptions, reads_log

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from stopwise.logs.diagnosis.findings import Diagnosis

STYLES = {"held": "bold green", "open": "bold yellow", "failed": "bold red"}  # by badge
PLAIN: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}
DEGREE = (
    "Degree of the polynomial that models disagreement. The report suggests a higher degree only "
    "if it predicts held-out rows better."
)
LABEL_ROWS = (
    "Write the rows to label to this file: a random sample of the rows in which arms disagree, as "
    "large as the headline asks for."
)


@reads_log
def diagnose(
    read: LogOptions,
    degree: Annotated[int, typer.Option(min=1, max=4, metavar="N", help=DEGREE)] = 1,
    label_rows: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help=LABEL_ROWS, dir_okay=False)
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace FILE.csv if it exists.")
    ] = False,
) -> None:
    r"""Estimate how deep a cascade should go, what that saves, and how reliable the estimates are.

    Reads the answers of every arm in past rounds. Labels are optional. Prints a verdict and writes
    an HTML report to the folder LOG-diagnosis, unless --out names another folder.

        stopwise diagnose visits.parquet --costs 0.01,0.24,0.25

    If the columns have other names:

        stopwise diagnose visits.csv --costs 0.01,0.24,0.25 \
            --context age,bmi --outputs history,glucose,insulin --label ill
    """
    from rich.console import Console

    from stopwise.cli.progress import show_progress
    from stopwise.reporting.drawing import need_matplotlib

    need_matplotlib("logs")
    if label_rows is not None and label_rows.exists() and not overwrite:
        text = f"{label_rows} exists; use another file name, or --overwrite to replace it"
        raise typer.BadParameter(text, param_hint="--label-rows")
    log, cascade = read.open()
    command = read.command_line("diagnose", degree=None if degree == 1 else degree)
    from stopwise.logs.diagnosis import report
    from stopwise.logs.diagnosis.diagnose import diagnose as run

    console = Console(stderr=read.json)
    with show_progress("Nothing was written.") as progress:
        diagnosis = run(
            log,
            cascade,
            degree=degree,
            seed=read.seed,
            by=read.by,
            executor=read.executor,
            jobs=read.jobs,
            address=read.address,
            progress=progress,
        )
        folder = read.folder("diagnosis")
        page = report.write_report(diagnosis, folder, command=command, progress=progress)
        if label_rows is not None and diagnosis.plan.rows:
            report.write_label_rows(log, diagnosis.plan.rows, label_rows)
    if read.json:
        typer.echo(report.as_json(diagnosis, command), nl=False)
    else:
        _summarise(console, diagnosis)
        console.print(f"Compare policies: {report.replay_command(diagnosis, command)}", **PLAIN)
    console.print(f"Report: {page}", **PLAIN)
    if label_rows is not None:
        n, needed = len(diagnosis.plan.rows), diagnosis.plan.labels
        line = f"Rows to label: {n:,}, written to {label_rows}" if n else "No rows to label"
        if n < needed:
            line += f" ({needed:,} are needed)"
        console.print(line, **PLAIN)


def _summarise(console: "Console", diagnosis: "Diagnosis") -> None:
    from rich.text import Text

    from stopwise.logs.diagnosis.sections import main_numbers
    from stopwise.logs.diagnosis.verdict import BADGES
    from stopwise.reporting.wording import number, plain, plural

    for warning in (note for note in diagnosis.notes if note.startswith("Warning: ")):
        console.print(Text(plain(warning), "bold yellow"))
    for arm in range(len(diagnosis.arms)):
        counts = f"Answers of {diagnosis.arms[arm].name}: {diagnosis.answers.summary(arm)}"
        console.print(Text(plain(counts), "dim"))
    answer, headline = diagnosis.verdict.answer, diagnosis.verdict.headline
    sign, badge = BADGES[answer]
    verdict = Text.assemble((f"\n{sign} {answer}", STYLES[badge]), "  ", (plain(headline), "bold"))
    recommended = Text(plain(diagnosis.recommendation.sentence), "bold")
    reason = Text(plain(diagnosis.verdict.reason) + "\n")
    console.print(verdict, recommended, reason, _arms(diagnosis), sep="\n")
    for item in main_numbers(diagnosis):
        line = plain(f"{item.label}: {item.number} {item.explanation}.")
        console.print(Text(line.replace("`", "")))
    for tenant in diagnosis.tenants:
        saved = "–" if tenant.saving is None else number(1000 * tenant.saving.per_round.value)
        rows = plural(tenant.rows, "row")
        console.print(Text(f"  {tenant.name or 'none'}: saving per 1,000 rounds {saved} ({rows})"))
    console.print()
    for point in diagnosis.verdict.points:
        console.print(Text(f"• {plain(point)}"))
    for note in diagnosis.notes:  # the first sentence of each; the report has the rest
        console.print(Text(f"• {plain(note).partition('. ')[0].rstrip('.')}.", "dim"))
    console.print()


def _arms(diagnosis: "Diagnosis") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from stopwise.logs.units import describe_unit
    from stopwise.reporting.wording import number, percent, plural, short

    caption = f"costs are {describe_unit(diagnosis.error_cost)}"
    headings = ["stops here", "own cost", "total cost", "differs from last"]
    if diagnosis.audit is not None:
        headings.append("wrong if always used")
        caption += f"; wrong: share of {plural(diagnosis.audit.rows, 'labelled row')}"
        if diagnosis.audit.differing:
            caption += ", excluding errors that all arms share"
    table = Table("arm", box=box.SIMPLE_HEAD, pad_edge=False, caption=caption)
    for heading in headings:
        table.add_column(heading, justify="right")
    for arm in diagnosis.arms:
        stops, differs = percent(arm.stops.value), percent(arm.disagreement.value)
        wrong = [] if arm.error is None else [percent(arm.error.value)]
        cells = [stops, number(arm.cost), number(arm.total), differs, *wrong]
        table.add_row(Text(short(arm.name)), *cells)
    return table
