"""The same log as files, data frames, relations and streams; columns and answers as people have."""

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stopwise as sw
from stopwise.errors import InvalidContextError, InvalidLogError, InvalidParameterError
from stopwise.logs.encoding import Column
from stopwise.logs.log import Columns
from tests.unit.logs.test_log import save

N = 600
CITIES = ["Paris", "Rome", "Oslo"]


def messy(n: int = N, seed: int = 7) -> dict[str, list[Any]]:
    """Return columns of every kind: a number with gaps, texts, a date, a bool."""
    random = np.random.default_rng(seed)
    age, hard = random.integers(20, 80, n).tolist(), random.random(n)
    city = [CITIES[min(int(k), 2)] for k in random.exponential(1.0, n)]
    ages = [None if k % 9 == 0 else float(a) for k, a in enumerate(age)]
    return {
        "context.age": ages,
        "context.city": ["Ulm" if k in (3, 50) else c for k, c in enumerate(city)],
        "context.day": [date(2026, 1, 5) + timedelta(days=k // 20) for k in range(n)],
        "context.new": (random.random(n) < 0.5).tolist(),
        "output.quick": ["yes" if h < 0.6 else "no" for h in hard],
        "output.slow": ["yes" if h < 0.4 else "no" for h in hard],
        "label": ["yes" if h < 0.4 else "no" for h in hard],
    }


def replayed(log: sw.Log) -> bytes:
    cascade = sw.Cascade([0.01, 0.1], names=log.arms)
    return sw.replay(log, cascade, ["uss-laplace"]).to_json()


def test_the_same_log_in_any_form_gives_the_same_replay(tmp_path: Path) -> None:
    columns = messy()
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "log.parquet")
    pq.write_table(table.slice(0, 250), tmp_path / "part-9.parquet")
    pq.write_table(table.slice(250), tmp_path / "part-10.parquet")
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "log.csv", index=False)
    relation = duckdb.from_arrow(table)
    forms: dict[str, Any] = {
        "csv": tmp_path / "log.csv",
        "parquet": tmp_path / "log.parquet",
        "glob": str(tmp_path / "part-*.parquet"),
        "arrow": table,
        "pandas": frame,
        "pandas categories": frame.astype({"context.city": "category"}),
        "polars": pl.DataFrame(columns),
        "polars categories": pl.DataFrame(columns).cast({"context.city": pl.Categorical}),
        "duckdb": relation,
    }
    wanted = replayed(sw.Log(table, name="log"))
    assert {form: replayed(sw.Log(one, name="log")) == wanted for form, one in forms.items()} == (
        dict.fromkeys(forms, True)
    )


