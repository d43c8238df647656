"""``stopwise reproduce``: repeat the experiments of the paper."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import typer

DISCUSSION = "docs/reproduction.md explains the claims that did not hold."
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Number of parallel runs.", show_default="one per core"),
]
ExecutorName: TypeAlias = Annotated[
    Literal["threads", "dask"],
    typer.Option(help="Run in threads of this process or on a Dask cluster."),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Dask scheduler to use; by default, start a local cluster."
    ),
]


def reproduce(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run only 3 repetitions: fast, but leaves most claims open."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Reproduce only this table or figure (see --list); repeatable."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the runs and the report.")
    ] = Path("reproduction"),
    jobs: Jobs = None,
    executor: ExecutorName = "threads",
    address: Address = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Seed of the first repetition; each later one has the next seed.",
        ),
    ] = 0,
    list_: Annotated[
        bool, typer.Option("--list", help="List the tables and figures and exit.")
    ] = False,
) -> None:
    """Repeat the paper's experiments and test its claims.

    Each run is stored when it finishes, so the same command resumes after an interrupt. The same
    seed gives the same numbers. The exit code is 0 even if a claim does not hold.

        stopwise reproduce --quick --only table1 --only table2
    """
    from rich.console import Console
    from rich.table import Table

    from stopwise.cli.progress import show_progress
    from stopwise.research.paper.catalogue import EXHIBITS
    from stopwise.research.paper.report import SIGNS, headline, tally, undecided_note
    from stopwise.research.paper.reproduce import reproduce as run
    from stopwise.research.paper.section import FAILED

    console = Console()
    if list_:
        table = Table(box=None, pad_edge=False)
        for heading in ("name", "title", "in the paper"):
            table.add_column(heading, no_wrap=heading == "name")
        for exhibit in EXHIBITS.values():
            table.add_row(exhibit.name, exhibit.title, exhibit.where)
        console.print(table)
        return
    names = list(dict.fromkeys(only or []))
    interrupted = f"Finished runs are stored in {out}; repeat the command to resume."
    with show_progress(interrupted) as progress:
        report = run(
            out,
            quick=quick,
            only=names,
            executor=executor,
            jobs=jobs,
            address=address,
            seed=seed,
            progress=progress,
            command=command_line("reproduce", quick=quick, only=names, seed=seed),
        )
    table = Table("in the paper", "name", *SIGNS, box=None, pad_edge=False)
    for section in report.sections:
        place = section.where.removesuffix(" (supplement)")
        table.add_row(place, section.name, *map(str, tally(section).values()))
    table.add_row("total", "", *map(str, tally(*report.sections).values()))
    console.print(headline(report), "", table, "", sep="\n")
    if note := undecided_note(report):
        console.print(note)
    if tally(*report.sections)[FAILED]:
        console.print(DISCUSSION)
    console.print(f"Open {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def command_line(*arguments: str, **options: Any) -> str:
    """Return a command line as text; options set to None, False or 0 are left out.

    Examples
    --------
    >>> command_line("reproduce", quick=True, only=["table1", "table2"], error_cost=0.5, seed=0)
    'stopwise reproduce --quick --only table1 --only table2 --error-cost 0.5'
    """
    command = ["stopwise", *arguments]
    for name, values in options.items():
        option = f"--{name.replace('_', '-')}"
        for value in cast("list[Any]", values) if isinstance(values, list) else [values]:
            if value in (None, False):
                continue
            command.append(option)
            if value is not True:
                command.append(f"{value:.12g}" if isinstance(value, float) else str(value))
    return shlex.join(command)
