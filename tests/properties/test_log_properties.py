"""Logs of every format are read as they were written."""

import math
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.formats import parquet
from stopwise.logs.log import Columns, Log
from stopwise.logs.writer import LogWriter
from stopwise.records import Failure, Round

SUFFIXES = (".parquet", ".csv", ".jsonl")

names = st.text(min_size=1, max_size=6).filter(lambda name: name == name.strip() != "")
finite = st.floats(allow_nan=False, allow_infinity=False)
ANSWERS = {
    "text": st.text(max_size=5) | st.sampled_from(["1", "1.0", "true", "nan", "", " a", "1_0"]),
    "bool": st.booleans(),
    "whole": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "number": finite | st.integers(-(2**53), 2**53) | st.booleans() | st.sampled_from([0, 0.0, 1]),
}


class WrittenLog(NamedTuple):
    arms: list[str]
    context: list[str]
    revealed: dict[str, list[str]]
    rounds: list[Round]
    labels: list[Any]


@st.composite
def logs(draw: st.DrawFn) -> WrittenLog:
    arms = draw(st.lists(names, min_size=2, max_size=4, unique=True))
    context = draw(st.lists(names, max_size=3, unique=True))
    revealed = {arm: draw(st.lists(names, max_size=2, unique=True)) for arm in arms[:-1]}
    answer = ANSWERS[draw(st.sampled_from(list(ANSWERS)))]
    rounds = [
        draw(played(arms, len(context), revealed, answer)) for _ in range(draw(st.integers(1, 8)))
    ]
    label = st.none() | answer.filter(lambda label: str(label).strip() != "")  # means unknown
    return WrittenLog(arms, context, revealed, rounds, [draw(label) for _ in rounds])


@st.composite
def played(
    draw: st.DrawFn,
    arms: list[str],
    base: int,
    revealed: dict[str, list[str]],
    answer: st.SearchStrategy[Any],
) -> Round:
    stop = draw(st.integers(-1, len(arms) - 1))
    n_numbers = base + sum(len(revealed.get(arm, ())) for arm in arms[: stop + 1])
    failed = stop < 0 or (stop < len(arms) - 1 and draw(st.booleans()))
    outputs = tuple(draw(answer) for _ in range(stop + 1))
    price = st.floats(0, 1e300)
    return Round(
        id=draw(st.text()),
        time=draw(st.floats(0, 4e9)),
        context=tuple(draw(finite) for _ in range(n_numbers)),
        outputs=outputs,
        answers=outputs,
        stop=stop if stop >= 0 else None,
        rule_stop=draw(st.integers(max(stop - 1, 0), len(arms) - 1)),
        costs=draw(st.none() | st.tuples(*[price] * (stop + 1))),
        failure=Failure(stop + 1, "error", draw(st.text())) if failed else None,
    )


def open_writer(path: Path, log: WrittenLog, *, append: bool = False) -> LogWriter:
    return LogWriter(
        path, log.arms, log.context, log.revealed, labels=True, costs=True, append=append
    )


def write(path: Path, log: WrittenLog, *, append: bool = False) -> None:
    """Write the rounds; with ``append`` the file is closed and opened again after each."""
    parts = [[i] for i in range(len(log.rounds))] if append else [range(len(log.rounds))]
    for part in parts:
        with open_writer(path, log, append=append) as writer:
            for i in part:
                writer.write(log.rounds[i], log.labels[i])


