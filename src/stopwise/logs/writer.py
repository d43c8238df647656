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
from stopwise.logs.chunk import mixed
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
    arrange,
    format_suffix,
)
from stopwise.logs.rows import EXACT, describe_value, is_blank, quoted
from stopwise.records import Round
from stopwise.text import shorten

AnswerType: TypeAlias = Literal["text", "number", "large", "fraction"]
RowWriter: TypeAlias = LineWriter | ParquetWriter
WRITERS: dict[str, Callable[..., RowWriter]] = {
    ".parquet": ParquetWriter,
    ".csv": CsvWriter,
    ".jsonl": JsonLinesWriter,
    ".ndjson": JsonLinesWriter,
}
LONGEST_MESSAGE = 2_000  # of an error, in characters: some quote complete requests (heuristic)


class LogWriter(AbstractContextManager["LogWriter"]):
    """Writes rounds to a log, one row each.

    Rounds are written line by line: if the program dies, at most the round being written is lost.
    A Parquet file is smaller and much faster to read, but exists only after `close`; until then
    its rows are in a file of JSON lines beside it, which a program that is killed leaves there.

    Several threads may write. Two processes must not write one file.

    Parameters
    ----------
    path : str or path
        The file, ``.parquet``, ``.csv`` or ``.jsonl``; its folder is created if need be.
    arms, context : sequence of str
        Names of the arms, and of the numbers that are known before the first.
    revealed : dict of str to sequence of str, optional
        By arm, names of the numbers that it adds to the context.
    labels, right, costs : bool
        Whether right answers will be given; whether it will be said which arms were right; whether
        rounds hold what their calls really cost.
    append : bool
        Continue an existing file of the same columns (not in Parquet). If a crash cut its last
        line off, that line is removed. The answers must be of the same type as those in it.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    FileExistsError
        If the file exists, and neither ``append`` nor ``overwrite`` is given.
    InvalidLogError
        If a round does not fit, with nothing written of it; if the file cannot be appended to.

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
        added = revealed or {}
        fields = fields_of(arms, context, added, labels=labels, right=right, costs=costs)
        self._base = len(context)
        self._added = [len(added.get(arm, ())) for arm in self.arms]
        self._types: set[AnswerType] = set()  # of the answers so far
        self._lock = Lock()
        self._closed = False
        suffix = format_suffix(self.path)
        if not (append or overwrite) and self.path.exists() and self.path.stat().st_size:
            raise FileExistsError(
                f"{self.path} exists: append=True continues it, overwrite=True replaces it"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: RowWriter = WRITERS[suffix](self.path, fields, append=append)

    def write(self, done: Round, label: Any = None, *, right: Sequence[bool] | None = None) -> None:
        """Write a round, as `Runner` returns it, with its label if that is known.

        The ``label`` is the right answer; ``right`` says of each arm that answered whether it was
        right. Give one of the two. Outputs must be numbers, bools or text. A blank label counts as
        unknown.
        """
        with self._lock:
            if self._closed:
                raise InvalidLogError(f"{self.path.name} is closed: nothing more can be written")
            if isinstance(label, str) and is_blank(label):
                label = None
            if label is not None and not self._labels:
                raise self._refused(done, "has a label; open the log with labels=True")
            answered = self._check_arms(done)
            judged = self._judged(done, label, right)
            outputs = [
                self._answer(value, f"the output of {arm!r}", done)
                for arm, value in zip(self.arms, done.outputs, strict=False)
            ]
            answer = None if label is None else self._answer(label, "the label", done)
            types = self._checked_types([*outputs, *([] if answer is None else [answer])], done)
            row: Row = [
                str(done.id),
                self._time(done),
                *self._context(done, answered),
                *_padded(outputs, len(self.arms)),
                *(None if a in (None, -1) else self.arms[a] for a in (done.stop, done.rule_stop)),
                *self._failure(done),
                *([answer] if self._labels else []),
                *(_padded(judged, len(self.arms)) if self._right else []),
                *self._prices(done),
            ]
            try:
                self._file.write(row)
            except UnicodeEncodeError as error:
                letter, text = error.object[error.start : error.end], error.object[:60]
                words = f"{letter!r} in {text!r} is not a character of Unicode"
                raise self._refused(done, f"cannot be written: {words}") from None
            self._types = types

    def close(self) -> None:
        """Finish the file; a second time does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _refused(self, done: Round, words: str) -> InvalidLogError:
        return InvalidLogError(f"{self.path.name}: round {done.id!r} {words}")

    def _check_arms(self, done: Round) -> int:
        """Return how many arms answered."""
        n, arms = len(done.outputs), len(self.arms)
        failed = None if done.failure is None else done.failure.arm
        possible = 0 < n <= arms if failed is None else failed == n < arms
        if not possible or done.stop != (n - 1 if n else None) or not -1 <= done.rule_stop < arms:
            raise self._refused(
                done,
                f"has {n} outputs, stop {done.stop}, rule_stop {done.rule_stop} and failed arm "
                f"{failed}; in a log of {arms} arms stop must be the last that answered, a failed "
                f"arm the one after it, and rule_stop at most {arms - 1}",
            )
        return n

    def _judged(self, done: Round, label: Any, right: Sequence[bool] | None) -> Sequence[bool]:
        """Return whether each arm that answered was right; nothing if that is unknown."""
        if right is None:
            return ()
        if not self._right:
            raise self._refused(done, "says which arms were right; open the log with right=True")
        if label is not None:
            raise self._refused(done, "has both label and right; give one of the two")
        values = cast("Sequence[object]", right)  # callers may have no types
        bools = all(isinstance(value, bool | np.bool_) for value in values)
        if len(values) != len(done.outputs) or not bools:
            raise self._refused(
                done,
                f"has right={short_repr(right)}; give True or False for each of the "
                f"{len(done.outputs)} arms that answered",
            )
        return [bool(value) for value in values]

    def _answer(self, value: Any, what: str, done: Round) -> Any:
        """Return an output or label as a plain number, bool or text."""
        if isinstance(value, np.generic):
            value = cast("Any", value.item())
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return str.__str__(value)  # an Enum of texts would be written as its own name
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        raise self._refused(
            done,
            f"cannot be written: {what} is {describe_value(value)}; a log holds text, bools and "
            "finite numbers of 64 bits. Pass canonical= to Runner, to turn answers into such",
        )

    def _checked_types(self, answers: list[Any], done: Round) -> set[AnswerType]:
        """Return the types of all answers with these, or refuse them."""
        types = set(self._types)
        for value in answers:
            types.add(_type(value))
            if "text" in types and len(types) > 1:
                words = mixed(describe_value(value), "number" if isinstance(value, str) else "text")
                raise self._refused(done, f"cannot be written: {words}")
        if {"large", "fraction"} <= types:
            words = "whole numbers beyond 2**53 and fractions in one log cannot be compared exactly"
            raise self._refused(done, f"cannot be written: {words}; pass canonical=str to Runner")
        return types

    def _context(self, done: Round, answered: int) -> list[float | None]:
        added = self._added[:answered]
        if len(done.context) != self._base + sum(added):
            more = f" and {sum(added)} that its arms revealed" if any(self._added) else ""
            raise self._refused(
                done,
                f"has a context of {len(done.context)} numbers; the log has {self._base}{more}",
            )
        numbers = [float(x) for x in done.context]
        if not all(map(math.isfinite, numbers)):
            raise self._refused(done, f"has a context that is not finite: {numbers}")
        return _padded(numbers, self._base + sum(self._added))

    def _time(self, done: Round) -> str:
        try:
            moment = datetime.fromtimestamp(done.time, UTC)
        except (OverflowError, ValueError, OSError):
            words = f"has the time {done.time}, which is not in seconds since 1970"
            raise self._refused(done, words) from None
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _failure(self, done: Round) -> tuple[str | None, str | None]:
        if done.failure is None:
            return None, None
        message = done.failure.message.encode(errors="replace").decode()
        return self.arms[done.failure.arm], shorten(message, LONGEST_MESSAGE)

    def _prices(self, done: Round) -> list[float | None]:
        if not self._costs:
            return []
        prices = [float(cost) for cost in done.costs or ()]
        if len(prices) > len(self.arms) or not all(0 <= cost < math.inf for cost in prices):
            raise self._refused(
                done,
                f"has the costs {prices}; there must be one number ≥ 0 for each arm that was run",
            )
        return _padded(prices, len(self.arms))


