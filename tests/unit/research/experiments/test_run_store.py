"""The run store: exact round trips, damaged files, failing disks."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from stopwise.errors import (
    CorruptFileError,
    InvalidParameterError,
    PersistenceError,
    UnsupportedVersionError,
)
from stopwise.research.experiments.runs import Trace
from stopwise.research.experiments.spec import ExperimentSpec, PolicySpec
from stopwise.research.experiments.store import VERSION, RunStore
from tests.research.campaigns import PAIR, made_trace

SPEC = ExperimentSpec(PAIR, PolicySpec("uss-ucb"), rounds=100, checkpoints=4)
OTHER = ExperimentSpec(PAIR, PolicySpec("uss-ts"), rounds=100, checkpoints=4)


def trace(seed: int = 0, spec: ExperimentSpec = SPEC, **fields: Any) -> Trace:
    fields = {"key": spec.key, "rounds": spec.checkpoint_rounds} | fields
    return made_trace(seed, [k / 3 + seed for k in range(1, 5)], **fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[RunStore]:
    with RunStore(path) as store:
        yield store


curves = hnp.arrays(np.float64, 4, elements=st.floats(width=64))  # NaN, −0 and ∞ included
integers = hnp.arrays(np.int64, st.integers(1, 5), elements=st.integers(-(2**63), 2**63 - 1))


@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.tuples(curves, curves | st.none(), curves, integers),
        max_size=5,
    )
)
def test_traces_round_trip_exactly(runs: dict[int, tuple[Any, ...]]) -> None:
    put = {
        seed: trace(seed, regret=r, total_cost=c, undominated=u, depths=d)
        for seed, (r, c, u, d) in runs.items()
    }
    with TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        with RunStore(file) as store:
            store.put(SPEC, put.values())
        with RunStore(file) as store:
            stored = store.get(SPEC)
    assert list(stored) == sorted(put)
    assert all(stored[seed].agrees(put[seed]) for seed in put)
    assert all(array.flags.writeable for t in stored.values() for array in (t.regret, t.depths))


def test_experiments_are_stored_separately(store: RunStore) -> None:
    store.put(SPEC, [trace(0), trace(1)])
    store.put(OTHER, [trace(1, OTHER, regret=np.zeros(4))])
    assert list(store.get(SPEC)) == [0, 1]
    assert store.get(OTHER)[1].regret.tolist() == [0, 0, 0, 0]
    assert store.get(msgspec.structs.replace(SPEC, rounds=101)) == {}
    with pytest.raises(InvalidParameterError, match="same Stopwise version"):
        store.put(OTHER, [trace(0)])
    assert list(store.get(OTHER)) == [1]


def test_missing_lists_unstored_seeds_and_put_keeps_stored_runs(store: RunStore) -> None:
    store.put(SPEC, [trace(1), trace(4)])
    assert store.missing(SPEC, [5, 4, 3, 2, 1, 5]) == [5, 3, 2]
    assert store.missing(OTHER, [4, 1]) == [4, 1]
    store.put(SPEC, [trace(1, regret=np.zeros(4)), trace(2)])
    assert all(stored.agrees(trace(seed)) for seed, stored in store.get(SPEC).items())


def test_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()  # left by a process that was killed immediately
    with RunStore(path) as store:
        store.put(SPEC, [trace(0)])
    with RunStore(path) as store:
        assert list(store.get(SPEC)) == [0]


def run_sql(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement, values)


def write_csv(path: Path) -> None:
    path.write_bytes(b"a,b\n1,2\n" * 200)


def write_foreign_database(path: Path) -> None:
    run_sql(path, "CREATE TABLE runs (key)")


def write_newer_store(path: Path) -> None:
    RunStore(path).close()
    run_sql(path, f"PRAGMA user_version = {VERSION + 1}")


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (write_csv, CorruptFileError),
        (write_foreign_database, CorruptFileError),
        (write_newer_store, UnsupportedVersionError),
    ],
)
def test_foreign_files_and_newer_stores_are_rejected_unchanged(
    path: Path, write: Callable[[Path], None], error: type[Exception]
) -> None:
    write(path)
    before = path.read_bytes()
    with pytest.raises(error):
        RunStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_truncated_store_is_rejected(path: Path, share: float) -> None:
    with RunStore(path) as store:
        store.put(SPEC, [trace(seed) for seed in range(200)])
    complete = path.read_bytes()
    path.write_bytes(complete[: int(len(complete) * share)])
    with pytest.raises(
        CorruptFileError, match=r"restore a backup, or (use another path|delete the file)"
    ):
        RunStore(path)


@pytest.mark.parametrize(
    "blob",
    [b"1234567", trace(1).encode()[:-1], OTHER.to_json().encode()],
    ids=["short", "truncated", "another document"],
)
def test_damaged_run_is_detected_on_read(path: Path, store: RunStore, blob: bytes) -> None:
    store.put(SPEC, [trace(0), trace(1)])
    run_sql(path, "UPDATE runs SET trace = ? WHERE seed = 1", values=(blob,))
    with pytest.raises(CorruptFileError, match="is damaged"):
        store.get(SPEC)


@pytest.mark.parametrize("name", ["", "missing/runs.db"])
def test_unusable_path_is_reported(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(PersistenceError, match=f"cannot use {re.escape(str(path))}"):
        RunStore(path)


def test_full_disk_is_reported_and_keeps_stored_runs(store: RunStore) -> None:
    store.put(SPEC, [trace(0)])
    store._db.execute(f"PRAGMA max_page_count = {store._number('page_count')}")
    many = np.zeros(10_000)
    with pytest.raises(PersistenceError, match="full"):
        store.put(SPEC, [trace(seed, depths=many) for seed in range(1, 100)])
    assert list(store.get(SPEC)) == [0]
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.put(SPEC, [trace(1)])
    assert list(store.get(SPEC)) == [0, 1]


def test_store_stays_usable_after_sqlite_rolls_back_a_transaction(
    store: RunStore,
) -> None:
    def failing() -> Iterator[Trace]:
        yield trace(0)
        # the second row rolls back the transaction, as a failing disk may
        store._db.execute("INSERT OR ROLLBACK INTO specs VALUES ('key', 'a'), ('key', 'b')")

    with pytest.raises(CorruptFileError, match="UNIQUE"):
        store.put(SPEC, failing())
    assert store.get(SPEC) == {}
    store.put(SPEC, [trace(0)])
    assert list(store.get(SPEC)) == [0]
