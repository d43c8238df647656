"""The report of a diagnosis as a reader meets it: on a laptop, on a phone, by day and by night."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.report import write_report
from stopwise.logs.diagnosis.sections import sections
from tests.browser.seeing import CONTRASTS, SCREENS
from tests.unit.logs.diagnosis.samples import hostile, labelled, unlabelled

REQUEST = "Network.requestWillBeSent"
OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"


class Written(NamedTuple):
    diagnosis: Diagnosis
    file: Path


@pytest.fixture(scope="module", params=[labelled, unlabelled, hostile])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    found: Diagnosis = request.param()
    page = write_report(found, tmp_path_factory.mktemp("diagnosis"))
    alone = tmp_path_factory.mktemp("alone") / "report.html"  # it needs nothing beside it
    return Written(found, page.rename(alone))


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_it_can_be_read_on_every_screen(
    page: Any, written: Written, width: int, scheme: str
) -> None:
    page.open(written.file, width=width, scheme=scheme)
    pictures = page.run(
        "return [...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])"
    )
    expected = [p for s in sections(written.diagnosis) for p in s.panels if p.picture is not None]
    assert len(pictures) == len(expected) > 0
    assert all(complete and natural > 0 and shown > 300 for complete, natural, shown in pictures)
    for unfold in ("", OPEN_ALL):
        page.run(unfold)
        assert page.run("return innerWidth") == width
        assert page.run("return document.documentElement.scrollWidth") <= width
        # wide tables and figures scroll, each in its own box
        assert page.run(
            "return [...document.querySelectorAll('.scroll, .plate, .number-card')].every("
            "b => b.getBoundingClientRect().right <= innerWidth)"
        )
    contrasts = page.run(CONTRASTS)
    assert len(contrasts) > 100
    assert min(contrasts)[0] >= 4.5, min(contrasts)
    bottom = page.run("return document.querySelector('.badge').getBoundingClientRect().bottom")
    assert 0 < bottom < 500  # the verdict is on the first screen


def test_it_needs_no_script_and_no_network(page: Any, written: Written) -> None:
    page.open(written.file)
    events = [json.loads(entry["message"])["message"] for entry in page.logs("performance")]
    sent = [e["params"]["request"]["url"] for e in events if e["method"] == REQUEST]
    assert [url for url in sent if not url.startswith("data:")] == [written.file.as_uri()]
    lengths = page.run(
        "return [...document.querySelectorAll('.shares span')].map("
        "s => s.getBoundingClientRect().width / s.parentElement.getBoundingClientRect().width)"
    )
    shares = [arm.stops.value for arm in written.diagnosis.arms]
    assert lengths == pytest.approx(shares, abs=0.02)  # 2 px at least
    visible = "return document.querySelector('details table').checkVisibility()"
    assert not page.run(visible)
    page.run("document.querySelector('summary').click()")
    assert page.run(visible)
    assert page.run("return document.scripts.length") == 0
    assert page.logs("browser") == []
