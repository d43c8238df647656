"""``stopwise diagnose``: whether a log's cascade can be learned, and what that would save."""

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
    "Degree of the polynomial that models disagreement. The report suggests a higher one only if "
    "it predicts held-out rows better."
)
LABEL_ROWS = (
    "Write the rows to label: random ones in which arms disagree, as many as the headline says are "
    "needed."
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
    r"""Find out how deep a cascade should go, what that saves, and whether to trust it.

    Reads what every arm answered in past rounds; needs no labels, but uses those that are there.
    Prints a verdict, and writes a report to open in a browser (into LOG-diagnosis, unless --out
    names another folder).

        stopwise diagnose visits.parquet --costs 0.01,0.24,0.25

    For a table with column names of its own:

        stopwise diagnose visits.csv --costs 0.01,0.24,0.25 \
            --context age,bmi --outputs history,glucose,insulin --label ill
    """
    from rich.console import Console

    from stopwise.cli.progress import show_progress
    from stopwise.reporting.drawing import need_matplotlib
    from stopwise.reporting.wording import plural

    need_matplotlib("logs")
    if label_rows is not None and label_rows.exists() and not overwrite:
        text = f"{label_rows} exists; name another file, or replace it with --overwrite"
        raise typer.BadParameter(text, param_hint="--label-rows")
    opened, cascade = read.open()
    command = read.command_line("diagnose", degree=None if degree == 1 else degree)
    from stopwise.logs.diagnosis import report
    from stopwise.logs.diagnosis.diagnose import diagnose as run

    console = Console(stderr=read.json)
    with show_progress("Nothing was written.") as progress:
        found = run(
            opened,
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
        page = report.write_report(found, folder, command=command, progress=progress)
        if label_rows is not None and found.plan.rows:
            report.write_label_rows(opened, found.plan.rows, label_rows)
    if read.json:
        typer.echo(report.as_json(found, command), nl=False)
    else:
        _summarise(console, found)
        console.print(f"Compare policies: {report.replay_command(found, command)}", **PLAIN)
    words = f"Open {page}"
    if label_rows is not None:
        n, needed = len(found.plan.rows), found.plan.labels
        words += f"\nTo label: {plural(n, 'row')}" + (
            f", in {label_rows}" if n else "; no file written"
        )
        words += f" ({needed:,} would settle the question)" if n < needed else ""
    console.print(words, **PLAIN)


def _summarise(console: "Console", found: "Diagnosis") -> None:
    from rich.text import Text

    from stopwise.logs.diagnosis.sections import main_numbers
    from stopwise.logs.diagnosis.verdict import BADGES
    from stopwise.reporting.wording import number, plain, plural

    for warning in (note for note in found.notes if note.startswith("Warning: ")):
        console.print(Text(plain(warning), "bold yellow"))
    for arm in range(len(found.arms)):
        words = f"Answers of {found.arms[arm].name}: {found.answers.summary(arm)}"
        console.print(Text(plain(words), "dim"))
    answer, headline = found.verdict.answer, found.verdict.headline
    sign, badge = BADGES[answer]
    verdict = Text.assemble((f"\n{sign} {answer}", STYLES[badge]), "  ", (plain(headline), "bold"))
    recommended = Text(plain(found.recommendation.sentence), "bold")
    reason = Text(plain(found.verdict.reason) + "\n")
    console.print(verdict, recommended, reason, _arms(found), sep="\n")
    for one in main_numbers(found):
        console.print(Text(plain(f"{one.label}: {one.number} {one.words}.").replace("`", "")))
    for one in found.tenants:
        saved = "–" if one.saving is None else number(1000 * one.saving.per_round.value)
        rows = plural(one.rows, "row")
        console.print(Text(f"  {one.name or 'none'}: {saved} saved in 1,000 rounds ({rows})"))
    console.print()
    for point in found.verdict.points:
        console.print(Text(f"• {plain(point)}"))
    for note in found.notes:  # the report has them in full
        console.print(Text(f"• {plain(note).partition('. ')[0].rstrip('.')}.", "dim"))
    console.print()


def _arms(found: "Diagnosis") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from stopwise.logs.units import describe_unit
    from stopwise.reporting.wording import number, percent, plural, short

    caption = f"costs {describe_unit(found.error_cost)}"
    heads = ["would stop here", "own cost", "total cost", "differs from last"]
    if found.audit is not None:
        heads.append("wrong, if always used")
        caption += f"; wrong: of {plural(found.audit.rows, 'labelled row')}"
        if found.audit.differing:
            caption += ", without errors that all arms share"
    table = Table("arm", box=box.SIMPLE_HEAD, pad_edge=False, caption=caption)
    for heading in heads:
        table.add_column(heading, justify="right")
    for arm in found.arms:
        stops, differs = percent(arm.stops.value), percent(arm.disagreement.value)
        wrong = [] if arm.error is None else [percent(arm.error.value)]
        cells = [stops, number(arm.cost), number(arm.total), differs, *wrong]
        table.add_row(Text(short(arm.name)), *cells)
    return table
