"""Trace the source files of Stopwise that a call executes."""

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

    Bodies of modules and classes do not count, but functions that they call do, so run the same
    code once before `recording` to complete all imports.

    Attributes
    ----------
    files : list of str
        Relative to ``src/stopwise``.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self._recording = threading.Event()
        self._names: dict[str, str | None] = {}  # by path; None for other packages

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record the calls of this thread, and of threads started within `following`."""
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
        """Include threads that are started in this context."""
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(None)

    def before(self, folders: tuple[str, ...]) -> list[str]:
        """Return the files before the first one in any of these folders."""
        names: list[str] = []
        for name in self.files:
            if name.startswith(folders):
                break
            names.append(name)
        return names

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


def rows_on_page(start: str, end: str) -> list[list[str]]:
    """Return the files in each row of a table of docs/architecture.md, between two texts."""
    _, separator, remainder = PAGE.partition(start)
    assert separator, start
    section, separator, _ = remainder.partition(end)
    assert separator, end
    cells = re.findall(r"(?m)^\| (?:\d+ \| )?((?:`[\w/.]+`(?:, )?)+) \|", section)
    return [re.findall(FILE, cell) for cell in cells]
