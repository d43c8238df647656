"""``stopwise replay``: what policies would have done with a log."""

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
    open_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from stopwise.logs.diagnosis.findings import Estimate
    from stopwise.logs.replay.results import CandidateResult, Replay

MOST_DIGITS = 6
NARROW = 70  # columns, below which a table would be cut


def replay(
    log: LogFile,
    costs: Costs,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:KEY=VALUE,…]|FILE",
            help="A policy by name, with parameters if you like, or the file of a saved one, "
            "which goes on from where it was saved; may be repeated.",
            show_default="uss-pd",
        ),
    ] = None,
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
            help="Policies by name see products of up to so many numbers of the context.",
        ),
    ] = 1,
    audit: Annotated[
        float,
        typer.Option(
            "--audit",
            min=0.0,
            max=1.0,
            metavar="SHARE",
            help="Tell this share of the labels, at random, to policies that can use them.",
        ),
    ] = 0.0,
    out: Out = None,
    seed: Seed = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print replay.json instead of a table.")
    ] = False,
) -> None:
    r"""Find out what policies would have done with a log.

    Each policy plays the log from the first round to the last: it decides, sees what the arms said
    as deep as it went, and learns. Beside them stands every fixed depth. Where the log ends
    before a policy would have, that is counted, and nothing is claimed of the round.

        stopwise replay visits.parquet --costs 0.01,0.24,0.25

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 \
            --policy uss-pd:sigma=0.2 --policy thompson:scale=0.5

    A live run can be repeated, decision for decision, from the policy as it was saved before it:

        stopwise replay live.jsonl --costs 0.01,0.24,0.25 --policy before.stopwise

    Results go to LOG-replay, unless --out says where.
    """
    from rich.console import Console

    from stopwise.errors import (
        InvalidContextError,
        InvalidInputError,
        InvalidLogError,
        PersistenceError,
        UnknownPolicyError,
    )

    folder = out if out is not None else Path(f"{log.stem}-replay")
    console = Console(stderr=json)

    def work(progress: "Callable[[str, int, int], None]") -> "Replay":
        from stopwise.logs.replay.replay import replay as run

        opened, cascade = open_log(
            log, costs, cumulative=cumulative, context=context, outputs=outputs, label=label
        )
        return run(
            opened,
            cascade,
            policy or ["uss-pd"],
            out=folder,
            audit=audit,
            degree=degree,
            seed=seed,
            progress=progress,
        )

    try:
        found = _followed(console, work)
    except (UnknownPolicyError, PersistenceError) as error:
        raise typer.BadParameter(str(error), param_hint="--policy") from error
    except InvalidLogError:
        raise
    except InvalidContextError as error:  # a saved policy was made for other numbers
        typer.echo(f"stopwise: {error}", err=True)
        raise typer.Exit(2) from error
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from error
    if json:
        sys.stdout.write(found.to_json().decode())
        sys.stdout.flush()
    else:
        _tell(console, found)
    console.print(
        f"Everything is in {folder / 'replay.json'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _followed(
    console: "Console",
    work: "Callable[[Callable[[str, int, int], None]], Replay]",
) -> "Replay":
    from stopwise.cli.progress import follow

    try:
        with follow() as progress:
            return work(progress.report)
    except KeyboardInterrupt:
        typer.echo("stopwise: interrupted; nothing was written.", err=True)
        raise typer.Exit(1) from None


def _tell(console: "Console", found: "Replay") -> None:
    from rich.text import Text

    from stopwise.logs.replay.words import sentences

    console.print()
    table = _table(found)
    if console.width < max(NARROW, console.measure(table).minimum):
        _stack(console, found)
    else:
        console.print(table)
    for sentence in sentences(found):
        console.print(Text(sentence))
    console.print()


