"""Pages: what they say, and that nothing somebody named can become part of them."""

import re
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from stopwise.service.dashboard import cascade, html, views
from stopwise.service.dashboard.assets import ASSETS
from stopwise.service.dashboard.values import Visitor
from stopwise.service.learner import Learner
from tests.service.dashboard.sample import (
    BASE,
    BEGAN,
    EVIL,
    FILES,
    Taken,
    at_work,
    overview_of,
    page_of,
    running,
    spec,
)

ADMIN = Visitor("ops", may_act=True, token="t-o-k-e-n")


@pytest.fixture(scope="module")
def busy() -> Learner:
    return at_work()


@pytest.fixture(scope="module")
def evil() -> Learner:
    return at_work(spec("evil", [EVIL, f"{EVIL}2", f"{EVIL}3"], [f"{EVIL}a", "b"]), 80)


@pytest.fixture(scope="module")
def pages(busy: Learner, evil: Learner) -> dict[str, str]:
    many = at_work(spec("many", [f"arm {k}" for k in range(15)]), 70)
    new = Learner(0, spec("new", context=[EVIL, "b"]), 0.0)
    return {
        "busy": page_of(busy),
        "admin": page_of(busy, ADMIN, unconfirmed=True),
        "evil": page_of(evil, Visitor(EVIL, may_act=True, token=EVIL)),
        "many": page_of(many),
        "new": page_of(new),
        "deaf": page_of(at_work(spec("deaf"), 30, told=0)),
        "overview": overview_of(busy, evil, new, many),
        "empty": overview_of(),
        "trouble": overview_of(busy, now=running(trouble=EVIL)),
        "starting": overview_of(now=running(recovering=EVIL, last=None)),
        "sign in": html.sign_in(FILES, after=EVIL, problem=EVIL),
        "notice": html.notice(FILES, EVIL, EVIL),
    }


def test_every_page_is_well_formed_and_ids_are_of_one_element(pages: dict[str, str]) -> None:
    for page in pages.values():
        taken = Taken(page)
        assert len(set(taken.ids())) == len(taken.ids())
        labels = [a.get("aria-labelledby") for _, a in taken.elements if "aria-labelledby" in a]
        assert set(labels) <= set(taken.ids())


def test_nothing_is_written_into_a_page_that_its_policy_forbids(pages: dict[str, str]) -> None:
    for page in pages.values():
        taken = Taken(page)
        assert taken.of("style") == []
        assert [set(script) for script in taken.of("script")] in ([], [{"src", "defer"}])
        for _, attributes in taken.elements:
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)
        addresses = [a[k] for _, a in taken.elements for k in ("src", "href", "action") if k in a]
        assert all(str(address).startswith(("/", "#")) for address in addresses)


def test_names_are_text_wherever_they_stand(pages: dict[str, str]) -> None:
    for name in ("evil", "trouble", "starting", "sign in", "notice", "new", "overview"):
        page = pages[name]
        assert "alert(1)" in page
        assert "<script>alert" not in page
        assert not any("alert" in str(a) for tag, a in Taken(page).elements if tag == "script")


def test_every_table_and_picture_says_what_it_is(pages: dict[str, str]) -> None:
    for page in pages.values():
        taken = Taken(page)
        assert len(taken.of("caption")) == len(taken.of("table"))
        assert all(head.get("scope") in ("col", "row") for head in taken.of("th"))
        # those inside a picture stretch with it and need no name
        outer = [svg for svg in taken.of("svg") if "viewbox" not in svg]
        assert all(
            svg.get("aria-hidden") == "true" or (svg.get("role") == "img" and svg["aria-label"])
            for svg in outer
        )
        inputs = [i for i in taken.of("input") if i.get("type") != "hidden" and "hidden" not in i]
        assert {i["id"] for i in inputs} <= {label["for"] for label in taken.of("label")}


def test_headings_go_down_one_at_a_time(pages: dict[str, str]) -> None:
    for page in pages.values():
        levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
        if levels and levels[0] == 2:  # a banner of trouble stands above the title
            levels = levels[1:]
        assert levels[:1] in ([1], [])
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_page_of_a_cascade_says_what_was_counted(busy: Learner) -> None:
    taken = Taken(page_of(busy))
    view = busy.view()
    assert view.mean_cost is not None
    saving = 100 * (1 - view.mean_cost / 0.6)
    assert f"Saved {saving:.0f} %" in taken.text
    assert "Decisions 200 last" in taken.text
    assert f"{sum(view.stops[1:]):,} rounds" in taken.text  # history and glucose both heard
    newest = busy.recent[-1]
    assert newest.words() in taken.text
    assert newest.id in taken.text
    assert "A pair is seen only in rounds that went as deep as its second arm" in taken.text


