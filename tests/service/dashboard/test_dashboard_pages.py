"""The content of the pages, and escaping of names."""

import re
from itertools import pairwise

import pytest

from stopwise.service.dashboard.pages import render
from stopwise.service.domain.cascade import ServedCascade
from tests.service.dashboard.sample import (
    BASE,
    BEGAN,
    EVIL,
    STAGED,
    ParsedPage,
    cascade_of,
    key,
    overview_of,
    page_of,
    service,
    shown,
    spec,
)


@pytest.fixture(scope="module")
def busy() -> ServedCascade:
    return cascade_of()


@pytest.fixture(scope="module")
def pages(busy: ServedCascade) -> dict[str, str]:
    evil = cascade_of(spec("evil", [EVIL, f"{EVIL}2", f"{EVIL}3"], [f"{EVIL}a", "b"]), 80)
    many = cascade_of(spec("many", [f"arm {k}" for k in range(15)]), 12)
    new = cascade_of(spec("new", context=[EVIL, "b"]), 0)
    return {
        "busy": page_of(busy),
        "evil": page_of(evil, key=key(EVIL), base=f"http://{EVIL}"),
        "many": page_of(many),
        "new": page_of(new),
        "silent": page_of(cascade_of(spec("silent"), 30, reported=0)),
        "overview": overview_of(busy, evil, new, many),
        "empty": overview_of(),
        "failing": overview_of(busy, service=service(write_error=EVIL, not_ready=EVIL)),
        "starting": overview_of(service=service(not_ready=EVIL)),
        "starting too": shown("base.html", "Starting", service=service(not_ready=EVIL)),
        "notice": render("base.html", title=EVIL, text=EVIL),
    }


def test_pages_are_valid_accessible_and_allowed_by_their_policy(pages: dict[str, str]) -> None:
    for page in pages.values():
        parsed = ParsedPage(page)
        ids, labels = parsed.values("id"), parsed.values("aria-labelledby")
        assert len(set(ids)) == len(ids)
        assert set(labels) <= set(ids)
        assert len(parsed.all("caption")) == len(parsed.all("table"))
        for picture in parsed.all("svg"):
            assert picture.get("aria-hidden") == "true" or picture.get("aria-label")
        assert {heading.get("scope") for heading in parsed.all("th")} <= {"row", "col"}
        levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
        if levels and levels[0] == 2:  # a banner above the title
            levels = levels[1:]
        assert levels[:1] in ([1], [])
        assert all(after <= before + 1 for before, after in pairwise(levels))

        assert parsed.all("style") == parsed.all("form") == []
        assert [set(script) for script in parsed.all("script")] in ([], [{"src", "defer"}])
        for _, attributes in parsed.tags:
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)
        addresses = parsed.values("src") + parsed.values("href")
        assert all(address.startswith(("/", "#")) for address in addresses)


@pytest.mark.parametrize("name", ["evil", "failing", "starting", "notice", "new", "overview"])
def test_names_are_escaped(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert not any("alert" in str(a) for tag, a in ParsedPage(page).tags if tag == "script")


def test_the_page_of_a_cascade_shows_its_counts(busy: ServedCascade) -> None:
    parsed = ParsedPage(page_of(busy))
    view = busy.view()
    assert view.mean_cost is not None
    assert f"Saved {100 * (1 - view.mean_cost / 0.6):.0f} %" in parsed.text
    assert "Rounds 200 last" in parsed.text
    assert f"{sum(view.stops[1:]):,} rounds" in parsed.text  # with outputs of history and glucose
    newest = busy.recent[-1]
    assert newest.explanation() in parsed.text
    assert newest.id in parsed.text
    page = page_of(busy)
    assert 'title="2023-11-14 22:46:30 UTC">26 min ago</time>' in page
    assert 'datetime="2023-11-14T22:46:30Z"' in page


def test_a_round_that_failed_while_exploring_saves_nothing() -> None:
    cascade = ServedCascade(0, spec(**STAGED, context=1), BEGAN)
    for k in range(2):
        cascade.open([[0.5]], BEGAN + 20 * k, 4 * k + 1)
    for arm, name in enumerate(("history", "glucose", "insulin")):
        revealed = [0.5] if arm < 2 else []
        cascade.report(0, {name: 1}, revealed, False, BEGAN + 1, arm + 10)
    cascade.report(1, {"history": 1}, [0.5], True, BEGAN + 22, 20)
    assert cascade.counts.stops_total == [1, 0, 1]
    page = ParsedPage(page_of(cascade)).text
    assert "1 ended early" in ParsedPage(overview_of(cascade)).text
    assert "Saved 0 % exploration: every round runs all arms; 1 ended early" in page
    assert "% saved" not in page + ParsedPage(overview_of(cascade)).text
    cascade = cascade_of(rounds=1)
    assert "nothing saved yet" in overview_of(cascade)
    cascade.status = "retired"
    assert "nothing saved<" in overview_of(cascade)


def test_evidence_is_a_table_with_the_names_of_arms(busy: ServedCascade) -> None:
    newest = busy.recent[-1]
    (details,) = re.findall(
        rf'<details id="why-{newest.id}">(.*?)</details>', page_of(busy), flags=re.DOTALL
    )
    rows = re.findall(r'<th scope="row">(.*?)</th>', details, flags=re.DOTALL)
    names = busy.arms.names
    expected = [f"{names[e.first]} → to {names[e.second]}" for e in newest.evidence()]
    assert [ParsedPage(row).text.replace("→to", "→ to") for row in rows] == expected
    verdicts = re.findall(r'"verdict">(.*?)</td>', details)
    assert [verdict.startswith("<b>may") for verdict in verdicts] == [
        not e.gap_won for e in newest.evidence()
    ]


def test_pages_do_not_show_contexts() -> None:
    cascade = cascade_of(rounds=80)
    cascade.open([[0.7654, -0.5678]], BEGAN, 999)
    page = page_of(cascade) + overview_of(cascade)
    assert cascade.recent[-1].id in page
    assert "7654" not in page
    assert "5678" not in page


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("empty", " -H"),
        ("new", "/new/rounds -H"),
        ("silent", '{"history": "OUTPUT", "glucose": "OUTPUT", "insulin": "OUTPUT"}'),
    ],
)
def test_pages_without_data_show_the_next_command(
    pages: dict[str, str], name: str, arguments: str
) -> None:
    text = ParsedPage(pages[name]).text
    assert f"curl {BASE}/v1/cascades" in text
    assert arguments in text
    assert "$STOPWISE_KEY" not in text


def test_commands_include_the_key_only_if_keys_are_required(busy: ServedCascade) -> None:
    for page in (overview_of(key=key()), page_of(cascade_of(rounds=0), key=key())):
        assert 'Bearer $STOPWISE_KEY"' in ParsedPage(page).text
    assert "curl" not in page_of(busy)


def test_failed_writes_are_shown_in_a_banner(pages: dict[str, str]) -> None:
    assert "warning" in pages["failing"]
    assert "amber" not in pages["failing"]
    assert "warning" not in pages["overview"]


@pytest.mark.parametrize("name", ["starting", "starting too"])
def test_starting_is_shown_in_a_banner(pages: dict[str, str], name: str) -> None:
    assert "warning amber" in pages[name]
    assert 'id="starting"' in pages[name]
    assert "curl" not in pages[name]  # the cascades are not loaded yet
