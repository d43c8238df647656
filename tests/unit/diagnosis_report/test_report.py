"""The report of a diagnosis: everything found is said, nothing hostile gets through."""

import re
from itertools import chain
from pathlib import Path

import msgspec
import pytest

from stopwise.logs.diagnosis import words
from stopwise.logs.diagnosis.findings import Diagnosis, Estimate
from stopwise.logs.diagnosis.report import write_report
from stopwise.logs.diagnosis.sections import parts
from tests.unit.diagnosis_report.sample import BAD, EVIL, GOOD, HOSTILE, LONG
from tests.unit.reporting.reader import Reader

SECTIONS = [
    "stops",
    "saving",
    "frontier",
    "disagreement",
    "reliability",
    "margins",
    "accuracy",
    "audit",
    "how",
]
ALWAYS = {"stops", "costs", "frontier", "pairs", "groups", "reliability", "margins"}
COMMAND = "stopwise diagnose triage.parquet --costs 0.01,0.24,0.25"


class Written:
    def __init__(self, diagnosis: Diagnosis, folder: Path) -> None:
        self.folder = folder
        self.path = write_report(diagnosis, folder, command=COMMAND)
        self.source = self.path.read_text(encoding="utf-8")
        self.page = Reader(self.source)
        self.text = " ".join(self.page.text.split())

    def anchors(self) -> list[str | None]:
        return [attributes.get("id") for tag, attributes in self.page.tags if tag == "section"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(GOOD, tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(BAD, tmp_path_factory.mktemp("bad"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(HOSTILE, tmp_path_factory.mktemp("hostile"))


def test_every_file_is_there_and_nothing_else(good: Written, bad: Written) -> None:
    for written, pictures in (
        (good, ALWAYS | {"accuracy"}),
        (bad, ALWAYS | {"accuracy", "losses", "repairs"}),
    ):
        found = {p.relative_to(written.folder).as_posix() for p in written.folder.rglob("*.*")}
        figures = {f"figures/{name}.{kind}" for name in pictures for kind in ("svg", "png")}
        assert found == {"report.html", "diagnosis.json"} | figures


def test_every_section_is_there_in_order_and_in_the_contents(good: Written, bad: Written) -> None:
    for written in (good, bad):
        assert [anchor for anchor in written.anchors() if anchor] == SECTIONS
        links = [str(a["href"]) for a in written.page.all("a")]
        assert [link[1:] for link in links if link[1:] in SECTIONS][-9:] == SECTIONS
        ids = [attributes["id"] for _, attributes in written.page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert {link[1:] for link in links} <= set(ids)


def test_every_picture_has_words_and_its_numbers(bad: Written) -> None:
    shown = list(chain.from_iterable(part.exhibits for part in parts(BAD)))
    assert len(bad.page.all("img")) == len(bad.page.all("details")) == len(shown) == 10
    for exhibit in shown:
        assert len(exhibit.picture.alt) > len("Bars. ") + 20
        assert exhibit.picture.title in exhibit.picture.alt
        assert all(len(row) == len(exhibit.table.columns) for row in exhibit.table.rows)
    assert [img["alt"] for img in bad.page.all("img")] == [e.picture.alt for e in shown]


def test_the_page_is_alone_in_the_world(good: Written) -> None:
    assert good.page.all("script") == []
    images = good.page.all("img")
    assert all(str(img["src"]).startswith("data:image/svg+xml;base64,") for img in images)
    assert "http" not in re.sub(r"base64,[^\"]*", "", good.source)
    assert "url(" not in good.source
    assert "@import" not in good.source


def test_the_verdict_comes_first_with_its_reason_and_three_numbers(good: Written) -> None:
    head = good.text.partition("Contents")[0]
    said = [
        "48,210 rounds, 3 arms",
        "This cascade can learn where to stop, without labels",
        "✓ learnable",
        GOOD.verdict.reason,
        "Saved in 1,000 rounds 366",  # 0.5 − (0.61·0.01 + 0.27·0.25 + 0.12·0.5), times 1,000
        "73 % of what always running insulin costs",
        "history 61 %",
        "insulin 12 %",
        "Answers that would change 11.2 %",  # 0.6·(0.61·0.2334 + 0.27·0.1646)
        GOOD.verdict.points[0],
    ]
    places = [head.replace("\u00a0", " ").find(words) for words in said]
    assert -1 not in places
    assert places == sorted(places)


def test_an_arm_that_looks_worse_is_a_warning_with_what_dropping_it_saves(bad: Written) -> None:
    assert [a["class"] for a in bad.page.all("aside")] == ["warning amber"]
    box = bad.text.partition("⚠")[2].partition("What this rests on")[0]
    assert "large LLM costs more than small LLM and looks worse" in box
    assert "0.147 → 0.068" in box
    assert "0.302 → 0.149" in box


def test_a_warning_is_red_only_where_labels_confirm_it(tmp_path: Path) -> None:
    assert BAD.agreement is not None
    check = msgspec.structs.replace(BAD.agreement.check, passed=False)
    worse = msgspec.structs.replace(BAD.agreement.worse[0], confirmed=True)
    agreement = msgspec.structs.replace(BAD.agreement, check=check, worse=(worse,))
    written = Written(msgspec.structs.replace(BAD, agreement=agreement), tmp_path / "red")
    assert [a["class"] for a in written.page.all("aside")] == ["warning"]
    assert "labels confirm it" in written.text
    assert "Check failed." in written.text
    # one that matters little is no box; without labels nothing is red
    worse = msgspec.structs.replace(worse, confirmed=False, drives=False)
    agreement = msgspec.structs.replace(agreement, worse=(worse,))
    written = Written(msgspec.structs.replace(BAD, agreement=agreement), tmp_path / "none")
    assert written.page.all("aside") == []
    hinted = msgspec.structs.replace(BAD, audit=None, labelled=0)
    written = Written(hinted, tmp_path / "hinted")
    assert 'class="badge open"' in written.source
    assert "looks worse, by agreement alone" in written.text


def test_no_alarm_no_box(good: Written) -> None:
    assert good.page.all("aside") == []
    assert "Not checked." in good.text  # three arms and two classes fit anything


def test_a_warning_is_not_told_twice() -> None:
    assert BAD.agreement is not None
    alarm = BAD.agreement.worse[0].words
    verdict = msgspec.structs.replace(BAD.verdict, reason=f"It goes too deep. {alarm} Drop it.")
    assert words.reason(msgspec.structs.replace(BAD, verdict=verdict)) == (
        "It goes too deep. Drop it."
    )
    only = msgspec.structs.replace(BAD.verdict, reason=alarm)
    assert words.reason(msgspec.structs.replace(BAD, verdict=only)) == alarm


def test_without_labels_it_says_what_cannot_be_known_and_what_an_audit_would_settle(
    good: Written, bad: Written
) -> None:
    assert "cannot be verified" in good.text
    for plan in GOOD.plan:
        assert plan.words in good.text
    assert "cannot be verified" not in bad.text
    # 0.147 + 0.24 … the label-free rule against always the linear model, 0.145
    assert "loses 0.257 a round against always stopping at linear model" in bad.text
    assert "35 % (33 to 37) of the rounds" in bad.text.replace("\u00a0", " ")


def test_how_it_was_computed_can_be_repeated(good: Written) -> None:
    end = good.text.partition("How it was computed")[2].partition("How it was computed")[2]
    for said in (COMMAND, "48,210 in the log", "age, bmi and pregnancies", *GOOD.notes):
        assert said in end


def test_the_json_is_the_diagnosis(good: Written) -> None:
    content = (good.folder / "diagnosis.json").read_bytes()
    assert msgspec.json.decode(content, type=Diagnosis) == GOOD
    assert msgspec.json.decode(content)["command"] == COMMAND


def test_hostile_names_are_shown_and_do_nothing(hostile: Written) -> None:
    assert hostile.page.all("script") == []
    assert '<script>alert("arms")</script> &' in hostile.page.text
    assert "<script>" not in hostile.source
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", hostile.source)
    # cut wherever it stands, but for the reason and a note, which came as they are
    assert hostile.page.text.count(LONG) == 2
    assert f"{LONG[:79]}…" in hostile.page.text
    figures = [p.read_text(encoding="utf-8") for p in hostile.folder.glob("figures/*.svg")]
    assert len(figures) == len(ALWAYS)
    assert not any("<script>" in svg or "\x00" in svg for svg in figures)
    exact = msgspec.json.decode((hostile.folder / "diagnosis.json").read_bytes(), type=Diagnosis)
    assert exact.arms[0].name == EVIL


def test_the_same_diagnosis_is_the_same_bytes(good: Written, tmp_path: Path) -> None:
    write_report(GOOD, tmp_path, command=COMMAND)
    write_report(GOOD, tmp_path, command=COMMAND)  # over the first
    for path in good.folder.rglob("*.*"):
        again = tmp_path / path.relative_to(good.folder)
        assert path.read_bytes() == again.read_bytes(), path.name


def test_a_letter_no_font_has_is_no_reason_to_complain(tmp_path: Path) -> None:
    arms = tuple(msgspec.structs.replace(arm, name=f"模型 {k}") for k, arm in enumerate(GOOD.arms))
    written = Written(msgspec.structs.replace(GOOD, arms=arms), tmp_path)  # warnings are errors
    assert "模型 0" in written.text


def test_a_diagnosis_with_next_to_nothing_in_it(tmp_path: Path) -> None:
    bare = msgspec.structs.replace(
        GOOD,
        groups=(),
        context=(),
        reliability=(),
        margins=(),
        frontier=(),
        plan=(),
        agreement=None,
        notes=(),
        verdict=msgspec.structs.replace(GOOD.verdict, points=()),
    )
    written = Written(bare, tmp_path)
    assert [anchor for anchor in written.anchors() if anchor] == SECTIONS
    assert "never stops before the last arm" in written.text
    assert "takes three or more arms" in written.text
    assert len(written.page.all("img")) == 3


def test_many_arms(tmp_path: Path) -> None:
    wide = msgspec.structs.replace(
        BAD,
        reliability=BAD.reliability * 3,
        groups=tuple(
            msgspec.structs.replace(group, coordinate=f"column {k}")
            for k in range(10)
            for group in BAD.groups[:3]
        ),
    )
    written = Written(wide, tmp_path)
    assert "The 12 worst pairs are drawn." in written.text
    assert all(f"column {k}" in written.text for k in range(10))  # in the table, not the picture


def test_progress_counts_the_pictures(tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    write_report(GOOD, tmp_path, progress=lambda *words: said.append(words))
    assert said == [("drawing", k, 8) for k in range(9)]


def test_interrupted_while_drawing_nothing_is_left(tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, of: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(GOOD, tmp_path / "new", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.01, 0.05, "loses 0.03 a round against"),
        (-0.05, -0.01, "gains 0.03 a round over"),
        (-0.01, 0.01, "does as well as"),
    ],
)
def test_what_the_rule_loses_is_said_only_as_far_as_known(
    low: float, high: float, says: str
) -> None:
    assert BAD.audit is not None
    audit = msgspec.structs.replace(BAD.audit, lost=Estimate((low + high) / 2, low, high))
    assert says in words.loss(msgspec.structs.replace(BAD, audit=audit))


def test_no_saving_is_said_to_be_none() -> None:
    nothing = msgspec.structs.replace(GOOD.saving, per_round=Estimate(0.001, -0.001, 0.003))
    assert "No saving can be shown" in words.saving(msgspec.structs.replace(GOOD, saving=nothing))


def test_the_frontier_compares_at_equal_cost() -> None:
    """Between costs 0.1 (differs in 30 %) and 0.3 (in 10 %) it differs in 15 % at 0.25."""
    first, second = GOOD.frontier[:2]
    curve = (
        msgspec.structs.replace(first, cost=0.3, disagreement=Estimate(0.1, 0.1, 0.1)),
        msgspec.structs.replace(second, cost=0.1, disagreement=Estimate(0.3, 0.3, 0.3)),
    )
    for low, high, clear in ((0.19, 0.21, True), (0.14, 0.26, False)):
        glucose = msgspec.structs.replace(GOOD.fixed[1], disagreement=Estimate(0.2, low, high))
        fixed = (GOOD.fixed[0], glucose, GOOD.fixed[2])
        said = words.frontier(msgspec.structs.replace(GOOD, frontier=curve, fixed=fixed))
        assert ("in 15\u00a0% of rounds (always stopping at `glucose`: 20\u00a0%)" in said) == clear
