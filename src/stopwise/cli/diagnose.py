"""``stopwise diagnose``: what a log says about its cascade."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stopwise.cli.log_options import (
    Context,
    Costs,
    Cumulative,
    Label,
    LogFile,
    Out,
    Outputs,
    Seed,
    command_line,
    open_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.table import Table

    from stopwise.cascade import Cascade
    from stopwise.logs.diagnosis.findings import Answer, Diagnosis
    from stopwise.logs.log import Log

EXTRA = "logs"  # what to install with Stopwise for this
STYLES: "dict[Answer, str]" = {
    "learnable": "bold green",
    "probably": "bold yellow",
    "not from disagreement alone": "bold red",
}


def diagnose(
    log: LogFile,
    costs: Costs,
    cumulative: Cumulative = False,
    context: Context = None,
    outputs: Outputs = None,
    label: Label = None,
    degree: Annotated[
        int,
        typer.Option(
            "--degree",
            min=1,
            max=4,
            metavar="N",
            help="Of the polynomial that models disagreement, 1 to 4. Try 2 if the report says "
            "that predictions do not fit.",
        ),
    ] = 1,
    out: Out = None,
    seed: Seed = 0,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print what was found as JSON, instead of a summary."),
    ] = False,
) -> None:
    r"""Say how deep a cascade should go, what that saves, and whether to trust it.

    Reads what every arm said in past rounds; needs no labels, but uses those that are there. Ends
    with a verdict, and writes a report to open in a browser (into LOG-diagnosis, unless --out says
    where).

        stopwise diagnose visits.parquet --costs 0.01,0.24,0.25

    For a table with column names of its own:

        stopwise diagnose visits.csv --costs 0.01,0.24,0.25 \
            --context age,bmi --outputs history,glucose,insulin --label ill
    """
    from rich.console import Console

    from stopwise.reporting.drawing import need_matplotlib

    need_matplotlib(EXTRA)
    folder = out if out is not None else Path(f"{log.stem}-diagnosis")
    opened, cascade = open_log(
        log, costs, cumulative=cumulative, context=context, outputs=outputs, label=label
    )
    more = ["--degree", str(degree)] if degree != 1 else []
    more += ["--seed", str(seed)] if seed else []
    command = command_line(
        "diagnose",
        log,
        costs,
        cumulative=cumulative,
        context=context,
        outputs=outputs,
        label=label,
        more=more,
    )
    from stopwise.logs.diagnosis.report import as_json, write_report

    console = Console(stderr=json)

    def work(progress: "Callable[[str, int, int], None]") -> "tuple[Diagnosis, Path]":
        found = _diagnosed(opened, cascade, degree, seed, progress)
        return found, write_report(found, folder, command=command, progress=progress)

    found, page = _followed(console, work)
    if json:
        sys.stdout.write(as_json(found, command).decode())
        sys.stdout.flush()
    else:
        _summarise(console, found)
    console.print(f"Open {page}", markup=False, highlight=False, soft_wrap=True)


def _diagnosed(
    log: "Log",
    cascade: "Cascade",
    degree: int,
    seed: int,
    progress: "Callable[[str, int, int], None]",
) -> "Diagnosis":
    from stopwise.logs.diagnosis.diagnose import diagnose as run

    return run(log, cascade, degree=degree, seed=seed, progress=progress)


def _followed(
    console: "Console",
    work: "Callable[[Callable[[str, int, int], None]], tuple[Diagnosis, Path]]",
) -> "tuple[Diagnosis, Path]":
    from stopwise.cli.progress import follow

    try:
        with follow(console) as progress:
            return work(progress.report)
    except KeyboardInterrupt:
        typer.echo("stopwise: interrupted; nothing was written.", err=True)
        raise typer.Exit(1) from None


def _summarise(console: "Console", found: "Diagnosis") -> None:
    from rich.padding import Padding
    from rich.text import Text

    from stopwise.logs.diagnosis import words

    answer = found.verdict.answer
    style = "bold yellow" if words.only_hinted(found) else STYLES[answer]
    head = Text.assemble(
        (f"{words.SIGNS[answer]} {answer}", style), "  ", (words.HEADLINES[answer], "bold")
    )
    console.print()
    console.print(head)
    console.print(Text(words.plain(words.reason(found))))
    console.print()
    console.print(_arms(found))
    saving, changed = words.numbers_that_matter(found)
    for number in (saving, changed):
        said = f"{number.label}: {number.number}, {number.words}.".replace("`", "")
        console.print(Text(words.plain(said.replace("%, of", "% of"))))
    for one in words.boxed(found):
        console.print()
        colour = "red" if one.confirmed else "yellow"
        console.print(Padding(Text(f"⚠ {words.plain(one.words)}", colour), (0, 2)))
    console.print()
    for note in found.notes:
        # the report has them whole
        console.print(Text(f"• {words.plain(note).partition('. ')[0].rstrip('.')}.", "dim"))
    console.print()


def _arms(found: "Diagnosis") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from stopwise.logs.diagnosis.words import amount, percent, short

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm")
    heads = ["stops here", "own cost", "total cost", "differs from last"]
    heads += ["right (est.)"] if found.agreement is not None else []
    heads += ["wrong (labels)"] if found.audit is not None else []
    for heading in heads:
        table.add_column(heading, justify="right")
    for k, arm in enumerate(found.arms):
        cells = [
            percent(found.stops[k].share.value),
            amount(arm.cost),
            amount(arm.total),
            percent(found.fixed[k].disagreement.value),
        ]
        if found.agreement is not None:
            cells.append(percent(found.agreement.accuracies[k].accuracy.value))
        if found.audit is not None:
            cells.append(percent(found.audit.errors[k].value))
        table.add_row(Text(short(arm.name)), *cells)
    return table