def test_empty_texts_are_missing_in_every_form(tmp_path: Path) -> None:
    """As in CSV: otherwise an empty label makes every arm wrong, and an empty output an answer."""
    columns = {name: column for name, column in messy().items() if name == "context.new"}
    random, blank = np.random.default_rng(3), ["", None, " "]
    quick, right, slow = (random.random(N) < share for share in (0.3, 0.9, 0.5))
    label = np.where(quick, "yes", "no")
    columns["output.quick"] = label.tolist()
    answers = np.where(right, label, np.where(quick, "no", "yes")).tolist()
    columns["output.slow"] = [
        y if s else blank[k % 2] for k, (y, s) in enumerate(zip(answers, slow, strict=True))
    ]
    columns["label"] = [y if k % 5 == 0 else blank[k % 3] for k, y in enumerate(label.tolist())]
    table, frame = pa.table(columns), pd.DataFrame(columns)
    pq.write_table(table, tmp_path / "log.parquet")
    pq.write_table(
        pa.table(columns | {"label": table["label"].dictionary_encode()}),
        tmp_path / "coded.parquet",
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    save(tmp_path / "log.jsonl", columns)
    forms: dict[str, Any] = {
        "parquet": tmp_path / "log.parquet",
        "dictionary": tmp_path / "coded.parquet",
        "lines": tmp_path / "log.jsonl",
        "arrow": table,
        "pandas": frame,
        "pandas categories": frame.astype({"output.slow": "category"}),
        "polars": pl.DataFrame(columns),
        "duckdb": duckdb.from_arrow(table),
    }
    wanted = replayed(sw.Log(tmp_path / "log.csv", name="log"))
    assert json.loads(wanted)["labelled"] == N // 5
    assert json.loads(wanted)["truncated"] == int((~slow).sum())
    assert {form: replayed(sw.Log(one, name="log")) == wanted for form, one in forms.items()} == (
        dict.fromkeys(forms, True)
    )
    hole = pa.table({"output.quick": ["", "no"], "output.slow": ["no", "no"], "label": ["no", ""]})
    with pytest.raises(InvalidLogError, match=r"row 1, column 'output\.quick': is empty, but"):
        list(sw.Log(hole, Columns(context=())).chunks())


def test_among_numbers_an_empty_text_is_missing(tmp_path: Path) -> None:
    columns = {"context.x": [0.5, 0.1], "output.a": [1, 0], "output.b": [1, ""], "label": ["", 0]}
    (chunk,) = sw.Log(save(tmp_path / "log.jsonl", columns)).chunks()
    assert chunk.rounds.answered.tolist() == [2, 1]
    assert (chunk.labels >= 0).tolist() == [False, True]


def test_what_is_done_to_each_column() -> None:
    columns = messy()
    log = sw.Log(pa.table(columns))
    counts = {city: columns["context.city"].count(city) for city in CITIES}
    usual, second, third = sorted(CITIES, key=lambda city: -counts[city])
    assert log.context == (
        "age",
        "age is empty",
        f"city={second}",
        f"city={third}",
        "city=(other)",
        "day",
        "new",
    )
    known = [age for age in columns["context.age"] if age is not None]
    (chunk,) = log.chunks()
    for row in (0, 1, 3, 50, 599):
        age, city = columns["context.age"][row], columns["context.city"][row]
        wanted = [np.mean(known) if age is None else age, age is None]
        wanted += [city == second, city == third, city == "Ulm"]
        wanted += [row // 20, columns["context.new"][row]]
        assert chunk.rounds.contexts[row] == pytest.approx(list(map(float, wanted)), rel=1e-11)
    words = {column.name: column.describe() for column in log.encoding.columns}
    assert words["day"] == "days since 2026-01-05"
    assert "the mean" in words["age"]
    assert f"zeros for {usual}" in words["city"]
    assert words["new"] == "number, unchanged"


def test_raw_values_give_the_context_of_the_row_and_a_policy_carries_them(tmp_path: Path) -> None:
    columns = messy()
    log = sw.Log(pa.table(columns))
    (chunk,) = log.chunks()
    cascade = sw.Cascade([0.01, 0.1], names=log.arms)
    policy = sw.USSLaplace(cascade, context_dim=len(log.context))
    policy.save(tmp_path / "without")
    assert sw.load(tmp_path / "without").encoding is None
    assert b"encoding" not in (tmp_path / "without").read_bytes()
    policy.encoding = log.encoding.to_spec()
    policy.save(tmp_path / "with")
    loaded = sw.load(tmp_path / "with")
    assert loaded.encoding is not None
    encoding = sw.Encoding.from_spec(loaded.encoding)
    assert encoding == log.encoding
    for row in (0, 1, 3, 77):
        raw = {name: columns[f"context.{name}"][row] for name in ("age", "city", "new")}
        vector = encoding.vector(raw | {"day": str(columns["context.day"][row])})
        assert vector == chunk.rounds.contexts[row].tolist()
    unknown = encoding.vector({"age": 3, "city": "Lima", "new": False, "day": "2026-02-01T12:00Z"})
    assert unknown[4:] == [1.0, 27.5, 0.0]
    for bad, words in (
        ({"age": "old", "city": "Rome", "new": True, "day": "2026-01-09"}, "'age' is the text"),
        ({"age": 1, "city": "Rome", "new": None, "day": "2026-01-09"}, "'new' is empty"),
        ({"age": 1, "city": "Rome", "new": True, "day": 20_000}, "'day' is the number"),
        ({"age": 1, "city": "Rome", "new": True}, "missing context values: day"),
    ):
        with pytest.raises(InvalidContextError, match=words):
            encoding.vector(bad)
    other = sw.Log(pa.table(messy(seed=8)))
    with pytest.raises(InvalidParameterError, match="saved with a different encoding"):
        sw.replay(other, cascade, [policy])
    as_saved = sw.Log(pa.table(messy(seed=8)), encoding=encoding)
    assert as_saved.context == log.context
    assert sw.replay(as_saved, cascade, [tmp_path / "with"]).rounds == N


def test_a_stream_is_read_once() -> None:
    numbers = {"context.x": [0.1, 0.2], "output.a": [1, 0], "output.b": [1, 1]}
    log = sw.Log(pa.table(numbers).to_reader())
    assert sum(chunk.n for chunk in log.chunks()) == 2
    with pytest.raises(InvalidLogError, match=r"read only once.*read_all"):
        list(log.chunks())
    gap = sw.Log(pa.table(numbers | {"context.x": [0.1, None]}).to_reader())
    with pytest.raises(InvalidLogError, match=r"row 2, column 'context\.x': is empty"):
        list(gap.chunks())


def test_a_long_stream_is_read_batch_by_batch() -> None:
    schema = pa.schema({"context.x": pa.float64(), "output.a": pa.int8(), "output.b": pa.int8()})
    batch = pa.record_batch([pa.array([1] * 1000, field.type) for field in schema], schema=schema)
    given = 0

    def batches() -> Any:
        nonlocal given
        while given < 50:
            given += 1
            yield batch

    log = sw.Log(pa.RecordBatchReader.from_batches(schema, batches()))
    rows = 0
    for chunk in log.chunks(300):
        assert chunk.n <= 300
        assert given == chunk.first // 1000 + 1  # no batch is asked for before it is needed
        rows += chunk.n
    assert rows == 50_000


def test_folders_of_parquet_as_hive_names_them(tmp_path: Path) -> None:
    table = pa.table(messy())
    for month in (2, 10, 9):
        folder = tmp_path / "visits" / "year=2026" / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(table.slice(10 * month, 4), folder / "part.parquet")
    log = sw.Log(tmp_path / "visits", Columns(context=("age", "month", "year")))
    (*chunks,) = log.chunks()
    contexts = np.concatenate([chunk.rounds.contexts for chunk in chunks])
    month = log.context.index("month")
    assert contexts[:, month].tolist() == [2] * 4 + [9] * 4 + [10] * 4
    assert contexts[:, month + 1].tolist() == [2026] * 12
    assert [chunk.first for chunk in chunks] == [0, 4, 8]
    only = sw.Log(tmp_path / "visits", Columns(context=("month",)))
    assert sum(chunk.n for chunk in only.chunks()) == 12
    pq.write_table(table.drop_columns(["label"]), tmp_path / "visits" / "year=2026" / "x.parquet")
    with pytest.raises(InvalidLogError, match="but differ in 'label', 'month'"):
        sw.Log(tmp_path / "visits")


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("context.age", "n/a", "is the text 'n/a' in a column of numbers"),
        ("context.age", "1,5", "is the text '1,5'"),
        ("context.age", "inf", "is inf; it must be a finite number"),
        ("context.age", "nan", "is nan; it must be a finite number"),
        ("context.day", "soon", "is the text 'soon' in a column of dates"),
        ("context.day", "31/01/2026", "is the text '31/01/2026'"),
        ("context.city", "7", "is the text '7' in a column of categories"),
        ("output.quick", "", "is empty, but 'output.slow', a later arm, is not"),
    ],
)
def test_a_wrong_cell_of_a_messy_table(tmp_path: Path, column: str, cell: str, words: str) -> None:
    frame = pd.DataFrame(messy()).astype({column: "object"})
    frame.loc[40, column] = cell
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(InvalidLogError) as caught:
        list(sw.Log(tmp_path / "log.csv").chunks())
    assert f"log.csv, row 41 (line 42), column '{column}': {words}" in str(caught.value)


