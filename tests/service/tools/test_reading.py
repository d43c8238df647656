"""Reading a log changes nothing, and only the owner can read the files that are written."""

import os
import sqlite3
from pathlib import Path

import pytest

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service.store.base import EventStore
from stopwise.service.tools.reading import inspect, private_file
from tests.service.tools.conftest import Lived
from tests.service.tools.making import blocks_of, with_store


async def look(store: EventStore) -> int:
    return (await inspect(store)).end


def test_what_a_log_holds(log: Lived) -> None:
    found, blocks = with_store(log.where, inspect), with_store(log.where, blocks_of)
    assert (found.first, found.end, found.blocks) == (1, blocks[-1].end, len(blocks))
    assert (found.kinds["created"], found.kinds["opened"], found.kinds["labelled"]) == (2, 34, 4)
    assert sum(found.kinds.values()) == found.end
    assert found.size == sum(len(block.payload) for block in blocks)
    assert found.times == [blocks[0].time, blocks[-1].time]
    assert list(found.snapshots) == [found.end]
    assert found.snapshots[found.end] > 1000
    assert found.state.hash() == log.hash


def test_reading_creates_nothing(tmp_path: Path, postgres: str) -> None:
    (tmp_path / "text.db").write_text("hello")
    (tmp_path / "empty.db").write_bytes(b"")
    for name in ("none.db", "", "text.db", "empty.db"):
        with pytest.raises(InvalidParameterError):
            with_store(str(tmp_path / name), look)
    for _ in range(2):  # the first time has created nothing for the second to find
        with pytest.raises(InvalidParameterError):
            with_store(postgres, look)
    assert {path.name for path in tmp_path.iterdir()} == {"text.db", "empty.db"}
    assert (tmp_path / "empty.db").read_bytes() == b""
    with pytest.raises(StoreError):
        with_store("postgresql://127.0.0.1:1/none?connect_timeout=2", look)


def test_a_log_of_a_newer_version_is_refused(sqlite: Lived) -> None:
    with sqlite3.connect(sqlite.where) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UnsupportedVersionError):
        with_store(sqlite.where, look)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_private_file_is_there_complete_or_not_at_all(tmp_path: Path) -> None:
    target, before = tmp_path / "out.txt", os.umask(0o022)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError), private_file(target) as path:
            fail(path)
        assert list(tmp_path.iterdir()) == []
        with private_file(target) as path:
            path.write_text("complete")
            assert mode(path.parent) == 0o700
            assert not target.exists()
        assert (target.read_text(), mode(target)) == ("complete", 0o600)
        target.chmod(0o644)
        with private_file(target) as path:
            path.write_text("new")
        assert (target.read_text(), mode(target)) == ("new", 0o600)
    finally:
        os.umask(before)


def test_a_private_file_needs_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "folder", tmp_path / "pipe", tmp_path / "none" / "out.txt"):
        with pytest.raises(InvalidParameterError), private_file(target):
            pass
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with private_file(tmp_path / "link.txt") as path:
        path.write_text("two")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "two"