def _padded(values: Sequence[Any], length: int) -> list[Any]:
    return [*values, *[None] * (length - len(values))]


def _type(value: Any) -> AnswerType:
    if isinstance(value, str | float):
        return "text" if isinstance(value, str) else "fraction"
    return "large" if abs(value) > EXACT else "number"


def fields_of(
    arms: Sequence[str],
    context: Sequence[str],
    revealed: Mapping[str, Sequence[str]],
    *,
    labels: bool,
    right: bool,
    costs: bool,
) -> list[Field]:
    """Return the columns that a log of these arms has, or refuse them."""
    _check_names(arms, context, revealed)
    added = [(arm, name) for arm in arms for name in revealed.get(arm, ())]
    fields = [
        Field("id", ("id",), "text"),
        Field("time", ("time",), "time"),
        *(Field(CONTEXT + name, ("context", name), "number") for name in context),
        *(Field(f"{REVEALED}{arm}.{x}", ("revealed", arm, x), "number") for arm, x in added),
        *(Field(OUTPUT + arm, ("outputs", arm), "answer") for arm in arms),
        *(Field(name, (name,), "text") for name in ("stop", "rule_stop", "failed", "error")),
        *([Field("label", ("label",), "answer")] if labels else []),
        *(Field(RIGHT + arm, ("right", arm), "bool") for arm in arms if right),
        *(Field(COST + arm, ("costs", arm), "number") for arm in arms if costs),
    ]
    # What is written must be read as what it is: names with dots can be taken for others.
    names = [field.name for field in fields]
    try:
        layout = arrange(names, Columns(context=None if context else ()), "the log")
    except InvalidLogError as error:
        raise InvalidParameterError(str(error)) from None
    if layout.revealed != tuple(
        tuple(f"{REVEALED}{arm}.{name}" for name in revealed.get(arm, ())) for arm in arms[:-1]
    ):
        raise InvalidParameterError(
            "the names of arms and of what they reveal are ambiguous, because of dots in "
            f"them: {', '.join(f'{arm}.{name}' for arm, name in added)}"
        )
    return fields


def _check_names(
    arms: Sequence[str], context: Sequence[str], revealed: Mapping[str, Sequence[str]]
) -> None:
    groups = {"arms": arms, "coordinates of the context": context}
    groups |= {f"what arm {arm!r} reveals": names for arm, names in revealed.items()}
    for what, names in groups.items():
        if isinstance(names, str):
            raise InvalidParameterError(f"{what}: give a list of names, not the text {names!r}")
        for name in names:
            if not name or name != name.strip() or name != name.encode(errors="ignore").decode():
                raise InvalidParameterError(
                    f"{what}: {name!r} cannot be the name of a column; it must be text without "
                    "space around it"
                )
    if len(arms) < 2:
        raise InvalidParameterError(f"a log has two arms or more; give their names, not {arms!r}")
    for arm in revealed:
        if arm not in arms[:-1]:
            raise InvalidParameterError(
                f"revealed names {arm!r}, which is not an arm before the last; these are "
                f"{quoted(arms[:-1])} (what the last arm reveals comes too late to decide "
                "anything)"
            )
