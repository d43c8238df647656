"""SVG charts, and times formatted as text.

Positions are percentages, so that scaling does not distort text.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial

from markupsafe import Markup, escape

from stopwise.reporting.wording import duration, number, percent, plural, short
from stopwise.service.dashboard.views import Pair, Period, mean_cost

SHADES = 16  # colours of arms in the style sheet
MIN_SLOTS = 3  # limits the width of a single bar

_percent = "{:.2%}".format
_utc = partial(datetime.fromtimestamp, tz=UTC)


def element(tag: str, *content: str, **attributes: str | int) -> Markup:
    """Return an element with its attributes (``class_`` for class); text is escaped."""
    pairs = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())
    text = "".join(f' {name}="{escape(value)}"' for name, value in pairs)
    return Markup(f"<{tag}{text}>{Markup().join(content)}</{tag}>")


def _shape(tag: str, names: str, kind: str, *positions: float, title: str = "") -> Markup:
    """Return a shape; positions are fractions of the area, and by default the shape fills it."""
    pairs = zip(names.split(), positions or (0, 1, 0, 1), strict=True)
    attributes = {name: _percent(position) for name, position in pairs}
    return element(tag, title, class_=kind, **attributes)


_rect = partial(_shape, "rect", "x width y height")
_line = partial(_shape, "line", "x1 x2 y1 y2")


def shade(arm: int, n_arms: int) -> str:
    """Return the CSS class of an arm's colour."""
    return f"depth-{math.floor((SHADES - 1) * arm / max(1, n_arms - 1) + 0.5)}"


def swatch(arm: int, n_arms: int) -> Markup:
    """Return a small square in the colour of an arm."""
    return element("svg", _rect(shade(arm, n_arms)), class_="swatch", aria_hidden="true")


def share_bar(arms: Sequence[str], stops: Sequence[int]) -> Markup:
    """Return a bar with the share of rounds that stopped at each arm."""
    parts = [_rect("groove")]
    left = 0.0
    for arm, n in enumerate(stops):
        if n:
            parts.append(_rect(shade(arm, len(arms)), left, n / sum(stops), 0, 1))
            left += n / sum(stops)
    label = f"Where rounds stop: {_shares(arms, stops)}"
    return element("svg", *parts, class_="shares", role="img", aria_label=label)


def _shares(arms: Sequence[str], stops: Sequence[int]) -> str:
    pairs = zip(arms, stops, strict=True)
    return ", ".join(f"{short(arm)} {percent(n / sum(stops))}" for arm, n in pairs if n)


def depth_chart(periods: Sequence[Period], arms: Sequence[str]) -> Markup:
    """Draw the share of rounds that stopped at each arm, and the number of rounds, by period."""
    most = max((p.rounds for p in periods), default=0) or 1
    width = 1 / max(len(periods), MIN_SLOTS)
    bars: list[Markup] = []
    volumes: list[Markup] = []
    for k, period in enumerate(periods):
        if not period.rounds:
            continue
        x = (k + 0.06) * width
        bar = 0.88 * width
        top = 1.0
        height = max(period.rounds / most, 0.04)
        title = _title(period, f"{plural(period.rounds, 'round')}; {_shares(arms, period.stops)}")
        volumes.append(_rect("volume", x, bar, 1 - height, height, title=title))
        pieces = [title]
        for arm, n in enumerate(period.stops):
            top -= n / period.rounds
            if n:
                pieces.append(_rect(shade(arm, len(arms)), x, bar, top, n / period.rounds))
        bars.append(element("g", *pieces))
    bars += _change_marks(periods, width)
    label = "Shares of rounds that stopped at each arm, over time; the table below has the numbers"
    shares = _chart(label, {0: "0 %", 0.5: "50 %", 1: "100 %"}, bars, "tall")
    return shares + _chart("Rounds over time", {1: f"{most:,}"}, volumes, "low", periods)


def cost_chart(periods: Sequence[Period], cumulative: Sequence[float], *, saved: bool) -> Markup:
    """Draw the mean cost of a round by period, and the cost of always running every arm."""
    deepest = cumulative[-1]
    top = 1.1 * deepest or 1.0
    width = 1 / max(len(periods), MIN_SLOTS)
    limit = 1 - deepest / top
    shapes: list[Markup] = []
    before = None
    for k, period in enumerate(periods):
        cost = mean_cost(period.stops, cumulative)
        y = None
        if cost is not None:
            y = 1 - cost / top
            high = limit if saved else y
            text = f"{number(cost)} per round, {plural(period.rounds, 'round')}"
            # Slightly too wide, to leave no gaps.
            shapes.append(_rect("saved", k * width, 1.02 * width, high, y - high))
            shapes.append(_line("line", k * width, (k + 1) * width, y, y))
            if before is not None:
                shapes.append(_line("line", k * width, k * width, before, y))
            shapes.append(_rect("tip", k * width, width, 0, 1, title=_title(period, text)))
        before = y
    shapes += [_line("limit", 0, 1, limit, limit), *_change_marks(periods, width)]
    label = f"Cost per round over time; always running the last arm costs {number(deepest)}"
    return _chart(label, {0: "0", 1 - limit: number(deepest)}, shapes, "tall alone", periods)


