"""``stopwise reproduce``: the paper's experiments, done again."""

import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import typer

RESULT = "A claim that does not hold is a result, no failure; docs/reproduction.md discusses them."
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="How many at once.", show_default="one per core"),
]
ExecutorName: TypeAlias = Annotated[
    Literal["threads", "dask"],
    typer.Option(help="Where: threads of this process, or a Dask cluster."),
]
Address: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Use this Dask scheduler; else one is started."),
]


def reproduce(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only 3 repetitions: fast, but many claims stay undecided."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this table or figure (see --list); may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the runs and the report.")
    ] = Path("reproduction"),
    jobs: Jobs = None,
    executor: ExecutorName = "threads",
    address: Address = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the first repetition.")
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

    from stopwise.cli.progress import show_progress
    from stopwise.research.paper.catalogue import EXHIBITS
    from stopwise.research.paper.report import SIGNS, tally, undecided_note
    from stopwise.research.paper.reproduce import reproduce as run

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
    stored = f"Finished runs are stored in {out}; the same command resumes."
    with show_progress(stored) as progress:
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
    table = Table("verdicts", *SIGNS, box=None, pad_edge=False)
    for section in report.sections:
        table.add_row(section.name, *map(str, tally(section).values()))
    table.add_row("all", *map(str, tally(*report.sections).values()))
    console.print(table, undecided_note(report), RESULT, sep="\n")
    console.print(f"Open {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def command_line(*words: str, **options: Any) -> str:
    """Return the command that gives the same numbers, without options that are None, False or 0.

    Examples
    --------
    >>> command_line("reproduce", quick=True, only=["table1", "table2"], error_cost=0.5, seed=0)
    'stopwise reproduce --quick --only table1 --only table2 --error-cost 0.5'
    """
    found = ["stopwise", *words]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        for one in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if one not in (None, False):
                text = f"{one:.12g}" if isinstance(one, float) else str(one)
                found += [option] if one is True else [option, text]
    return shlex.join(found)
