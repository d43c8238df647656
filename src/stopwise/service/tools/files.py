"""Files that are there whole, or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from stopwise.errors import InvalidParameterError


@contextmanager
def beside(target: Path) -> Generator[Path, None, None]:
    """Give a path to write to, which becomes the real one if all goes well."""
    folder = target.absolute().parent
    if not folder.is_dir():
        raise InvalidParameterError(f"there is no folder {folder}")
    if target.is_dir():
        raise InvalidParameterError(f"{target} is a folder")
    path = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield path
        path.replace(target)
    finally:
        path.unlink(missing_ok=True)
