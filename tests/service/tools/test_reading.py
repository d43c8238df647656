"""Reading a log changes nothing, and only the owner can read the files that are written."""

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.service.tools.reading import existing, inspect, private_file
from tests.service.tools.making import blocks_of, lived, opened


async def look_at(where: str) -> None:
    async with existing(where):
        pass


def test_what_a_log_holds(where: str) -> None:
    hash_ = lived(where)

    async def scenario() -> None:
        async with existing(where) as store:
            found = await inspect(store)
            blocks = await blocks_of(store)
        assert (found.first, found.end, found.blocks) == (1, blocks[-1].end, len(blocks))
        assert found.kinds["created"] == 2
        assert found.kinds["opened"] == 34
        assert found.kinds["labelled"] == 4
        assert sum(found.kinds.values()) == found.end
        assert set(found.kinds) == {"created", "opened", "reported", "labelled"}
        assert found.size == sum(len(block.payload) for block in blocks)
        assert found.times == [blocks[0].time, blocks[-1].time]
        assert list(found.snapshots) == [found.end]
        assert found.snapshots[found.end] > 1000
        assert found.state.hash() == hash_

    asyncio.run(scenario())


def test_reading_creates_nothing(tmp_path: Path, postgres: str) -> None:
    for where in (str(tmp_path / "none.db"), str(tmp_path), postgres):
        for _ in range(2):  # the first time has created nothing for the second to find
            with pytest.raises(InvalidParameterError):
                asyncio.run(look_at(where))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("hello")
    (tmp_path / "empty.db").write_bytes(b"")
    for name in ("text.db", "empty.db"):
        with pytest.raises(InvalidParameterError):
            asyncio.run(look_at(str(tmp_path / name)))
    assert (tmp_path / "empty.db").read_bytes() == b""
    with pytest.raises(StoreError):
        asyncio.run(look_at("postgresql://127.0.0.1:1/none?connect_timeout=2"))


def test_a_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    where = str(tmp_path / "log.db")
    lived(where)
    with sqlite3.connect(where) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UnsupportedVersionError):
        asyncio.run(look_at(where))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_a_private_file_is_there_complete_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"

    def fail(path: Path) -> None:
        path.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), private_file(target, replace=False) as path:
        fail(path)
    assert list(tmp_path.iterdir()) == []
    with private_file(target, replace=False) as path:
        path.write_text("whole")
        assert mode(path.parent) == 0o700
        assert not target.exists()
    assert (target.read_text(), mode(target)) == ("whole", 0o600)
    with pytest.raises(InvalidParameterError), private_file(target, replace=False):
        pass
    assert target.read_text() == "whole"


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("before", [0o644, 0o600])
def test_a_file_that_is_replaced_becomes_private(before: int, tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("old")
    target.chmod(before)
    with private_file(target, replace=True) as path:
        path.write_text("new")
    assert (target.read_text(), mode(target)) == ("new", 0o600)


def test_a_private_file_needs_a_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for target in (tmp_path / "folder", tmp_path / "pipe", tmp_path / "none" / "out.txt"):
        with pytest.raises(InvalidParameterError), private_file(target, replace=True):
            pass
    with private_file(tmp_path / "real.txt", replace=True) as path:
        path.write_text("one")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with private_file(tmp_path / "link.txt", replace=True) as path:
        path.write_text("two")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "two"


def test_an_empty_log(where: str) -> None:
    async def scenario() -> None:
        async with opened(where):
            pass
        async with existing(where) as store:
            assert (await inspect(store)).end == 0

    asyncio.run(scenario())
