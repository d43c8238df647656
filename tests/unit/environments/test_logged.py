"""Environments of logs that hold every output."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stopwise as sw

TWO = sw.Cascade([0.1, 0.3])
THREE = sw.Cascade([0.1, 0.2, 0.2])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mu(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


# ------------------------------------------------------------------------------------------- logged


def test_a_log_with_labels_knows_who_was_wrong() -> None:
    outputs = [["a", "a", "b"], ["a", "b", "b"], ["c", "b", "a"]]
    batch = sw.Logged(THREE, [[0.0], [0.5], [1.0]], outputs, ["a", "b", "d"]).sample(3, generator())
    assert batch.error_rates is not None
    assert batch.error_rates.tolist() == [[0, 0, 1], [1, 0, 0], [1, 1, 1]]
    assert np.triu(batch.disagreement[0], 1).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert np.triu(batch.disagreement[2], 1).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    # the cheapest right arm; where none is right, the cheapest
    assert batch.optimal.tolist() == [0, 1, 0]


def test_a_log_without_labels_falls_back_on_lemma_2() -> None:
    outputs = [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    batch = sw.Logged(THREE, [[0.0]] * 3, outputs).sample(3, generator())
    assert batch.error_rates is None
    assert batch.labels is None
    assert batch.optimal.tolist() == [0, 1, 2]
    assert batch.margins.tolist() == pytest.approx([0.2, 0.2, np.inf])


def test_values_of_a_log_are_compared_as_python_does() -> None:
    """1 and "1" differ; 1 and 1.0 and True do not."""
    batch = sw.Logged(TWO, [[0.0]] * 3, [[1, "1"], [1, 1.0], [True, 1]]).sample(3, generator())
    assert batch.disagreement[:, 0, 1].tolist() == [1, 0, 0]


def test_a_shuffled_log_shows_each_round_once_a_pass() -> None:
    log = sw.Logged(TWO, [[t] for t in range(10)], [[t, t + 1] for t in range(10)], shuffle=True)
    batch = log.sample(25, generator())
    order = batch.contexts[:, 0].astype(int)
    assert sorted(order[:10]) == sorted(order[10:20]) == list(range(10))
    assert order[:10].tolist() not in (order[10:20].tolist(), list(range(10)))
    assert batch.outputs is not None
    np.testing.assert_array_equal(batch.outputs[:, 0], order)  # a round stays together


@pytest.mark.parametrize(
    ("contexts", "outputs", "labels", "message"),
    [
        ([[0.0]], [[1, 2, 3]], None, "outputs needs one of each of 2 arms"),
        ([[0.0]], [[1, 2], [1, 2]], None, "outputs needs"),
        ([[0.0], [0.0]], [[1, 2], [1]], None, "outputs needs"),
        ([[0.0]], [[1, 2]], [1, 2], "labels needs one for each round"),
        ([[0.0], [np.nan]], [[1, 2]] * 2, None, "row 1, column 0 is nan"),
        ([0.0], [[1, 2]], None, "contexts must be a table"),
        ([["x"]], [[1, 2]], None, "contexts must be real numbers"),
        ([[0.0]] * 2, [[1, 2], [1, None]], None, "outputs of round 1 has None"),
        ([[0.0]] * 2, [[1, 2]] * 2, [1, np.nan], "labels of round 1 has nan"),
    ],
)
def test_an_incomplete_log_is_refused(
    contexts: Any, outputs: Any, labels: Any, message: str
) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        sw.Logged(TWO, contexts, outputs, labels)


def write(path: Path, text: str) -> Path:
    file = path / "log.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_log_is_read_from_csv(tmp_path: Path) -> None:
    text = 'id,x,y,first,second,truth\n1,0.5,-1,"no, sir",yes,yes\n2,1e-1,2, yes ,yes,no\n'
    log = sw.Logged.from_csv(
        write(tmp_path, text), TWO, context=["y", "x"], outputs=["first", "second"], label="truth"
    )
    batch = log.sample(2, generator())
    assert batch.contexts.tolist() == [[-1, 0.5], [2, 0.1]]
    assert batch.error_rates is not None
    assert batch.error_rates.tolist() == [[1, 0], [1, 1]]
    assert batch.disagreement[:, 0, 1].tolist() == [1, 0]


def test_numbers_in_a_csv_are_compared_as_numbers(tmp_path: Path) -> None:
    text = "\ufeffx,a,b,truth\n0,1,1.0,1\n0,0,1,0.0\n"  # as spreadsheets write it
    log = sw.Logged.from_csv(
        write(tmp_path, text), TWO, context=["x"], outputs=["a", "b"], label="truth"
    )
    errors = log.sample(2, generator()).error_rates
    assert errors is not None
    assert errors.tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,a\n0,1\n", r"no column 'b'; its columns are x, a"),
        ("x,a,b\n0,1,1\nfar,1,1\n", r"line 3: x is 'far', which is not a number"),
        ("x,a,b\n0,1,1\n0,,1\n", "line 3: a is empty"),
        ("x,a,b\n0,1\n", "line 2: b is empty"),
        ("x,a,b\n", "no rows"),
        ("", "no column 'x'"),
        ("x,a,b\ninf,1,1\n", "must be finite"),
    ],
)
def test_a_bad_csv_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(sw.InvalidParameterError, match=message):
        sw.Logged.from_csv(write(tmp_path, text), TWO, context=["x"], outputs=["a", "b"])


def test_whole_numbers_of_a_log_stay_what_they_are() -> None:
    batch = sw.Logged(TWO, [[0.0]], [[7, -3]], [7]).sample(1, generator())
    assert batch.outputs is not None
    assert batch.labels is not None
    assert (batch.outputs.tolist(), batch.labels.tolist()) == ([[7, -3]], [7])
