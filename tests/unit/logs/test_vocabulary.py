"""Counts of distinct answers, and warnings about answers that only one arm gives."""

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
    """Return three arms with the answers ill and well; ``misspelled`` rows of slow are "wel"."""
    random = np.random.default_rng(0)
    truth = np.where(random.random(N) < 0.5, "ill", "well")
    other = np.where(truth == "ill", "well", "ill")
    answers = [np.where(random.random(N) < e, other, truth).tolist() for e in (0.2, 0.1, 0.03)]
    answers[1][:misspelled] = ["wel"] * misspelled
    return {f"output.{arm}": column for arm, column in zip(CASCADE.names, answers, strict=True)}


def counted(table: dict[str, Any], size: int = 300) -> Vocabulary:
    log = sw.Log(pa.table(table), Columns(context=()))
    vocabulary = Vocabulary(log.arms)
    for _ in vocabulary.watch(log.chunks(size)):
        pass
    return vocabulary


def test_every_answer_is_counted_by_arm() -> None:
    table = columns() | {"label": ["well", None, "sick", "ill"] * (N // 4)}
    answers = counted(table).table()
    for count in answers.listed:
        columns_of_arms = [table[f"output.{arm}"] for arm in CASCADE.names]
        assert count.arms == tuple(column.count(count.answer) for column in columns_of_arms)
        assert count.labels == table["label"].count(count.answer)
    only = {count.answer: count.only for count in answers.listed}
    assert only == {"ill": None, "well": None, "wel": "slow", "sick": None}
    assert answers.distinct == (2, 3, 2)
    assert answers.unlisted == (0, 0, 0)
    assert answers.summary(1).endswith(", 'wel' 40")
    assert counted(table, size=7).table() == answers


@pytest.mark.parametrize(
    ("misspelled", "label", "warned"),
    [(40, None, True), (8, None, False), (40, "wel", False)],
)
def test_misspelled_answers_give_a_warning_if_they_are_material(
    misspelled: int, label: str | None, warned: bool
) -> None:
    """2 % of the cost of every arm is 0.0044; 40 of 2,000 rows exceed it, 8 do not."""
    warnings = counted(columns(misspelled) | {"label": ["ill", label] * (N // 2)}).warnings(CASCADE)
    assert len(warnings) == warned
    expected = (
        "only 'slow' gives this answer, in 2.0\xa0% of its rows: 'wel' (40 rows; did you mean"
    )
    assert all(expected in warning for warning in warnings)


def test_the_diagnosis_lists_misspelled_answers_and_warns() -> None:
    diagnosis = diagnose(sw.Log(pa.table(columns()), Columns(context=())), CASCADE)
    assert diagnosis.notes[0].startswith("Warning: only 'slow' gives this answer, in 2.0\xa0%")
    assert [count.answer for count in diagnosis.answers.listed if count.only == "slow"] == ["wel"]


def test_free_text_is_counted_without_a_warning() -> None:
    table = {f"output.{arm}": [f"{arm} {k}" for k in range(N)] for arm in CASCADE.names}
    vocabulary = counted(table)
    assert vocabulary.table().listed == ()
    assert vocabulary.table().distinct == (1000, 1000, 1000)
    assert vocabulary.table().unlisted == (N, N, N)
    assert vocabulary.warnings(CASCADE) == ()
    assert counted(table, size=11).table() == vocabulary.table()
    numbers = {f"output.{arm}": [k % 90 for k in range(N)] for arm in CASCADE.names}
    answers = counted(numbers).table()
    assert (len(answers.listed), answers.distinct) == (MAX_LISTED, (90, 90, 90))
    n_listed = sum(count.arms[0] for count in answers.listed)
    assert answers.unlisted == (N - n_listed,) * 3


def test_merged_counts_equal_those_of_the_complete_log() -> None:
    table = columns()
    first, second = (
        counted({name: column[start:stop] for name, column in table.items()})
        for start, stop in ((0, 700), (700, N))
    )
    first.merge(second)
    assert first.table() == counted(table).table()
