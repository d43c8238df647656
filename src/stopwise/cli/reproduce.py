"""``stopwise reproduce``: the paper's experiments, done again."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from stopwise.paper.report import Report

Engine: TypeAlias = Literal["threads", "dask"]

STYLES = {"held": "green", "did not hold": "red", "undecided": "yellow"}


def reproduce(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only 3 repetitions: fast, but many claims stay undecided."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Only this table or figure (see --list); may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the runs and the report.")
    ] = Path("reproduction"),
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, metavar="N", help="How many at once.", show_default="one per core"
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option("--engine", help="Where: threads of this process, or a Dask cluster.")
    ] = "threads",
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST:PORT", help="Use this Dask scheduler; else one is started."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="N", help="Seed of the first repetition.")
    ] = 0,
    list_: Annotated[
        bool, typer.Option("--list", help="List the tables and figures, and do nothing else.")
    ] = False,
) -> None:
    """Repeat the paper's experiments and judge its claims.

    Every run is stored as it finishes: after an interrupt, the same command resumes. The same seed
    gives the same numbers. A claim that does not hold is a result, not a failure.

        stopwise reproduce --quick --only table1 --only table2
    """
    from rich.console import Console
    from rich.table import Table

    from stopwise.cli.progress import follow
    from stopwise.paper.catalogue import EXHIBITS
    from stopwise.paper.report import tally, undecided_note
    from stopwise.paper.reproduce import reproduce as run

    console = Console()
    if list_:
        table = Table(box=None, pad_edge=False)
        for heading in ("name", "what", "where in the paper"):
            table.add_column(heading, no_wrap=heading == "name")
        for exhibit in EXHIBITS.values():
            table.add_row(exhibit.name, exhibit.title, exhibit.where)
        console.print(table)
        return
    names = list(dict.fromkeys(only or []))
    try:
        with follow() as progress:
            report = run(
                out,
                quick=quick,
                only=names,
                engine=engine,
                jobs=jobs,
                address=address,
                seed=seed,
                progress=progress,
                command=command_line(quick, names, seed),
            )
    except KeyboardInterrupt:
        typer.echo(
            f"stopwise: interrupted. Finished runs are stored in {out}; the same command resumes.",
            err=True,
        )
        raise typer.Exit(1) from None
    console.print(_verdicts(report))
    counts = ", ".join(f"{n} {verdict}" for verdict, n in tally(report).items())
    for line in filter(None, (f"{counts}.", undecided_note(report))):
        console.print(line, markup=False, highlight=False)
    console.print(f"Open {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def command_line(quick: bool, only: Sequence[str], seed: int) -> str:
    """Return the command that gives the same numbers, whatever does the runs.

    Examples
    --------
    >>> command_line(True, ["table1"], 0)
    'stopwise reproduce --quick --only table1'
    """
    words = ["stopwise", "reproduce"]
    words += ["--quick"] * quick
    words += [word for name in only for word in ("--only", name)]
    words += ["--seed", str(seed)] if seed else []
    return shlex.join(words)


def _verdicts(report: "Report") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from stopwise.paper.report import SIGNS, judged, settings_of

    settings = settings_of(report)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("claim")
    for setting in settings or ["verdict"]:
        table.add_column(setting, no_wrap=True)
    for section in report.sections:
        for k, one in enumerate(judged(section)):
            cells = [one.under(setting) or one.under("") for setting in settings or [""]]
            words = [
                Text("\n").join(
                    Text(f"{SIGNS[c.verdict]} {c.verdict}", STYLES[c.verdict]) for c in claims
                )
                for claims in cells
            ]
            table.add_row("" if k else section.name, Text(one.claim.text), *words)
    return table
