"""Logs in files, data frames, relations and streams, with raw columns and inconsistent answers."""

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
from tests.helpers.log_files import save

N = 600
CITIES = ["Paris", "Rome", "Oslo"]


def raw_columns(n: int = N, seed: int = 7) -> dict[str, list[Any]]:
    """Return columns of every kind: a number with empty cells, texts, a date, a bool."""
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


def test_every_source_gives_the_same_replay(tmp_path: Path) -> None:
    columns = raw_columns()
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "log.parquet")
    pq.write_table(table.slice(0, 250), tmp_path / "part-9.parquet")
    pq.write_table(table.slice(250), tmp_path / "part-10.parquet")
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "log.csv", index=False)
    relation = duckdb.from_arrow(table)
    sources: dict[str, Any] = {
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
    expected = replayed(sw.Log(table, name="log"))
    same = {
        name: replayed(sw.Log(source, name="log")) == expected for name, source in sources.items()
    }
    assert same == dict.fromkeys(sources, True)


def test_blank_texts_are_missing_in_every_source(tmp_path: Path) -> None:
    """Otherwise a blank label would make every arm wrong, and a blank output be an answer."""
    columns = {name: column for name, column in raw_columns().items() if name == "context.new"}
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
    sources: dict[str, Any] = {
        "parquet": tmp_path / "log.parquet",
        "dictionary": tmp_path / "coded.parquet",
        "lines": tmp_path / "log.jsonl",
        "arrow": table,
        "pandas": frame,
        "pandas categories": frame.astype({"output.slow": "category"}),
        "polars": pl.DataFrame(columns),
        "duckdb": duckdb.from_arrow(table),
    }
    expected = replayed(sw.Log(tmp_path / "log.csv", name="log"))
    assert json.loads(expected)["labelled"] == N // 5
    assert json.loads(expected)["truncated"] == int((~slow).sum())
    same = {
        name: replayed(sw.Log(source, name="log")) == expected for name, source in sources.items()
    }
    assert same == dict.fromkeys(sources, True)
    gap = pa.table({"output.quick": ["", "no"], "output.slow": ["no", "no"], "label": ["no", ""]})
    with pytest.raises(InvalidLogError, match=r"row 1, column 'output\.quick': is empty, but"):
        list(sw.Log(gap, Columns(context=())).chunks())


def test_a_blank_text_among_numbers_is_missing(tmp_path: Path) -> None:
    columns = {"context.x": [0.5, 0.1], "output.a": [1, 0], "output.b": [1, ""], "label": ["", 0]}
    (chunk,) = sw.Log(save(tmp_path / "log.jsonl", columns)).chunks()
    assert chunk.rounds.answered.tolist() == [2, 1]
    assert (chunk.labels >= 0).tolist() == [False, True]


def test_columns_are_encoded_and_described() -> None:
    columns = raw_columns()
    log = sw.Log(pa.table(columns))
    counts = {city: columns["context.city"].count(city) for city in CITIES}
    first, second, third = sorted(CITIES, key=lambda city: -counts[city])
    assert log.context == (
        "age",
        "age is empty",
        f"city={second}",
        f"city={third}",
        "city=(other)",
        "day",
        "new",
    )
    ages = [age for age in columns["context.age"] if age is not None]
    (chunk,) = log.chunks()
    for row in (0, 1, 3, 50, 599):
        age, city = columns["context.age"][row], columns["context.city"][row]
        expected = [np.mean(ages) if age is None else age, age is None]
        expected += [city == second, city == third, city == "Ulm"]
        expected += [row // 20, columns["context.new"][row]]
        assert chunk.rounds.contexts[row] == pytest.approx(list(map(float, expected)), rel=1e-11)
    descriptions = {column.name: column.describe() for column in log.encoding.columns}
    assert descriptions["day"] == "days since 2026-01-05"
    assert "the mean" in descriptions["age"]
    assert f"zeros for {first}" in descriptions["city"]
    assert descriptions["new"] == "number, unchanged"


def test_an_encoding_is_saved_with_a_policy(tmp_path: Path) -> None:
    columns = raw_columns()
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
    other = sw.Log(pa.table(raw_columns(seed=8)))
    with pytest.raises(InvalidParameterError, match="saved with an encoding that differs"):
        sw.replay(other, cascade, [policy])
    encoded = sw.Log(pa.table(raw_columns(seed=8)), encoding=encoding)
    assert encoded.context == log.context
    assert sw.replay(encoded, cascade, [tmp_path / "with"]).rounds == N


VALUES: dict[str, Any] = {"age": 1, "city": "Rome", "new": True, "day": "2026-01-09"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (VALUES | {"age": "old"}, "'age' is the text"),
        (VALUES | {"new": None}, "'new' is empty"),
        (VALUES | {"day": 20_000}, "'day' is the number"),
        ({"age": 1, "city": "Rome", "new": True}, "missing context values: day"),
        (VALUES | {"cty": "Rome"}, "unknown context values: cty; did you mean 'city'"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, Any], message: str) -> None:
    encoding = sw.Log(pa.table(raw_columns())).encoding
    with pytest.raises(InvalidContextError, match=message):
        encoding.vector(values)


def test_a_stream_can_be_read_only_once() -> None:
    numbers = {"context.x": [0.1, 0.2], "output.a": [1, 0], "output.b": [1, 1]}
    log = sw.Log(pa.table(numbers).to_reader())
    assert sum(chunk.n for chunk in log.chunks()) == 2
    with pytest.raises(InvalidLogError, match=r"read only once.*read_all"):
        list(log.chunks())
    gap = sw.Log(pa.table(numbers | {"context.x": [0.1, None]}).to_reader())
    with pytest.raises(InvalidLogError, match=r"row 2, column 'context\.x': is empty"):
        list(gap.chunks())


def test_a_stream_is_read_batch_by_batch() -> None:
    schema = pa.schema({"context.x": pa.float64(), "output.a": pa.int8(), "output.b": pa.int8()})
    batch = pa.record_batch([pa.array([1] * 1000, field.type) for field in schema], schema=schema)
    yielded = 0

    def batches() -> Any:
        nonlocal yielded
        while yielded < 50:
            yielded += 1
            yield batch

    log = sw.Log(pa.RecordBatchReader.from_batches(schema, batches()))
    rows = 0
    for chunk in log.chunks(300):
        assert chunk.n <= 300
        assert yielded == chunk.first // 1000 + 1  # batches are read only when needed
        rows += chunk.n
    assert rows == 50_000


def test_hive_folders_are_columns(tmp_path: Path) -> None:
    table = pa.table(raw_columns())
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
    ("column", "cell", "message"),
    [
        ("context.age", "n/a", "is the text 'n/a' in a column of numbers"),
        ("context.age", "1,5", "is the text '1,5'"),
        ("context.age", "inf", "is inf; it must be a finite number"),
        ("context.age", "nan", "is nan; it must be a finite number"),
        ("context.day", "soon", "is the text 'soon' in a column of dates"),
        ("context.day", "31/01/2026", "is the text '31/01/2026'"),
        ("context.city", "7", "is the text '7' in a column of categories"),
        ("output.quick", "", "is empty, but 'output.slow' of a later arm is not"),
    ],
)
def test_invalid_cells_of_raw_columns_are_named(
    tmp_path: Path, column: str, cell: str, message: str
) -> None:
    frame = pd.DataFrame(raw_columns()).astype({column: "object"})
    frame.loc[40, column] = cell
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(InvalidLogError) as caught:
        list(sw.Log(tmp_path / "log.csv").chunks())
    assert f"log.csv, row 41 (line 42), column '{column}': {message}" in str(caught.value)


def test_plain_numbers_are_read_once_and_a_late_empty_cell_is_rejected(tmp_path: Path) -> None:
    n, late = 3_000, 2_500
    frame = pd.DataFrame({"context.x": [k % 4 for k in range(n)], "output.a": 1, "output.b": 1})
    frame = frame.astype({"context.x": "object"})
    frame.loc[late, "context.x"] = None
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = sw.Log(tmp_path / "log.csv")
    assert log.context == ("x",)
    with pytest.raises(InvalidLogError, match=f"row {late + 1} .*is empty, .*give it a value"):
        list(log.chunks())
    frame.loc[late, "context.x"] = "half"  # not noticed before its row is read
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = sw.Log(tmp_path / "log.csv")
    assert log.context == ("x",)
    with pytest.raises(InvalidLogError, match=f"row {late + 1} .*is the text 'half'"):
        list(log.chunks())
    frame.loc[[5, late], "context.x"] = None
    frame.to_csv(tmp_path / "log.csv", index=False)
    assert sw.Log(tmp_path / "log.csv").context == ("x", "x is empty")


def test_categories_may_be_numbers_but_not_have_too_many_values() -> None:
    columns = raw_columns() | {"context.code": [75001 + k % 3 for k in range(N)]}
    code = Column("code", "category", values=("75002", "75003"), usual="75001")
    with_gap = [None, *map(float, columns["context.code"][1:])]
    table = pa.table(columns | {"context.code": with_gap})
    gap = sw.Log(table, Columns(context=("code",)), encoding=sw.Encoding((code,)))
    assert gap.context == ("code=75002", "code=75003", "code=(other)")
    assert next(gap.chunks()).rounds.contexts[:3].tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(
        InvalidParameterError, match="has no context column 'code', which the encoding requires"
    ):
        sw.Log(pa.table(raw_columns()), encoding=sw.Encoding((code,)))
    free = {name: values * 20 for name, values in columns.items()}
    free |= {"context.code": [f"text {k}" for k in range(20 * N)]}
    with pytest.raises(InvalidLogError, match=r"more than 10,000 distinct texts.*leave the column"):
        list(sw.Log(pa.table(free)).chunks())


@pytest.mark.parametrize(
    ("slow", "warning"),
    [
        ({"yes": 1, "no": 0}, "mixed types"),
        ({"yes": "1", "no": "0"}, "have no answer in common: 'no', 'yes' and '0', '1'"),
        ({"yes": " Yes", "no": "No"}, "have no answer in common: 'no', 'yes' and ' Yes', 'No'"),
        ({"yes": "YES", "no": "no"}, "spell answers differently: 'YES', 'yes'"),
    ],
)
def test_different_spellings_give_a_warning(slow: dict[str, Any], warning: str) -> None:
    columns = raw_columns()
    plain = replayed(sw.Log(pa.table(columns), normalise_answers=True, name="log"))
    columns["output.slow"] = [slow[answer] for answer in columns["output.slow"]]
    table = pa.table(columns)
    cascade = sw.Cascade([0.01, 0.1], names=("quick", "slow"))
    if warning == "mixed types":
        with pytest.raises(InvalidLogError, match=r"mixed types.*--normalise-answers"):
            sw.replay(sw.Log(table), cascade)
    else:
        replay = sw.replay(sw.Log(table), cascade, ["uss-laplace"])
        assert warning in replay.notes[0]
        assert "--normalise-answers" in replay.notes[0]
        assert any(warning in note for note in sw.diagnose(sw.Log(table), cascade).notes)
    assert replayed(sw.Log(table, normalise_answers=True, name="log")) == plain


def test_consistent_answers_give_no_warning() -> None:
    cascade = sw.Cascade([0.01, 0.1], names=("quick", "slow"))
    assert sw.replay(sw.Log(pa.table(raw_columns())), cascade).notes == ()


@pytest.mark.parametrize("normalise", [False, True])
def test_tenants_share_the_encoding_and_the_warnings_of_the_log(normalise: bool) -> None:
    columns = raw_columns() | {"clinic": ["north", "south", "west"] * (N // 3)}
    columns["output.slow"] = [answer.upper() for answer in columns["output.slow"]]
    log = sw.Log(pa.table(columns), normalise_answers=normalise, name="log")
    cascade = sw.Cascade([0.01, 0.1], names=log.arms)
    replay = sw.replay(log, cascade, ["uss-laplace"], by="clinic", jobs=2)
    for clinic, tenant in replay.tenants.items():
        rows = [k for k, name in enumerate(columns["clinic"]) if name == clinic]
        table = pa.table(columns).take(rows)
        alone = sw.Log(table, encoding=log.encoding, normalise_answers=normalise)
        expected = sw.replay(alone, cascade, ["uss-laplace"])
        assert tenant.policies == expected.policies
        assert tenant.columns == replay.columns == log.encoding.describe()
    warning = "Warning: 'quick' and 'slow' have no answer in common"
    assert replay.notes[0].startswith(warning) != normalise


def test_answers_of_mixed_types_are_normalised(tmp_path: Path) -> None:
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


def test_empty_cells_are_counted_among_numbers_and_numeric_texts(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [1, "2", None, 100] * 5
    records = [{"context": {"x": x}, "output": {"a": 0, "b": 1}} for x in rows]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert sw.Log(path).encoding.columns[0].fill == pytest.approx(103 / 3)
    records = [{"context": {"x": x}, "output": {"a": 0, "b": 1}} for x in (1, "2", 3, "4")]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert sw.Log(path).encoding.coordinates == ("x",)


@pytest.mark.parametrize("leak", ["truth", "b"])
def test_labels_and_outputs_are_rejected_as_context(leak: str) -> None:
    frame = pd.DataFrame({"x": [0.1], "a": ["y"], "b": ["n"], "truth": ["y"]})
    columns = Columns(context=("x", leak), outputs=("a", "b"), label="truth")
    with pytest.raises(InvalidLogError, match="leave such columns out of the context"):
        sw.Log(frame, columns)


def test_folder_columns_are_texts_and_may_also_be_in_the_files(tmp_path: Path) -> None:
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


def test_texts_that_end_in_point_zero_are_distinct_categories() -> None:
    frame = pd.DataFrame({"v": ["v1.0", "v1", "w"] * 20, "a": ["y"] * 60, "b": ["n"] * 60})
    log = sw.Log(frame, Columns(context=("v",), outputs=("a", "b")))
    assert set(log.encoding.coordinates) == {"v=v1.0", "v=w", "v=(other)"}


@pytest.mark.parametrize("source", [{"x": [1]}, None, [1, 2]])
def test_other_objects_are_rejected(source: object) -> None:
    with pytest.raises(InvalidParameterError, match="a log must be a file or a table"):
        sw.Log(source)
    with pytest.raises(InvalidLogError, match="cannot be read as a table"):
        sw.Log(pd.DataFrame({"x": [1, "a"]}))