def test_plain_numbers_are_not_read_twice_and_a_late_gap_is_refused(tmp_path: Path) -> None:
    n, late = 3_000, 2_500
    frame = pd.DataFrame({"context.x": [k % 4 for k in range(n)], "output.a": 1, "output.b": 1})
    frame = frame.astype({"context.x": "object"})
    frame.loc[late, "context.x"] = None
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = sw.Log(tmp_path / "log.csv")
    assert log.context == ("x",)
    with pytest.raises(InvalidLogError, match=f"row {late + 1} .*is empty, .*leave out such rows"):
        list(log.chunks())
    frame.loc[late, "context.x"] = "half"  # nobody sees it before its row is read
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = sw.Log(tmp_path / "log.csv")
    assert log.context == ("x",)
    with pytest.raises(InvalidLogError, match=f"row {late + 1} .*is the text 'half'"):
        list(log.chunks())
    frame.loc[[5, late], "context.x"] = None
    frame.to_csv(tmp_path / "log.csv", index=False)
    assert sw.Log(tmp_path / "log.csv").context == ("x", "x is empty")


def test_categories_that_are_numbers_and_too_many_texts() -> None:
    columns = messy() | {"context.code": [75001 + k % 3 for k in range(N)]}
    code = Column("code", "category", values=("75002", "75003"), usual="75001")
    with_gap = [None, *map(float, columns["context.code"][1:])]
    table = pa.table(columns | {"context.code": with_gap})
    gap = sw.Log(table, Columns(context=("code",)), encoding=sw.Encoding((code,)))
    assert gap.context == ("code=75002", "code=75003", "code=(other)")
    assert next(gap.chunks()).rounds.contexts[:3].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(
        InvalidParameterError, match="has no context 'code', which the encoding needs"
    ):
        sw.Log(pa.table(messy()), encoding=sw.Encoding((code,)))
    free = {name: values * 20 for name, values in columns.items()}
    free |= {"context.code": [f"text {k}" for k in range(20 * N)]}
    with pytest.raises(InvalidLogError, match=r"more than 10,000 distinct texts.*leave the column"):
        list(sw.Log(pa.table(free)).chunks())


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ({"yes": 1, "no": 0}, "mixed types"),
        ({"yes": "1", "no": "0"}, "have no answer in common: 'no', 'yes' and '0', '1'"),
        ({"yes": " Yes", "no": "No"}, "have no answer in common: 'no', 'yes' and ' Yes', 'No'"),
        ({"yes": "YES", "no": "no"}, "spell answers differently: 'YES', 'yes'"),
    ],
)
def test_answers_that_mean_the_same(slow: dict[str, Any], words: str) -> None:
    columns = messy()
    plain = replayed(sw.Log(pa.table(columns), normalise_answers=True, name="log"))
    columns["output.slow"] = [slow[answer] for answer in columns["output.slow"]]
    table = pa.table(columns)
    cascade = sw.Cascade([0.01, 0.1], names=("quick", "slow"))
    if words == "mixed types":
        with pytest.raises(InvalidLogError, match=r"mixed types.*--normalise-answers"):
            sw.replay(sw.Log(table), cascade)
    else:
        found = sw.replay(sw.Log(table), cascade, ["uss-laplace"])
        assert words in found.notes[0]
        assert "--normalise-answers" in found.notes[0]
        assert any(words in one for one in sw.diagnose(sw.Log(table), cascade).notes)
    assert replayed(sw.Log(table, normalise_answers=True, name="log")) == plain


