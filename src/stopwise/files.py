"""Atomic file writing: a file is complete, or missing."""

import os
import shutil
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from stopwise.errors import InvalidParameterError


def put_in_place(new: Path, target: Path) -> None:
    """Move a new file to its place, so that a power cut leaves it complete, or what was there."""
    with new.open("r+b") as file:
        os.fsync(file.fileno())
    new.replace(target)
    with suppress(OSError):  # some systems and file systems cannot sync a folder
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_file(target: Path, content: bytes) -> None:
    """Write a file, completely or not at all.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "a.txt"), b"abc")
    ...     Path(folder, "a.txt").read_bytes()
    b'abc'
    """
    # Beside the target, since another folder may be on another disk.
    new = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        new.write_bytes(content)
        put_in_place(new, target)
    finally:
        new.unlink(missing_ok=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write several files into a folder: all of them, or none and no folder.

    They are written elsewhere first, since a full disk or an interrupt shows in writing; then
    each is moved to its place in one step, in the order given.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     write_files(Path(folder, "new"), {"a.txt": b"abc", "more/b.txt": b"de"})
    ...     sorted(path.name for path in Path(folder).rglob("*.txt"))
    ['a.txt', 'b.txt']
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    apart = folder / f".{os.getpid()}"  # inside: another folder may be on another disk
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (apart / name).parent.mkdir(parents=True, exist_ok=True)
            (apart / name).write_bytes(content)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (apart / name).replace(folder / name)
    finally:
        shutil.rmtree(apart, ignore_errors=True)
        for place in missing:
            with suppress(OSError):  # not empty: the files are there
                place.rmdir()


@contextmanager
def private_file(target: Path) -> Generator[Path, None, None]:
    """Yield a path to write to; at the end it replaces the target (of a link, the linked file).

    Only its owner can read it.
    """
    target = target.resolve()
    if not target.parent.is_dir():
        raise InvalidParameterError(f"there is no folder {target.parent}")
    if target.exists() and not target.is_file():
        raise InvalidParameterError(f"{target} is not a file; choose another name")
    with TemporaryDirectory(prefix=".stopwise-", dir=target.parent) as hidden:  # its mode is 0700
        path = Path(hidden, target.name)
        try:
            yield path
        except BaseException as error:  # a writer may have noted what it left in the folder
            notes: list[str] = getattr(error, "__notes__", [])
            notes[:] = [note for note in notes if hidden not in note]
            raise
        path.chmod(0o600)
        put_in_place(path, target)
