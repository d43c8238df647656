"""``stopwise import``: convert recorded model calls to a log."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

FILES = (
    "OpenTelemetry spans in OTLP/JSON, LiteLLM spend logs (also as .csv), or input and output "
    "files of OpenAI batches. Several files are combined."
)
ARMS = "The models to compare, in cascade order."
COMPARE = (
    "How answers are compared: as text (ignoring case and surrounding punctuation), as JSON, by a "
    "JSON field (json:path.to.field), by their last number, as code (ignoring layout), or by the "
    "choice they name."
)
CASE = (
    "The attribute (OpenTelemetry) or metadata field (LiteLLM) that identifies the case of a call."
)


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help=FILES, exists=True, dir_okay=False)
    ],
    out: Annotated[Path, typer.Option(metavar="LOG", help="The log: .csv, .jsonl or .parquet.")],
    arms: Annotated[
        str, typer.Option(metavar="A,B,…", help=ARMS, show_default="all, by mean cost")
    ] = "",
    compare: Annotated[
        str, typer.Option(metavar="text|json|number|code|choice:a|b|c", help=COMPARE)
    ] = "text",
    case: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=CASE, show_default="trace, session or custom_id"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace LOG.")] = False,
) -> None:
    """Convert recorded model calls to a log: one row per case, one column per model.

    The files must contain answers from at least two models to the same cases. Formats are detected
    automatically; docs/importing.md describes them.

        stopwise import spans.jsonl --arms small,large --out calls.parquet

        stopwise import spend.csv --compare "choice:billing|refund|other" --out calls.csv

        stopwise import input.jsonl small.jsonl large.jsonl --arms small,large --out calls.csv
    """
    from stopwise.cli.progress import show_progress
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.logs.importing import import_calls
    from stopwise.reporting.wording import number, plural

    if out.exists() and (not overwrite or any(out.samefile(file) for file in files)):
        advice = "choose another file, or pass --overwrite (input files are never replaced)"
        raise typer.BadParameter(f"{out} exists; {advice}", param_hint="--out")
    if not (folder := out.parent).is_dir():
        raise typer.BadParameter(f"folder {folder} does not exist", param_hint="--out")
    order = [arm.strip() for arm in arms.split(",") if arm.strip()]
    with show_progress("Nothing was written.") as progress:
        summary = import_calls(
            files, out, arms=order, compare=compare, case=case, progress=progress
        )
    answers = plural(summary.answers.total(), "answer")
    lines = [f"{plural(summary.cases, 'case')}, {len(summary.costs)} arms, {answers}."]
    for arm, cost in summary.costs.items():
        n_answers = summary.answers[arm]
        missing = plural(summary.cases - n_answers, "case")
        price = "cost unknown" if cost is None else f"{number(cost)} per call"
        lines.append(f"  {arm}: {plural(n_answers, 'answer')}, missing in {missing}; {price}")
    if dropped := summary.cases - summary.rows:
        lines.append(f"Dropped: {plural(dropped, 'case')} without an answer from the first arm.")
    if n_text := summary.compared_as_text:
        lines.append(f"Not in the form {compare}, so compared as text: {plural(n_text, 'answer')}.")
    lines += [f"Skipped {plural(n, 'record')}: {reason}" for reason, n in summary.unused.items()]
    lines += [f"  {example}" for example in summary.examples]
    rows, complete = plural(summary.rows, "row"), f"{summary.complete:,} with all answers"
    lines.append(f"Wrote {out}: {rows}, {complete}.")
    prices = [cost for cost in summary.costs.values() if cost is not None]
    if summary.complete < LEAST_ROWS:
        lines.append(f"stopwise diagnose needs at least {LEAST_ROWS} rows with all answers.")
    elif len(prices) == len(summary.costs):
        options = f"--prices {','.join(f'{price:.3g}' for price in prices)} --error-cost 1"
        lines.append(f"Next: stopwise diagnose {shlex.quote(str(out))} {options}")
        lines.append("Replace the 1 with the cost of one wrong answer, in the same currency.")
    else:
        costs = ",".join(f"{0.01 * 3**k:.2g}" for k in range(len(summary.costs)))
        lines.append(f"Next: stopwise diagnose {shlex.quote(str(out))} --costs {costs}")
        lines.append("Replace these example costs with your own, in units of one wrong answer.")
    typer.echo("\n".join(lines))
