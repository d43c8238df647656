"""Format numbers, times, names and lists for reports, pages and messages."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from stopwise.text import shorten

if TYPE_CHECKING:  # it imports numpy, which would slow down the command line
    from stopwise.intervals import Interval

Value: TypeAlias = "str | float | int | Interval"

NOTHING = "–"
PERCENT = "\u00a0%"  # no line breaks before the sign
ROUNDING = 1e-12  # smaller numbers are rounding errors, written as 0
MAX_DECIMALS = 6
MAX_NAME_LENGTH = 40  # characters of a name in a sentence
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(n: int) -> str:
    """Write an integer: 7, 12,345, −3."""
    return _minus(f"{n:,}")


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Write a count with its noun: 1 round, 1,200 rounds, 2 entries."""
    return f"{count(n)} {noun if n == 1 else nouns or f'{noun}s'}"


def number(x: float, digits: int = 3) -> str:
    """Write a number with ``digits`` significant digits, or more to keep its whole part."""
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
    """Write a share with its interval, rounded to the precision of the interval."""
    value, limits = percent_and_limits(share)
    return f"{value} ({limits})" if limits else value


def percent_and_limits(share: "Interval") -> tuple[str, str]:
    """Write a share and its interval: "6.1 %" and "5.8 to 6.4", or "" if low equals high."""
    if share.low == share.high:
        return percent(share.value), ""
    margin = 50 * (share.high - share.low)  # in percentage points
    decimals = 0 if margin >= 2 else 1 if margin >= 0.1 else 2
    low, high = _fixed(100 * share.low, decimals), _fixed(100 * share.high, decimals)
    return _fixed(100 * share.value, decimals) + PERCENT, f"{low} to {high}"


def number_interval(interval: "Interval") -> str:
    """Write a number with its interval, rounded to the precision of the interval."""
    mean, low, high = interval.value, interval.low, interval.high
    margin = (high - low) / 2
    if not (math.isfinite(mean) and math.isfinite(margin)):
        return number(mean, 4)
    certain = margin <= ROUNDING * max(1.0, abs(mean))
    if not certain and abs((high + low) / 2 - mean) > 0.01 * margin:  # ± would mislead
        decimals = _decimals(margin)
        if decimals <= MAX_DECIMALS:
            limits = f"[{_fixed(low, decimals)}, {_fixed(high, decimals)}]"
            return f"{_fixed(mean, decimals)} {limits}"
    return " ± ".join(number_and_margin(mean, margin))


def number_and_margin(value: float, margin: float) -> tuple[str, str]:
    """Write a number and its margin of error, rounded to the precision of the margin."""
    if margin <= ROUNDING * max(1.0, abs(value)):
        return number(value, 4), "0"
    decimals = _decimals(margin)
    if decimals > MAX_DECIMALS:
        return _minus(f"{value:.3g}"), f"{margin:.2g}"
    return _fixed(value, decimals), _fixed(margin, decimals)


def format_value(value: Value) -> str:
    """Write the value of a table cell."""
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
    remaining = round(seconds)
    counts: list[tuple[int, str]] = []
    for size, unit in UNITS:
        if remaining >= size or counts:
            counts.append((remaining // size, unit))
            remaining %= size
    counts = counts[:parts]
    while counts[-1][0] == 0:
        counts.pop()
    return " ".join(f"{n} {unit}" for n, unit in counts)


def join_list(words: Sequence[str]) -> str:
    """Join words for a sentence: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plain(name: str) -> str:
    """Return a name on one line, with printable characters only."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def short(name: str, longest: int = MAX_NAME_LENGTH) -> str:
    """Return a name on one line, truncated to ``longest`` characters."""
    return shorten(plain(name), longest)


def code(name: str, longest: int = MAX_NAME_LENGTH) -> str:
    """Return a name as inline code, in the markup of `pages.inline`."""
    return f"`{short(name, longest).replace('`', chr(39)) or '?'}`"


def _decimals(margin: float) -> int:
    """Return the number of decimals that show two significant digits of a margin."""
    return max(0, 1 - math.floor(math.log10(margin)))


def _fixed(x: float, decimals: int) -> str:
    text = f"{x:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else _minus(text)


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.startswith("-") else text
