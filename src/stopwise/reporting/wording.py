"""How numbers, times, names and lists are written: in reports, on pages, in messages."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # it loads numpy, which the command line can do without
    from stopwise.experiments.summary import Interval

Value: TypeAlias = "str | float | int | Interval"

NOTHING = "–"
PERCENT = "\u00a0%"  # no line breaks before the sign
ROUNDING = 1e-12  # what is smaller is rounding error, and is written as 0
LONGEST = 40  # letters of a name in a sentence
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(n: int) -> str:
    """Write a whole number.

    Examples
    --------
    >>> count(7), count(12345), count(-3)
    ('7', '12,345', '−3')
    """
    return _minus(f"{n:,}")


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Write how many there are of something.

    Examples
    --------
    >>> plural(1, "round"), plural(1200, "round"), plural(2, "entry", "entries")
    ('1 round', '1,200 rounds', '2 entries')
    """
    return f"{count(n)} {noun if n == 1 else nouns or f'{noun}s'}"


def number(x: float, digits: int = 3) -> str:
    """Write a number with so many digits, or with all before the decimal point.

    Examples
    --------
    >>> number(0.24712), number(247.12), number(12345.6), number(-0.005), number(0.0)
    ('0.247', '247', '12,346', '−0.005', '0')
    >>> number(5.55e-17), number(2e-7), number(float("nan"))
    ('0', '2e-07', '–')
    """
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
    r"""Write a share as a percentage.

    Examples
    --------
    >>> percent(0.4912), percent(0.0612), percent(0.00041), percent(0.9971), percent(0.0)
    ('49\xa0%', '6.1\xa0%', '0.04\xa0%', '99.7\xa0%', '0\xa0%')
    """
    if not math.isfinite(share):
        return NOTHING
    value = 100.0 * abs(share)
    decimals = 1
    if value < ROUNDING or 9.95 <= value < 99 or value >= 99.95:
        decimals = 0
    elif value < 0.095:
        decimals = -math.floor(math.log10(value))
    return _fixed(math.copysign(value, share), decimals) + PERCENT


def interval(low: float, high: float) -> str:
    """Write the two ends of an interval; nothing where they are one.

    Examples
    --------
    >>> interval(0.2401, 0.26), interval(1.0, 1.0)
    ('0.24 to 0.26', '')
    """
    return "" if low == high else f"{number(low)} to {number(high)}"


def percent_interval(share: float, low: float, high: float) -> str:
    r"""Write a share with its interval, with the decimals that the interval leaves certain.

    Examples
    --------
    >>> percent_interval(0.061, 0.058, 0.064), percent_interval(0.5, 0.5, 0.5)
    ('6.1\xa0% (5.8 to 6.4)', '50\xa0%')
    """
    if low == high:
        return percent(share)
    reach = 50 * (high - low)  # in percentage points
    decimals = 0 if reach >= 2 else 1 if reach >= 0.1 else 2
    value, first, last = (_fixed(100 * end, decimals) for end in (share, low, high))
    return f"{value}{PERCENT} ({first} to {last})"


def estimate(mean: float, low: float, high: float) -> str:
    """Write a mean with its interval, with the digits that the interval leaves certain.

    Examples
    --------
    >>> estimate(123.456, 122.2, 124.712), estimate(0.5, 0.2, 0.6), estimate(0.7, 0.7, 0.7)
    ('123.5 ± 1.3', '0.50 [0.20, 0.60]', '0.7 ± 0')
    """
    reach = (high - low) / 2
    if not (math.isfinite(mean) and math.isfinite(reach)):
        return number(mean, 4)
    if reach <= ROUNDING * max(1.0, abs(mean)):
        return f"{number(mean, 4)} ± 0"
    decimals = _decimals(reach)
    if decimals > 6:
        return f"{_minus(f'{mean:.3g}')} ± {reach:.2g}"
    if abs((high + low) / 2 - mean) > 0.01 * reach:  # not symmetric: ± would mislead
        return "{} [{}, {}]".format(*(_fixed(end, decimals) for end in (mean, low, high)))
    return f"{_fixed(mean, decimals)} ± {_fixed(reach, decimals)}"


def format_value(value: Value) -> str:
    """Write a cell of a table.

    Examples
    --------
    >>> format_value(0.06923), format_value(20000), format_value(float("nan")), format_value("a")
    ('0.06923', '20,000', '–', 'a')
    """
    match value:
        case str():
            return value
        case tuple():
            return estimate(*value[:3])
        case bool():
            return "yes" if value else "no"
        case int():
            return count(value)
        case _:
            return number(value, 4)


def hint(value: Value) -> str:
    """Return what `format_value` leaves out of a mean: its interval and the number of values.

    Examples
    --------
    >>> from stopwise.experiments.summary import Interval
    >>> hint(Interval(2.0, 1.5, 2.5, 100)), hint(2.0)
    ('95 % confidence interval 1.50 to 2.50, mean of 100', '')
    """
    if not isinstance(value, tuple) or not math.isfinite(value.mean):
        return ""
    if not math.isfinite(value.high - value.low):
        return "one value: no interval"
    decimals = _decimals(value.high - value.low) + 1
    low, high = (_fixed(end, decimals) for end in (value.low, value.high))
    return f"95 % confidence interval {low} to {high}, mean of {value.n}"


def duration(seconds: float, parts: int = 2) -> str:
    """Write a time span, in its largest units.

    Examples
    --------
    >>> duration(7.44), duration(61), duration(7322), duration(200_000), duration(7322, parts=1)
    ('7.4 s', '1 min 1 s', '2 h 2 min', '2 d 7 h', '2 h')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    rest, written = round(seconds), list[str]()
    for size, unit in UNITS:
        if rest >= size or written:
            written.append(f"{rest // size} {unit}")
            rest %= size
    return " ".join(written[:parts])


def clock(seconds: float) -> str:
    """Write a time span as a clock does.

    Examples
    --------
    >>> clock(7.4), clock(61), clock(7322)
    ('0:07', '1:01', '2:02:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def listed(words: Sequence[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def plain(name: str) -> str:
    r"""Return a name on one line, with only characters that can be printed.

    Examples
    --------
    >>> plain("a\nb\x00")
    'a b'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def short(name: str, longest: int = LONGEST) -> str:
    """Return a name, cut if it is too long.

    Examples
    --------
    >>> short("a-very-long-name-indeed", 12)
    'a-very-long…'
    """
    name = plain(name)
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def code(name: str, longest: int = LONGEST) -> str:
    """Return a name as code, in the markup that pages take.

    Examples
    --------
    >>> code("glucose")
    '`glucose`'
    """
    return f"`{short(name, longest).replace('`', chr(39)) or '?'}`"


def _decimals(reach: float) -> int:
    """Return the decimals that leave two digits of a width."""
    return max(0, 1 - math.floor(math.log10(reach))) if reach > 0.0 else 3


def _fixed(x: float, decimals: int) -> str:
    text = f"{x:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else _minus(text)


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.startswith("-") else text
