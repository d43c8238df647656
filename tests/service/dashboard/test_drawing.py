"""Pictures: lengths and places are those of the numbers."""

import re
from itertools import pairwise

import pytest

from stopwise.service.dashboard import drawing
from stopwise.service.dashboard.values import Pair, Stretch
from tests.service.dashboard.sample import BEGAN, EVIL, Taken


def hours(*stops: tuple[int, ...]) -> list[Stretch]:
    return [
        Stretch(BEGAN + 3600 * k, BEGAN + 3600 * (k + 1), one, (sum(one),), (one[0],))
        for k, one in enumerate(stops)
    ]


def percents(text: str, attribute: str) -> list[float]:
    return [float(n) for n in re.findall(rf'\b{attribute}="([\d.]+)%"', text)]


def path_points(path: str) -> list[tuple[float, float]]:
    """Follow a path of M, H and V; return every corner."""
    points: list[tuple[float, float]] = []
    x = y = 0.0
    for command, rest in re.findall(r"([MHV])([\d.e+-]+(?: [\d.e+-]+)?)", path):
        numbers = [float(n) for n in rest.split()]
        if command == "M":
            x, y = numbers
        elif command == "H":
            x = numbers[0]
        else:
            y = numbers[0]
        points.append((x, y))
    return points


def test_a_share_bar_is_as_long_as_its_shares() -> None:
    bar = drawing.share_bar([30, 0, 10], "where they stop")
    assert re.findall(r'class="(depth-\d+)" x="([\d.]+)%" y="0" width="([\d.]+)%"', bar) == [
        ("depth-0", "0.00", "75.00"),
        ("depth-15", "75.00", "25.00"),
    ]


def test_a_share_bar_of_nothing_is_empty() -> None:
    assert "depth-" not in drawing.share_bar([0, 0], "nothing yet")


@pytest.mark.parametrize("n_arms", range(2, 16))
def test_arms_have_shades_of_their_own(n_arms: int) -> None:
    shades = [drawing.depth(arm, n_arms) for arm in range(n_arms)]
    assert shades == sorted(set(shades))
    assert (shades[0], shades[-1]) == (0, drawing.LEVELS - 1)


def test_bars_over_time_are_full_and_empty_hours_have_none() -> None:
    drawn = drawing.depths_over_time(hours((1, 3), (0, 0), (2, 2)), ["cheap", "dear"])
    bars = re.findall(r"<g>(.*?)</g>", drawn)
    assert [percents(bar, "height") for bar in bars] == [[25.0, 75.0], [50.0, 50.0]]
    assert [percents(bar, "y") for bar in bars] == [[75.0, 0.0], [50.0, 0.0]]
    places = [percents(bar, "x")[0] for bar in bars]
    assert places[1] - places[0] == pytest.approx(2 * 100 / drawing.FEWEST_SLOTS, abs=0.01)


def test_the_line_of_costs_breaks_where_nothing_was_decided() -> None:
    drawn = drawing.cost_over_time(hours((4, 0), (0, 0), (0, 4)), [0.5, 1.0])
    line = re.search(r'class="line" d="([^"]*)"', drawn)
    assert line is not None
    assert line[1].count("M") == 2
    top = drawing.nice(1.02)
    levels = [y for _, y in path_points(line[1])]
    assert min(levels) == pytest.approx(1000 * (1 - 1.0 / top), abs=0.5)
    assert max(levels) == pytest.approx(1000 * (1 - 0.5 / top), abs=0.5)


def test_a_band_encloses_its_values_and_ends_where_it_began() -> None:
    path = drawing.band([(0.2, 0.4), (0.1, 0.9), None, (0.5, 0.6)], 4)
    first, second = (part for part in path.split("Z") if part)
    xs, ys = zip(*path_points(first), strict=True)
    assert (min(xs), max(xs)) == (0, 500)
    assert (min(ys), max(ys)) == (100, 900)
    assert path_points(first)[-1] == (0, 800)
    assert {x for x, _ in path_points(second)} == {750, 1000}


def test_a_gap_beyond_the_scale_is_not_drawn_elsewhere() -> None:
    dear = Pair(0, 0, 1, gap=5.0, seen=100, differed=10)
    assert "limit" not in drawing.interval(dear, drawing.share_top([dear]))
    assert "limit" not in drawing.disagreement_over_time(dear, hours((10, 90)), 0.5)


def test_the_scale_holds_every_share_and_gap_and_ends_at_one() -> None:
    pairs = [Pair(0, 0, 1, 0.3, 1000, 20), Pair(1, 1, 2, 0.05, 1000, 400)]
    top = drawing.share_top(pairs)
    assert all(pair.gap <= top and pair.share.high <= top for pair in pairs)
    assert drawing.share_top([Pair(0, 0, 1, 0.9, 100, 99)]) == 1.0


def test_a_pair_never_seen_has_no_dot() -> None:
    assert "dot" not in drawing.interval(Pair(0, 0, 1, 0.2, 0, 0), 1.0)


@pytest.mark.parametrize("seconds", [5, 60, 600, 86_400, 86_400 * 30, 86_400 * 4000])
@pytest.mark.parametrize("most", [3, 4])
def test_ticks_are_few_inside_apart_and_different(seconds: float, most: int) -> None:
    found = drawing.ticks(BEGAN + 1, BEGAN + 1 + seconds, most)
    assert 1 <= len(found) <= most
    times = [time for time, _ in found]
    assert all(after - before >= seconds / most for before, after in pairwise(times))
    assert all(BEGAN + 1 <= time <= BEGAN + 1 + seconds for time, _ in found)
    assert len({label for _, label in found}) == len(found)


@pytest.mark.parametrize("buckets", [1, 2, 3, 20, 240])
def test_a_young_chart_has_room_for_its_labels(buckets: int) -> None:
    begins = [BEGAN + 10.0 * k for k in range(buckets)]
    stretches = [Stretch(t, t + 10.0, (1, 1), (1,), (0,)) for t in begins]
    cost = drawing.cost_over_time(stretches, [0.5, 1.0])
    pair = drawing.disagreement_over_time(Pair(0, 0, 1, 0.1, 1, 0), stretches, 1.0)
    for drawn, most in ((cost, 4), (pair, 3)):
        along = drawn.split('class="along"')[1]
        places = percents(along, "x")
        assert places
        assert all(b - a >= 100 / most - 0.01 for a, b in pairwise(places))
    line = re.search(r'class="line" d="([^"]*)"', cost)
    assert line is not None  # what there is takes the width, but for a bucket or two
    assert max(x for x, _ in path_points(line[1])) == pytest.approx(
        1000 * min(buckets / 3, 1), abs=1
    )


def test_names_in_pictures_are_escaped() -> None:
    drawn = drawing.depths_over_time(hours((1, 1)), [EVIL, "other"])
    assert "<script" not in drawn
    assert any("<script>" in word for word in Taken(drawn).words)  # as text it is there


def test_one_moment_and_no_moment_can_be_drawn() -> None:
    for stretches in ([], hours((1, 0))):
        Taken(drawing.depths_over_time(stretches, ["a", "b"]))
        Taken(drawing.cost_over_time(stretches, [0.0, 0.0]))
        Taken(drawing.disagreement_over_time(Pair(0, 0, 1, 0.1, 0, 0), stretches, 1.0))
