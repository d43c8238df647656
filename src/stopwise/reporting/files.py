"""Files that are whole or not there: a reader never meets half a report."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def write_file(path: Path, content: bytes) -> None:
    """Write a file in one step, with its folder if need be.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "new", "a.txt"), b"abc")
    ...     Path(folder, "new", "a.txt").read_text()
    'abc'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write several files into a folder: all of them, or none and no folder.

    They are written in full elsewhere first, as what goes wrong (a full disk, an interrupt) goes
    wrong in writing; then each takes its place in one step, in the order given.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
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
            with suppress(OSError):  # not empty: all went well
                place.rmdir()