def test_answers_that_are_alike_raise_no_doubt() -> None:
    found = sw.replay(sw.Log(pa.table(messy())), sw.Cascade([0.01, 0.1], names=("quick", "slow")))
    assert found.notes == ()


@pytest.mark.parametrize("normalise", [False, True])
def test_tenants_of_a_messy_table_share_its_encoding_and_its_doubts(normalise: bool) -> None:
    columns = messy() | {"clinic": ["north", "south", "west"] * (N // 3)}
    columns["output.slow"] = [answer.upper() for answer in columns["output.slow"]]
    log = sw.Log(pa.table(columns), normalise_answers=normalise, name="log")
    cascade = sw.Cascade([0.01, 0.1], names=log.arms)
    found = sw.replay(log, cascade, ["uss-laplace"], by="clinic", jobs=2)
    for clinic, one in found.tenants.items():
        rows = [k for k, name in enumerate(columns["clinic"]) if name == clinic]
        part = pa.table(columns).take(rows)
        alone = sw.Log(part, encoding=log.encoding, normalise_answers=normalise)
        expected = sw.replay(alone, cascade, ["uss-laplace"])
        assert one.policies == expected.policies
        assert one.columns == found.columns == log.encoding.describe()
    doubt = "Warning: 'quick' and 'slow' have no answer in common"
    assert found.notes[0].startswith(doubt) != normalise


def test_normalised_answers_of_mixed_types_in_one_column(tmp_path: Path) -> None:
    rows = ('"yes","b":1', '1,"b":true', '" No","b":0.0', '"maybe","b":"Maybe "', '"maybe","b":" "')
    text = "".join(f'{{"context":{{"x":0.5}},"outputs":{{"a":{row}}}}}\n' for row in rows)
    (tmp_path / "log.jsonl").write_text(text)
    (chunk,) = sw.Log(tmp_path / "log.jsonl", normalise_answers=True).chunks()
    assert [chunk.answer(code) for code in chunk.codes[:, 0]] == ["1", "1", "0", "maybe", "maybe"]
    assert chunk.rounds.differ[:, 0].tolist() == [0] * 5
    assert chunk.rounds.answered.tolist() == [2, 2, 2, 2, 1]
    (tmp_path / "log.jsonl").write_text(text.replace('"yes"', "[1]"))
    with pytest.raises(InvalidLogError, match=r"row 1.*column 'output.a': is a list"):
        list(sw.Log(tmp_path / "log.jsonl", normalise_answers=True).chunks())


def test_gaps_are_counted_where_numbers_are_written_in_two_ways(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [1, "2", None, 100] * 5
    given = [{"context": {"x": x}, "output": {"a": 0, "b": 1}} for x in rows]
    path.write_text("\n".join(map(json.dumps, given)), encoding="utf-8")
    assert sw.Log(path).encoding.columns[0].fill == pytest.approx(103 / 3)
    given = [{"context": {"x": x}, "output": {"a": 0, "b": 1}} for x in (1, "2", 3, "4")]
    path.write_text("\n".join(map(json.dumps, given)), encoding="utf-8")
    assert sw.Log(path).encoding.coordinates == ("x",)


@pytest.mark.parametrize("leak", ["truth", "b"])
def test_what_is_known_only_later_is_no_context(leak: str) -> None:
    frame = pd.DataFrame({"x": [0.1], "a": ["y"], "b": ["n"], "truth": ["y"]})
    columns = Columns(context=("x", leak), outputs=("a", "b"), label="truth")
    with pytest.raises(InvalidLogError, match="leave it out of the context"):
        sw.Log(frame, columns)


def test_keys_of_folders_are_texts_and_may_be_in_the_files_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.1, 0.2], "a": ["y", "n"], "b": ["n", "n"]})
    for code in ("007", "7"):
        folder = tmp_path / f"code={code}"
        folder.mkdir()
        frame.assign(code=code).to_parquet(folder / "part.parquet")
    log = sw.Log(tmp_path, Columns(context=("x",), outputs=("a", "b")))
    assert log.rows == 4
    for code in ("007", "7"):
        frame.to_parquet(tmp_path / f"code={code}" / "part.parquet")
    log = sw.Log(tmp_path, Columns(context=("x", "code"), outputs=("a", "b")))
    batches = log._file.batches(log.layout, 10)  # pyright: ignore[reportPrivateUsage]
    assert [batch.cells("code", "text").texts for batch in batches] == [("007",), ("7",)]


def test_categories_that_end_in_point_zero_are_their_own() -> None:
    frame = pd.DataFrame({"v": ["v1.0", "v1", "w"] * 20, "a": ["y"] * 60, "b": ["n"] * 60})
    log = sw.Log(frame, Columns(context=("v",), outputs=("a", "b")))
    assert set(log.encoding.coordinates) == {"v=v1.0", "v=w", "v=(other)"}


@pytest.mark.parametrize("source", [{"x": [1]}, None, [1, 2]])
def test_what_is_no_table_is_refused(source: object) -> None:
    with pytest.raises(InvalidParameterError, match="a log must be a file or a table"):
        sw.Log(source)
    with pytest.raises(InvalidLogError, match="cannot be read as a table"):
        sw.Log(pd.DataFrame({"x": [1, "a"]}))
