"""Options of the commands that read a log."""

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stopwise.cli.reproduce import Address, ExecutorName, Jobs, command_line

if TYPE_CHECKING:
    from stopwise.cascade import Cascade
    from stopwise.logs.log import Log

LOG = (
    "The log: one row per round, as .parquet, .csv or .jsonl; a folder of Parquet files or, in "
    'quotation marks, a pattern: "logs/2026-*.parquet".'
)
COSTS = (
    "Needed: what running each arm costs, in cascade order. The unit is the cost of one wrong "
    "answer: an arm of cost 0.01 is worth running if it corrects one answer in 100. With "
    "--error-cost: what each arm charges, in money."
)
ERROR_COST = (
    "What one wrong answer costs you, in the currency of the prices: what you would pay to "
    "prevent it."
)
CUMULATIVE = "Each cost given is that of its arm and of all arms before it."
CONTEXT = 'Columns with what is known before any arm runs; "" if there are none.'
OUTPUTS = "Columns with the outputs of the arms, in cascade order."
LABEL = 'Column with the right answers; may be empty where one is not known. "" reads none.'
RIGHT = (
    "Columns that say whether each arm was right (1 or 0, empty if unknown), in cascade order: for "
    'free text, where several answers may be right. "" reads none.'
)
NORMALISE = (
    "Compare answers without regard to case and space; read 1, true and yes as equal, and 0, false "
    "and no."
)
BY = "Each of its values on its own, and in total."
SEED = "The same seed gives the same numbers."
JSON = "Print the results as JSON, instead of a summary."
# options on which the numbers depend, beside the costs
REPEATED = (
    "error_cost",
    "cumulative",
    "context",
    "outputs",
    "label",
    "right",
    "normalise_answers",
    "by",
)


@dataclass
class LogOptions:
    """The options that `reads_log` gives to a command."""

    log: Annotated[Path, typer.Argument(metavar="LOG", help=LOG, show_default=False)]
    costs: Annotated[str, typer.Option(metavar="C,C,…", help=COSTS, show_default=False)] = ""
    prices: Annotated[
        str,
        typer.Option(
            metavar="P,P,…", help="Instead of --costs: amounts of money. Results are, too."
        ),
    ] = ""
    error_cost: Annotated[
        float | None, typer.Option(min=1e-9, metavar="E", help=ERROR_COST, show_default=False)
    ] = None
    cumulative: Annotated[bool, typer.Option("--cumulative", help=CUMULATIVE)] = False
    context: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=CONTEXT, show_default="those called context.…"),
    ] = None
    outputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=OUTPUTS, show_default="those called output.…"),
    ] = None
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help=LABEL, show_default="label, if there is one")
    ] = None
    right: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=RIGHT, show_default="those called right.…"),
    ] = None
    normalise_answers: Annotated[bool, typer.Option("--normalise-answers", help=NORMALISE)] = False
    by: Annotated[str | None, typer.Option(metavar="COLUMN", help=BY)] = None
    executor: ExecutorName = "threads"
    jobs: Jobs = None
    address: Address = None
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the results.", file_okay=False)
    ] = None
    seed: Annotated[int, typer.Option(min=0, metavar="N", help=SEED)] = 0
    json: Annotated[bool, typer.Option("--json", help=JSON)] = False

    def open(self, policies: Sequence[str] = ()) -> "tuple[Log, Cascade]":
        """Turn what was typed into a log and its cascade, or raise `typer.BadParameter`.

        Contexts are read as the first of the saved ``policies`` that carries an encoding does.
        """
        from stopwise.cascade import Cascade, costs_doubt
        from stopwise.errors import CostUnitWarning, InvalidCascadeError
        from stopwise.logs.encoding import Encoding
        from stopwise.logs.log import Columns, Log
        from stopwise.policies.creation import load
        from stopwise.reporting.wording import plural

        if self.prices and (self.error_cost is None or self.costs):
            raise typer.BadParameter(
                "prices need --error-cost, what one wrong answer costs you in the same currency, "
                "and no --costs, which are in units of one wrong answer",
                param_hint="--prices",
            )
        numbers = numbers_of(self.costs or self.prices)
        specs = [spec for saved in policies if (spec := load(saved).encoding) is not None]
        log = Log(
            self.log.absolute(),
            Columns(_names(self.context), _names(self.outputs), self.label, _names(self.right)),
            encoding=Encoding.from_spec(specs[0]) if specs else None,
            normalise_answers=self.normalise_answers,
        )
        if log.layout.label in log.layout.outputs:
            raise typer.BadParameter(
                f"{log.layout.label!r} is the column of the right answers and of an arm too; "
                "nothing can be learned from an arm that is always right",
                param_hint="--outputs" if self.label is None else "--label",
            )
        if len(numbers) != len(log.arms):
            example = ",".join(str(round(0.01 * 3**k, 2)) for k in range(len(log.arms)))
            raise typer.BadParameter(
                f"{plural(len(numbers), 'cost')} for {plural(len(log.arms), 'arm')}: give the cost "
                f"of running each, in the order {', '.join(log.arms)}: its own cost, in units of "
                f"what one wrong answer costs you, as in --costs {example}",
                param_hint="--costs",
            )
        build = Cascade.from_cumulative if self.cumulative else Cascade
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CostUnitWarning)  # said below
                cascade = build(numbers, names=log.arms, tradeoff=1 / (self.error_cost or 1))
        except InvalidCascadeError as error:
            raise typer.BadParameter(str(error), param_hint="--costs") from error
        if doubt := costs_doubt(log.arms, cascade.cumulative):
            typer.echo(f"stopwise: {doubt}; amounts of money need --error-cost", err=True)
        return log, cascade

    def folder(self, verb: str) -> Path:
        """Return the folder for results, by default named after the log or pattern of logs."""
        return self.out or Path(re.sub(r"[*?\[\]]+", "", self.log.stem) + f"-{verb}")

    def command_line(self, verb: str, **more: Any) -> str:
        """Return the command that gives the same numbers, without the folder of the log.

        Examples
        --------
        >>> LogOptions(Path("/data/triage.csv"), "1,2", label="truth").command_line("diagnose")
        'stopwise diagnose triage.csv --costs 1,2 --label truth'
        """
        values = {name: getattr(self, name) for name in REPEATED} | more | {"seed": self.seed}
        words = (verb, self.log.name, "--costs", self.costs or self.prices)
        return command_line(*words, **values)


def reads_log(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all `LogOptions`, which it takes as its first argument."""
    shared = inspect.signature(LogOptions).parameters
    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in [*shared.values(), *own]]

    @wraps(command)
    def run(**typed: Any) -> None:
        command(LogOptions(**{name: typed.pop(name) for name in shared}), **typed)

    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] (any function may have one)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def numbers_of(text: str, option: str = "--costs") -> list[float]:
    """Read numbers with commas between them, or raise `typer.BadParameter`."""
    try:
        return [float(word) for word in text.split(",")] if text.strip() else []
    except ValueError as error:
        words = f"{error}; write numbers as in 0.01,0.24,0.25"
        raise typer.BadParameter(words, param_hint=option) from None


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(map(str.strip, text.split(","))) if text.strip() else ()
