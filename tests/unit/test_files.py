"""Tests of writing several files atomically."""

from pathlib import Path

import pytest

from stopwise.files import write_files

FILES = {"a.txt": b"one", "deep/b.txt": b"two"}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_write_files_replaces_its_files_and_keeps_others(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes(b"mine")
    write_files(tmp_path, {"a.txt": b"old"})
    write_files(tmp_path, FILES)
    assert contents(tmp_path) == {**FILES, "mine.txt": b"mine"}


@pytest.mark.parametrize("folder", [".", "new/folder"])
def test_a_full_disk_leaves_old_files_unchanged_and_creates_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    write = Path.write_bytes

    def fails_on_the_second(path: Path, content: bytes) -> int:
        if path.name == "b.txt":
            write(path, content[:1])
            raise OSError("no space left")
        return write(path, content)

    (tmp_path / "a.txt").write_text("older")
    monkeypatch.setattr(Path, "write_bytes", fails_on_the_second)
    with pytest.raises(OSError, match="no space"):
        write_files(tmp_path / folder, FILES)
    assert contents(tmp_path) == {"a.txt": b"older"}
    assert not (tmp_path / "new").exists()