def test_a_round_that_failed_while_exploring_saves_nothing() -> None:
    learner = at_work(rounds=1)
    learner.start(np.array([0.5, 0.1]), BEGAN + 20, None, 3)
    learner.step(1, 0, b"1", np.zeros(0), BEGAN + 21, 4)
    learner.end(1, BEGAN + 22, 5)
    assert learner.tally.stops_total == [1, 0, 1]
    assert "1 ended early" in Taken(overview_of(learner)).text
    page = Taken(page_of(learner)).text
    assert "Saved 0 % every decision goes to the last arm to explore; 1 ended early" in page
    for shown in (overview_of(learner), page_of(learner)):
        assert "% saved" not in Taken(shown).text
    assert '<path class="saved" d=""/>' in page_of(learner)


def test_a_retired_cascade_is_not_said_to_save_some_day() -> None:
    learner = at_work(rounds=1)
    assert "nothing saved yet" in overview_of(learner)
    learner.status = "retired"
    assert "nothing saved<" in overview_of(learner)


def test_times_are_relative_and_in_utc(busy: Learner) -> None:
    page = page_of(busy)
    assert 'title="2023-11-14 22:46:30 UTC">26\xa0min ago</time>' in page
    assert 'datetime="2023-11-14T22:46:30Z"' in page


def test_evidence_is_a_table_with_the_names_of_arms(busy: Learner) -> None:
    newest = busy.recent[-1]
    (found,) = re.findall(
        rf'<details id="why-{newest.id}">(.*?)</details>', page_of(busy), flags=re.DOTALL
    )
    rows = re.findall(r'<th scope="row">(.*?)</th>', found)
    names = busy.cascade.names
    expected = [f"{names[e.first]} → to {names[e.second]}" for e in newest.evidence()]
    assert [Taken(row).text.replace("→to", "→ to") for row in rows] == expected
    verdicts = [not e.gap_won for e in newest.evidence()]
    assert [v.startswith("<b>may") for v in re.findall(r'"so it is">(.*?)</td>', found)] == verdicts


def test_contexts_are_on_no_page() -> None:
    learner = at_work(rounds=80)
    learner.decide(np.array([[0.7654, -0.5678]]), BEGAN, None, 999)
    page = page_of(learner) + overview_of(learner)
    assert learner.recent[-1].id in page
    assert "7654" not in page
    assert "5678" not in page


def test_pages_without_anything_teach_what_to_type(pages: dict[str, str]) -> None:
    assert f"curl {BASE}/v1/cascades -H" in Taken(pages["empty"]).text
    new = Taken(pages["new"]).text
    assert f"curl {BASE}/v1/cascades/new/decisions" in new
    assert "/outputs" in new
    assert "$STOPWISE_KEY" not in new
    assert "No outputs yet" in pages["deaf"]
    assert "hears nothing" in pages["deaf"]
    deaf = Taken(pages["deaf"]).text
    assert "/v1/cascades/deaf/decisions/ID/outputs" in deaf  # nothing that would be told by mistake
    assert '{"history": "…", "glucose": "…", "insulin": "…"}' in deaf


def test_the_command_to_type_asks_for_a_key_where_one_is_needed(busy: Learner) -> None:
    assert "Bearer $STOPWISE_KEY" in views.whole(busy, BASE, with_key=True).try_this


def test_only_an_admin_is_offered_to_retire(busy: Learner, pages: dict[str, str]) -> None:
    assert 'action="/cascades/triage/retire"' in pages["admin"]
    assert 'value="t-o-k-e-n"' in pages["admin"]
    assert "Not retired: type its name to confirm." in pages["admin"]
    for visitor in (Visitor(), Visitor("reader", may_act=False, token="x")):
        assert "/retire" not in page_of(busy, visitor)
    whole = views.whole(busy, BASE)
    gone = msgspec.structs.replace(
        whole, glance=msgspec.structs.replace(whole.glance, status="retired")
    )
    assert "/retire" not in cascade.cascade(FILES, ADMIN, running(), gone)


def test_trouble_and_starting_are_said_first(pages: dict[str, str]) -> None:
    assert "Nothing can be written now" in pages["trouble"]
    assert "Starting" in pages["starting"]
    assert "No cascade yet" not in pages["starting"]  # nobody knows yet
    assert "Nothing can be written" not in pages["overview"]


def test_pages_of_many_arms_fold_what_is_too_much(pages: dict[str, str]) -> None:
    taken = Taken(pages["many"])
    assert "The other 91 pairs" in taken.text
    assert pages["many"].count('class="chart small"') == 14


def test_files_have_addresses_that_change_with_them() -> None:
    for asset in ASSETS.values():
        other = msgspec.structs.replace(asset, content=asset.content + b" ")
        assert other.address != asset.address
    assert b".depth-15" in ASSETS["dashboard.css"].content
    assert b"http" not in ASSETS["dashboard.js"].content  # it fetches the page itself, only
