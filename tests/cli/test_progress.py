"""Progress in plain lines: from time to time, and an honest time left."""

import io

from rich.console import Console
from rich.progress import Progress

from stopwise.cli.progress import report


class Shown:
    """What is reported, at times that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self._file = io.StringIO()
        console = Console(file=self._file)
        self._bars = Progress(console=console, disable=True, get_time=lambda: self.now)

    def report(self, stage: str, done: int, of: int) -> None:
        report(self._bars, stage, done, of)

    def written(self) -> list[str]:
        lines = self._file.getvalue().splitlines()
        self._file.seek(0)
        self._file.truncate()
        return lines


def test_a_line_for_every_tenth_or_every_ten_seconds_and_one_for_the_end() -> None:
    shown = Shown()
    shown.report("running", 0, 0)  # nothing to do
    for done in (*range(1001), 1000):
        shown.report("running", done, 1000)
        shown.now += 0.01
    written = shown.written()
    assert 10 <= len(written) <= 12
    assert written[0] == "running 0/1000, 0.0 s"
    assert written[-1] == "running 1000/1000, 10.0 s"

    shown.now = 100.0
    shown.report("drawing", 0, 10_000)
    for done in range(1, 4):
        shown.now += 12.0
        shown.report("drawing", done, 10_000)
        shown.report("drawing", done, 10_000)  # too soon
    written = shown.written()
    assert len(written) == 4
    assert written[1] == "drawing 1/10000, 12.0 s, about 1 d 9 h left"


def test_what_was_stored_before_does_not_count_as_fast_work() -> None:
    shown = Shown()
    shown.report("running", 900, 1000)
    shown.now = 10.0
    shown.report("running", 910, 1000)
    assert shown.written() == [
        "running 900/1000, 0.0 s",
        "running 910/1000, 10.0 s, about 1 min 30 s left",
    ]
