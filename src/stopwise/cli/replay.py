"""The command ``stopwise replay``."""

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

FIELDS = {  # table column → field of `CandidateResult`
    "cost": "cost",
    "disagrees": "disagreement",
    "cost + disagrees": "cost_and_disagreement",
    "wrong": "error",
    "total loss": "loss",
    "actual cost": "money",
    "as in log": "as_played",
}
SHARES = ("disagrees", "wrong", "as in log")
MIN_WIDTH = 80  # characters; on narrower terminals the table is wider than the screen
MAX_UNBROKEN = 14  # characters; longer names are wrapped on narrow terminals


@reads_log
def replay(
    read: LogOptions,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,…]|FILE",
            help="A policy by name, with optional parameters, or the file of a saved policy, which "
            "continues from its saved state; may be repeated.",
            show_default="uss-laplace, uss-anchor and uss-pd",
        ),
    ] = None,
    labels: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="N",
            help="Maximum number of labels that each policy may request; below 1, the share of "
            "disagreements to label.",
        ),
    ] = 0.0,
    answers: Annotated[
        bool,
        typer.Option(
            "--answers", help="Let policies see which arms have agreed so far in a round."
        ),
    ] = False,
    cost_weights: Annotated[
        str,
        typer.Option(
            metavar="W,W,…",
            help="Create policies with the costs multiplied by each of these factors. Results are "
            "reported at your own costs.",
        ),
    ] = "",
    target_error: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="E",
            help="Recommend only options with at most this error rate; requires labels.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="C",
            help="Recommend only options with at most this mean cost per round, in the unit of "
            "--costs or --prices.",
        ),
    ] = None,
) -> None:
    r"""Replay policies on a log of past rounds, and compare them with fixed depths.

    Each policy plays the rounds in order: it decides where to stop, sees the outputs of the arms up
    to that stop, and learns from them. If a policy goes deeper than the log did in a
    round, the round cannot be evaluated and is counted separately.

        stopwise replay visits.parquet --costs 0.01,0.24,0.25

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 \
            --policy uss-pd:sigma=0.2 --policy thompson:scale=0.5

    Let each policy request 100 of the log's labels, and show it which arms have agreed so far:

        stopwise replay visits.parquet --costs 0.01,0.24,0.25 --labels 100 --answers

    To reproduce a live run decision by decision, start from the policy saved before it:

        stopwise replay live.jsonl --costs 0.01,0.24,0.25 --policy before.stopwise

    Replay each hospital separately, or limit the error rate to 5 %, or the mean cost to 4 €:

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

    folder = read.folder("replay")
    console = Console(stderr=read.json)
    with show_progress("Nothing was written.") as progress:
        log, cascade = read.open([name for name in policy or () if Path(name).is_file()])
        result = run(
            log,
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
        sys.stdout.write(result.to_json().decode())
        sys.stdout.flush()
    else:
        console.print()
        for note in result.notes:
            style = "bold yellow" if note.startswith("Warning: ") else None
            console.print(note, markup=False, highlight=False, style=style)
        for arm, name in enumerate(result.arms):
            counts = f"Answers of {name}: {result.answers.summary(arm)}"
            console.print(counts, markup=False, highlight=False, style="dim")
        for name, encoding in result.columns.items():
            if encoding != UNCHANGED:
                console.print(f"{name}: {encoding}", markup=False, highlight=False, style="dim")
        width = console.width
        console.width = max(width, MIN_WIDTH)
        console.print(_table(result), crop=False)  # wider than the terminal rather than truncated
        console.width = width
        recommended = None if result.recommendation is None else result.recommendation.sentence
        for sentence in result.sentences[len(result.notes) :]:
            style = "bold" if sentence == recommended else None
            console.print(sentence, markup=False, highlight=False, style=style)
        console.print()
    console.print(
        f"Results: {folder / 'replay.json'}", markup=False, highlight=False, soft_wrap=True
    )


def _table(result: "Replay") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = (*result.policies, *result.fixed)
    columns = ["cost", "disagrees"]
    if result.judged_by == "cost + disagreement":
        columns.append("cost + disagrees")
    if result.labelled:
        columns += ["wrong", "total loss"]
    if any(row.money is not None for row in rows):
        columns.append("actual cost")
    if any(row.as_played is not None for row in rows):
        columns.append("as in log")
    if not result.exact:
        columns.append("rounds")
    cells = [[_cell(row, column, result) for column in columns] for row in rows]

    caption = Text(_caption(result))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=caption)
    longest = max(len(word) for row in rows for word in ("always", *row.name.split()))
    table.add_column("", overflow="fold", min_width=min(longest, MAX_UNBROKEN))
    shares = ["/".join(f"{100 * share.value:.0f}" for share in row.depths) for row in rows]
    table.add_column("stops at (%)", justify="right", width=max(5, *map(len, shares)))
    for k, column in enumerate(columns):
        heading = f"disagrees with {result.arms[-1]}" if column == "disagrees" else column
        widest = max(len(line) for row in cells for line in row[k].plain.split("\n"))
        widest = max(widest, *(min(len(word), MAX_UNBROKEN) for word in heading.split()))
        table.add_column(Text(heading, overflow="fold"), justify="right", width=widest)
    for k, row in enumerate(rows):
        depth = k - len(result.policies)  # negative for policies
        name = Text(row.name if depth < 0 else f"always {row.name}")
        if depth == result.best_fixed:
            name.append("\nbest fixed", "dim")
        if _is_recommended(row, depth >= 0, result):
            name.append("\nrecommended", "bold")
        stops = shares[k] if row.rounds else "–"
        table.add_row(name, stops, *cells[k], end_section=depth == -1)
    return table


def _is_recommended(row: "CandidateResult", fixed: bool, result: "Replay") -> bool:
    chosen = result.recommendation
    kind = "fixed depth" if fixed else "policy"
    return chosen is not None and chosen.name == row.name and chosen.kind == kind


def _cell(row: "CandidateResult", column: str, result: "Replay") -> "Text":
    from rich.text import Text

    from stopwise.reporting.wording import number_and_margin

    if column == "rounds":
        return Text(f"{row.rounds:,}\nof {result.rounds:,}")
    estimate: Interval | None = getattr(row, FIELDS[column])
    if estimate is None:
        return Text("–")
    scale, unit = (100, "%") if column in SHARES else (1, "")
    scaled = scale * estimate
    half_width = max(scaled.value - scaled.low, scaled.high - scaled.value)
    value, margin = number_and_margin(scaled.value, half_width)
    cell = Text(value + unit)
    if half_width:
        cell.append(f"\n±{margin}", "dim")
    if "disagrees" in column and row.compared < row.rounds:
        cell.append(f"\nof {row.compared:,}", "dim")
    return cell


def _caption(result: "Replay") -> str:
    from stopwise.reporting.wording import plural

    labels = f", {result.labelled:,} with labels" if result.labelled and result.exact else ""
    note = "the log has the outcome of every decision"
    if not result.exact:
        note = "each row covers only the rounds that can be evaluated"
    rounds = plural(result.rounds, "round")
    if result.weight != 1:
        note += f"; policies created at {result.weight:g} × the costs, amounts at your own costs"
    return f"{rounds}{labels}; stops at {'/'.join(result.arms)}; ± at 95 %; {note}"
