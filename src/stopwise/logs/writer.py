"""Writing rounds to a log."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from stopwise.checks import short_repr
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.chunk import mixed_types
from stopwise.logs.formats.csv import CsvWriter
from stopwise.logs.formats.json_lines import JsonLinesWriter
from stopwise.logs.formats.line_writer import Field, LineWriter, Row
from stopwise.logs.formats.parquet import ParquetWriter
from stopwise.logs.log import (
    CONTEXT,
    COST,
    OUTPUT,
    REVEALED,
    RIGHT,
    Columns,
    format_suffix,
    resolve_columns,
)
from stopwise.logs.rows import EXACT, describe_value, is_blank
from stopwise.records import Round
from stopwise.text import shorten, suggestion

AnswerType: TypeAlias = Literal["text", "number", "large", "fraction"]
RowWriter: TypeAlias = LineWriter | ParquetWriter
WRITERS: dict[str, Callable[..., RowWriter]] = {
    ".parquet": ParquetWriter,
    ".csv": CsvWriter,
    ".jsonl": JsonLinesWriter,
    ".ndjson": JsonLinesWriter,
}
MAX_ERROR_LENGTH = 2_000  # characters: some errors quote complete requests (heuristic)


class LogWriter(AbstractContextManager["LogWriter"]):
    """Writes rounds to a log, one row each.

    Each round is written immediately: if the program dies, at most the round being written is lost.
    A Parquet file is smaller and much faster to read, but exists only after `close`; until then
    its rows are in a file of JSON lines in the same folder, which remains if the program is killed.

    Threads may share a writer. Two processes must not write the same file.

    Parameters
    ----------
    path : str or path
        The file, ``.parquet``, ``.csv`` or ``.jsonl``; its folder is created if missing.
    arms, context : sequence of str
        Names of the arms, and of the numbers available before the first arm.
    revealed : dict of str to sequence of str, optional
        For each arm that reveals numbers, the names of these numbers.
    labels, right, costs : bool
        Whether to add columns for the right answer, for the correctness of each arm, and for the
        actual cost of each call.
    append : bool
        Continue an existing file with the same columns (not in Parquet). A last line truncated by
        a crash is removed. Answers must have the same type as those in the file.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    FileExistsError
        If the file exists and neither ``append`` nor ``overwrite`` is set.
    InvalidLogError
        If a round is invalid (then nothing of it is written), or if the file cannot be appended to.

    Examples
    --------
    >>> import tempfile
    >>> from stopwise.logs.log import Log
    >>> from stopwise.records import Round
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "log.csv")
    >>> with LogWriter(path, arms=["nurse", "doctor"], context=["age"]) as log:
    ...     log.write(Round("a", 0.0, (0.3,), ("ill", "ill"), ("ill", "ill"), stop=1, rule_stop=1))
    ...     log.write(Round("b", 9.5, (0.9,), ("well",), ("well",), stop=0, rule_stop=0))
    >>> print(path.read_text())
    id,time,context.age,output.nurse,output.doctor,stop,rule_stop,failed,error,kind
    a,1970-01-01T00:00:00.000000Z,0.3,ill,ill,doctor,doctor,,,text
    b,1970-01-01T00:00:09.500000Z,0.9,well,,nurse,nurse,,,text
    >>> next(Log(path).chunks()).stops.tolist()
    [1, 0]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: "str | PathLike[str]",
        arms: Sequence[str],
        context: Sequence[str] = (),
        revealed: Mapping[str, Sequence[str]] | None = None,
        *,
        labels: bool = False,
        right: bool = False,
        costs: bool = False,
        append: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.path = Path(path)
        self.arms = tuple(arms)
        self._labels, self._right, self._costs = labels, right, costs
        revealed = revealed or {}
        fields = log_fields(arms, context, revealed, labels=labels, right=right, costs=costs)
        self._n_initial = len(context)
        self._n_revealed = [len(revealed.get(arm, ())) for arm in self.arms]
        self._types: set[AnswerType] = set()  # of the answers so far
        self._lock = Lock()
        self._closed = False
        suffix = format_suffix(self.path)
        if not (append or overwrite) and self.path.exists() and self.path.stat().st_size:
            raise FileExistsError(
                f"{self.path} exists; pass append=True to continue or overwrite=True to replace it"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: RowWriter = WRITERS[suffix](self.path, fields, append=append)

    def write(self, done: Round, label: Any = None, *, right: Sequence[bool] | None = None) -> None:
        """Write a round, as returned by `Runner`, with its label if there is one.

        Pass either ``label`` (the right answer) or ``right`` (whether each arm that answered was
        right). Outputs must be numbers, bools or text. A blank label counts as missing.
        """
        with self._lock:
            if self._closed:
                raise InvalidLogError(f"{self.path.name} is closed")
            if isinstance(label, str) and is_blank(label):
                label = None
            if label is not None and not self._labels:
                raise self._error(done, "has a label; create the LogWriter with labels=True")
            answered = self._check_arms(done)
            evaluations = self._evaluations(done, label, right)
            outputs = [
                self._answer(value, f"the output of {arm!r}", done)
                for arm, value in zip(self.arms, done.outputs, strict=False)
            ]
            answer = None if label is None else self._answer(label, "the label", done)
            types = self._checked_types(outputs if answer is None else [*outputs, answer], done)
            row: Row = [str(done.id), self._time(done)]
            row += self._context(done, answered)
            row += _padded(outputs, len(self.arms))
            row += [
                None if arm in (None, -1) else self.arms[arm] for arm in (done.stop, done.rule_stop)
            ]
            row += self._failure(done)
            if self._labels:
                row.append(answer)
            if self._right:
                row += _padded(evaluations, len(self.arms))
            if self._costs:
                row += self._call_costs(done)
            try:
                self._file.write(row)
            except UnicodeEncodeError as error:
                character, text = error.object[error.start : error.end], error.object[:60]
                message = f"{character!r} in {text!r} is not a Unicode character"
                raise self._error(done, f"cannot be written: {message}") from None
            self._types = types

    def close(self) -> None:
        """Finish the file; closing again has no effect."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _error(self, done: Round, message: str) -> InvalidLogError:
        return InvalidLogError(f"{self.path.name}: round {done.id!r} {message}")

    def _check_arms(self, done: Round) -> int:
        """Return the number of arms that answered."""
        n, arms = len(done.outputs), len(self.arms)
        failed = None if done.failure is None else done.failure.arm
        possible = 0 < n <= arms if failed is None else failed == n < arms
        if not possible or done.stop != (n - 1 if n else None) or not -1 <= done.rule_stop < arms:
            raise self._error(
                done,
                f"has {n} outputs, stop {done.stop}, rule_stop {done.rule_stop} and failed arm "
                f"{failed}; in a log of {arms} arms stop must be the last arm that answered, a "
                f"failed arm must follow it, and rule_stop must be at most {arms - 1}",
            )
        return n

    def _evaluations(self, done: Round, label: Any, right: Sequence[bool] | None) -> list[bool]:
        """Return whether each arm that answered was right; empty if unknown."""
        if right is None:
            return []
        if not self._right:
            raise self._error(done, "has right=; create the LogWriter with right=True")
        if label is not None:
            raise self._error(done, "has both label and right; pass only one of them")
        values = cast("Sequence[object]", right)  # callers may be untyped
        bools = all(isinstance(value, bool | np.bool_) for value in values)
        if len(values) != len(done.outputs) or not bools:
            raise self._error(
                done,
                f"has right={short_repr(right)}; pass True or False for each of the "
                f"{len(done.outputs)} arms that answered",
            )
        return [bool(value) for value in values]

    def _answer(self, value: Any, role: str, done: Round) -> Any:
        """Return an output or label as a plain number, bool or text."""
        if isinstance(value, np.generic):
            value = cast("Any", value.item())
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # str() of a text Enum would be its name
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        raise self._error(
            done,
            f"cannot be written: {role} is {describe_value(value)}; outputs and labels must be "
            "text, bools or finite 64-bit numbers. Convert answers with Runner(canonical=…)",
        )

    def _checked_types(self, answers: list[Any], done: Round) -> set[AnswerType]:
        """Return the types of all answers so far; raise if they cannot be compared."""
        types = set(self._types)
        for value in answers:
            types.add(_type(value))
            if "text" in types and len(types) > 1:
                earlier = "number" if isinstance(value, str) else "text"
                message = mixed_types(describe_value(value), earlier)
                raise self._error(done, f"cannot be written: {message}")
        if {"large", "fraction"} <= types:
            raise self._error(
                done,
                "cannot be written: integers beyond 2**53 and fractions in one log cannot be "
                "compared exactly; use Runner(canonical=str)",
            )
        return types

    def _context(self, done: Round, answered: int) -> list[float | None]:
        n_revealed = sum(self._n_revealed[:answered])
        if len(done.context) != self._n_initial + n_revealed:
            revealed = f" and {n_revealed} revealed by its arms" if any(self._n_revealed) else ""
            raise self._error(
                done,
                f"has a context of {len(done.context)} numbers; expected {self._n_initial}"
                f"{revealed}",
            )
        numbers = [float(x) for x in done.context]
        if not all(map(math.isfinite, numbers)):
            raise self._error(done, f"has a context with values that are not finite: {numbers}")
        return _padded(numbers, self._n_initial + sum(self._n_revealed))

    def _time(self, done: Round) -> str:
        try:
            moment = datetime.fromtimestamp(done.time, UTC)
        except (OverflowError, ValueError, OSError):
            message = f"has the time {done.time}; expected seconds since 1970"
            raise self._error(done, message) from None
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _failure(self, done: Round) -> list[str | None]:
        if done.failure is None:
            return [None, None]
        message = done.failure.message.encode(errors="replace").decode()
        return [self.arms[done.failure.arm], shorten(message, MAX_ERROR_LENGTH)]

    def _call_costs(self, done: Round) -> list[float | None]:
        costs = [float(cost) for cost in done.costs or ()]
        if len(costs) > len(self.arms) or not all(0 <= cost < math.inf for cost in costs):
            raise self._error(
                done, f"has the costs {costs}; expected a finite number ≥ 0 for each arm that ran"
            )
        return _padded(costs, len(self.arms))


def _padded(values: Sequence[Any], length: int) -> list[Any]:
    return [*values, *[None] * (length - len(values))]


def _type(value: Any) -> AnswerType:
    if isinstance(value, str | float):
        return "text" if isinstance(value, str) else "fraction"
    return "large" if abs(value) > EXACT else "number"


def log_fields(
    arms: Sequence[str],
    context: Sequence[str],
    revealed: Mapping[str, Sequence[str]],
    *,
    labels: bool,
    right: bool,
    costs: bool,
) -> list[Field]:
    """Return the columns of a log of these arms; raise if names are invalid or ambiguous."""
    _check_names(arms, context, revealed)
    revealed_names = [(arm, name) for arm in arms for name in revealed.get(arm, ())]
    fields = [Field("id", ("id",), "text"), Field("time", ("time",), "time")]
    fields += [Field(CONTEXT + name, ("context", name), "number") for name in context]
    fields += [
        Field(f"{REVEALED}{arm}.{name}", ("revealed", arm, name), "number")
        for arm, name in revealed_names
    ]
    fields += [Field(OUTPUT + arm, ("outputs", arm), "answer") for arm in arms]
    fields += [Field(name, (name,), "text") for name in ("stop", "rule_stop", "failed", "error")]
    if labels:
        fields.append(Field("label", ("label",), "answer"))
    if right:
        fields += [Field(RIGHT + arm, ("right", arm), "bool") for arm in arms]
    if costs:
        fields += [Field(COST + arm, ("costs", arm), "number") for arm in arms]
    # Columns must be read back in the same roles; dots in names can make them ambiguous.
    names = [field.name for field in fields]
    try:
        layout = resolve_columns(names, Columns(context=None if context else ()), "the log")
    except InvalidLogError as error:
        raise InvalidParameterError(str(error)) from None
    if layout.revealed != tuple(
        tuple(f"{REVEALED}{arm}.{name}" for name in revealed.get(arm, ())) for arm in arms[:-1]
    ):
        raise InvalidParameterError(
            "dots make the names of arms and revealed numbers ambiguous: "
            f"{', '.join(f'{arm}.{name}' for arm, name in revealed_names)}; rename them"
        )
    return fields


def _check_names(
    arms: Sequence[str], context: Sequence[str], revealed: Mapping[str, Sequence[str]]
) -> None:
    groups = {"arms": arms, "context": context}
    groups |= {f"revealed[{arm!r}]": names for arm, names in revealed.items()}
    for parameter, names in groups.items():
        if isinstance(names, str):
            raise InvalidParameterError(f"{parameter} must be a list of names, got {names!r}")
        for name in names:
            if not name or name != name.strip() or name != name.encode(errors="ignore").decode():
                raise InvalidParameterError(
                    f"{parameter} has the invalid column name {name!r}; names must not be empty or "
                    "have surrounding space"
                )
    if len(arms) < 2:
        raise InvalidParameterError(f"arms must have at least 2 names, got {arms!r}")
    for arm in revealed:
        if arm in arms[-1:]:
            raise InvalidParameterError(
                f"revealed must not include the last arm, {arm!r}: no decision follows it"
            )
        if arm not in arms:
            raise InvalidParameterError(
                f"revealed has the unknown arm {arm!r}; {suggestion(arm, arms[:-1])}"
            )
