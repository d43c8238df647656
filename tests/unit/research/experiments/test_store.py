"""The store: what goes in comes out, and nothing else is taken for a store."""

import sqlite3
from collections.abc import Iterator
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
wholes = hnp.arrays(np.int64, st.integers(1, 5), elements=st.integers(-(2**63), 2**63 - 1))


@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1), st.tuples(curves, curves | st.none(), curves, wholes), max_size=5
    )
)
def test_what_goes_in_comes_out_to_the_last_bit(runs: dict[int, tuple[Any, ...]]) -> None:
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


def test_experiments_are_stored_apart(store: RunStore) -> None:
    store.put(SPEC, [trace(0), trace(1)])
    store.put(OTHER, [trace(1, OTHER, regret=np.zeros(4))])
    assert list(store.get(SPEC)) == [0, 1]
    assert store.get(OTHER)[1].regret.tolist() == [0, 0, 0, 0]
    assert store.get(msgspec.structs.replace(SPEC, rounds=101)) == {}
    with pytest.raises(InvalidParameterError, match="same version"):
        store.put(OTHER, [trace(0)])
    assert list(store.get(OTHER)) == [1]


def test_missing_are_those_not_here_and_a_run_that_is_here_stays_as_it_is(store: RunStore) -> None:
    store.put(SPEC, [trace(1), trace(4)])
    assert store.missing(SPEC, [5, 4, 3, 2, 1, 5]) == [5, 3, 2]
    assert store.missing(OTHER, [4, 1]) == [4, 1]
    store.put(SPEC, [trace(1, regret=np.zeros(4)), trace(2)])
    assert all(one.agrees(trace(seed)) for seed, one in store.get(SPEC).items())


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()  # what a process killed at the very start leaves behind
    with RunStore(path) as store:
        store.put(SPEC, [trace(0)])
    with RunStore(path) as store:
        assert list(store.get(SPEC)) == [0]


def run_sql(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement, values)


def test_a_foreign_file_or_a_newer_store_is_refused_and_left_alone(path: Path) -> None:
    newer = f"PRAGMA user_version = {VERSION + 1}"
    for error, write in (
        (CorruptFileError, lambda: path.write_bytes(b"a,b\n1,2\n" * 200)),
        (CorruptFileError, lambda: run_sql(path, "CREATE TABLE runs (key)")),
        (UnsupportedVersionError, lambda: (RunStore(path).close(), run_sql(path, newer))),
    ):
        write()
        before = path.read_bytes()
        with pytest.raises(error):
            RunStore(path)
        assert path.read_bytes() == before
        path.unlink()


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_truncated_store_is_refused(path: Path, share: float) -> None:
    with RunStore(path) as store:
        store.put(SPEC, [trace(seed) for seed in range(200)])
    complete = path.read_bytes()
    path.write_bytes(complete[: int(len(complete) * share)])
    with pytest.raises(CorruptFileError, match=r"restore a copy, or.* remove it to start afresh"):
        RunStore(path)


def test_damage_inside_a_run_is_found_when_it_is_read(path: Path, store: RunStore) -> None:
    store.put(SPEC, [trace(0), trace(1)])
    for blob in (b"1234567", trace(1).encode()[:-1], OTHER.to_json().encode()):
        run_sql(path, "UPDATE runs SET trace = ? WHERE seed = 1", values=(blob,))
        with pytest.raises(CorruptFileError, match="is damaged"):
            store.get(SPEC)


def test_a_place_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere" / "runs.db"):
        with pytest.raises(PersistenceError, match="cannot be used"):
            RunStore(place)


def test_a_full_disk_is_named_and_loses_nothing_that_was_stored(store: RunStore) -> None:
    store.put(SPEC, [trace(0)])
    store._db.execute(f"PRAGMA max_page_count = {store._number('page_count')}")
    many = np.zeros(10_000)
    with pytest.raises(PersistenceError, match="full"):
        store.put(SPEC, [trace(seed, depths=many) for seed in range(1, 100)])
    assert list(store.get(SPEC)) == [0]
    store._db.execute("PRAGMA max_page_count = 1000000")
    store.put(SPEC, [trace(1)])
    assert list(store.get(SPEC)) == [0, 1]


def test_an_error_within_a_transaction_that_sqlite_ended_leaves_the_store_usable(
    store: RunStore,
) -> None:
    def failing() -> Iterator[Trace]:
        yield trace(0)
        # the second ends the transaction, as a failing disk may
        store._db.execute("INSERT OR ROLLBACK INTO specs VALUES ('key', 'a'), ('key', 'b')")

    with pytest.raises(CorruptFileError, match="UNIQUE"):
        store.put(SPEC, failing())
    assert store.get(SPEC) == {}
    store.put(SPEC, [trace(0)])
    assert list(store.get(SPEC)) == [0]
