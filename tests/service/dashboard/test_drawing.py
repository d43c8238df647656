"""Charts: lengths and places are those of the numbers; nothing given becomes markup."""

import re
from itertools import pairwise

import pytest
from markupsafe import Markup

from stopwise.service.dashboard import drawing
from stopwise.service.dashboard.views import Pair, Period
from tests.service.dashboard.sample import BEGAN, EVIL, Taken


def hours(*stops: list[int]) -> list[Period]:
    return [Period(BEGAN + 3600 * k, BEGAN + 3600 * (k + 1), one) for k, one in enumerate(stops)]


def percents(text: str, attribute: str) -> list[float]:
    return [float(n) for n in re.findall(rf'\b{attribute}="(-?[\d.]+)%"', text)]


def of_class(drawn: str, kind: str) -> list[str]:
    return re.findall(rf'<\w+ class="{kind}"[^>]*>', drawn)


def test_elements_escape_text_and_attributes_and_keep_markup() -> None:
    drawn = drawing.element("b", EVIL, Markup("<i></i>"), class_=EVIL, aria_label="x")
    (_, given), (inner, _) = Taken(drawn).elements
    assert given == {"class": EVIL, "aria-label": "x"}
    assert inner == "i"
    assert EVIL in Taken(drawn).words


def test_a_share_bar_is_as_long_as_its_shares() -> None:
    bar = drawing.share_bar(["a", "b", "c"], [30, 0, 10])
    assert re.findall(r'class="(depth-\d+)" x="([\d.]+)%" width="([\d.]+)%"', bar) == [
        ("depth-0", "0.00", "75.00"),
        ("depth-15", "75.00", "25.00"),
    ]
    assert "depth-" not in drawing.share_bar(["a", "b"], [0, 0])


@pytest.mark.parametrize("n_arms", [2, 3, 15])
def test_arms_have_shades_of_their_own(n_arms: int) -> None:
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


def test_the_line_of_costs_breaks_where_nothing_was_decided() -> None:
    drawn = drawing.cost_chart(hours([4, 0], [0, 4], [0, 0], [0, 4]), [0.5, 1.0], saved=True)
    lines = [(*percents(one, "x1"), *percents(one, "x2")) for one in of_class(drawn, "line")]
    assert lines == [(0, 25), (25, 50), (25, 25), (75, 100)]  # the third joins two steps
    top = drawing.nice(1.02)
    levels = [y for one in of_class(drawn, "line") for y in percents(one, "y1")]
    assert levels[0] == pytest.approx(100 * (1 - 0.5 / top), abs=0.01)
    assert levels[1] == pytest.approx(100 * (1 - 1.0 / top), abs=0.01)


def test_only_what_is_saved_is_drawn_as_saved() -> None:
    periods = hours([4, 0], [0, 4])
    for saved, height in ((True, 0.5), (False, 0.0)):
        drawn = drawing.cost_chart(periods, [0.5, 1.0], saved=saved)
        heights = [h for one in of_class(drawn, "saved") for h in percents(one, "height")]
        assert heights == pytest.approx([100 * height / drawing.nice(1.02), 0], abs=0.01)


def test_a_gap_beyond_the_scale_is_not_drawn_elsewhere() -> None:
    expensive = Pair(0, 1, gap=5.0, seen=100, differed=10)
    assert "limit" not in drawing.pair_interval(expensive, drawing.share_top([expensive]))


def test_the_scale_holds_every_share_and_gap_and_ends_at_one() -> None:
    pairs = [Pair(0, 1, 0.3, 1000, 20), Pair(1, 2, 0.05, 1000, 400)]
    top = drawing.share_top(pairs)
    assert all(pair.gap <= top and pair.share.high <= top for pair in pairs)
    assert drawing.share_top([Pair(0, 1, 0.9, 100, 99)]) == 1.0
    assert drawing.share_top([Pair(0, 1, 0.24, 1000, 80)]) == 0.3
    assert [drawing.nice(v) for v in (0.0, 0.27, 0.51, 7.1, 100)] == [1, 0.3, 0.6, 8, 100]


def test_a_pair_never_seen_has_no_dot() -> None:
    assert "dot" not in drawing.pair_interval(Pair(0, 1, 0.2, 0, 0), 1.0)


@pytest.mark.parametrize("seconds", [5, 60, 600, 86_400, 86_400 * 30, 86_400 * 4000])
@pytest.mark.parametrize("most", [3, 4])
def test_ticks_are_few_inside_apart_and_different(seconds: float, most: int) -> None:
    begin = BEGAN + 1
    width = seconds / drawing.MIN_SLOTS
    found = drawing.ticks([Period(begin, begin + width, [])], most)
    assert 1 <= len(found) <= most
    places = [place for place, _ in found]
    assert all(after - before >= 1 / most - 1e-9 for before, after in pairwise(places))
    assert all(0 <= place <= 1 for place in places)
    assert len({label for _, label in found}) == len(found)


def test_ticks_are_labelled_by_clock_day_or_month() -> None:
    def labels(length: float) -> list[str]:
        width = length / drawing.MIN_SLOTS
        return [text for _, text in drawing.ticks([Period(BEGAN, BEGAN + width, [])], 5)]

    assert labels(20) == ["22:13:20", "22:13:25", "22:13:30", "22:13:35", "22:13:40"]
    assert labels(7_200) == ["22:30", "23:00", "23:30", "15 Nov"]
    assert labels(86_400 * 1_000)[0] == "Dec 2023"


@pytest.mark.parametrize("buckets", [1, 2, 240])
def test_a_young_chart_has_room_for_its_labels(buckets: int) -> None:
    begins = [BEGAN + 10.0 * k for k in range(buckets)]
    periods = [Period(t, t + 10.0, [1, 1]) for t in begins]
    cost = drawing.cost_chart(periods, [0.5, 1.0], saved=True)
    places = percents(cost.split('class="along"')[1], "x")
    assert places
    assert all(b - a >= 25 - 0.01 for a, b in pairwise(places))
    ends = [x for one in of_class(cost, "line") for x in percents(one, "x2")]
    assert max(ends) == pytest.approx(100 * min(buckets / 3, 1), abs=0.01)


def test_one_period_and_none_can_be_drawn() -> None:
    for periods in ([], hours([1, 0])):
        Taken(drawing.depth_chart(periods, ["a", "b"]))
        Taken(drawing.cost_chart(periods, [0.0, 0.0], saved=True))


def test_times_as_text() -> None:
    found = [drawing.span(s) for s in (0.04, 31, 120, 7_300, 200_000)]
    assert found == ["0.0 s", "31 s", "2 min", "2 h 1 min", "2 d 7 h"]
    assert drawing.moment(BEGAN) == "2023-11-14 22:13:20 UTC"
    assert drawing.period_text(BEGAN, BEGAN + 20) == "14 Nov 22:13:20 to 22:13:40 UTC"
    assert drawing.period_text(BEGAN, BEGAN + 4e5) == "14 Nov 22:13 to 19 Nov 13:20 UTC"
    assert Taken(drawing.when(BEGAN, BEGAN - 1)).text == "just now"  # clocks differ
    assert Taken(drawing.when(BEGAN, BEGAN + 90)).text == "1 min ago"
    assert drawing.when(None, BEGAN) == "–"
