"""Options shared by the commands that read a log."""

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
    "The log, with one row per round: a .parquet, .csv or .jsonl file, a folder of Parquet files, "
    'or a pattern in quotation marks, such as "logs/2026-*.parquet".'
)
COSTS = (
    "Cost of running each arm, in cascade order (required unless --prices is used). The unit is "
    "the cost of one wrong answer: an arm that costs 0.01 is worth running if it corrects one "
    "answer in 100. If --error-cost is set, costs are amounts of money."
)
ERROR_COST = (
    "Cost of one wrong answer, in the currency of the prices: the amount you would pay to prevent "
    "it."
)
CUMULATIVE = "Each cost includes those of all earlier arms."
CONTEXT = 'Columns available before the first arm; "" for none.'
OUTPUTS = "Columns with the outputs of the arms, in cascade order."
LABEL = 'Column with the right answers; an empty cell means no label. "" reads no labels.'
RIGHT = (
    "Columns that say whether each arm was right (1 or 0, empty if unknown), in cascade order. Use "
    'them for free text, where several answers can be right. "" reads none.'
)
NORMALISE = (
    "Ignore case and surrounding space in answers; treat 1, true and yes as equal, and likewise 0, "
    "false and no."
)
BY = "Column to group by; results are reported for each of its values and in total."
SEED = "Random seed; the same seed gives the same numbers."
JSON = "Print the results as JSON instead of a summary."
# Options that change the numbers, besides the costs.
RESULT_OPTIONS = (
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
    """The options that `reads_log` adds to a command."""

    log: Annotated[Path, typer.Argument(metavar="LOG", help=LOG, show_default=False)]
    costs: Annotated[str, typer.Option(metavar="C,C,…", help=COSTS, show_default=False)] = ""
    prices: Annotated[
        str,
        typer.Option(
            metavar="P,P,…",
            help="Costs as amounts of money, instead of --costs; results are in money too.",
        ),
    ] = ""
    error_cost: Annotated[
        float | None, typer.Option(min=1e-9, metavar="E", help=ERROR_COST, show_default=False)
    ] = None
    cumulative: Annotated[bool, typer.Option("--cumulative", help=CUMULATIVE)] = False
    context: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=CONTEXT, show_default="all named context.…"),
    ] = None
    outputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=OUTPUTS, show_default="all named output.…"),
    ] = None
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help=LABEL, show_default="label, if present")
    ] = None
    right: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=RIGHT, show_default="all named right.…"),
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
        """Open the log and create its cascade; raises `typer.BadParameter` for invalid options.

        Contexts are encoded as in the first of the policy files ``policies`` that has an encoding.
        """
        from stopwise.cascade import Cascade, cost_unit_warning
        from stopwise.errors import CostUnitWarning, InvalidCascadeError
        from stopwise.logs.encoding import Encoding
        from stopwise.logs.log import Columns, Log
        from stopwise.policies.creation import load
        from stopwise.reporting.wording import plural

        if self.prices and self.costs:
            raise typer.BadParameter(
                "cannot be combined with --costs; use only one of them", param_hint="--prices"
            )
        if self.prices and self.error_cost is None:
            raise typer.BadParameter(
                "requires --error-cost, the cost of one wrong answer in the same currency",
                param_hint="--prices",
            )
        option = "--prices" if self.prices else "--costs"
        numbers = numbers_of(self.costs or self.prices, option)
        specs = [spec for saved in policies if (spec := load(saved).encoding) is not None]
        log = Log(
            self.log.absolute(),
            Columns(_names(self.context), _names(self.outputs), self.label, _names(self.right)),
            encoding=Encoding.from_spec(specs[0]) if specs else None,
            normalise_answers=self.normalise_answers,
        )
        if log.layout.label in log.layout.outputs:
            raise typer.BadParameter(
                f"column {log.layout.label!r} cannot be both the label and the output of an arm; "
                "such an arm would always be right",
                param_hint="--outputs" if self.label is None else "--label",
            )
        if len(numbers) != len(log.arms):
            example = ",".join(str(round(0.01 * 3**k, 2)) for k in range(len(log.arms)))
            amount = "total cost of stopping at" if self.cumulative else "cost of running"
            unit = "units of one wrong answer" if self.error_cost is None else "money"
            raise typer.BadParameter(
                f"must list the {amount} each of {', '.join(log.arms)}, in this order and in "
                f"{unit}, as in {option} {example}; got {plural(len(numbers), 'cost')} for "
                f"{plural(len(log.arms), 'arm')}",
                param_hint=option,
            )
        build = Cascade.from_cumulative if self.cumulative else Cascade
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CostUnitWarning)  # printed below
                cascade = build(numbers, names=log.arms, tradeoff=1 / (self.error_cost or 1))
        except InvalidCascadeError as error:
            raise typer.BadParameter(str(error), param_hint=option) from error
        if doubt := cost_unit_warning(log.arms, cascade.cumulative):
            typer.echo(f"stopwise: {doubt}; to use amounts of money, add --error-cost", err=True)
        return log, cascade

    def folder(self, verb: str) -> Path:
        """Return the folder for results; by default its name is derived from the log."""
        return self.out or Path(re.sub(r"[*?\[\]]+", "", self.log.stem) + f"-{verb}")

    def command_line(self, verb: str, **more: Any) -> str:
        """Return the command that reproduces the results when run in the log's folder.

        Examples
        --------
        >>> LogOptions(Path("/data/triage.csv"), "1,2", label="truth").command_line("diagnose")
        'stopwise diagnose triage.csv --costs 1,2 --label truth'
        """
        values = {name: getattr(self, name) for name in RESULT_OPTIONS} | more | {"seed": self.seed}
        arguments = (verb, self.log.name, "--costs", self.costs or self.prices)
        return command_line(*arguments, **values)


def reads_log(command: Callable[..., None]) -> Callable[..., None]:
    """Add the `LogOptions` to a command, which receives them as its first argument."""
    shared = inspect.signature(LogOptions).parameters
    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in [*shared.values(), *own]]

    @wraps(command)
    def run(**arguments: Any) -> None:
        options = LogOptions(**{name: arguments.pop(name) for name in shared})
        command(options, **arguments)

    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] (any function may have one)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def numbers_of(text: str, option: str = "--costs") -> list[float]:
    """Parse comma-separated numbers; raises `typer.BadParameter`."""
    try:
        return [float(item) for item in text.split(",")] if text.strip() else []
    except ValueError:
        message = f"expected comma-separated numbers such as 0.01,0.24,0.25; got {text!r}"
        raise typer.BadParameter(message, param_hint=option) from None


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(map(str.strip, text.split(","))) if text.strip() else ()
