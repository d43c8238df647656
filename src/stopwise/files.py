"""Atomic file writing."""

import os
import shutil
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from stopwise.errors import InvalidParameterError


def put_in_place(new: Path, target: Path) -> None:
    """Move a new file to its target atomically and durably, even across a power failure."""
    with new.open("r+b") as file:
        os.fsync(file.fileno())
    new.replace(target)
    with suppress(OSError):  # not supported by all systems and file systems
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_file(target: Path, content: bytes) -> None:
    """Write a file atomically.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "a.txt"), b"abc")
    ...     Path(folder, "a.txt").read_bytes()
    b'abc'
    """
    # In the target's folder, because a rename across disks is not atomic.
    new = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        new.write_bytes(content)
        put_in_place(new, target)
    finally:
        new.unlink(missing_ok=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write several files into a folder, and create the folder if necessary.

    All files are first written to a temporary folder, so that a full disk or an interrupt leaves
    the target folder unchanged. They are then moved to the target folder in order.

    Examples
    --------
    >>> with TemporaryDirectory() as folder:
    ...     write_files(Path(folder, "new"), {"a.txt": b"abc", "more/b.txt": b"de"})
    ...     sorted(path.name for path in Path(folder).rglob("*.txt"))
    ['a.txt', 'b.txt']
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    staging = folder / f".{os.getpid()}"  # here, as renaming across disks is not atomic
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_bytes(content)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).replace(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for path in created:
            with suppress(OSError):  # after success, the folder is not empty
                path.rmdir()


@contextmanager
def private_file(target: Path) -> Generator[Path, None, None]:
    """Yield a temporary path whose file replaces the target when the block ends.

    Only the owner can read the file. Symbolic links are followed.
    """
    target = target.resolve()
    if not target.parent.is_dir():
        raise InvalidParameterError(f"folder {target.parent} does not exist; create it first")
    if target.exists() and not target.is_file():
        raise InvalidParameterError(f"{target} is not a regular file; choose another name")
    with TemporaryDirectory(prefix=".stopwise-", dir=target.parent) as staging:  # mode 0700
        path = Path(staging, target.name)
        try:
            yield path
        except BaseException as error:  # drop notes that mention the temporary folder
            notes: list[str] = getattr(error, "__notes__", [])
            notes[:] = [note for note in notes if staging not in note]
            raise
        path.chmod(0o600)
        put_in_place(path, target)
