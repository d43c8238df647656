"""The files of Stopwise that a call passes through."""

import re
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import stopwise

SOURCE = Path(stopwise.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
FILE = r"`([\w/]+\.(?:py|cpp|h))`"


class Walk:
    """The files under ``src/stopwise`` whose functions are called, in order of the first call.

    Bodies of modules and classes do not count, but functions that these call do: run the same
    code once before `recording`, so that nothing is imported in it.

    Attributes
    ----------
    files : list of str
        Relative to ``src/stopwise``.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self._recording = threading.Event()
        self._names: dict[str, str | None] = {}  # of files by their path; None: not of Stopwise

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record the calls of this thread, and of threads that were started in `following`."""
        before = sys.getprofile()
        self._recording.set()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(before)
            self._recording.clear()

    @contextmanager
    def following(self) -> Generator[None]:
        """Include the threads that are started meanwhile."""
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(None)

    def before(self, folders: tuple[str, ...]) -> list[str]:
        """Return the files that were passed before the first in one of some folders."""
        found: list[str] = []
        for name in self.files:
            if name.startswith(folders):
                break
            found.append(name)
        return found

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not self._recording.is_set() or not code.co_flags & CO_OPTIMIZED:
            return
        path = code.co_filename
        if path not in self._names:
            inside = Path(path).is_relative_to(SOURCE)
            self._names[path] = Path(path).relative_to(SOURCE).as_posix() if inside else None
        name = self._names[path]
        if name is not None and name not in self.files:
            self.files.append(name)


def rows_on_page(begins: str, ends: str) -> list[list[str]]:
    """Return the files in each row of a table of docs/architecture.md, between two texts."""
    _, found, rest = PAGE.partition(begins)
    assert found, begins
    section, found, _ = rest.partition(ends)
    assert found, ends
    cells = re.findall(r"(?m)^\| (?:\d+ \| )?((?:`[\w/.]+`(?:, )?)+) \|", section)
    return [re.findall(FILE, cell) for cell in cells]
