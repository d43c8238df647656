"""The report as files: whole, the same for the same numbers, with nothing lost or let through."""

import re
from pathlib import Path

import msgspec
import pytest

from stopwise.errors import InvalidParameterError
from stopwise.experiments.summary import Interval
from stopwise.paper.report import judged, settings_of, tally, write_report
from stopwise.reporting.text import hint, shown, spans
from tests.browser.sample_report import EVIL, FRACTIONS, REGRET, REPORT
from tests.unit.reporting.reader import Reader

KINDS = ("csv", "parquet")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(REPORT, folder)
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> Reader:
    return Reader((out / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def text(out: Path) -> str:
    return (out / "report.md").read_text(encoding="utf-8")


def test_every_file_is_there_and_nothing_else(out: Path) -> None:
    found = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    numbers = {f"numbers/{name}.{kind}" for name in ("claims", "final") for kind in KINDS}
    assert (
        found == {"report.html", "report.md", "figures/curves.svg", "figures/curves.png"} | numbers
    )


def test_the_same_report_is_the_same_bytes(out: Path, tmp_path: Path) -> None:
    write_report(REPORT, tmp_path)
    write_report(REPORT, tmp_path)  # over the first
    for path in out.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / path.relative_to(out)).read_bytes(), path.name


def test_an_unfinished_file_never_takes_the_place_of_a_whole_one(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(REPORT, tmp_path)

    def full_disk(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_report(REPORT, tmp_path)
    monkeypatch.undo()
    names = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    left = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert left == names


def test_the_page_is_alone_in_the_world(page: Reader) -> None:
    assert page.all("script") == []
    assert all(str(img["src"]).startswith("data:image/svg+xml;base64,") for img in page.all("img"))
    assert all(str(a["href"]).startswith("#") for a in page.all("a"))
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_every_link_of_the_page_leads_somewhere(page: Reader) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(a["href"])[1:] for a in page.all("a")} <= set(ids)
    assert {"regret", "fractions", "choices", "settings", "provenance"} <= set(ids)


def test_the_page_says_all_there_is_to_say(page: Reader) -> None:
    for section in REPORT.sections:
        for claim in section.claims:
            assert claim.numbers in page.text
    for words in (
        REPORT.title,
        REPORT.command,
        REPORT.scale,
        "As we recommend.",
        "Cut off | here.",
        "Criterion: by a paired interval.",
        "2024-05-01 12:00:00 UTC",
        "1 min 15 s",
        EVIL,
    ):
        assert words in page.text
    assert str(page.all("img")[0]["alt"]) == f"A rising line. {EVIL}"


def test_the_reason_is_given_where_a_claim_did_not_hold(page: Reader, text: str) -> None:
    bad = sum(c.verdict != "held" and bool(c.why) for s in REPORT.sections for c in s.claims)
    assert bad == 2
    assert page.text.count("The radius is large.") == bad
    assert text.count("The radius is large.") == bad


def test_verdicts_are_words_and_not_colour_alone(page: Reader) -> None:
    text = page.text.partition("Verdicts at a glance")[2]
    for verdict, count in tally(REPORT).items():
        # in the tally once, in the table and beside the numbers once for each claim
        assert len(re.findall(rf"[✓✗?] {verdict}\b", text)) == 1 + 2 * count


def test_claims_meet_under_their_settings() -> None:
    assert settings_of(REPORT) == ["literal", "practical"]
    assert [len(one.verdicts) for one in judged(REGRET)] == [2, 2]
    assert [one.under("") for one in judged(FRACTIONS)] == [FRACTIONS.claims]
    assert tally(REPORT) == {"held": 3, "did not hold": 1, "undecided": 1}


def test_markdown_tables_have_one_width_each(text: str) -> None:
    widths: list[int] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        elif widths:
            assert len(set(widths)) == 1
            assert len(widths) > 2
            widths = []


def test_markdown_shows_what_looks_like_markup_as_it_is(text: str) -> None:
    assert r"\<script\>alert(1)\</script\> \& " in text
    assert "<script>" not in text
    assert "2\\*3\\*4" in text
    assert "`code_in_it` and *emphasis*" in text


def test_markdown_links_the_figures_that_are_there(out: Path, text: str) -> None:
    links = re.findall(r"\]\(([^)]+\.svg)\)", text)
    assert links == ["figures/curves.svg"]
    assert all((out / link).is_file() for link in links)


def test_letters_in_figures_need_no_font(out: Path) -> None:
    svg = (out / "figures/curves.svg").read_text(encoding="utf-8")
    assert "<text" not in svg
    assert "<dc:date>" not in svg


@pytest.mark.parametrize("name", ["../evil", "", "a/b", "a b", ".hidden"])
def test_a_name_that_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    picture = msgspec.structs.replace(REGRET.pictures[0], name=name)
    section = msgspec.structs.replace(REGRET, pictures=(picture,))
    with pytest.raises(InvalidParameterError, match="letters, figures"):
        write_report(msgspec.structs.replace(REPORT, sections=(section,)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = msgspec.structs.replace(REPORT, sections=(REGRET, REGRET))
    with pytest.raises(InvalidParameterError, match="2 sections are called 'regret'"):
        write_report(twice, tmp_path)


def test_progress_counts_the_pictures(tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    write_report(REPORT, tmp_path, lambda *words: said.append(words))
    assert said == [("drawing", 0, 1), ("drawing", 1, 1)]


def test_an_empty_report_is_a_report(tmp_path: Path) -> None:
    bare = msgspec.structs.replace(REPORT, sections=(), choices=(), settings=())
    write_report(bare, tmp_path)
    page = Reader((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "0 verdicts" in page.text
    assert "leaves open" not in page.text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Interval(1037.2, 843.1, 1231.3, 3), "1037 ± 194"),
        (Interval(0.72431, 0.72131, 0.72731, 3), "0.7243 ± 0.0030"),
        (Interval(-0.004, -0.104, 0.096, 9), "0.00 ± 0.10"),
        (Interval(123456.0, 123356.0, 123556.0, 9), "123,456 ± 100"),
        (Interval(0.687, 0.687 - 2.8e-16, 0.687 + 2.8e-16, 9), "0.687 ± 0"),
        (Interval(0.5, 0.2, 0.6, 9), "0.50 [0.20, 0.60]"),
        (Interval(2.0, float("-inf"), float("inf"), 1), "2"),
        (Interval(float("nan"), 0.0, 1.0, 1), "–"),
        (float("inf"), "–"),
        (-12345.6, "−12,346"),
        (-0.0, "0"),
        (0.0692, "0.0692"),
        (7, "7"),
        (20000, "20,000"),
        (-3, "−3"),
        (True, "yes"),
        ("as it is", "as it is"),
    ],
)
def test_numbers_are_worded_with_the_digits_that_mean_something(
    value: str | float | int | Interval, words: str
) -> None:
    assert shown(value) == words


def test_the_interval_is_there_for_those_who_ask() -> None:
    assert (
        hint(Interval(2.0, 1.75, 2.25, 40)) == "95 % confidence interval 1.750 to 2.250, mean of 40"
    )
    assert hint(Interval(2.0, float("-inf"), float("inf"), 1)) == "one value: no interval"
    assert hint(2.0) == hint("word") == ""


@pytest.mark.parametrize("text", ["a * b * c", "2*3*4", "*", "`", "``", "* x *", "a*b *c"])
def test_signs_that_are_no_markup_stay(text: str) -> None:
    assert [(span.kind, span.text) for span in spans(text)] == [("text", text)]
