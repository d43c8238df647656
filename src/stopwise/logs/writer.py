"""Writing rounds down as they end, for `Log` to read."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, Self, cast

import msgspec
import numpy as np

from stopwise.errors import InvalidLogError
from stopwise.logs.answers import Family, mixed
from stopwise.logs.cells import EXACT, Cells, shown
from stopwise.logs.chunk import make_chunk
from stopwise.logs.columns import Columns, arrange
from stopwise.logs.fields import Row, lay_out
from stopwise.logs.line_sinks import CsvSink, JsonSink
from stopwise.logs.log import Format, format_of, source_of
from stopwise.logs.parquet_sink import ParquetSink
from stopwise.logs.problems import NoRowsError
from stopwise.records import Round

LONGEST_MESSAGE = 2_000  # of an error, in characters: some quote whole requests (heuristic)


class Sink(Protocol):
    """What writes rows to a file."""

    def write(self, row: Row) -> None:
        """Write a row."""
        ...

    def close(self) -> None:
        """Finish the file."""
        ...


class Seen(msgspec.Struct, frozen=True):
    """What outputs and labels a log holds so far."""

    family: Family | None = None
    fractions: bool = False
    large: bool = False  # whole numbers that are not exact as floats


class LogWriter:
    """Writes rounds to a log, one row each.

    CSV and JSON lines are written line by line: if the program dies, at most the round being
    written is lost. Parquet is smaller and much faster to read, but is there only after `close`:
    rows go to a hidden file beside it, which a program that is killed leaves behind, unreadable.
    An exception within ``with`` is no such thing: what was written until then is kept.

    Several threads may write. Two processes must not write one file.

    Parameters
    ----------
    path : str or path
        The file; its folder is made if need be. A file that is there is replaced, unless
        ``append``.
    arms : sequence of str
        Names of the arms, as in ``cascade.names``.
    context : sequence of str
        Names of the numbers that are known before the first arm.
    revealed : dict of str to sequence of str, optional
        By arm, names of the numbers that it adds to the context.
    labels : bool
        Whether right answers will be given.
    costs : bool
        Whether rounds tell what their calls really cost.
    append : bool
        Go on with a file that is there, of the same columns (not in Parquet). If a crash cut its
        last line off, that line is removed.
    format : {"parquet", "csv", "jsonl"}, optional
        Default: by the suffix.

    Raises
    ------
    InvalidLogError
        If a round does not fit, with nothing written of it; if the file cannot be appended to.
    MissingPackageError
        If it is to be a Parquet file and pyarrow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from stopwise.logs.log import Log
    >>> from stopwise.records import Round
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "log.csv")
    >>> with LogWriter(path, arms=["nurse", "doctor"], context=["age"]) as log:
    ...     log.write(Round("a", 0.0, (0.3,), ("ill", "ill"), ("ill", "ill"), stop=1, wanted=1))
    ...     log.write(Round("b", 9.5, (0.9,), ("well",), ("well",), stop=0, wanted=0))
    >>> print(path.read_text())
    id,time,context.age,output.nurse,output.doctor,stop,wanted,failed,error,kind
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
        costs: bool = False,
        append: bool = False,
        format: str | None = None,  # noqa: A002 - the word people look for
    ) -> None:
        self.path = Path(path)
        self.arms = tuple(arms)
        self._labels, self._costs = labels, costs
        added = revealed or {}
        fields = lay_out(self.arms, context, added, labels=labels, costs=costs)
        self._base = len(context)
        self._added = [len(added.get(arm, ())) for arm in self.arms]
        self._seen = Seen()
        self._lock = Lock()
        self._closed = False
        sinks = {"parquet": ParquetSink, "csv": CsvSink, "jsonl": JsonSink}
        kind = format_of(self.path, format)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._kind = kind
        self._sink: Sink = sinks[kind](self.path, fields, append=append)
        if append:
            try:
                self._seen = _seen_in(self.path, kind, Columns(context=None if context else ()))
            except BaseException:
                self._sink.close()
                raise

    def write(self, done: Round, label: Any = None) -> None:
        """Write a round.

        Parameters
        ----------
        done : Round
            The done, as `Runner` returns it.
        label : number, bool, str or None
            The right answer, if it is known.

        Raises
        ------
        InvalidLogError
            If the round does not fit the columns, or an output is not a number, bool or text;
            nothing of the round is written.
        """
        with self._lock:
            if self._closed:
                raise InvalidLogError(f"{self.path.name} is closed: nothing more can be written")
            answered = self._check_arms(done)
            outputs = [
                self._answer(value, f"the output of {arm!r}", done)
                for arm, value in zip(self.arms, done.outputs, strict=False)
            ]
            if label is not None and not self._labels:
                raise self._refused(done, "has a label; open the log with labels=True")
            right = None if label is None else self._answer(label, "the label", done)
            answers = [value for value in (*outputs, right) if value is not None]
            seen = self._compared(answers, done)
            row: Row = [
                str(done.id),
                self._time(done),
                *self._context(done, answered),
                *_padded(outputs, len(self.arms)),
                self._arm(done.stop),
                self._arm(done.wanted),
                *self._failure(done),
                *([right] if self._labels else []),
                *self._prices(done),
            ]
            self._sink.write(row)
            self._seen = seen

    def close(self) -> None:
        """Finish the file; a second time does nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _refused(self, done: Round, words: str) -> InvalidLogError:
        return InvalidLogError(f"{self.path.name}: round {done.id!r} {words}")

    def _check_arms(self, done: Round) -> int:
        """Return how many arms answered."""
        n, last = len(done.outputs), len(self.arms) - 1
        if done.stop != n - 1 or done.stop > last or done.wanted > last:
            raise self._refused(
                done,
                f"has {n} outputs, stop {done.stop} and wanted {done.wanted}; in a log of "
                f"{last + 1} arms stop must be the last that answered, and both at most {last}",
            )
        if done.failure is not None and (done.failure.arm != n or n > last):
            raise self._refused(
                done, f"has {n} outputs, so arm {done.failure.arm} cannot be the one that failed"
            )
        if n == 0 and done.failure is None:
            raise self._refused(done, "has no outputs and no failure")
        return n

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
            f"cannot be written: {what} is {shown(value)}; a log holds text, bools, finite numbers "
            "of 64 bits. Pass canonical= to Runner, to turn answers into such",
        )

    def _compared(self, answers: list[Any], done: Round) -> Seen:
        """Return what the log will hold with these answers, or refuse them."""
        family = self._seen.family
        for value in answers:
            mine: Family = "text" if isinstance(value, str) else "number"
            if family is not None and mine != family:
                raise self._refused(done, f"cannot be written: {mixed(shown(value), family)}")
            family = mine
        fractions = self._seen.fractions or any(isinstance(v, float) for v in answers)
        large = self._seen.large or any(type(v) is int and abs(v) > EXACT for v in answers)
        if fractions and large:
            raise self._refused(
                done,
                "cannot be written: whole numbers beyond 2**53 and fractions in one log cannot "
                "be compared exactly; pass canonical=str to Runner",
            )
        return Seen(family, fractions, large)

    def _context(self, done: Round, answered: int) -> list[float | None]:
        added = self._added[:answered]
        expected = self._base + sum(added)
        if len(done.context) != expected:
            more = f" and {sum(added)} that its arms revealed" if any(self._added) else ""
            raise self._refused(
                done,
                f"has a context of {len(done.context)} numbers; the log has {self._base}{more}",
            )
        numbers = [float(x) for x in done.context]
        if not all(map(math.isfinite, numbers)):
            raise self._refused(done, f"has a context that is not finite: {numbers}")
        return [*numbers, *[None] * sum(self._added[answered:])]

    def _time(self, done: Round) -> Any:
        try:
            moment = datetime.fromtimestamp(done.time, UTC)
        except (OverflowError, ValueError, OSError):
            raise self._refused(
                done, f"has the time {done.time}, which is not in seconds since 1970"
            ) from None
        if self._kind == "parquet":
            return moment
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _arm(self, arm: int) -> str | None:
        return None if arm < 0 else self.arms[arm]

    def _failure(self, done: Round) -> tuple[str | None, str | None]:
        if done.failure is None:
            return None, None
        message = done.failure.message.encode(errors="replace").decode()
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        return self.arms[done.failure.arm], message

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


AT_ONCE = 65_536  # rows of a file to be appended to that are looked at in one go


def _seen_in(path: Path, kind: Format, columns: Columns) -> Seen:
    """Return what answers the rows of a file hold, or say which row cannot be read."""
    try:
        source = source_of(path, kind)
    except NoRowsError:
        return Seen()  # `append` has checked the columns
    layout = arrange(source.names, columns, path.name)
    family: Family | None = None
    fractions = large = False
    for batch in source.batches(layout, AT_ONCE, 0):
        _, family = make_chunk(batch, layout, family, path.name)
        for name in layout.answers:
            cells = batch.cells(name, "answer")
            fractions |= cells.kind == "number" and cells.values.dtype == np.float64
            large |= cells.kind == "number" and _beyond(cells)
    return Seen(family, fractions, large)


def _beyond(cells: Cells) -> bool:
    """Tell whether there are whole numbers that are not exact as floats."""
    if cells.values.dtype != np.int64:
        return False
    return bool(((cells.values > EXACT) | (cells.values < -EXACT)).any())
