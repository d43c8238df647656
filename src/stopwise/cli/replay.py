"""``stopwise replay``: what policies would have done with a log."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stopwise.cli.log_options import LogOptions, numbers_of, reads_log

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from stopwise.intervals import Interval
    from stopwise.logs.replay.results import CandidateResult, Replay

FIELDS = {  # of a line, by heading
    "cost": "cost",
    "disagrees": "disagreement",
    "cost + disagrees": "cost_and_disagreement",
    "wrong": "error",
    "total loss": "loss",
    "actual cost": "money",
    "as in log": "as_played",
}
SHARES = ("disagrees", "wrong", "as in log")
NARROWEST = 80  # columns of a terminal in which a table fits
MOST_UNBROKEN = 14  # characters of a name that are not broken where the terminal is narrow


@reads_log
def replay(
    read: LogOptions,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,…]|FILE",
            help="A policy by name, with parameters if you like, or the file of a saved policy, "
            "which continues from its saved state; may be repeated.",
            show_default="uss-laplace, uss-anchor and uss-pd",
        ),
    ] = None,
    labels: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="N",
            help="How many labels each policy may ask for; below 1, a share of disagreements.",
        ),
    ] = 0.0,
    answers: Annotated[
        bool, typer.Option("--answers", help="Let policies see which arms have agreed so far.")
    ] = False,
    cost_weights: Annotated[
        str,
        typer.Option(
            metavar="W,W,…",
            help="Create policies with the costs multiplied by each of these in turn. Results are "
            "at your own costs.",
        ),
    ] = "",
    target_error: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="E",
            help="Recommend only what is wrong in at most this share of rounds; needs labels.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="C",
            help="Recommend only what costs at most this much a round on average, in the unit of "
            "--costs or --prices.",
        ),
    ] = None,
) -> None:
    r"""Find out what policies would have done with a log.

    Each policy plays the log from the first round to the last: it decides, sees the outputs of the
    arms as deep as it went, and learns. Every fixed depth is evaluated beside them. Where the log
    ends before a policy would have, the round is counted as not evaluated.

        stopwise replay visits.parquet --costs 0.01,0.24,0.25

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 \
            --policy uss-pd:sigma=0.2 --policy thompson:scale=0.5

    With a hundred labels of the log, asked for by the policies, and agreement of the arms so far:

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 --labels 100 --answers

    To repeat a live run, decision for decision, give the policy that was saved before it:

        stopwise replay live.jsonl --costs 0.01,0.24,0.25 --policy before.stopwise

    For each hospital on its own; or for answers that are wrong in 5 % at most, or cost 4 € at most:

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 --by hospital

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 --target-error 0.05

        stopwise replay visits.parquet --prices 1,6,9 --error-cost 50 --budget 4

    Results go to LOG-replay, unless --out names another folder.
    """
    from rich.console import Console

    from stopwise.cli.progress import show_progress
    from stopwise.logs.encoding import UNCHANGED
    from stopwise.logs.replay.replay import CANDIDATES
    from stopwise.logs.replay.replay import replay as run

    folder, console = read.folder("replay"), Console(stderr=read.json)
    with show_progress("Nothing was written.") as progress:
        opened, cascade = read.open([name for name in policy or () if Path(name).is_file()])
        found = run(
            opened,
            cascade,
            policy or CANDIDATES,
            out=folder,
            labels=int(labels) if labels.is_integer() else labels,
            answers=answers,
            seed=read.seed,
            by=read.by,
            weights=numbers_of(cost_weights, "--cost-weights"),
            target_error=target_error,
            budget=budget,
            executor=read.executor,
            jobs=read.jobs,
            address=read.address,
            progress=progress,
        )
    if read.json:
        sys.stdout.write(found.to_json().decode())
        sys.stdout.flush()
    else:
        console.print()
        for note in found.notes:
            style = "bold yellow" if note.startswith("Warning: ") else None
            console.print(note, markup=False, highlight=False, style=style)
        for arm, name in enumerate(found.arms):
            words = f"Answers of {name}: {found.answers.summary(arm)}"
            console.print(words, markup=False, highlight=False, style="dim")
        for name, words in found.columns.items():
            if words != UNCHANGED:
                console.print(f"{name}: {words}", markup=False, highlight=False, style="dim")
        room, console.width = console.width, max(console.width, NARROWEST)
        console.print(_table(found), crop=False)  # wider if need be: no number is cut
        console.width = room
        recommended = None if found.recommendation is None else found.recommendation.sentence
        for sentence in found.sentences[len(found.notes) :]:
            style = "bold" if sentence == recommended else None
            console.print(sentence, markup=False, highlight=False, style=style)
        console.print()
    where = f"Everything is in {folder / 'replay.json'}"
    console.print(where, markup=False, highlight=False, soft_wrap=True)


def _table(found: "Replay") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = (*found.policies, *found.fixed)
    columns = ["cost", "disagrees"]
    columns += ["cost + disagrees"] if found.judged_by == "cost + disagreement" else []
    columns += ["wrong", "total loss"] if found.labelled else []
    columns += ["actual cost"] if any(one.money is not None for one in lines) else []
    columns += ["as in log"] if any(one.as_played is not None for one in lines) else []
    columns += ["rounds"] if not found.exact else []
    cells = [[_cell(one, column, found) for column in columns] for one in lines]

    caption = Text(_caption(found))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption)
    longest = max(len(word) for one in lines for word in ("always", *one.name.split()))
    table.add_column("", overflow="fold", min_width=min(longest, MOST_UNBROKEN))
    shares = ["/".join(f"{100 * one.value:.0f}" for one in line.depths) for line in lines]
    table.add_column("stops at (%)", justify="right", width=max(5, *map(len, shares)))
    for k, column in enumerate(columns):
        heading = f"disagrees with {found.arms[-1]}" if column == "disagrees" else column
        widest = max(len(line) for row in cells for line in row[k].plain.split("\n"))
        widest = max(widest, *(min(len(word), MOST_UNBROKEN) for word in heading.split()))
        table.add_column(Text(heading, overflow="fold"), justify="right", width=widest)
    for k, one in enumerate(lines):
        fixed = k - len(found.policies)
        name = Text(one.name if fixed < 0 else f"always {one.name}")
        if fixed == found.best_fixed:
            name.append("\nbest fixed", "dim")
        if _is_recommended(one, fixed >= 0, found):
            name.append("\nrecommended", "bold")
        stops = shares[k] if one.rounds else "–"
        table.add_row(name, stops, *cells[k], end_section=fixed == -1)
    return table


def _is_recommended(one: "CandidateResult", fixed: bool, found: "Replay") -> bool:
    chosen = found.recommendation
    return chosen is not None and (chosen.name, chosen.kind == "fixed depth") == (one.name, fixed)


def _cell(one: "CandidateResult", column: str, found: "Replay") -> "Text":
    from rich.text import Text

    from stopwise.reporting.wording import number_and_reach

    if column == "rounds":
        return Text(f"{one.rounds:,}\nof {found.rounds:,}")
    known: Interval | None = getattr(one, FIELDS[column])
    if known is None:
        return Text("–")
    scale, unit = (100, "%") if column in SHARES else (1, "")
    shown = scale * known
    off = max(shown.value - shown.low, shown.high - shown.value)
    words, reach = number_and_reach(shown.value, off)
    cell = Text(words + unit)
    if off:
        cell.append(f"\n±{reach}", "dim")
    if "disagrees" in column and one.compared < one.rounds:
        cell.append(f"\nof {one.compared:,}", "dim")
    return cell


def _caption(found: "Replay") -> str:
    from stopwise.reporting.wording import plural

    labels = f", {found.labelled:,} with labels" if found.labelled and found.exact else ""
    rest = "every decision could be looked up in the log"
    if not found.exact:
        rest = "numbers cover only rounds that can be evaluated, and are no totals"
    rounds = plural(found.rounds, "round")
    if found.weight != 1:
        rest += f"; policies with weight {found.weight:g}, amounts at your own costs"
    return f"{rounds}{labels}, stops at {'/'.join(found.arms)}; ± at 95 %; {rest}"