def check(path: Path, written: WrittenLog, size: int) -> None:
    """Compare the columns read with those computed from each round."""
    log = Log(path, None if written.context else Columns(context=()))
    arms, k = written.arms, len(written.arms)
    assert log.arms == tuple(arms)
    coordinates = [f"{arm}.{name}" for arm in arms[:-1] for name in written.revealed[arm]]
    assert log.context == (*written.context, *coordinates)
    expected = [
        len(written.context) + sum(len(written.revealed[arm]) for arm in arms[: i + 1])
        for i in range(k - 1)
    ]
    assert log.sees == (tuple(expected) if coordinates else None)
    row = 0
    for chunk in log.chunks(size):
        assert chunk.first == row
        assert chunk.n <= size
        rounds = chunk.rounds
        for t in range(chunk.n):
            played, label = written.rounds[row], written.labels[row]
            outputs = played.outputs
            last = len(outputs) - 1
            assert rounds.answered[t] - 1 == chunk.stops[t] == last
            assert chunk.rule_stop[t] == played.rule_stop
            assert rounds.failed[t] == (played.failure is not None)
            padded = [*played.context, *[0.0] * (len(log.context) - len(played.context))]
            assert rounds.contexts[t].tolist() == padded
            assert rounds.differ[t].tolist() == [
                int(j <= last and outputs[i] != outputs[j]) for i, j in combinations(range(k), 2)
            ]
            assert rounds.right is not None
            assert rounds.labelled is not None
            assert rounds.labelled[t] == (label is not None and last >= 0)
            if rounds.labelled[t]:
                assert rounds.right[t, : last + 1].tolist() == [y == label for y in outputs]
            values = [None if c < 0 else decoded(chunk.values, c) for c in chunk.codes[t]]
            assert values == [*outputs, *[None] * (k - len(outputs))]
            assert (chunk.labels[t] < 0) == (label is None)
            assert label is None or decoded(chunk.values, chunk.labels[t]) == label
            assert chunk.costs is not None
            costs = [None if math.isnan(c) else c for c in chunk.costs[t].tolist()]
            assert costs == [*(played.costs or ()), *[None] * (k - len(played.costs or ()))]
            row += 1
    assert row == len(written.rounds)


def decoded(values: tuple[Any, ...] | None, code: np.int64) -> Any:
    return int(code) if values is None else values[code]


@given(logs(), st.sampled_from(SUFFIXES), st.integers(1, 9), st.booleans())
def test_a_written_log_is_read_back(log: WrittenLog, suffix: str, size: int, append: bool) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "GROUP_ROWS", 3)  # several row groups, so that types may widen
        path = Path(folder, f"log{suffix}")
        try:
            write(path, log, append=append and suffix != ".parquet")
        except InvalidParameterError:
            assert any("." in arm for arm in log.arms)  # ambiguous column names
            return
        check(path, log, size)


@given(logs(), st.sampled_from((".csv", ".jsonl")), st.data())
def test_a_truncated_log_keeps_complete_rows(
    log: WrittenLog, suffix: str, data: st.DataObject
) -> None:
    """A truncated row is an error, and appending continues after the last complete row.

    If the header is truncated, appending fails and leaves the file unchanged.
    """
    columns = None if log.context else Columns(context=())
    with TemporaryDirectory() as folder:
        path = Path(folder, f"log{suffix}")
        try:
            writer = open_writer(path, log)
        except InvalidParameterError:
            return
        sizes, header_size = [], path.stat().st_size
        for played, label in zip(log.rounds, log.labels, strict=True):
            writer.write(played, label)
            sizes.append(path.stat().st_size)
        writer.close()
        content = path.read_bytes()

        breaks = [end - 1 for end in sizes]
        cut = data.draw(st.integers(0, len(content)) | st.sampled_from(breaks or [0]), label="cut")
        # in CSV, a truncated row without answers looks complete
        answered = [any(o is not None for o in played.outputs) for played in log.rounds]
        assume(suffix != ".csv" or cut not in breaks or answered[breaks.index(cut)])
        path.write_bytes(content[:cut])
        readable = sum(end <= cut + 1 for end in sizes)  # a row may lack its line break
        try:
            read = [chunk.first for chunk in Log(path, columns).chunks(1)]
        except InvalidLogError:
            assert cut not in sizes
            assert cut + 1 not in sizes
        else:
            assert read == list(range(readable))
            assert readable == 0 or cut in sizes or cut + 1 in sizes

        kept = readable
        try:
            more = open_writer(path, log, append=True)
        except InvalidLogError:  # the header is incomplete
            assert 0 < cut < (header_size or sizes[0])
            assert path.read_bytes() == content[:cut]
            return
        with more:
            for played, label in zip(log.rounds[kept:], log.labels[kept:], strict=True):
                more.write(played, label)
        assert path.read_bytes() == content
