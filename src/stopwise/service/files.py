"""Files that only their owner can read, and that are complete or not there."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stopwise.errors import InvalidParameterError


@contextmanager
def private_file(target: Path) -> Generator[Path, None, None]:
    """Yield a path to write to; at the end it replaces the target (of a link, the linked file)."""
    target = target.resolve()
    if not target.parent.is_dir():
        raise InvalidParameterError(f"there is no folder {target.parent}")
    if target.exists() and not target.is_file():
        raise InvalidParameterError(f"{target} is not a file; choose another name")
    with TemporaryDirectory(prefix=".stopwise-", dir=target.parent) as hidden:  # its mode is 0700
        path = Path(hidden, target.name)
        yield path
        path.chmod(0o600)
        with path.open("r+b") as file:
            os.fsync(file.fileno())
        path.replace(target)
