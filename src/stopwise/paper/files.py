"""Files that are whole or not there: a reader never meets half a report."""

import os
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
