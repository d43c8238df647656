"""The report of a diagnosis on a laptop and a phone, in light and dark mode."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.report import write_report
from stopwise.logs.diagnosis.sections import sections
from tests.browser.screens import SCREENS, check_report
from tests.unit.logs.diagnosis.samples import hostile, labelled, unlabelled


class Written(NamedTuple):
    diagnosis: Diagnosis
    file: Path


@pytest.fixture(scope="module", params=[labelled, unlabelled, hostile])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    diagnosis: Diagnosis = request.param()
    page = write_report(diagnosis, tmp_path_factory.mktemp("diagnosis"))
    alone = tmp_path_factory.mktemp("alone") / "report.html"  # the page is self-contained
    return Written(diagnosis, page.rename(alone))


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_diagnosis_is_readable_on_every_screen(
    page: Any, written: Written, width: int, scheme: str
) -> None:
    panels = [panel for section in sections(written.diagnosis) for panel in section.panels]
    pictures = sum(panel.picture is not None for panel in panels)
    check_report(page, written.file, width, scheme, pictures)
    bottom = page.run("return document.querySelector('.badge').getBoundingClientRect().bottom")
    assert 0 < bottom < 500  # the verdict is on the first screen


def test_diagnosis_works_without_scripts(page: Any, written: Written) -> None:
    page.open(written.file)
    lengths = page.run(
        "return [...document.querySelectorAll('.shares span')].map("
        "s => s.getBoundingClientRect().width / s.parentElement.getBoundingClientRect().width)"
    )
    shares = [arm.stops.value for arm in written.diagnosis.arms]
    assert lengths == pytest.approx(shares, abs=0.02)  # at least 2 px
    visible = "return document.querySelector('details table').checkVisibility()"
    assert not page.run(visible)
    page.run("document.querySelector('summary').click()")
    assert page.run(visible)
    assert page.run("return document.scripts.length") == 0
