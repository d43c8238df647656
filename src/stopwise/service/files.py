"""Files that only their owner can read, and that are complete or not there."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stopwise.errors import InvalidParameterError
from stopwise.reporting.files import put_in_place


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
        try:
            yield path
        except BaseException as error:  # a writer may have noted what it left in the folder
            notes: list[str] = getattr(error, "__notes__", [])
            notes[:] = [note for note in notes if hidden not in note]
            raise
        path.chmod(0o600)
        put_in_place(path, target)
