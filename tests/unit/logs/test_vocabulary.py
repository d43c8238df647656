"""Distinct answers are counted, and those of one arm alone are flagged."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import stopwise as sw
from stopwise.logs.diagnosis.diagnose import diagnose
from stopwise.logs.log import Columns
from stopwise.logs.vocabulary import MAX_LISTED, Vocabulary

N = 2000
CASCADE = sw.Cascade([0.01, 0.06, 0.15], names=("quick", "slow", "last"))


def columns(misspelled: int = 40) -> dict[str, Any]:
    """Three arms that say ill or well; the first ``misspelled`` rows of slow are "wel"."""
    random = np.random.default_rng(0)
    truth = np.where(random.random(N) < 0.5, "ill", "well")
    other = np.where(truth == "ill", "well", "ill")
    said = [np.where(random.random(N) < e, other, truth).tolist() for e in (0.2, 0.1, 0.03)]
    said[1][:misspelled] = ["wel"] * misspelled
    return {f"output.{arm}": s for arm, s in zip(CASCADE.names, said, strict=True)}


def counted(table: dict[str, Any], size: int = 300) -> Vocabulary:
    log = sw.Log(pa.table(table), Columns(context=()))
    found = Vocabulary(log.arms)
    for _ in found.watch(log.chunks(size)):
        pass
    return found


def test_every_answer_is_counted_by_arm() -> None:
    table = columns() | {"label": ["well", None, "sick", "ill"] * (N // 4)}
    found = counted(table).table()
    for one in found.listed:
        assert one.arms == tuple(table[f"output.{arm}"].count(one.answer) for arm in CASCADE.names)
        assert one.labels == table["label"].count(one.answer)
    only = {one.answer: one.only for one in found.listed}
    assert only == {"ill": None, "well": None, "wel": "slow", "sick": None}
    assert found.distinct == (2, 3, 2)
    assert found.unlisted == (0, 0, 0)
    assert found.summary(1).endswith(", 'wel' 40")
    assert counted(table, size=7).table() == found


@pytest.mark.parametrize(
    ("misspelled", "label", "warned"),
    [(40, None, True), (8, None, False), (40, "wel", False)],
)
def test_misspelled_answers_are_warned_of_if_they_matter(
    misspelled: int, label: str | None, warned: bool
) -> None:
    """2 % of the cost of every arm is 0.0044: 40 of 2,000 rows are more, 8 are less."""
    doubts = counted(columns(misspelled) | {"label": ["ill", label] * (N // 2)}).warnings(CASCADE)
    assert len(doubts) == warned
    expected = "only 'slow' gives, in 2.0\xa0% of its rows: 'wel' (40 rows; did you mean 'well'?)"
    assert all(expected in one for one in doubts)


def test_the_diagnosis_warns_and_lists_them() -> None:
    found = diagnose(sw.Log(pa.table(columns()), Columns(context=())), CASCADE)
    assert found.notes[0].startswith("Warning: an answer that only 'slow' gives, in 2.0\xa0%")
    assert [one.answer for one in found.answers.listed if one.only == "slow"] == ["wel"]


def test_free_text_is_counted_and_not_warned_of() -> None:
    table = {f"output.{arm}": [f"{arm} {k}" for k in range(N)] for arm in CASCADE.names}
    found = counted(table)
    assert found.table().listed == ()
    assert found.table().distinct == (1000, 1000, 1000)
    assert found.table().unlisted == (N, N, N)
    assert found.warnings(CASCADE) == ()
    assert counted(table, size=11).table() == found.table()
    numbers = {f"output.{arm}": [k % 90 for k in range(N)] for arm in CASCADE.names}
    listed = counted(numbers).table()
    assert (len(listed.listed), listed.distinct) == (MAX_LISTED, (90, 90, 90))
    kept = sum(one.arms[0] for one in listed.listed)
    assert listed.unlisted == (N - kept,) * 3


def test_tenants_add_up() -> None:
    table = columns()
    parts = [
        counted({name: column[a:b] for name, column in table.items()})
        for a, b in ((0, 700), (700, N))
    ]
    parts[0].merge(parts[1])
    assert parts[0].table() == counted(table).table()
