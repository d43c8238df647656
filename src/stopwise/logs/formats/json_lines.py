"""Logs in JSON lines: one object per round, in which names that belong together are nested."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.errors import InvalidLogError
from stopwise.logs.cells import Cells, Use, describe_value, gather
from stopwise.logs.columns import Layout, Row, listed
from stopwise.logs.formats.lines import LineReader, LineWriter, Record, decode_lines
from stopwise.logs.problems import place

Object: TypeAlias = dict[str, Any]

# {"outputs": {"small": 1}} is what the column ``output.small`` is in a table.
GROUPS = {"outputs": "output", "costs": "cost"}

# What a later row may not have if the first does not: it would not be read.
OPTIONAL = ("label", "stop", "rule_stop", "failed", "revealed", "costs")

# What many programs write for a number that is none.
NOT_JSON = re.compile(r"[:,\[]\s*([+-]?(?:NaN|Infinity|nan|inf))\b")


class JsonLinesReader(LineReader):
    """A file of JSON lines. The first row names the columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        line, first = next(self._objects(), (0, None))
        if first is None:
            raise InvalidLogError(f"{path.name} has no rows")
        if isinstance(first, str):
            raise InvalidLogError(f"{path.name}, {place(0, line)}: {first}")
        self._paths = dict(_flat(first))
        self.names = tuple(self._paths)

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
        """Yield every row; what the first row has not would not be read, and is refused."""
        used = {self._paths[name][0] for name in layout.used}
        keys = used.union(OPTIONAL if "outputs" in used else ())
        known = set(self._paths.values())
        for line, row in self._objects():
            problem = None
            if not isinstance(row, str):
                held = {key: row[key] for key in keys if row.get(key) is not None}
                new = {".".join(path) for _, path in _flat(held) if path not in known}
                if new:
                    problem = f"has {listed(sorted(new))}, which the first row has not; give it in "
                    problem += "every row, null where unknown"
            yield line, problem or row

    def _columns(self, rows: Sequence[Any], layout: Layout) -> Callable[[str, Use], Cells]:
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

    def _encode(self, row: Row) -> bytes:
        complete: Object = {}
        for field, value in zip(self._fields, row, strict=True):
            around = complete
            for key in field.path[:-1]:
                around = around.setdefault(key, {})
            around[field.path[-1]] = value
        return msgspec.json.encode(complete) + b"\n"
