"""Compare the decisions of two versions of Stopwise.

``python -m tests.identical.compare A.jsonl B.jsonl`` reads two files of `tests.identical.play`. For
each spec it prints ``same`` or the first difference, and exits with 1 if there is any.
"""

import math
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from tests.identical.play import Record

PROBABILITY = 1e-11  # requests are written to 12 digits
RELATIVE, ABSOLUTE = 1e-8, 2e-9  # of estimates, which are written to 9 digits
BLOCK, SHIFT = 64, 0.01  # rounds that the change alarm tests at once; of a chance before or after


def first_difference(a: Record, b: Record) -> str | None:
    """Return the first difference of two records of a spec, or None."""
    if a.inputs != b.inputs:
        return "not comparable: the spec or its world has changed"
    return (
        _first("round, stop, rule stop", a.rounds, b.rounds)
        or _first("request", a.requests, b.requests)
        or _first("probe", a.probes, b.probes)
        or _first("counters", a.counters, b.counters)
        or _first("fixed decisions", [a.fixed], [b.fixed])
        or _first("change", a.changes, b.changes)
        or _first("estimate", sorted(a.estimates.items()), sorted(b.estimates.items()))
    )


def _first(what: str, a: Sequence[Any], b: Sequence[Any]) -> str | None:
    same = {"request": _same_request, "change": _same_change, "estimate": _same_estimate}
    for k, (mine, other) in enumerate(zip_longest(a, b)):
        if mine is None or other is None or not same.get(what, _equal)(mine, other):
            return f"{what} {k}: {_shown(mine)} | {_shown(other)}"
    return None


def _equal(a: Any, b: Any) -> bool:
    return a == b


def _same_request(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(abs(x - y) <= PROBABILITY for x, y in zip(a, b, strict=True))


def _same_change(a: Sequence[float], b: Sequence[float]) -> bool:
    """Compare the round, the pair, chances before and after, and the round of the alarm.

    The alarm works with chances in units of 1/10,000: a rounding may delay it by a block.
    """
    within = (BLOCK, 0, 0, SHIFT, SHIFT, BLOCK)
    return all(abs(x - y) <= most for x, y, most in zip(a, b, within, strict=True))


def _same_estimate(a: tuple[str, Any], b: tuple[str, Any]) -> bool:
    (pair, mine), (other_pair, other) = a, b
    if pair != other_pair or mine is None or other is None:
        return a == b
    return len(mine) == len(other) and all(
        math.isclose(x, y, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        for x, y in zip(mine, other, strict=True)
    )


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def read(path: Path) -> dict[str, Record]:
    """Read the records of a file by name."""
    lines = path.read_bytes().splitlines()
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    return {record.name: record for record in records}


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: python -m tests.identical.compare A.jsonl B.jsonl", file=sys.stderr)
        return 2
    a, b = read(Path(sys.argv[1])), read(Path(sys.argv[2]))
    different = 0
    for name in [*a, *(name for name in b if name not in a)]:
        if name in a and name in b:
            difference = first_difference(a[name], b[name])
        else:
            difference = f"only in {sys.argv[1] if name in a else sys.argv[2]}"
        different += difference is not None
        print(f"{name}: {difference or 'same'}")
    print(f"{different} of {len(a | b)} specs differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
