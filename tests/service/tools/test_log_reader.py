"""Opening logs, and private output files."""

import os
import sqlite3
from pathlib import Path

import pytest

from stopwise.errors import InvalidParameterError, StoreError, UnsupportedVersionError
from stopwise.files import private_file
from stopwise.service.tools.verification import verify
from tests.service.tools.conftest import SampleLog
from tests.service.tools.sample_logs import using


async def test_reading_a_missing_log_creates_nothing(tmp_path: Path, postgres: str) -> None:
    (tmp_path / "text.db").write_text("hello")
    (tmp_path / "empty.db").touch()
    files = [str(tmp_path / name) for name in ("none.db", "", "text.db", "empty.db")]
    for where in (*files, postgres, postgres):  # twice, to see that nothing was created
        with pytest.raises(InvalidParameterError):
            await using(where, verify)
    assert {path.name for path in tmp_path.iterdir()} == {"text.db", "empty.db"}
    assert (tmp_path / "empty.db").read_bytes() == b""
    with pytest.raises(StoreError):
        await using("postgresql://127.0.0.1:1/none?connect_timeout=2", verify)


async def test_a_log_of_a_newer_version_is_rejected(sqlite: SampleLog) -> None:
    with sqlite3.connect(sqlite.where) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UnsupportedVersionError):
        await using(sqlite.where, verify)


def test_a_private_file_is_written_atomically(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    old_umask = os.umask(0o022)

    def write(text: str, *, fail: bool = False) -> None:
        with private_file(target) as path:
            path.write_text(text)
            assert path.parent.stat().st_mode & 0o777 == 0o700
            if fail:
                error = ZeroDivisionError()
                error.add_note(f"The rest is in {path}.")
                raise error

    try:
        with pytest.raises(ZeroDivisionError) as caught:
            write("half", fail=True)
        assert list(tmp_path.iterdir()) == []
        assert caught.value.__notes__ == []  # the file no longer exists
        for text in ("complete", "new"):
            write(text)
            assert (target.read_text(), target.stat().st_mode & 0o777) == (text, 0o600)
            target.chmod(0o644)  # the next file is private again
    finally:
        os.umask(old_umask)


@pytest.mark.parametrize("target", ["folder", "pipe", "none/out.txt"])
def test_a_private_file_requires_a_regular_path(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidParameterError), private_file(tmp_path / target):
        pass
