"""Reading and writing logs in JSON lines, one object per round."""

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

# {"outputs": {"small": 1}} corresponds to the column ``output.small`` of a table.
GROUPS = {"outputs": "output", "costs": "cost"}

# Objects with the same keys in every row, and objects in which keys may be missing.
COMPLETE = ("context", "outputs")
PARTIAL = ("revealed", "costs", "right")
# Fields that the first row must have if a later row has them: others would not be read.
OPTIONAL = ("label", "stop", "rule_stop", "failed", *PARTIAL)

# NaN and infinity as many programs write them.
NOT_JSON = re.compile(r"[:,\[]\s*([+-]?(?:NaN|Infinity|nan|inf))\b")


class JsonLinesReader:
    """Reads JSON lines; the first row defines the columns."""

    rows: int | None = None  # unknown in JSON lines
    once = False

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
        """Yield every row with its line number."""
        decoder = msgspec.json.Decoder()
        with self._path.open("rb") as file:
            for line, text in enumerate(decode_lines(file, self._path.name), 1):
                if text.isspace():
                    continue
                try:
                    row = decoder.decode(text)
                except msgspec.DecodeError as error:
                    reason = f"{error}; check for a truncated line"
                    if number := NOT_JSON.search(text):
                        reason = f"{number[1]} is not valid in JSON; write null, or drop the row"
                    yield line, f"is not JSON: {reason}"
                    continue
                if isinstance(row, dict):
                    yield line, row
                else:
                    yield line, f"is {describe_value(row)}; each line must be a JSON object"

    def _records(self, layout: Layout) -> Iterator[Record]:
        """Yield every row, checked against the keys of the first row."""
        used = {self._paths[name][0] for name in layout.used}
        complete = {key: set(cast("Object", self._first[key])) for key in COMPLETE if key in used}
        partial = [key for key in PARTIAL if key in used]
        absent = [key for key in OPTIONAL if "outputs" in used and key not in self._first]
        for line, row in self._objects():
            if isinstance(row, str):
                yield line, row
            else:
                yield line, self._key_error(row, complete, partial, absent) or row

    def _key_error(
        self, row: Object, complete: dict[str, set[str]], partial: list[str], absent: list[str]
    ) -> str | None:
        """Return how the keys of a row differ from those of the first row; None if they fit."""
        for key, names in complete.items():
            group = row.get(key)
            if not isinstance(group, dict) or cast("Object", group).keys() != names:
                return (
                    f"{key!r} must be an object with the keys {quoted(sorted(names))}, as in the "
                    "first row; write null for missing values"
                )
        new = [key for key in absent if row.get(key) is not None]
        for key in partial:
            if row.get(key) is not None:
                named = _flat({key: row[key]})
                new += [".".join(path) for name, path in named if name not in self._paths]
        if not new:
            return None
        return (
            f"has {quoted(sorted(new))}, but the first row does not; add the same keys to the "
            "first row, with null for unknown values"
        )

    def _cells_of(self, rows: Sequence[Any]) -> CellReader:
        by_path: dict[tuple[str, ...], Sequence[Any]] = {(): rows}

        def values(path: tuple[str, ...]) -> Sequence[Any]:
            """Return the value at a path in every row; None if the row has none."""
            if path not in by_path:
                by_path[path] = [
                    cast("Object", parent).get(path[-1]) if isinstance(parent, dict) else None
                    for parent in values(path[:-1])
                ]
            return by_path[path]

        return lambda column, use: gather(values(self._paths[column]), use)


def _flat(
    value: Object, prefix: str = "", path: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each value as a column of a table, and its path in the object."""
    for key, inner in value.items():
        name = prefix + (GROUPS.get(key, key) if isinstance(inner, dict) and not path else key)
        if isinstance(inner, dict):
            yield from _flat(cast("Object", inner), f"{name}.", (*path, key))
        else:
            yield name, (*path, key)


class JsonLinesWriter(LineWriter):
    """Writes JSON lines."""

    def _existing_names(self) -> list[str]:
        return list(JsonLinesReader(self._path).names)

    def _is_complete(self, line: bytes) -> bool:
        with suppress(msgspec.DecodeError):
            return isinstance(msgspec.json.decode(line), dict)
        return False

    def _encode(self, row: Row) -> bytes:
        complete: Object = {}
        for field, value in zip(self._fields, row, strict=True):
            parent = complete
            for key in field.path[:-1]:
                parent = parent.setdefault(key, {})
            parent[field.path[-1]] = value
        return msgspec.json.encode(complete) + b"\n"
