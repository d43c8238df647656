"""The report of a diagnosis: everything found is in it, nothing hostile gets through."""

import re
from pathlib import Path

import msgspec
import pytest

from stopwise.logs.diagnosis.findings import Diagnosis, Estimate
from stopwise.logs.diagnosis.report import write_report
from stopwise.logs.diagnosis.sections import sections
from stopwise.logs.diagnosis.words import main_numbers
from tests.unit.logs.diagnosis.samples import EVIL, LONG, hostile, labelled, unlabelled
from tests.unit.reporting.reader import Reader

SECTIONS = ["saving", "frontier", "disagreement", "reliability", "labels", "how"]
COMMAND = "stopwise diagnose triage.parquet --costs 0.01,0.24,0.25"


class Written:
    def __init__(self, diagnosis: Diagnosis, folder: Path) -> None:
        self.folder, self.diagnosis = folder, diagnosis
        self.progress: list[tuple[str, int, int]] = []
        page = write_report(
            diagnosis, folder, command=COMMAND, progress=lambda *args: self.progress.append(args)
        )
        self.source = page.read_text(encoding="utf-8")
        self.page = Reader(self.source)
        self.text = " ".join(self.page.text.split())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(unlabelled(), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(labelled(), tmp_path_factory.mktemp("audited"))


def section(diagnosis: Diagnosis, name: str):
    (found,) = [s for s in sections(diagnosis) if s.name == name]
    return found


def captions(diagnosis: Diagnosis, name: str) -> str:
    pictures = [p.picture for p in section(diagnosis, name).panels]
    return " ".join(picture.title for picture in pictures if picture is not None)


def test_every_file_is_there_and_nothing_else(plain: Written, audited: Written) -> None:
    for written, pictures in (
        (plain, {"frontier", "reliability"}),
        (audited, {"frontier", "reliability", "losses"}),
    ):
        found = {p.relative_to(written.folder).as_posix() for p in written.folder.rglob("*.*")}
        figures = {f"figures/{name}.{kind}" for name in pictures for kind in ("svg", "png")}
        assert found == {"report.html", "diagnosis.json"} | figures
        n = len(pictures)
        assert written.progress == [("drawing", k, n) for k in range(n + 1)]


def test_every_section_is_there_in_order_and_in_the_contents(
    plain: Written, audited: Written
) -> None:
    for written in (plain, audited):
        found = [attributes.get("id") for tag, attributes in written.page.tags if tag == "section"]
        assert [anchor for anchor in found if anchor] == SECTIONS
        links = [str(a["href"])[1:] for a in written.page.all("a")]
        assert [link for link in links if link in SECTIONS][-6:] == SECTIONS
        ids = [attributes["id"] for _, attributes in written.page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert set(links) <= set(ids)


def test_every_picture_has_a_description_and_its_numbers(audited: Written) -> None:
    panels = [panel for s in sections(labelled()) for panel in s.panels]
    pictures = [panel.picture for panel in panels if panel.picture is not None]
    assert [img["alt"] for img in audited.page.all("img")] == [p.alt for p in pictures]
    assert len(audited.page.all("details")) == len(pictures)
    assert all(picture.title in picture.alt for picture in pictures)
    for panel in panels:
        assert all(len(row) == len(panel.table.columns) for row in panel.table.rows)


def test_the_verdict_comes_first_then_three_numbers_then_the_question(plain: Written) -> None:
    found = plain.diagnosis
    head = plain.text.partition("Contents")[0].replace("\u00a0", " ")
    saving, changed = main_numbers(found)
    expected = [
        "4,000 rounds, 4 arms",
        "This cascade can probably learn where to stop, without labels",
        "? probably",
        found.verdict.reason,
        f"{saving.label} {saving.number}",
        "Where it would stop rules",
        f"{changed.label} {changed.number}",
        "A question for labels Is large really better than medium",
        "What else to know Without labels",
    ]
    places = [head.find(words.replace("\u00a0", " ")) for words in expected]
    assert -1 not in places
    assert places == sorted(places)
    assert saving.number == f"{1000 * found.saving.per_round.value:.3g}"
    assert [a["class"] for a in plain.page.all("aside")] == ["warning amber"]


def test_labels_replace_the_hint_and_the_plan(plain: Written, audited: Written) -> None:
    assert "cannot be verified" in plain.text
    assert "seems right" in plain.text
    assert "How many labels answer the question" in plain.text
    assert "What the labels show" in audited.text
    assert audited.page.all("aside") == []
    for absent in ("cannot be verified", "seems right", "How many labels"):
        assert absent not in audited.text


def test_how_it_was_computed_can_be_repeated(plain: Written) -> None:
    end = plain.text.rpartition("How it was computed")[2]
    for words in (COMMAND, "4,000 in the log", "x0, x1, x2 and x3", *plain.diagnosis.notes):
        assert words in end


def test_the_json_is_the_diagnosis(plain: Written) -> None:
    content = (plain.folder / "diagnosis.json").read_bytes()
    assert msgspec.json.decode(content, type=Diagnosis) == plain.diagnosis
    assert msgspec.json.decode(content)["command"] == COMMAND


def test_hostile_names_are_visible_and_do_nothing(tmp_path: Path) -> None:
    written = Written(hostile(), tmp_path)
    assert written.page.all("script") == []
    assert '<script>alert("arms")</script> &' in written.page.text
    assert "<script>" not in written.source
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", written.source)
    # cut everywhere but in the reason and a note, which are used as they are
    assert written.page.text.count(LONG) == 2
    assert f"{LONG[:79]}…" in written.page.text
    figures = [p.read_text(encoding="utf-8") for p in tmp_path.glob("figures/*.svg")]
    assert len(figures) == 2
    assert not any("<script>" in svg or "\x00" in svg for svg in figures)
    exact = msgspec.json.decode((tmp_path / "diagnosis.json").read_bytes(), type=Diagnosis)
    assert exact.arms[0].name == EVIL


def test_an_arm_called_rule_and_letters_no_font_has(audited: Written, tmp_path: Path) -> None:
    """The series beside the arms is called Stopwise; no warning (they are errors here)."""
    names = ("rule", "the rule", "模型")
    arms = tuple(
        msgspec.structs.replace(a, name=n) for a, n in zip(labelled().arms, names, strict=True)
    )
    written = Written(msgspec.structs.replace(labelled(), arms=arms), tmp_path)
    for name in ("saving", "labels"):
        table = section(written.diagnosis, name).panels[0].table
        assert [row[0] for row in table.rows] == ["Stopwise", *(f"always `{n}`" for n in names)]
    assert "模型" in written.text
    assert "the rule" not in audited.text.lower().replace("label-free rule", "")


def test_the_same_diagnosis_is_the_same_bytes(plain: Written, tmp_path: Path) -> None:
    write_report(plain.diagnosis, tmp_path, command=COMMAND)
    for path in plain.folder.rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(plain.folder)).read_bytes()


def test_a_diagnosis_with_next_to_nothing_in_it() -> None:
    bare = msgspec.structs.replace(unlabelled(), groups=(), context=(), plan=None, hint=None)
    assert len(section(bare, "disagreement").panels) == 1
    assert section(bare, "labels").panels == ()


def test_interrupted_while_drawing_nothing_is_left(tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(unlabelled(), tmp_path / "new", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.01, 0.05, "loses 0.03 a round against"),
        (-0.05, -0.01, "gains 0.03 a round over"),
        (-0.01, 0.01, "does as well as"),
    ],
)
def test_a_difference_is_named_only_where_it_is_known(
    low: float, high: float, expected: str
) -> None:
    start = labelled().audit
    assert start is not None
    audit = msgspec.structs.replace(start, lost=Estimate((low + high) / 2, low, high))
    assert expected in captions(msgspec.structs.replace(labelled(), audit=audit), "labels")


