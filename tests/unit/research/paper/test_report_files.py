"""Files of the reproduction report: completeness, determinism, escaping."""

import re
from pathlib import Path

import msgspec
import pytest

from stopwise.research.paper.report import (
    claims_by_setting,
    headline,
    tally,
    undecided_note,
    write_report,
)
from tests.browser.sample_report import EVIL, FRACTIONS, REGRET, REPORT
from tests.unit.reporting.reader import Reader
from tests.unit.test_files import contents as files


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(REPORT, folder)
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> Reader:
    return Reader((out / "report.html").read_text(encoding="utf-8"))


def test_report_writes_all_files_and_figures_need_no_font(out: Path) -> None:
    numbers = {f"numbers/{n}.{k}" for n in ("claims", "final") for k in ("csv", "parquet")}
    assert set(files(out)) == {"report.html", "figures/curves.svg", "figures/curves.png"} | numbers
    svg = (out / "figures/curves.svg").read_text(encoding="utf-8")
    assert "<text" not in svg
    assert "<dc:date>" not in svg


def test_writing_is_deterministic_and_a_full_disk_keeps_the_older_files(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress: list[tuple[str, int, int]] = []
    write_report(REPORT, tmp_path, lambda *now: progress.append(now))
    assert progress == [("drawing", 0, 1), ("drawing", 1, 1)]
    assert files(tmp_path) == files(out)

    def full_disk(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_report(REPORT, tmp_path)
    monkeypatch.undo()
    assert files(tmp_path) == files(out)


def test_page_is_self_contained_and_its_links_resolve(page: Reader) -> None:
    assert page.all("script") == []
    assert all(str(img["src"]).startswith("data:image/svg+xml;base64,") for img in page.all("img"))
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert "url(" not in page.text
    assert "@import" not in page.text
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [str(a["href"]) for a in page.all("a")]
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(ids)
    assert {"regret", "fractions", "choices", "settings", "provenance"} <= set(ids)


def test_page_contains_all_content_escaped(page: Reader) -> None:
    claims = [claim for section in REPORT.sections for claim in section.claims]
    texts = [claim.numbers for claim in claims]
    texts += [REPORT.title, REPORT.command, REPORT.scale, "Less exploration.", "Cut off | here."]
    texts += ["Criterion: by a paired interval.", "2024-05-01 12:00:00 UTC", "1 min 15 s", EVIL]
    texts += ["always stops at arm 3"]  # the explanation of I_t=3
    texts += [headline(REPORT)]
    for text in texts:
        assert text.replace(" ± ", "\u00a0±\u00a0") in page.text  # no line break next to ±
    assert str(page.all("img")[0]["alt"]) == f"A rising line. {EVIL}"
    # a reason is shown if a claim did not hold, and not if it is undecided
    assert page.text.count("The radius is large.") == 1
    text = page.text.partition("Summary of verdicts")[2]
    for verdict, count in tally(*REPORT.sections).items():
        # once in the tally; for each claim once in the table and once next to the numbers
        assert len(re.findall(rf"[✓✗?] {verdict}\b", text)) == 1 + 2 * count


def test_headline_leads_with_the_reproduced_results() -> None:
    assert headline(REPORT) == (
        "Reproduced 2 tables and figures of the paper, with 5 tests of its claims: 3 held, "
        "1 did not hold and 1 remained undecided."
    )


def test_claims_are_grouped_by_setting() -> None:
    assert [list(verdicts) for verdicts in claims_by_setting(REGRET)] == [
        ["literal", "near-greedy"]
    ] * 2
    assert claims_by_setting(FRACTIONS) == [{"": FRACTIONS.claims[0]}]
    assert tally(*REPORT.sections) == {"held": 3, "did not hold": 1, "undecided": 1}


def test_quick_report_says_how_to_decide_undecided_claims(page: Reader) -> None:
    assert undecided_note(REPORT) in page.text
    assert "--quick" not in undecided_note(REPORT)
    quick = msgspec.structs.replace(REPORT, quick=True)
    assert "too few repetitions to decide" in undecided_note(quick)
    assert "99.9% interval" in undecided_note(quick)
    assert "horizon" in undecided_note(REPORT)
    assert "without --quick" in undecided_note(quick)
    assert undecided_note(msgspec.structs.replace(quick, sections=(FRACTIONS,))) == ""
