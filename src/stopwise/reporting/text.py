"""How a report words values and text, whatever its format."""

import math
import re
from typing import Literal, NamedTuple, TypeAlias

from stopwise.experiments.summary import Interval
from stopwise.reporting.parts import Table, Value

Kind: TypeAlias = Literal["text", "code", "emphasis"]

NOTHING = "–"
# An asterisk between letters or figures, as in 2*3*4, is a sign of its own.
INLINE = re.compile(r"`(?P<code>[^`]+)`|(?<![\w*])\*(?=\S)(?P<emphasis>[^*]+)(?<=\S)\*(?![\w*])")
ROUNDING = 1e-12  # a mean of equal numbers has an interval as wide as its last bits


class Span(NamedTuple):
    """A piece of text and how it is set."""

    kind: Kind
    text: str


def paragraphs(text: str) -> list[str]:
    r"""Cut a text at its blank lines.

    Examples
    --------
    >>> paragraphs("One\nline.\n\nAnother. ")
    ['One line.', 'Another.']
    """
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def spans(text: str) -> list[Span]:
    """Find the code and the emphasis in a text. There is no other markup.

    Examples
    --------
    >>> [span.kind for span in spans("Run `a*b*c` *twice*, 2 * 3 * 4 times.")]
    ['text', 'code', 'text', 'emphasis', 'text']
    """
    found: list[Span] = []
    end = 0
    for match in INLINE.finditer(text):
        found.append(Span("text", text[end : match.start()]))
        code, emphasis = match["code"], match["emphasis"]
        found.append(Span("emphasis", emphasis) if code is None else Span("code", code))
        end = match.end()
    found.append(Span("text", text[end:]))
    return [span for span in found if span.text]


def shown(value: Value) -> str:
    """Word a value: as many digits as mean something, and a dash where there is no number.

    Examples
    --------
    >>> shown(Interval(123.456, 122.2, 124.712, 100)), shown(0.06923), shown(float("nan"))
    ('123.5 ± 1.3', '0.06923', '–')
    """
    match value:
        case str():
            return value
        case Interval():
            return _interval(value)
        case bool():
            return "yes" if value else "no"
        case int():
            return _signed(f"{value:,}" if abs(value) >= 10_000 else str(value))
        case _:
            return _number(value)


def hint(value: Value) -> str:
    """Return what `shown` leaves out of a mean: its interval, and how many values are behind it.

    Examples
    --------
    >>> hint(Interval(2.0, 1.5, 2.5, 100))
    '95 % confidence interval 1.50 to 2.50, mean of 100'
    """
    if not isinstance(value, Interval) or not math.isfinite(value.mean):
        return ""
    if not (math.isfinite(value.low) and math.isfinite(value.high)):
        return "one value: no interval"
    digits = _decimals(value.high - value.low) + 1
    low, high = (_fixed(end, digits) for end in (value.low, value.high))
    return f"95 % confidence interval {low} to {high}, mean of {value.n}"


def numeric_columns(table: Table) -> list[bool]:
    """Say which columns hold numbers only, to be set flush right.

    Examples
    --------
    >>> numeric_columns(Table("t", "T", ("case", "ξ"), (("first", 0.5), ("second", "–"))))
    [False, True]
    """
    return [
        all(not isinstance(row[k], str) or row[k] == NOTHING for row in table.rows)
        for k in range(len(table.columns))
    ]


def duration(seconds: float) -> str:
    """Word a time.

    Examples
    --------
    >>> duration(7.44), duration(61), duration(7322)
    ('7.4 s', '1 min 1 s', '2 h 2 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _interval(value: Interval) -> str:
    mean, low, high, _ = value
    if not (math.isfinite(mean) and math.isfinite(low) and math.isfinite(high)):
        return _number(mean)
    reach = (high - low) / 2
    if reach <= ROUNDING * abs(mean):
        return f"{_number(mean)} ± 0"
    digits = _decimals(reach)
    if digits > 6:
        return f"{_signed(f'{mean:.3g}')} ± {reach:.2g}"
    if abs((high + low) / 2 - mean) > 0.01 * reach:  # lopsided: ± would mislead
        return f"{_fixed(mean, digits)} [{_fixed(low, digits)}, {_fixed(high, digits)}]"
    return f"{_fixed(mean, digits)} ± {_fixed(reach, digits)}"


def _decimals(reach: float) -> int:
    """Return the decimals that leave two digits of a width."""
    return max(0, 1 - math.floor(math.log10(reach))) if reach > 0.0 else 3


def _fixed(value: float, decimals: int) -> str:
    comma = "," if abs(value) >= 10_000 else ""
    text = f"{value:{comma}.{decimals}f}"
    return _signed(text.removeprefix("-") if float(text.replace(",", "")) == 0.0 else text)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return NOTHING
    if 10_000 <= abs(value) < 1e15:
        return _signed(f"{value:,.0f}")
    return _signed(f"{value + 0.0:.4g}")


def _signed(text: str) -> str:
    return "−" + text[1:] if text.startswith("-") else text
