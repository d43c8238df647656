"""How the dashboard words times, counts and sizes."""

from datetime import UTC, datetime
from functools import lru_cache

MINUTE, HOUR, DAY = 60, 3_600, 86_400
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def count(n: int) -> str:
    """Word a whole number.

    Examples
    --------
    >>> count(1234567)
    '1,234,567'
    """
    return f"{n:,}"


def counted(n: int, one: str, many: str = "") -> str:
    """Word a number of things.

    Examples
    --------
    >>> counted(1, "decision"), counted(2500, "decision"), counted(0, "pass", "passes")
    ('1 decision', '2,500 decisions', '0 passes')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def ago(seconds: float) -> str:
    r"""Word how long ago something was; a little in the future is now (clocks differ).

    Examples
    --------
    >>> ago(0.4), ago(31), ago(150), ago(7300), ago(200_000)
    ('just now', '31\xa0s ago', '2\xa0min ago', '2\xa0h ago', '2\xa0days ago')
    """
    if seconds < 2:
        return "just now"
    if seconds < MINUTE:
        return f"{seconds:.0f}\xa0s ago"
    if seconds < HOUR:
        return f"{seconds // MINUTE:.0f}\xa0min ago"
    if seconds < DAY:
        return f"{seconds // HOUR:.0f}\xa0h ago"
    days = int(seconds // DAY)
    return f"{days:,}\xa0{'day' if days == 1 else 'days'} ago"


def moment(time: float) -> str:
    """Word a time, given in seconds since 1970.

    Examples
    --------
    >>> moment(1_700_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    return f"{_utc(time):%Y-%m-%d %H:%M:%S} UTC"


def machine(time: float) -> str:
    """Write a time for programs.

    Examples
    --------
    >>> machine(1_700_000_000)
    '2023-11-14T22:13:20Z'
    """
    return f"{_utc(time):%Y-%m-%dT%H:%M:%SZ}"


def day(time: float) -> str:
    """Word the day of a time.

    Examples
    --------
    >>> day(1_700_000_000)
    '14 Nov'
    """
    there = _utc(time)
    return f"{there.day} {MONTHS[there.month - 1]}"


def tick(time: float, step: float) -> str:
    """Word a tick of an axis whose ticks are a step apart.

    Examples
    --------
    >>> tick(1_700_000_040, 60), tick(1_700_000_040, 10), tick(1_699_920_000, 3600)
    ('22:14', '22:14:00', '14 Nov')
    >>> tick(1_699_920_000, 86_400 * 365)
    'Nov 2023'
    """
    there = _utc(time)
    if step >= 91 * DAY:
        return f"{MONTHS[there.month - 1]} {there.year}"
    if step >= DAY or (there.hour == there.minute == there.second == 0):
        return day(time)
    return f"{there:%H:%M:%S}" if step < MINUTE else f"{there:%H:%M}"


@lru_cache(maxsize=4_096)  # a page says each several times, and again when it is refreshed
def stretch(begin: float, end: float) -> str:
    """Word a stretch of time, its end left out where that is the same day.

    Examples
    --------
    >>> stretch(1_700_000_000, 1_700_000_300), stretch(1_700_000_000, 1_700_400_000)
    ('14 Nov 22:13 to 22:18 UTC', '14 Nov 22:13 to 19 Nov 13:20 UTC')
    >>> stretch(1_700_000_000, 1_700_000_020)
    '14 Nov 22:13:20 to 22:13:40 UTC'
    """
    first, last = _utc(begin), _utc(end)
    form = "%H:%M:%S" if end - begin < 5 * MINUTE else "%H:%M"
    to = "" if first.date() == last.date() else f"{day(end)} "
    return f"{day(begin)} {first:{form}} to {to}{last:{form}} UTC"


def lasting(seconds: float) -> str:
    r"""Word how long something is.

    Examples
    --------
    >>> lasting(0.04), lasting(10), lasting(160), lasting(7200), lasting(172_800)
    ('0.0\xa0s', '10\xa0s', '2.7\xa0min', '2\xa0h', '2\xa0days')
    """
    if seconds < MINUTE:
        return f"{seconds:.{0 if seconds >= 10 else 1}f}\xa0s"
    unit, long = ("min", MINUTE) if seconds < HOUR else ("h", HOUR)
    if seconds >= 2 * DAY:
        unit, long = "days", DAY
    return f"{seconds / long:.1f}".removesuffix(".0") + f"\xa0{unit}"


def size(n: int) -> str:
    r"""Word a number of bytes.

    Examples
    --------
    >>> size(812), size(48_300), size(3_480_000), size(12_000_000_000)
    ('812\xa0bytes', '48\xa0kB', '3.5\xa0MB', '12\xa0GB')
    """
    if n < 1_000:
        return f"{n}\xa0bytes"
    power = next((k for k in (1, 2) if n < 999.5 * 1_000**k), 3)
    value = n / 1_000**power
    return f"{value:,.{1 if value < 9.95 else 0}f}\xa0{('kB', 'MB', 'GB')[power - 1]}"


def _utc(time: float) -> datetime:
    return datetime.fromtimestamp(time, UTC)