def test_no_saving_and_rounding_errors_are_0() -> None:
    nothing = msgspec.structs.replace(
        unlabelled().saving, per_round=Estimate(5.55e-17, -5.55e-17, 5.55e-17)
    )
    found = msgspec.structs.replace(unlabelled(), saving=nothing)
    assert "No saving can be shown" in section(found, "saving").text
    number = main_numbers(found)[0]
    assert (number.number, "e-" in number.words) == ("0", False)
    assert "(95 %: 0 to 0)" in number.words


def test_the_frontier_compares_at_equal_cost() -> None:
    """Between costs 0.03 (differs in 25 %) and 0.09 (in 10 %) it differs in 17.5 % at 0.06."""
    start = labelled()
    first, second = start.frontier[:2]
    curve = (
        msgspec.structs.replace(first, cost=0.09, disagreement=Estimate(0.1, 0.1, 0.1)),
        msgspec.structs.replace(second, cost=0.03, disagreement=Estimate(0.25, 0.25, 0.25)),
    )
    for low, high, clear in ((0.24, 0.26, True), (0.14, 0.26, False)):
        small = msgspec.structs.replace(
            start.fixed[1], cost=0.06, disagreement=Estimate(0.25, low, high)
        )
        fixed = (start.fixed[0], small, start.fixed[2])
        found = captions(msgspec.structs.replace(start, frontier=curve, fixed=fixed), "frontier")
        assert ("in 18\u00a0% of rounds (always `small`: 25\u00a0%)" in found) == clear
