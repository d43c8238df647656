"""The report of the reproduction on a laptop and a phone, in light and dark mode."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stopwise.research.paper.report import Report, claims_by_setting, write_report
from stopwise.research.paper.reproduce import reproduce
from tests.browser.sample_report import REPORT
from tests.browser.screens import SCREENS, check_report


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
    alone = tmp_path_factory.mktemp("alone") / "report.html"  # the page is self-contained
    return Written(report, (folder / "report.html").rename(alone))


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_report_is_readable_on_every_screen(
    page: Any, written: Written, width: int, scheme: str
) -> None:
    pictures = sum(len(section.pictures) for section in written.report.sections)
    check_report(page, written.file, width, scheme, pictures)
    wide = page.run(
        "const b = document.querySelector('.scroll'); b.scrollLeft = 99; return b.scrollLeft"
    )
    assert width > 1000 or wide == 99


@pytest.mark.parametrize("width", [1280, 390])
def test_summary_has_every_claim_with_its_verdicts(page: Any, written: Written, width: int) -> None:
    page.open(written.file, width=width)
    rows = page.run(
        "return [...document.querySelectorAll('.summary .judged')].map(r => ["
        "  r.querySelector('th').innerText,"
        "  [...r.querySelectorAll('td')].map(c => ["
        "    c.dataset.setting || '', c.querySelector('.badge').innerText.slice(2)]),"
        "  [...r.querySelectorAll('.badge')].every(b => b.getBoundingClientRect().height > 0)])"
    )
    expected = [
        [_plain(claims[0].text), [[c.setting, c.verdict] for c in claims], True]
        for section in written.report.sections
        for claims in (list(verdicts.values()) for verdicts in claims_by_setting(section))
    ]
    assert rows == expected


def _plain(text: str) -> str:
    return re.sub(r"[`*]", "", text)
