"""Logs in JSON lines: one object a round, in which names that belong together are nested."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.errors import InvalidLogError
from stopwise.logs.cells import Cells, Use, gather, shown
from stopwise.logs.columns import Layout
from stopwise.logs.lines import decoded, grouped
from stopwise.logs.problems import NoRowsError, place

Record: TypeAlias = dict[str, Any]

# {"outputs": {"small": 1}} is what the column ``output.small`` is in a table.
GROUPS = {"outputs": "output", "costs": "cost"}

# Objects that must name the same things in every row, and those that may leave some out.
ALL, SOME = ("context", "outputs"), ("revealed", "costs")
# What a later row may not have if the first has not: it would go unread.
OPTIONAL = ("label", "stop", "wanted", "failed", *SOME)

# What many programs write for a number that is none.
NOT_JSON = re.compile(r"[:,\[]\s*([+-]?(?:NaN|Infinity|nan|inf))\b")


class JsonLines:
    """A file of JSON lines, read a few rows at a time. The first row tells the columns."""

    rows: int | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        first = next(self._objects(), None)
        if first is None:
            raise NoRowsError(f"{path.name} has no rows")
        self._first = first[1]
        columns = list(_flat(first[1]))
        self.names: tuple[str, ...] = tuple(name for name, _ in columns)
        self._paths = dict(columns)

    def describe(self) -> str:
        """Tell the columns, for the fingerprint."""
        return repr(self.names)

    def batches(self, layout: Layout, size: int, start: int) -> Iterator["JsonBatch"]:
        """Yield all rows from number ``start`` on, up to ``size`` at a time."""
        first = start
        for lines, rows in grouped(islice(self._records(layout), start, None), size):
            yield JsonBatch(first, lines, rows, self._paths)
            first += len(rows)

    def _objects(self) -> Iterator[tuple[int, Record]]:
        """Yield every row with its line."""
        decoder = msgspec.json.Decoder()
        number = 0
        with self._path.open("rb") as file:
            for line, text in enumerate(decoded(file, self._path.name), 1):
                if text.isspace():
                    continue
                try:
                    row = decoder.decode(text)
                except msgspec.DecodeError as error:
                    odd = NOT_JSON.search(text)
                    reason = (
                        f"{odd[1]} is no number in JSON; write null, or leave the row out"
                        if odd
                        else f"{error}; is the line cut off?"
                    )
                    raise InvalidLogError(
                        f"{place(self._path.name, number, line)} is not JSON: {reason}"
                    ) from error
                if not isinstance(row, dict):
                    raise InvalidLogError(
                        f"{place(self._path.name, number, line)} is {shown(row)}; each line must "
                        "be an object, {…}"
                    )
                yield line, cast("Record", row)
                number += 1

    def _records(self, layout: Layout) -> Iterator[tuple[int, Record]]:
        """Yield every row, once its names are found to be those of the first."""
        used = {self._paths[name][0] for name in layout.used}
        same = {key: set(cast("Record", self._first[key])) for key in ALL if key in used}
        some = [key for key in SOME if key in used]
        absent = [key for key in OPTIONAL if "outputs" in used and key not in self._first]
        for number, (line, row) in enumerate(self._objects()):
            for key, names in same.items():
                found = row.get(key)
                if not isinstance(found, dict) or found.keys() != names:
                    raise InvalidLogError(
                        f"{place(self._path.name, number, line)}: {_difference(key, found, names)}"
                    )
            new = [key for key in absent if row.get(key) is not None]
            for key in some:
                if row.get(key) is not None:
                    named = _flat({key: row[key]})
                    new += [".".join(path) for name, path in named if name not in self._paths]
            if new:
                raise InvalidLogError(
                    f"{place(self._path.name, number, line)} has {', '.join(map(repr, new))}, "
                    "which the first row has not; give it in every row, null where unknown"
                )
            yield line, row


class JsonBatch:
    """A few rows of a file of JSON lines."""

    def __init__(
        self,
        first: int,
        lines: Sequence[int],
        rows: Sequence[Record],
        paths: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.first = first
        self.n = len(rows)
        self._lines = lines
        self._paths = paths
        self._found: dict[tuple[str, ...], Sequence[Any]] = {(): rows}

    def line(self, row: int) -> int:
        """Return the line of a row, from 1."""
        return self._lines[row]

    def cells(self, column: str, use: Use) -> Cells:
        """Return a column; what it is used for makes no difference here."""
        return gather(self._values(self._paths[column]))

    def _values(self, path: tuple[str, ...]) -> Sequence[Any]:
        """Return what all rows have at a path; None where they have nothing."""
        if path not in self._found:
            key = path[-1]
            self._found[path] = [
                cast("Record", around).get(key) if isinstance(around, dict) else None
                for around in self._values(path[:-1])
            ]
        return self._found[path]


def _flat(
    value: Record, prefix: str = "", path: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name that each value would have in a table, and where it is."""
    for key, inner in value.items():
        name = prefix + (GROUPS.get(key, key) if isinstance(inner, dict) and not path else key)
        if isinstance(inner, dict):
            yield from _flat(cast("Record", inner), f"{name}.", (*path, key))
        else:
            yield name, (*path, key)


def _difference(key: str, found: Any, names: set[str]) -> str:
    if not isinstance(found, dict):
        return f"{key!r} must be an object with {', '.join(sorted(map(repr, names)))}"
    given = cast("Record", found)
    lacks = sorted(names - given.keys())
    more = sorted(given.keys() - names)
    said = [f"lacks {', '.join(map(repr, lacks))}"] if lacks else []
    said += [f"has {', '.join(map(repr, more))}, which the first row has not"] if more else []
    return f"{key!r} {' and '.join(said)}; every row must have all, null where there is none"
