"""``stopwise import``: logs that exist, as a log that ``diagnose`` and ``replay`` read."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

FILES = (
    "OpenTelemetry spans in OTLP/JSON, LiteLLM spend logs, input and output files of OpenAI "
    "batches: .jsonl, or .csv of LiteLLM. Several are read as one."
)
ARMS = "The models to compare, in the order in which the cascade runs them."
COMPARE = (
    "What of an answer is compared: text without regard to case and punctuation around it, json, "
    "json:path.to.field, the last number, code, or which of some choices it names."
)
CASE = "The attribute (OpenTelemetry) or field of metadata (LiteLLM) that calls of a case share."


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help=FILES, exists=True, dir_okay=False)
    ],
    out: Annotated[Path, typer.Option(metavar="LOG", help="The log: .csv, .jsonl or .parquet.")],
    arms: Annotated[
        str, typer.Option(metavar="A,B,…", help=ARMS, show_default="all, by mean cost")
    ] = "",
    compare: Annotated[
        str, typer.Option(metavar="text|json|number|choice:a|b|c", help=COMPARE)
    ] = "text",
    case: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=CASE, show_default="trace, session or custom_id"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace LOG.")] = False,
) -> None:
    """Turn recorded calls of models into a log: one row per case, one column per model.

    Needs calls of two models or more for the same cases, with their answers. The format of a record
    is found by its fields; docs/importing.md describes the three.

        stopwise import spans.jsonl --arms small,large --out calls.parquet

        stopwise import spend.csv --compare "choice:billing|refund|other" --out calls.csv

        stopwise import input.jsonl small.jsonl large.jsonl --arms small,large --out calls.csv
    """
    from stopwise.cli.progress import show_progress
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.logs.importing import import_calls
    from stopwise.reporting.wording import number, plural

    if out.exists() and (not overwrite or any(out.samefile(file) for file in files)):
        words = "name another file, or replace it with --overwrite (not if it is a FILE to read)"
        raise typer.BadParameter(f"{out} exists; {words}", param_hint="--out")
    if not (to := out.parent).is_dir():
        raise typer.BadParameter(f"{to} is no folder; create it first", param_hint="--out")
    order = [arm.strip() for arm in arms.split(",") if arm.strip()]
    with show_progress("Nothing was written.") as progress:
        found = import_calls(files, out, arms=order, compare=compare, case=case, progress=progress)
    answers = plural(found.answers.total(), "answer")
    lines = [f"{plural(found.cases, 'case')}, {len(found.costs)} arms, {answers}."]
    for arm, cost in found.costs.items():
        n, lacking = found.answers[arm], plural(found.cases - found.answers[arm], "case")
        each = "cost unknown" if cost is None else f"{number(cost)} per call"
        lines.append(f"  {arm}: {plural(n, 'answer')}, missing in {lacking}; {each}")
    if lost := found.cases - found.rows:
        lines.append(f"Left out: {plural(lost, 'case')} without an answer of the first arm.")
    if found.unlike:
        lines.append(f"{plural(found.unlike, 'answer')} without {compare}: compared as text.")
    lines += [f"Not used: {n:,} × {reason}" for reason, n in found.unused.items()]
    lines += [f"  {example}" for example in found.examples]
    lines.append(f"Wrote {out}: {plural(found.rows, 'row')}, {found.complete:,} with all answers.")
    known = [cost for cost in found.costs.values() if cost is not None]
    if found.complete < LEAST_ROWS:
        lines.append(f"Too few for stopwise diagnose, which needs {LEAST_ROWS} with all answers.")
    elif len(known) == len(found.costs):
        costs = f"--prices {','.join(f'{cost:.3g}' for cost in known)} --error-cost 1"
        lines.append(f"Next: stopwise diagnose {shlex.quote(str(out))} {costs}")
        lines.append("Write what one wrong answer costs you, in the same currency, for the 1.")
    else:
        costs = ",".join(f"{0.01 * 3**k:.2g}" for k in range(len(found.costs)))
        lines.append(f"Next: stopwise diagnose {shlex.quote(str(out))} --costs {costs}")
        lines.append("These costs are an example: write yours, in units of one wrong answer.")
    typer.echo("\n".join(lines))