def _stack(console: "Console", found: "Replay") -> None:
    """Print a block for each line of the table, where there is no room for it."""
    from rich.text import Text

    for k, one in enumerate((*found.policies, *found.fixed)):
        fixed = k - len(found.policies)
        best = ", best fixed" if fixed == found.best_fixed else ""
        console.print(Text(one.name if fixed < 0 else f"always {one.name}{best}", "bold"))
        console.print(Text(f"  stops at (%): {_shares(one)}"))
        for column in _columns(found):
            cell = _cell(one, column, found).plain.replace("\n", " ")
            console.print(Text(f"  {column}: {cell}"))
        console.print()
    console.print(Text(_caption(found)))
    console.print()


def _shares(one: "CandidateResult") -> str:
    return "/".join(f"{100 * share.value:.0f}" for share in one.depths) if one.rounds else "–"


def _table(found: "Replay") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = (*found.policies, *found.fixed)
    columns = _columns(found)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=Text(_caption(found)))
    table.add_column("", overflow="fold")
    table.add_column("stops at (%)", justify="right", no_wrap=True)
    for heading in columns:
        wrapped = Text(heading, overflow="fold")
        table.add_column(wrapped, justify="right", min_width=_widest(found, heading))
    for k, one in enumerate(lines):
        fixed = k - len(found.policies)
        name = Text(one.name if fixed < 0 else f"always {one.name}")
        if fixed == found.best_fixed:
            name.append("\nbest fixed", "dim")
        cells = [_cell(one, column, found) for column in columns]
        table.add_row(
            name,
            _shares(one),
            *cells,
            end_section=k == len(found.policies) - 1,
        )
    return table


def _widest(found: "Replay", column: str) -> int:
    """Return the room that the numbers of a column need, so that none is cut."""
    cells = [_cell(one, column, found).plain for one in (*found.policies, *found.fixed)]
    return max(len(line) for cell in cells for line in cell.split("\n"))


def _columns(found: "Replay") -> list[str]:
    lines = (*found.policies, *found.fixed)
    columns = ["cost", f"unlike {found.arms[-1]}"]
    if found.judged_by == "cost + disagreement":
        columns += ["cost + unlike"]
    if found.labelled:
        columns += ["wrong", "total loss"]
    if any(one.money is not None for one in lines):
        columns += ["paid"]
    if any(one.as_played is not None for one in lines):
        columns += ["as in log"]
    if not found.exact:
        columns += ["rounds"]
    return columns


def _cell(one: "CandidateResult", column: str, found: "Replay") -> "Text":
    from rich.text import Text

    if column == "rounds":
        return Text(f"{one.rounds:,}\nof {found.rounds:,}")
    numbers: dict[str, tuple[Estimate | None, bool]] = {
        "cost": (one.cost, False),
        "wrong": (one.error, True),
        "total loss": (one.loss, False),
        "cost + unlike": (one.cost_and_disagreement, False),
        "paid": (one.money, False),
        "as in log": (one.as_played, True),
    }
    estimate, share = numbers.get(column, (one.disagreement, True))
    cell = _two_lines(estimate, share=share)
    if "unlike" in column and estimate is not None and one.compared < one.rounds:
        cell.append(f"\nof {one.compared:,}", "dim")
    return cell


def _two_lines(estimate: "Estimate | None", *, share: bool) -> "Text":
    """Set under a number how far off it may be."""
    from rich.text import Text

    if estimate is None:
        return Text("–")
    value, low, high = (
        100 * v if share else v for v in (estimate.value, estimate.low, estimate.high)
    )
    digits = 2 if share else 4 if abs(value) < 0.1 else 3
    off = max(value - low, high - value)
    while 0 < off < 0.5 * 10**-digits and digits < MOST_DIGITS:
        digits += 1
    text = Text(f"{value:,.{digits}f}{'%' if share else ''}")
    return text.append(f"\n±{off:,.{digits}f}", "dim") if off else text


def _caption(found: "Replay") -> str:
    rounds = f"{found.rounds:,} rounds" if found.rounds != 1 else "1 round"
    arms = f"stops at {'/'.join(found.arms)}; ± at 95 %"
    if not found.exact:
        return (
            f"{rounds}, {arms}; numbers are of the rounds that can be evaluated only, and no totals"
        )
    labels = f", {found.labelled:,} with labels" if found.labelled else ""
    return f"{rounds}{labels}, {arms}; every decision could be looked up in the log"
