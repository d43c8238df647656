"""What every verb that reads a log asks for: the log, its costs, and what its columns are."""

import math
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from stopwise.cascade import Cascade
    from stopwise.logs.log import Log

LogFile: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        help="The log: one row per round, as .parquet, .csv or .jsonl; a folder of Parquet files "
        'or, in quotation marks, a pattern: "logs/2026-*.parquet".',
        show_default=False,
    ),
]
Costs: TypeAlias = Annotated[
    str,
    typer.Option(
        "--costs",
        metavar="C,C,…",
        help="Needed: what running each arm costs, in cascade order. The unit is the cost of one "
        "wrong answer: an arm of cost 0.01 is worth running if it corrects one answer in 100. "
        "With --error-cost: what each arm charges, in money.",
        default_factory=str,  # without them, open_log can say for which arms
        is_eager=True,  # known to the check of the prices
        show_default=False,
    ),
]
ErrorCost: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--error-cost",
        min=1e-9,
        metavar="E",
        help="What one wrong answer costs you, in the currency of the prices: what you would pay "
        "to prevent it.",
        show_default=False,
        is_eager=True,  # known to the check of the prices
    ),
]


def _priced(context: typer.Context, prices: str) -> str:
    if prices and (context.params.get("error_cost") is None or context.params.get("costs")):
        raise typer.BadParameter(
            "prices need --error-cost, what one wrong answer costs you in the same currency, and "
            "no --costs, which are in units of one wrong answer"
        )
    return prices


Prices: TypeAlias = Annotated[
    str,
    typer.Option(metavar="P,P,…", help="Instead of --costs: amounts of money.", callback=_priced),
]
Cumulative: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--cumulative", help="Each cost given is that of its arm and of all arms before it."
    ),
]
Context: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="A,B,…",
        help='Columns with what is known before any arm runs; "" if there are none.',
        show_default="those called context.…",
    ),
]
Outputs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--outputs",
        metavar="A,B,…",
        help="Columns with the outputs of the arms, in cascade order.",
        show_default="those called output.…",
    ),
]
Label: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="NAME",
        help="Column with the right answers; may be empty where one is not known.",
        show_default="label, if there is one",
    ),
]
By: TypeAlias = Annotated[
    str | None,
    typer.Option("--by", metavar="COLUMN", help="Each of its values on its own, and in total."),
]
NormaliseAnswers: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--normalise-answers",
        help="Compare answers without regard to case and space; read 1, true and yes as equal, "
        "and 0, false and no.",
    ),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for the results.", file_okay=False),
]
Seed: TypeAlias = Annotated[
    int, typer.Option("--seed", min=0, metavar="N", help="The same seed gives the same numbers.")
]


def open_log(
    file: Path,
    costs: str,
    *,
    error_cost: float | None = None,
    cumulative: bool = False,
    context: str | None = None,
    outputs: str | None = None,
    label: str | None = None,
    normalise_answers: bool = False,
    policies: Sequence[str] = (),
) -> "tuple[Log, Cascade]":
    """Turn what was typed into a log and its cascade, or raise `typer.BadParameter`.

    Contexts are read as the first of the saved ``policies`` that carries an encoding does.
    """
    from stopwise.cascade import Cascade, costs_doubt
    from stopwise.errors import CostUnitWarning, InvalidCascadeError
    from stopwise.logs.columns import Columns, MissingColumnsError
    from stopwise.logs.encoding import Encoding
    from stopwise.logs.formats.registry import SUFFIXES
    from stopwise.logs.log import Log
    from stopwise.policies.persistence import load
    from stopwise.reporting.wording import plural

    if not (pattern := has_magic(str(file)) or file.is_dir()) and not file.exists():
        raise typer.BadParameter(f"there is no file {str(file)!r}", param_hint="LOG")
    if not pattern and file.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(
            f"the format of {file.name} is not known; a log ends in {', '.join(SUFFIXES)}",
            param_hint="LOG",
        )
    numbers = numbers_of(costs) if costs.strip() else []
    columns = Columns(
        context=_names(context, "--context"), outputs=_names(outputs, "--outputs"), label=label
    )
    specs = [spec for saved in policies if (spec := load(saved).encoding) is not None]
    encoding = Encoding.from_spec(specs[0]) if specs else None
    try:
        log = Log(file, columns, encoding=encoding, normalise_answers=normalise_answers)
    except MissingColumnsError as error:
        none = ' ("" if there are none)' if error.role == "context" else ""
        text = f"{error.problem}. Name your own with --{error.role}{none}"
        raise typer.BadParameter(text, param_hint=f"--{error.role}") from error
    arms = ", ".join(log.arms)
    if log.layout.label in log.layout.outputs:
        raise typer.BadParameter(
            f"{log.layout.label!r} is the column of the right answers and of an arm too; nothing "
            "can be learned from an arm that is always right",
            param_hint="--outputs" if label is None else "--label",
        )
    if not numbers:
        example = ",".join(str(round(0.01 * 3**k, 2)) for k in range(len(log.arms)))
        raise typer.BadParameter(
            f"give the cost of running each arm, in the order {arms}: its own cost, in units of "
            f"what one wrong answer costs you, as in --costs {example}",
            param_hint="--costs",
        )
    if len(numbers) != len(log.arms):
        raise typer.BadParameter(
            f"{plural(len(numbers), 'cost')} for {plural(len(log.arms), 'arm')}: give one for each "
            f"of {arms}",
            param_hint="--costs",
        )
    build = Cascade.from_cumulative if cumulative else Cascade
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CostUnitWarning)  # said below
            cascade = build(numbers, names=log.arms, tradeoff=1 / (error_cost or 1))
    except InvalidCascadeError as error:
        raise typer.BadParameter(str(error), param_hint="--costs") from error
    if doubt := costs_doubt(log.arms, cascade.cumulative):
        typer.echo(f"stopwise: {doubt}; amounts of money need --error-cost", err=True)
    return log, cascade


def results_folder(file: Path, verb: str) -> Path:
    """Return the folder for results that is named after a log or a pattern of logs."""
    return Path(re.sub(r"[*?\[\]]+", "", file.stem) + f"-{verb}")


def command_line(
    verb: str, file: Path, costs: str, options: Mapping[str, Any], more: Sequence[str] = ()
) -> str:
    """Return the command that gives the same numbers, without the folder of the log.

    Examples
    --------
    >>> command_line("diagnose", Path("/data/triage.csv"), "1,2", {"label": "truth"})
    'stopwise diagnose triage.csv --costs 1,2 --label truth'
    """
    words = ["stopwise", verb, file.name, "--costs", costs]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value not in (None, False):
            text = f"{value:.12g}" if isinstance(value, float) else str(value)
            words += [option] if value is True else [option, text]
    return shlex.join([*words, *more])


def numbers_of(text: str, option: str = "--costs") -> list[float]:
    """Read numbers with commas between them, or raise `typer.BadParameter`."""
    numbers: list[float] = []
    for word in map(str.strip, text.split(",")):
        try:
            numbers.append(float(word))
        except ValueError:
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise typer.BadParameter(
                f"{word!r} is no number; write them as in 0.01,0.24,0.25", param_hint=option
            )
    return numbers


def _names(text: str | None, option: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    if not text.strip() and option == "--context":
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise typer.BadParameter(
            f"{text!r} names no column between two commas; write them as in a,b,c",
            param_hint=option,
        )
    return names
