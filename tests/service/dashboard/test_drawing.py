"""Charts: lengths, positions and escaping."""

import re

import pytest
from markupsafe import Markup

from stopwise.service.dashboard import drawing
from stopwise.service.dashboard.views import Pair, Period
from tests.service.dashboard.sample import BEGAN, EVIL, ParsedPage


def hours(*stops: list[int]) -> list[Period]:
    return [
        Period(BEGAN + 3600 * k, BEGAN + 3600 * (k + 1), counts) for k, counts in enumerate(stops)
    ]


def percents(text: str, attribute: str) -> list[float]:
    return [float(n) for n in re.findall(rf'\b{attribute}="(-?[\d.]+)%"', text)]


def of_class(drawn: str, kind: str) -> str:
    return "".join(re.findall(rf'<\w+ class="{kind}"[^>]*>', drawn))


def test_elements_escape_text_and_attributes_and_keep_markup() -> None:
    drawn = drawing.element("b", EVIL, Markup("<i></i>"), class_=EVIL, aria_label="x")
    (_, attributes), (inner, _) = ParsedPage(drawn).tags
    assert attributes == {"class": EVIL, "aria-label": "x"}
    assert inner == "i"
    assert EVIL in ParsedPage(drawn).text


def test_a_share_bar_is_divided_by_shares() -> None:
    bar = drawing.share_bar(["a", "b", "c"], [30, 0, 10])
    assert re.findall(r'class="(depth-\d+)" x="([\d.]+)%" width="([\d.]+)%"', bar) == [
        ("depth-0", "0.00", "75.00"),
        ("depth-15", "75.00", "25.00"),
    ]
    assert "depth-" not in drawing.share_bar(["a", "b"], [0, 0])


@pytest.mark.parametrize("n_arms", [2, 3, 15])
def test_arms_have_distinct_shades(n_arms: int) -> None:
    shades = [int(drawing.shade(arm, n_arms)[6:]) for arm in range(n_arms)]
    assert shades == sorted(set(shades))
    assert (shades[0], shades[-1]) == (0, drawing.SHADES - 1)


def test_bars_over_time_are_full_and_empty_hours_have_none() -> None:
    drawn = drawing.depth_chart(hours([1, 3], [0, 0], [2, 2]), ["cheap", "expensive"])
    bars = re.findall(r"<g>(.*?)</g>", drawn)
    assert [percents(bar, "height") for bar in bars] == [[25.0, 75.0], [50.0, 50.0]]
    assert [percents(bar, "y") for bar in bars] == [[75.0, 0.0], [50.0, 0.0]]
    places = [percents(bar, "x")[0] for bar in bars]
    assert places[1] - places[0] == pytest.approx(2 * 100 / drawing.MIN_SLOTS, abs=0.01)


@pytest.mark.parametrize("saved", [True, False])
def test_the_cost_line_has_a_gap_without_decisions(saved: bool) -> None:
    drawn = drawing.cost_chart(hours([4, 0], [0, 4], [0, 0], [0, 4]), [0.5, 1.0], saved=saved)
    line = of_class(drawn, "line")
    segments = list(zip(percents(line, "x1"), percents(line, "x2"), strict=True))
    assert segments == [(0, 25), (25, 50), (25, 25), (75, 100)]  # the third joins two steps
    half, full = 100 * (1 - 0.5 / 1.1), 100 * (1 - 1 / 1.1)  # the scale ends at 1.1
    assert percents(line, "y1") == pytest.approx([half, full, half, full], abs=0.01)
    assert percents(of_class(drawn, "limit"), "y1") == pytest.approx([full], abs=0.01)
    height = half - full if saved else 0.0  # no area without savings
    assert percents(of_class(drawn, "saved"), "height") == pytest.approx([height, 0, 0], abs=0.01)


def test_intervals_share_a_scale_of_at_most_one() -> None:
    pairs = [Pair(0, 1, 0.3, 1000, 20), Pair(1, 2, 0.05, 1000, 400)]
    top = drawing.share_top(pairs)
    assert all(pair.gap <= top and pair.share.high <= top for pair in pairs)
    assert drawing.share_top([Pair(0, 1, 0.9, 100, 99)]) == 1.0
    drawn = drawing.pair_interval(pairs[1], 0.5)
    assert percents(drawn, "cx") == [80.0]
    assert percents(of_class(drawn, "limit"), "x1") == [10.0]
    expensive = Pair(0, 1, gap=5.0, seen=100, differed=10)  # off the scale
    assert "limit" not in drawing.pair_interval(expensive, drawing.share_top([expensive]))
    assert "dot" not in drawing.pair_interval(Pair(0, 1, 0.2, 0, 0), 1.0)  # never seen


@pytest.mark.parametrize(("periods", "end"), [(1, "22:13:50"), (3, "22:13:50"), (240, "22:53")])
def test_a_chart_shows_its_start_and_end(periods: int, end: str) -> None:
    begins = [BEGAN + 10.0 * k for k in range(periods)]
    cost = drawing.cost_chart([Period(t, t + 10.0, [1, 1]) for t in begins], [0.5, 1], saved=True)
    positions = percents(of_class(cost, "line"), "x2")
    assert max(positions) == pytest.approx(100 * min(periods / 3, 1), abs=0.01)
    begin = "14 Nov 22:13" + (":20" if periods < 240 else "")
    assert f"<span>{begin}</span><span>{end}</span>" in cost


def test_charts_without_rounds_or_costs_are_valid() -> None:
    for periods in ([], hours([1, 0])):
        ParsedPage(drawing.depth_chart(periods, ["a", "b"]))
        ParsedPage(drawing.cost_chart(periods, [0.0, 0.0], saved=True))


def test_times_are_formatted_as_text() -> None:
    spans = [drawing.span(s) for s in (0.04, 31, 120, 7_300, 200_000)]
    assert spans == ["0.0 s", "31 s", "2 min", "2 h 1 min", "2 d 7 h"]
    assert drawing.moment(BEGAN) == "2023-11-14 22:13:20 UTC"
    assert drawing.period_text(BEGAN, BEGAN + 20) == "14 Nov 22:13:20 to 22:13:40 UTC"
    assert drawing.period_text(BEGAN, BEGAN + 4e5) == "14 Nov 22:13 to 19 Nov 13:20 UTC"
    assert ParsedPage(drawing.when(BEGAN, BEGAN - 1)).text == "just now"  # clocks differ
    assert ParsedPage(drawing.when(BEGAN, BEGAN + 90)).text == "1 min ago"
    assert drawing.when(None, BEGAN) == "–"