def _change_marks(periods: Sequence[Period], width: float) -> list[Markup]:
    """Return a line at every period with a change in disagreement."""
    marks: list[Markup] = []
    for k, period in enumerate(periods):
        if period.changes:
            text = f"{plural(period.changes, 'change')} in disagreement"
            x = k * width
            marks.append(_line("changed", x, x, 0, 1, title=_title(period, text)))
    return marks


def _title(period: Period, text: str) -> Markup:
    return element("title", f"{period_text(period.begin, period.end)}: {text}")


def pair_interval(pair: Pair, top: float) -> Markup:
    """Draw how often a pair disagreed, the interval of that share, and the pair's cost gap."""
    share = pair.share
    gap = pair.gap / top
    value, low, high = (min(v / top, 1) for v in (share.value, share.low, share.high))
    shapes = [_line("rule", 0, 1, 0.5, 0.5)]
    if gap <= 1:
        shapes.append(_line("limit", gap, gap, 0, 1))
    if pair.seen:
        shapes.append(_line("whisker", low, high, 0.5, 0.5))
        shapes.append(element("circle", class_="dot", cx=_percent(value), cy="50%", r=4))
    return element("svg", *shapes, class_="interval", aria_hidden="true")


def share_top(pairs: Iterable[Pair]) -> float:
    """Return the upper end of a common disagreement scale for these pairs, at most 1."""
    values = [0.01]
    for pair in pairs:
        values.append(pair.share.high if pair.seen >= 5 else pair.share.value)
        if pair.gap <= 1:
            values.append(pair.gap)
    return min(math.ceil(max(values) * 22) / 20, 1.0)


def _chart(
    name: str, ticks: dict[float, str], body: list[Markup], css: str, periods: Sequence[Period] = ()
) -> Markup:
    """Add axes to a chart: ticks on the left, and below it the start and end of the periods."""
    grid = [_line("rule", 0, 1, 1 - at, 1 - at) for at in ticks]
    labels = [
        element("text", text, x="100%", y=_percent(1 - at), dy=f"{0.7 * at:.2f}em")
        for at, text in ticks.items()
    ]
    left = element("svg", *labels, class_="up", aria_hidden="true")
    middle = element("svg", *grid, *body, class_="drawn", role="img", aria_label=name)
    below = ""
    if periods:
        begin, length = periods[0].begin, periods[0].end - periods[0].begin
        text = period_text(begin, begin + length * max(len(periods), MIN_SLOTS))
        times = [element("span", time) for time in text.removesuffix(" UTC").split(" to ")]
        below = element("p", *times, class_="along", aria_hidden="true")
    return element("div", left, middle, below, class_=f"chart {css}")


def when(time: float | None, now: float) -> Markup:
    """Return how long ago a time was; clocks differ, so a time in the future is "just now"."""
    if time is None:
        return Markup("–")
    text = "just now" if now - time < 2 else f"{span(int(now - time), 1)} ago"
    return element("time", text, datetime=f"{_utc(time):%Y-%m-%dT%H:%M:%SZ}", title=moment(time))


def span(seconds: float, parts: int = 2) -> str:
    """Return a duration as text; from one second to one minute, it has no decimals."""
    return f"{seconds:.0f} s" if 1 <= seconds < 60 else duration(seconds, parts)


def moment(time: float) -> str:
    """Return a date and time in UTC as text."""
    return f"{_utc(time):%Y-%m-%d %H:%M:%S} UTC"


@lru_cache(maxsize=4_096)  # a page repeats each text, also in its updates
def period_text(begin: float, end: float) -> str:
    """Return the start and end of a period as text."""
    first, last = _utc(begin), _utc(end)
    clock = "%H:%M:%S" if end - begin < 300 else "%H:%M"
    day = "" if first.date() == last.date() else f"{last.day} {last:%b} "
    return f"{first.day} {first:%b} {first:{clock}} to {day}{last:{clock}} UTC"
