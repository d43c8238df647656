"""The report of a diagnosis: complete content, escaped names, atomic files."""

import csv
import re
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stopwise.intervals import Interval
from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.report import write_label_rows, write_report
from stopwise.logs.diagnosis.sections import ReportSection, main_numbers, sections
from stopwise.logs.log import Log
from stopwise.logs.vocabulary import AnswerCount, AnswerTable
from tests.helpers.log_files import save
from tests.unit.logs.diagnosis.samples import EVIL, LONG, hostile, labelled, unlabelled
from tests.unit.reporting.reader import Reader

SECTIONS = ["saving", "frontier", "disagreement", "answers", "reliability", "over-time"]
SECTIONS += ["labels", "how"]
COMMAND = "stopwise diagnose triage.parquet --costs 0.01,0.24,0.25"
changed = msgspec.structs.replace


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


def section(diagnosis: Diagnosis, name: str, **changes: Any) -> ReportSection:
    (match,) = [s for s in sections(changed(diagnosis, **changes)) if s.name == name]
    return match


@pytest.mark.parametrize("which", ["plain", "audited"])
def test_report_has_every_file_section_figure_and_number(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    written: Written = request.getfixturevalue(which)
    panels = [panel for s in sections(written.diagnosis) for panel in s.panels]
    pictures = [panel.picture for panel in panels if panel.picture is not None]
    names = {"frontier", "reliability"}
    assert {p.name for p in pictures} == names
    figures = {f"figures/{name}.{kind}" for name in names for kind in ("svg", "png")}
    files = {p.relative_to(written.folder).as_posix() for p in written.folder.rglob("*.*")}
    assert files == {"report.html", "diagnosis.json"} | figures
    assert written.progress == [("drawing", k, len(names)) for k in range(len(names) + 1)]
    # every section, in order, and in the contents
    page = written.page
    anchors = [attributes.get("id") for tag, attributes in page.tags if tag == "section"]
    assert [anchor for anchor in anchors if anchor] == SECTIONS
    links = [str(a["href"])[1:] for a in page.all("a")]
    assert [link for link in links if link in SECTIONS][-len(SECTIONS) :] == SECTIONS
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert set(links) <= set(ids)
    options = " --answers --labels 100" if which == "audited" else " --answers"
    assert f"<code>{COMMAND.replace('diagnose', 'replay')}{options}</code>" in written.source
    assert "stopwise replay plays three policies on this log and recommends one" in written.text
    assert written.text.count("Recommended: ") == 1
    # every picture has a description and its numbers
    assert [img["alt"] for img in page.all("img")] == [p.alt for p in pictures]
    assert len(page.all("details")) == len(pictures)
    assert all(picture.title in picture.alt for picture in pictures)
    for panel in panels:
        assert all(len(row) == len(panel.table.columns) for row in panel.table.rows)
    # the JSON is the diagnosis; the same diagnosis is the same bytes
    content = (written.folder / "diagnosis.json").read_bytes()
    assert msgspec.json.decode(content, type=Diagnosis) == written.diagnosis
    assert msgspec.json.decode(content)["command"] == COMMAND
    if which == "audited":  # this one has every figure
        write_report(written.diagnosis, tmp_path, command=COMMAND)
    for name in files if which == "audited" else ():
        assert (tmp_path / name).read_bytes() == (written.folder / name).read_bytes()


def test_verdict_and_key_numbers_come_first(plain: Written) -> None:
    diagnosis = plain.diagnosis
    head = plain.text.partition("Contents")[0].replace("\u00a0", " ")
    saving, answers = main_numbers(diagnosis)
    expected = [
        "4,000 rounds, 4 arms",
        diagnosis.verdict.headline,
        "? labels needed",
        diagnosis.recommendation.sentence,
        diagnosis.verdict.reason,
        f"{saving.label} {saving.number}",
        "Where Stopwise would stop rules",
        f"{answers.label} {answers.number}",
        f"Further points Labels on {diagnosis.plan.labels:,} random rows",
    ]
    positions = [head.find(text.replace("\u00a0", " ")) for text in expected]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert f"Labels on {diagnosis.plan.labels:,} rows are needed" in diagnosis.verdict.headline
    assert diagnosis.recommendation.sentence.startswith(
        f"Recommended: label {diagnosis.plan.labels:,} "
    )
    assert saving.number == f"{1000 * diagnosis.saving.per_round.value:.3g}"
    end = plain.text.rpartition("How it was computed")[2]
    for text in (COMMAND, "4,000 in the log", "x0, x1, x2 and x3", *diagnosis.notes):
        assert text in end


def test_labels_replace_the_unverified_assumptions(plain: Written, audited: Written) -> None:
    assert "cannot be verified" in plain.text
    assert "cannot be verified" not in audited.text


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    written = Written(hostile(), tmp_path)
    assert written.page.all("script") == []
    assert '<script>alert("arms")</script> &' in written.page.text
    assert "<script>" not in written.source
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", written.source)
    # truncated everywhere except in the reason and a note
    assert written.page.text.count(LONG) == 2
    assert f"{LONG[:79]}…" in written.page.text
    figures = [p.read_text(encoding="utf-8") for p in tmp_path.glob("figures/*.svg")]
    assert len(figures) == 2
    assert not any("<script>" in svg or "\x00" in svg for svg in figures)
    exact = msgspec.json.decode((tmp_path / "diagnosis.json").read_bytes(), type=Diagnosis)
    assert exact.arms[0].name == EVIL


def test_arm_names_may_be_rule_or_lack_glyphs(audited: Written, tmp_path: Path) -> None:
    """The rule is called Stopwise; a missing glyph raises no warning (an error in tests)."""
    names = ("rule", "the rule", "模型")
    arms = tuple(changed(a, name=n) for a, n in zip(labelled().arms, names, strict=True))
    written = Written(changed(labelled(), arms=arms), tmp_path)
    for name in ("saving", "labels"):
        table = section(written.diagnosis, name).panels[0].table
        assert [row[0] for row in table.rows] == ["Stopwise", *(f"always `{n}`" for n in names)]
    assert "模型" in written.text
    assert "the rule" not in audited.text.lower().replace("label-free rule", "")


def test_report_omits_panels_without_context_and_shows_no_negative_zero() -> None:
    nothing = changed(unlabelled().saving, per_round=Interval(5.55e-17, -5.55e-17, 5.55e-17))
    bare = changed(unlabelled(), context=(), saving=nothing)
    assert section(bare, "labels").panels == ()
    assert "No significant saving" in section(bare, "saving").text
    number = main_numbers(bare)[0]
    assert (number.number, "e-" in number.explanation) == ("0", False)
    assert "(95 %: 0 to 0)" in number.explanation


def test_the_saving_is_compared_with_the_best_fixed_depth() -> None:
    """By the labels, or if no deeper arm can be worth its cost; otherwise with the last arm."""
    diagnosis = labelled()
    assert diagnosis.audit is not None
    saved = main_numbers(diagnosis)[0]
    assert float(saved.number.replace("−", "-")) == pytest.approx(
        -1000 * diagnosis.audit.lost.value, rel=0.01
    )
    best = diagnosis.arms[diagnosis.audit.best_fixed].name
    assert (
        f"compared with always `{best}`, the best fixed depth according to the labels"
        in saved.explanation
    )
    bare = unlabelled()
    assert f"of the cost of always `{bare.arms[-1].name}`" in main_numbers(bare)[0].explanation
    settled = changed(bare, plan=changed(bare.plan, first=0, second=None, labels=0))
    saved = main_numbers(settled)[0]
    spent = bare.arms[-1].total - bare.saving.per_round.value
    less = 1000 * (bare.arms[0].total - spent)
    assert float(saved.number.replace("−", "-")) == pytest.approx(less, rel=0.01)
    assert f"compared with always `{bare.arms[0].name}`, the best fixed depth" in saved.explanation


def test_answers_of_a_single_arm_are_flagged() -> None:
    names = tuple(arm.name for arm in labelled().arms)
    rows = (
        AnswerCount("well", (60, 70, 80), 12, None),
        AnswerCount("wel", (9, 0, 0), 0, names[0]),
        AnswerCount("unknown", (0, 0, 0), 3, None),
    )
    listed = section(labelled(), "answers", answers=AnswerTable(rows, (5, 1, 1), (2, 0, 0)))
    assert [row[1:] for row in listed.panels[0].table.rows] == [
        (60, 70, 80, 12, "–"),
        (9, 0, 0, 0, f"only `{names[0]}`"),
        (0, 0, 0, 3, "only labels"),
        (2, 0, 0, "–", "–"),
    ]
    unlisted = section(labelled(), "answers", answers=AnswerTable((), (1000, 1000, 9), (1, 1, 1)))
    assert unlisted.panels == ()
    assert "Too many distinct answers to list" in unlisted.text


def test_warnings_come_before_the_recommendation(tmp_path: Path) -> None:
    notes = ("Warning: only 'slow' gives this answer.", *labelled().notes)
    head = Written(changed(labelled(), notes=notes), tmp_path).text.partition("Contents")[0]
    assert 0 < head.find(notes[0]) < head.find("Recommended: ")


def test_steps_in_a_currency_are_compared_in_errors() -> None:
    """With ten times the amounts and the error cost, the same steps can pay."""

    def pays(diagnosis: Diagnosis) -> list[object]:
        return [row[-1] for row in section(diagnosis, "disagreement").panels[0].table.rows]

    diagnosis = labelled()
    money = changed(
        diagnosis, error_cost=10.0, pairs=tuple(changed(p, gap=10 * p.gap) for p in diagnosis.pairs)
    )
    assert pays(money) == pays(diagnosis)
    assert set(pays(diagnosis)) == {"yes"}


def test_an_interrupt_while_drawing_leaves_no_files(tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, of: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(unlabelled(), tmp_path / "new", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.01, 0.05, "loses 0.03 per round against"),
        (-0.05, -0.01, "gains 0.03 per round over"),
        (-0.01, 0.01, "does as well as"),
    ],
)
def test_the_difference_is_stated_only_if_its_interval_excludes_zero(
    low: float, high: float, outcome: str
) -> None:
    audit = labelled().audit
    assert audit is not None
    other = changed(audit, lost=Interval((low + high) / 2, low, high))
    assert outcome in section(labelled(), "labels", audit=other).text


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_label_rows_are_copied_from_the_log(tmp_path: Path, kind: str) -> None:
    """Also in another order, with quotation marks, and with times in Parquet."""
    n, answers = 66_000, ['ill, or "so"', "well"]
    table: dict[str, Any] = {"id": [f"v{k}" for k in range(n)], "context.x": [0.5] * n}
    table |= {"output.a": answers * (n // 2), "output.b": answers[::-1] * (n // 2)}
    if kind == "parquet":
        table["time"] = pa.array(range(n), pa.timestamp("s"))
    log = Log(save(tmp_path / f"log.{kind}", table))
    write_label_rows(log, [65_999, 2], tmp_path / "todo.csv")
    with (tmp_path / "todo.csv").open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    times = ["time"] if kind == "parquet" else []
    assert header == ["row", "id", *times, "output.a", "output.b", "label"]
    cells = [[line[0], line[1], *line[-3:]] for line in lines]
    assert cells == [
        ["66000", "v65999", "well", answers[0], ""],
        ["3", "v2", answers[0], "well", ""],
    ]
