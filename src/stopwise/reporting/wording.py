"""How numbers, times, names and lists are written: in reports, on pages, in messages."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from stopwise.text import shorten

if TYPE_CHECKING:  # it loads numpy, which the command line can do without
    from stopwise.intervals import Interval

Value: TypeAlias = "str | float | int | Interval"

NOTHING = "–"
PERCENT = "\u00a0%"  # no line breaks before the sign
ROUNDING = 1e-12  # anything smaller is rounding error, written as 0
MAX_DECIMALS = 6
MAX_NAME_LENGTH = 40  # letters of a name in a sentence
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(n: int) -> str:
    """Write an integer: 7, 12,345, −3."""
    return _minus(f"{n:,}")


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Write how many there are of something: 1 round, 1,200 rounds, 2 entries."""
    return f"{count(n)} {noun if n == 1 else nouns or f'{noun}s'}"


def number(x: float, digits: int = 3) -> str:
    """Write a number with ``digits`` significant digits, or with all before the decimal point."""
    if not math.isfinite(x):
        return NOTHING
    if abs(x) < ROUNDING:
        return "0"
    if abs(x) < 1e-6:
        return _minus(f"{x:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{decimals}f}"
    return _minus(text.rstrip("0").removesuffix(".") if decimals else text)


def percent(share: float) -> str:
    """Write a share as a percentage: 49 %, 6.1 %, 0.04 %, 99.7 %."""
    if not math.isfinite(share):
        return NOTHING
    value = 100.0 * abs(share)
    decimals = 1
    if value < ROUNDING or 9.95 <= value < 99 or value >= 99.95:
        decimals = 0
    elif value < 0.095:
        decimals = -math.floor(math.log10(value))
    return _fixed(math.copysign(value, share), decimals) + PERCENT


def percent_interval(share: "Interval") -> str:
    """Write a share with its interval, with the decimals that the interval leaves certain."""
    value, ends = percent_and_ends(share)
    return f"{value} ({ends})" if ends else value


def percent_and_ends(share: "Interval") -> tuple[str, str]:
    """Write a share, and the ends of its interval: "6.1 %" and "5.8 to 6.4" ("" if certain)."""
    if share.low == share.high:
        return percent(share.value), ""
    reach = 50 * (share.high - share.low)  # in percentage points
    decimals = 0 if reach >= 2 else 1 if reach >= 0.1 else 2
    low, high = _fixed(100 * share.low, decimals), _fixed(100 * share.high, decimals)
    return _fixed(100 * share.value, decimals) + PERCENT, f"{low} to {high}"


def number_interval(interval: "Interval") -> str:
    """Write a number with its interval, with the digits that the interval leaves certain."""
    mean, low, high = interval.value, interval.low, interval.high
    reach = (high - low) / 2
    if not (math.isfinite(mean) and math.isfinite(reach)):
        return number(mean, 4)
    certain = reach <= ROUNDING * max(1.0, abs(mean))
    if not certain and abs((high + low) / 2 - mean) > 0.01 * reach:  # ± would mislead
        decimals = _decimals(reach)
        if decimals <= MAX_DECIMALS:
            ends = _fixed(low, decimals), _fixed(high, decimals)
            return f"{_fixed(mean, decimals)} [{ends[0]}, {ends[1]}]"
    return " ± ".join(number_and_reach(mean, reach))


def number_and_reach(value: float, reach: float) -> tuple[str, str]:
    """Write a number and how far its interval reaches to both sides, with the digits certain."""
    if reach <= ROUNDING * max(1.0, abs(value)):
        return number(value, 4), "0"
    decimals = _decimals(reach)
    if decimals > MAX_DECIMALS:
        return _minus(f"{value:.3g}"), f"{reach:.2g}"
    return _fixed(value, decimals), _fixed(reach, decimals)


def format_value(value: Value) -> str:
    """Write a cell of a table."""
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case int():
            return count(value)
        case float():
            return number(value, 4)
        case _:
            return number_interval(value)


def duration(seconds: float, parts: int = 2) -> str:
    """Write a time span in its largest units: 7.4 s, 2 min, 1 min 1 s, 2 h 2 min."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rest, counts = round(seconds), list[tuple[int, str]]()
    for size, unit in UNITS:
        if rest >= size or counts:
            counts.append((rest // size, unit))
            rest %= size
    counts = counts[:parts]
    while counts[-1][0] == 0:
        counts.pop()
    return " ".join(f"{n} {unit}" for n, unit in counts)


def join_list(words: Sequence[str]) -> str:
    """Join words as a sentence does: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plain(name: str) -> str:
    """Return a name on one line, with only characters that can be printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def short(name: str, longest: int = MAX_NAME_LENGTH) -> str:
    """Return a name on one line, cut if it is too long."""
    return shorten(plain(name), longest)


def code(name: str, longest: int = MAX_NAME_LENGTH) -> str:
    """Return a name as code, in the markup that pages take."""
    return f"`{short(name, longest).replace('`', chr(39)) or '?'}`"


def _decimals(reach: float) -> int:
    """Return the decimals that show two digits of the reach of an interval."""
    return max(0, 1 - math.floor(math.log10(reach)))


def _fixed(x: float, decimals: int) -> str:
    text = f"{x:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else _minus(text)


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.startswith("-") else text
