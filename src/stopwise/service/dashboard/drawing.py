"""Pictures as SVG, made on the server.

They stretch with the page while letters keep their size: what must stretch is placed in per cent
or drawn in a box of its own that may be distorted. Colours are classes of the style sheet, for
light and dark; no style is written inline, which the pages' security policy forbids.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from stopwise.logs.diagnosis.findings import Estimate
from stopwise.logs.diagnosis.intervals import wilson
from stopwise.logs.diagnosis.words import amount, percent, short
from stopwise.service.dashboard import words
from stopwise.service.dashboard.values import Pair, Stretch

LEVELS = 16  # shades of depth in the style sheet
FEWEST_SLOTS = 3  # one bar alone is not as wide as the page
BOX = 1_000.0  # width and height of a box whose contents are distorted to fit
STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * m for m in (1, 2, 5, 10, 15, 30)),
    *(3_600 * h for h in (1, 2, 3, 6, 12)),
    *(86_400 * d for d in (1, 2, 4, 7, 14, 28, 56, 91, 182, 365, 730, 1_826, 3_652)),
)


class Tick(NamedTuple):
    """A place on an axis, as a share of its length, and what is written there."""

    place: float
    label: str


def depth(arm: int, n_arms: int) -> int:
    """Return the shade of an arm: from 0 for the first to the last of the shades for the last.

    Examples
    --------
    >>> [depth(arm, 3) for arm in range(3)]
    [0, 8, 15]
    """
    return math.floor((LEVELS - 1) * arm / max(1, n_arms - 1) + 0.5)


def share_bar(stops: Sequence[int], label: str) -> str:
    """Return a bar divided by where decisions stopped; empty where there were none."""
    total = sum(stops)
    parts: list[str] = []
    left = 0.0
    for arm, n in enumerate(stops if total else ()):
        width = 100.0 * n / total
        if n:
            parts.append(
                f'<rect class="depth-{depth(arm, len(stops))}" x="{left:.2f}%" y="0" '
                f'width="{width:.2f}%" height="100%"/>'
            )
        left += width
    return (
        f'<svg class="shares" role="img" aria-label="{escape(label)}">'
        f'<rect class="groove" width="100%" height="100%"/>{"".join(parts)}</svg>'
    )


def swatch(arm: int, n_arms: int) -> str:
    """Return the little square that says which colour an arm has."""
    return (
        '<svg class="swatch" aria-hidden="true">'
        f'<rect class="depth-{depth(arm, n_arms)}" width="100%" height="100%"/></svg>'
    )


# --- over time ------------------------------------------------------------------------------------


def depths_over_time(stretches: Sequence[Stretch], arms: Sequence[str]) -> str:
    """Draw, for every stretch, the shares that stopped at each arm, and how many there were."""
    slots = max(len(stretches), FEWEST_SLOTS)
    busiest = max((s.decisions for s in stretches), default=0) or 1
    bars: list[str] = []
    volumes: list[str] = []
    for k, one in enumerate(stretches):
        if not one.decisions:
            continue
        place = _bar(k, slots)
        tip = f"<title>{escape(_depth_words(one, arms))}</title>"
        pieces: list[str] = []
        below = 0.0
        for arm, n in enumerate(one.stops):
            height = 100.0 * n / one.decisions
            below += height
            if n:
                pieces.append(
                    f'<rect class="depth-{depth(arm, len(arms))}" {place} '
                    f'y="{100.0 - below:.2f}%" height="{height:.2f}%"/>'
                )
        bars.append(f"<g>{tip}{''.join(pieces)}</g>")
        tall = max(100.0 * one.decisions / busiest, 4.0)
        volumes.append(
            f'<rect class="volume" {place} y="{100.0 - tall:.2f}%" height="{tall:.2f}%">'
            f"{tip}</rect>"
        )
    marks = _time_ticks(stretches, slots)
    return _chart(
        "Shares of decisions that stopped at each arm, over time; the table below has the numbers",
        [Tick(0.0, "0 %"), Tick(0.5, "50 %"), Tick(1.0, "100 %")],
        [],
        "".join(bars),
    ) + _chart(
        "Decisions over time",
        [Tick(1.0, _brief(busiest))],
        marks,
        "".join(volumes),
        kind="low",
    )


def cost_over_time(
    stretches: Sequence[Stretch], cumulative: Sequence[float], *, saved: bool = True
) -> str:
    """Draw the mean cost of a decision over time, below that of always going to the end.

    What is between the two is saved, unless it came about otherwise.
    """
    slots = max(len(stretches), FEWEST_SLOTS)
    deepest = cumulative[-1]
    top = nice(deepest * 1.02)
    values = [s.cost(cumulative) for s in stretches]
    line = steps([None if v is None else v / top for v in values], slots)
    between = band(
        [(v / top, deepest / top) if saved and v is not None else None for v in values], slots
    )
    tips = _tips(
        stretches,
        slots,
        lambda s: (
            f"{amount(s.cost(cumulative) or 0.0)} per decision, "
            f"{words.counted(s.decisions, 'decision')}"
        ),
        lambda s: s.decisions > 0,
    )
    level = f"{100 * (1 - deepest / top):.2f}%"
    return _chart(
        f"Cost per decision over time; always going to the last arm costs {amount(deepest)}",
        [Tick(0.0, "0"), Tick(0.5, amount(top / 2)), Tick(1.0, amount(top))],
        _time_ticks(stretches, slots),
        _box(f'<path class="saved" d="{between}"/><path class="line" d="{line}"/>')
        + f'<line class="limit" x1="0" x2="100%" y1="{level}" y2="{level}"/>'
        + tips,
        kind="tall alone",
    )


def disagreement_over_time(pair: Pair, stretches: Sequence[Stretch], top: float) -> str:
    """Draw how often a pair was seen to disagree over time, with its band and its cost gap."""
    slots = max(len(stretches), FEWEST_SLOTS)
    shares = [_share(pair, s) for s in stretches]

    def at(value: float) -> float:
        return min(value / top, 1.0)

    line = steps([None if e is None else at(e.value) for e in shares], slots)
    around = band([None if e is None else (at(e.low), at(e.high)) for e in shares], slots)
    level = f"{100 * (1 - pair.gap / top):.2f}%"
    limit = (
        f'<line class="limit" x1="0" x2="100%" y1="{level}" y2="{level}"/>'
        if pair.gap <= top
        else ""
    )
    tips = _tips(
        stretches,
        slots,
        lambda s: _share_words(_share(pair, s), s.differed[pair.number], s.seen[pair.number]),
        lambda s: s.seen[pair.number] > 0,
    )
    return _chart(
        "Share of disagreements over time with its 95 % interval",
        [Tick(0.0, "0"), Tick(1.0, percent(top))],
        _time_ticks(stretches, slots, most=3),
        _box(f'<path class="band" d="{around}"/><path class="line" d="{line}"/>') + limit + tips,
        kind="small",
    )


def interval(pair: Pair, top: float) -> str:
    """Draw the share of disagreements of a pair in all: its interval, and the cost gap."""
    share = pair.share

    def at(value: float) -> str:
        return f"{min(100.0 * value / top, 100.0):.2f}%"

    seen = (
        f'<line class="whisker" x1="{at(share.low)}" x2="{at(share.high)}" y1="50%" y2="50%"/>'
        f'<circle class="dot" cx="{at(share.value)}" cy="50%" r="4"/>'
        if pair.seen
        else ""
    )
    gap = at(pair.gap)
    limit = (
        f'<line class="limit" x1="{gap}" x2="{gap}" y1="0" y2="100%"/>' if pair.gap <= top else ""
    )
    return (
        '<svg class="interval" aria-hidden="true">'
        f'<line class="rule" x1="0" x2="100%" y1="50%" y2="50%"/>{limit}{seen}</svg>'
    )


def share_top(pairs: Iterable[Pair], stretches: Sequence[Stretch] = ()) -> float:
    """Return where the scale of disagreement ends: one for all pairs, so that they compare.

    Examples
    --------
    >>> share_top([Pair(0, 0, 1, 0.24, seen=1000, differed=80)])
    0.3
    """
    largest = 0.01
    for pair in pairs:
        share = pair.share
        largest = max(largest, share.high if pair.seen >= 5 else share.value)
        if pair.gap <= 1.0:
            largest = max(largest, pair.gap)
        for one in stretches:
            if one.seen[pair.number] >= 5:
                largest = max(largest, one.differed[pair.number] / one.seen[pair.number])
    return min(nice(largest * 1.1), 1.0)


# --- the parts of a chart -------------------------------------------------------------------------


def steps(values: Sequence[float | None], slots: int) -> str:
    """Return the path of a line of steps, broken where there is nothing.

    Values are shares of the height.

    Examples
    --------
    >>> steps([0.5, 0.25, None, 1.0], 4)
    'M0 500H250V750H500M750 0H1000'
    """
    path: list[str] = []
    drawing = False
    for k, value in enumerate(values):
        if value is not None:
            y, end = _down(value), _along(k + 1, slots)
            path.append(f"V{y}H{end}" if drawing else f"M{_along(k, slots)} {y}H{end}")
        drawing = value is not None
    return "".join(path)


def band(values: Sequence[tuple[float, float] | None], slots: int) -> str:
    """Return the path of the area between two lines of steps, broken where there is nothing.

    Examples
    --------
    >>> band([(0.0, 0.5), None], 2)
    'M0 1000V500H500V1000H0Z'
    """
    path: list[str] = []
    start = 0
    while start < len(values):
        end = start
        run: list[tuple[float, float]] = []
        while end < len(values) and (value := values[end]) is not None:
            run.append(value)
            end += 1
        if run:
            upper = "".join(
                f"V{_down(high)}H{_along(start + k + 1, slots)}" for k, (_, high) in enumerate(run)
            )
            lower = "".join(
                f"V{_down(low)}H{_along(end - 1 - k, slots)}"
                for k, (low, _) in enumerate(reversed(run))
            )
            first = _down(run[0][0])
            path.append(f"M{_along(start, slots)} {first}{upper}{lower}Z")
        start = end + 1
    return "".join(path)


def ticks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """Return at most so many round times between two, each with its label.

    Labels of an axis that has room for so many are at least that far apart.

    Examples
    --------
    >>> [label for _, label in ticks(1_700_000_000, 1_700_007_200, 5)]
    ['22:30', '23:00', '23:30', '15 Nov']
    """
    least = (end - begin) / most
    step = next((s for s in STEPS if s >= least and _multiples(begin, end, s) <= most), STEPS[-1])
    first = math.ceil(begin / step)
    times = [step * k for k in range(first, first + _multiples(begin, end, step))]
    return [(time, words.tick(time, step)) for time in times]


def nice(value: float) -> float:
    """Return the next number upwards that reads well on an axis.

    Examples
    --------
    >>> nice(0.27), nice(0.51), nice(7.1), nice(100)
    (0.3, 0.6, 8.0, 100.0)
    """
    if value <= 0.0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    for step in (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8, 10):
        if value <= step * scale * (1 + 1e-9):
            return float(f"{step * scale:.6g}")
    return float(f"{10 * scale:.6g}")


def _multiples(begin: float, end: float, step: int) -> int:
    return math.floor(end / step) - math.ceil(begin / step) + 1


def _down(share: float) -> str:
    return f"{BOX * (1 - share):.4g}"


def _along(slot: int, slots: int) -> str:
    return f"{BOX * slot / slots:.5g}"


def _bar(k: int, slots: int) -> str:
    """Return where a bar is and how wide: its slot, less a little air."""
    width = 100.0 / slots
    return f'x="{width * (k + 0.06):.3f}%" width="{width * 0.88:.3f}%"'


def _tips(
    stretches: Sequence[Stretch],
    slots: int,
    told: Callable[[Stretch], str],
    there: Callable[[Stretch], bool],
) -> str:
    """Return what is told when a pointer rests on a stretch."""
    width = 100.0 / slots
    return "".join(
        f'<rect class="tip" x="{width * k:.3f}%" width="{width:.3f}%" y="0" height="100%">'
        f"<title>{escape(f'{words.stretch(s.begin, s.end)}: {told(s)}')}</title></rect>"
        for k, s in enumerate(stretches)
        if there(s)
    )


def _time_ticks(stretches: Sequence[Stretch], slots: int, most: int = 4) -> list[Tick]:
    if not stretches:
        return []
    begin = stretches[0].begin
    whole = (stretches[0].end - begin) * slots  # of the axis; what happened may end before
    return [
        Tick((time - begin) / whole, label) for time, label in ticks(begin, begin + whole, most)
    ]


def _chart(label: str, up: list[Tick], along: list[Tick], drawn: str, kind: str = "tall") -> str:
    """Put axes about a drawing. Letters on them are not distorted, whatever the width."""
    left = "".join(
        f'<text x="100%" y="{100 * (1 - t.place):.2f}%" dy="{0.7 * t.place:.2f}em">'
        f"{escape(t.label)}</text>"
        for t in up
    )
    grid = "".join(
        f'<line class="rule" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        for y in (f"{100 * (1 - t.place):.2f}%" for t in up)
    )
    below = "".join(
        f'<text x="{100 * t.place:.2f}%" y="1.1em"{_anchor(t.place)}>{escape(t.label)}</text>'
        for t in along
    )
    nicks = "".join(
        f'<line class="rule" x1="{x}" x2="{x}" y1="0" y2="100%"/>'
        for x in (f"{100 * t.place:.2f}%" for t in along)
    )
    x_axis = f'<svg class="along" aria-hidden="true">{below}</svg>' if along else ""
    return (
        f'<div class="chart {kind}"><svg class="up" aria-hidden="true">{left}</svg>'
        f'<svg class="drawn" role="img" aria-label="{escape(label)}">{grid}{nicks}{drawn}</svg>'
        f"{x_axis}</div>"
    )


def _anchor(place: float) -> str:
    # on the left there is room below the other axis
    return ' class="last"' if place > 0.94 else ""


def _box(paths: str) -> str:
    return f'<svg viewBox="0 0 {BOX:g} {BOX:g}" preserveAspectRatio="none">{paths}</svg>'


def _share(pair: Pair, one: Stretch) -> Estimate | None:
    seen = one.seen[pair.number]
    return wilson(one.differed[pair.number], seen) if seen else None


def _share_words(share: Estimate | None, differed: int, seen: int) -> str:
    if share is None:
        return "not seen"
    return (
        f"{percent(share.value)} ({percent(share.low)} to {percent(share.high)}), "
        f"{differed:,} of {seen:,}"
    )


def _depth_words(one: Stretch, arms: Sequence[str]) -> str:
    shares = ", ".join(
        f"{short(arm)} {percent(n / one.decisions)}"
        for arm, n in zip(arms, one.stops, strict=True)
        if n
    )
    when = words.stretch(one.begin, one.end)
    return f"{when}: {words.counted(one.decisions, 'decision')}; {shares}"


def _brief(n: int) -> str:
    """Word a count in few letters.

    Examples
    --------
    >>> _brief(812), _brief(12_345), _brief(2_500_000)
    ('812', '12k', '2.5M')
    """
    if n < 1_000:
        return str(n)
    value, unit = (n / 1e3, "k") if n < 999_500 else (n / 1e6, "M")
    return (f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}") + unit
