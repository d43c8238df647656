"""Progress in plain lines, with an estimate of the remaining time."""

import io

from rich.console import Console
from rich.progress import Progress

from stopwise.cli.progress import report


class Recorder:
    """Progress lines, at times set by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self._file = io.StringIO()
        console = Console(file=self._file)
        self._bars = Progress(console=console, disable=True, get_time=lambda: self.now)

    def report(self, stage: str, done: int, of: int) -> None:
        report(self._bars, stage, done, of)

    def lines(self) -> list[str]:
        lines = self._file.getvalue().splitlines()
        self._file.seek(0)
        self._file.truncate()
        return lines


def test_a_line_is_printed_every_tenth_every_ten_seconds_and_at_the_end() -> None:
    recorder = Recorder()
    recorder.report("running", 0, 0)  # nothing to do
    for done in (*range(1001), 1000):
        recorder.report("running", done, 1000)
        recorder.now += 0.01
    lines = recorder.lines()
    assert 10 <= len(lines) <= 12
    assert lines[0] == "running 0/1000, 0.0 s"
    assert lines[-1] == "running 1000/1000, 10.0 s"

    recorder.now = 100.0
    recorder.report("drawing", 0, 10_000)
    for done in range(1, 4):
        recorder.now += 12.0
        recorder.report("drawing", done, 10_000)
        recorder.report("drawing", done, 10_000)  # too soon
    lines = recorder.lines()
    assert len(lines) == 4
    assert lines[1] == "drawing 1/10000, 12.0 s, about 1 d 9 h left"


def test_stored_results_do_not_count_in_the_estimate() -> None:
    recorder = Recorder()
    recorder.report("running", 900, 1000)
    recorder.now = 10.0
    recorder.report("running", 910, 1000)
    assert recorder.lines() == [
        "running 900/1000, 0.0 s",
        "running 910/1000, 10.0 s, about 1 min 30 s left",
    ]
