"""The HTML report as a reader meets it: on a laptop, on a phone, by day and by night."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stopwise.paper.report import Report, judged, write_report
from stopwise.paper.reproduce import reproduce
from tests.browser.sample_report import REPORT
from tests.browser.seeing import CONTRASTS, SCREENS


class Written(NamedTuple):
    report: Report
    file: Path


@pytest.fixture(scope="module", params=["sample", pytest.param("real", marks=pytest.mark.slow)])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("report")
    if request.param == "sample":
        report = REPORT
        write_report(report, folder)
    else:
        report = reproduce(folder, quick=True)
    alone = tmp_path_factory.mktemp("alone") / "report.html"  # it needs nothing beside it
    return Written(report, (folder / "report.html").rename(alone))


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_every_picture_shows_all_text_can_be_read_and_only_tables_scroll_sideways(
    page: Any, written: Written, width: int, scheme: str
) -> None:
    page.open(written.file, width=width, scheme=scheme)
    pictures = page.run(
        "return [...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])"
    )
    assert len(pictures) == sum(len(s.pictures) for s in written.report.sections) > 0
    assert all(complete and natural > 0 and shown > 300 for complete, natural, shown in pictures)
    contrasts = page.run(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts)[0] >= 4.5, min(contrasts)
    assert page.run("return innerWidth") == width
    assert page.run("return document.documentElement.scrollWidth") <= width
    # wide tables scroll, each in its own box
    assert page.run(
        "return [...document.querySelectorAll('.scroll')].every("
        "b => b.getBoundingClientRect().right <= innerWidth)"
    )
    wide = page.run(
        "const b = document.querySelector('.scroll'); b.scrollLeft = 99; return b.scrollLeft"
    )
    assert width > 1000 or wide == 99


def test_nothing_is_fetched_and_nothing_complains(page: Any, written: Written) -> None:
    page.open(written.file)
    events = [json.loads(entry["message"])["message"] for entry in page.logs("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert written.file.as_uri() in asked
    assert [url for url in asked if not url.startswith("data:")] == [written.file.as_uri()]
    assert page.logs("browser") == []


def test_dark_is_dark_and_figures_stay_on_white(page: Any, written: Written) -> None:
    colour = "return getComputedStyle(document.querySelector(arguments[0])).backgroundColor"

    def brightness(selector: str) -> float:
        text = page.run(colour.replace("arguments[0]", repr(selector)))
        return sum(map(float, text.strip("rgba()").split(",")[:3])) / 3

    page.open(written.file, scheme="light")
    assert brightness("body") > 200
    page.open(written.file, scheme="dark")
    assert brightness("body") < 60
    assert brightness(".plate") == 255


@pytest.mark.parametrize("width", [1280, 390])
def test_every_claim_is_in_the_table_with_its_verdicts(
    page: Any, written: Written, width: int
) -> None:
    page.open(written.file, width=width)
    rows = page.run(
        "return [...document.querySelectorAll('.summary .judged')].map(r => ["
        "  r.querySelector('th').innerText,"
        "  [...r.querySelectorAll('td')].map(c => ["
        "    c.dataset.setting || '', c.querySelector('.badge').innerText.slice(2)]),"
        "  [...r.querySelectorAll('.badge')].every(b => b.getBoundingClientRect().height > 0)])"
    )
    expected = [
        [_plain(one.claim.text), [[c.setting, c.verdict] for c in one.verdicts], True]
        for section in written.report.sections
        for one in judged(section)
    ]
    assert rows == expected


def test_links_lead_to_their_sections(page: Any, written: Written) -> None:
    page.open(written.file)
    links = page.run("return [...document.querySelectorAll('nav a, .summary a')].map(a => a.hash)")
    assert len(links) >= 6 + 2 + 3
    for link in links:
        page.run("scrollTo(0, 0)")
        page.run(f"[...document.querySelectorAll('a')].find(a => a.hash === {link!r}).click()")
        top = page.run(f"return document.querySelector({link!r}).getBoundingClientRect().top")
        rest = page.run("return document.documentElement.scrollHeight - scrollY - innerHeight")
        assert abs(top) < 5 or (rest < 5 and 0 <= top < 900), link  # the end cannot come to the top


def _plain(text: str) -> str:
    return re.sub(r"[`*]", "", text)
