"""Logs in JSON lines: one object per round."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.errors import InvalidLogError
from stopwise.logs.formats.line_writer import LineWriter, Row
from stopwise.logs.rows import (
    CellReader,
    Layout,
    Record,
    RowBatch,
    batches_of,
    decode_lines,
    describe_row,
    describe_value,
    gather,
    quoted,
)

Object: TypeAlias = dict[str, Any]

# {"outputs": {"small": 1}} is what the column ``output.small`` is in a table.
GROUPS = {"outputs": "output", "costs": "cost"}

# Objects that must name the same things in every row, and those that may leave some out.
ALL, SOME = ("context", "outputs"), ("revealed", "costs", "right")
# What a later row may not have if the first does not: it would not be read.
OPTIONAL = ("label", "stop", "rule_stop", "failed", *SOME)

# What many programs write for NaN and infinity.
NOT_JSON = re.compile(r"[:,\[]\s*([+-]?(?:NaN|Infinity|nan|inf))\b")


class JsonLinesReader:
    """A file of JSON lines. The first row names the columns."""

    rows: int | None = None  # how many: the file does not say
    once = False  # it can be read again

    def __init__(self, path: Path) -> None:
        self._path = path
        line, first = next(self._objects(), (0, None))
        if first is None:
            raise InvalidLogError(f"{path.name} has no rows")
        if isinstance(first, str):
            raise InvalidLogError(f"{path.name}, {describe_row(0, line)}: {first}")
        self._first: Object = first
        self._paths = dict(_flat(first))
        self.names = tuple(self._paths)

    def batches(self, layout: Layout, size: int) -> Iterator[RowBatch]:
        """Yield all rows, up to ``size`` at a time."""
        return batches_of(self._records(layout), self._cells_of, self._path.name, size)

    def _objects(self) -> Iterator[Record]:
        """Yield every row with its line."""
        decoder = msgspec.json.Decoder()
        with self._path.open("rb") as file:
            for line, text in enumerate(decode_lines(file, self._path.name), 1):
                if text.isspace():
                    continue
                try:
                    row = decoder.decode(text)
                except msgspec.DecodeError as error:
                    reason = f"{error}; is the line cut off?"
                    if number := NOT_JSON.search(text):
                        reason = f"{number[1]} is no number in JSON; write null, or drop the row"
                    yield line, f"is not JSON: {reason}"
                    continue
                if isinstance(row, dict):
                    yield line, row
                else:
                    yield line, f"is {describe_value(row)}; each line must be an object, {{…}}"

    def _records(self, layout: Layout) -> Iterator[Record]:
        """Yield every row, once its names are found to be those of the first."""
        used = {self._paths[name][0] for name in layout.used}
        same = {key: set(cast("Object", self._first[key])) for key in ALL if key in used}
        some = [key for key in SOME if key in used]
        absent = [key for key in OPTIONAL if "outputs" in used and key not in self._first]
        for line, row in self._objects():
            problem = None if isinstance(row, str) else self._difference(row, same, some, absent)
            yield line, problem or row

    def _difference(
        self, row: Object, same: dict[str, set[str]], some: list[str], absent: list[str]
    ) -> str | None:
        """Return in what a row differs from the first."""
        for key, names in same.items():
            found = row.get(key)
            if not isinstance(found, dict) or cast("Object", found).keys() != names:
                return (
                    f"{key!r} must be an object with {quoted(sorted(names))}, as in the first row; "
                    "null where there is none"
                )
        new = [key for key in absent if row.get(key) is not None]
        for key in some:
            if row.get(key) is not None:
                named = _flat({key: row[key]})
                new += [".".join(path) for name, path in named if name not in self._paths]
        if not new:
            return None
        return (
            f"has {quoted(sorted(new))}, which the first row has not; give it in every row, null "
            "where unknown"
        )

    def _cells_of(self, rows: Sequence[Any]) -> CellReader:
        found: dict[tuple[str, ...], Sequence[Any]] = {(): rows}

        def values(path: tuple[str, ...]) -> Sequence[Any]:
            """Return what all rows have at a path; None where they have nothing."""
            if path not in found:
                found[path] = [
                    cast("Object", around).get(path[-1]) if isinstance(around, dict) else None
                    for around in values(path[:-1])
                ]
            return found[path]

        return lambda column, use: gather(values(self._paths[column]), use)


def _flat(
    value: Object, prefix: str = "", path: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name that each value would have in a table, and where it is."""
    for key, inner in value.items():
        name = prefix + (GROUPS.get(key, key) if isinstance(inner, dict) and not path else key)
        if isinstance(inner, dict):
            yield from _flat(cast("Object", inner), f"{name}.", (*path, key))
        else:
            yield name, (*path, key)


class JsonLinesWriter(LineWriter):
    """Writes JSON lines."""

    def _found_names(self) -> list[str]:
        return list(JsonLinesReader(self._path).names)

    def _is_complete(self, rest: bytes) -> bool:
        with suppress(msgspec.DecodeError):
            return isinstance(msgspec.json.decode(rest), dict)
        return False

    def _encode(self, row: Row) -> bytes:
        complete: Object = {}
        for field, value in zip(self._fields, row, strict=True):
            around = complete
            for key in field.path[:-1]:
                around = around.setdefault(key, {})
            around[field.path[-1]] = value
        return msgspec.json.encode(complete) + b"\n"
