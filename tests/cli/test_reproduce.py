"""``stopwise reproduce``, run for real: into a pipe, at a terminal, and interrupted."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from stopwise.research.paper.catalogue import EXHIBITS
from tests.cli.conftest import Run

TINY = ("reproduce", "--quick", "--only", "table1")
SHORT = ("reproduce", "--quick", "--only", "supervised", "--jobs", "1")


def test_the_list_has_every_table_and_figure(stopwise: Run) -> None:
    done = stopwise("reproduce", "--list")
    assert done.returncode == 0
    assert re.findall(r"^\S+", done.stdout, re.MULTILINE)[1:] == list(EXHIBITS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "tabel1"], "table1"),
        (["--address", "10.0.0.5:8786"], "executor 'dask'"),
        (["--jobs", "0"], "--jobs"),
        (["--seed", "-1"], "--seed"),
        (["--executor", "spark"], "threads"),
    ],
)
def test_usage_errors(stopwise: Run, tmp_path: Path, words: list[str], says: str) -> None:
    done = stopwise("reproduce", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_into_a_pipe_it_writes_plain_lines(process: Run, tmp_path: Path) -> None:
    done = process(
        *TINY, "--out", "here", FORCE_COLOR="", TERM="xterm-256color", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["table1", "1", "0", "0"] in rows
    assert ["all", "1", "0", "0"] in rows
    assert "Open here" + os.sep + "report.html" in done.stdout
    assert (tmp_path / "here" / "report.html").is_file()
    report = (tmp_path / "here" / "report.html").read_text(encoding="utf-8")
    assert "<code>stopwise reproduce --quick --only table1</code>" in report
    assert str(tmp_path) not in report


class Terminal:
    """A program at a terminal of 100 columns."""

    def __init__(self, words: tuple[str, ...], cwd: Path) -> None:
        self.screen = ""
        self._end, theirs = pty.openpty()
        terminal = {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stopwise", *words],
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
            cwd=cwd,
            env=os.environ | terminal,
            start_new_session=True,
        )
        os.close(theirs)

    def read(self, until: Callable[[str], object] = lambda _: False, seconds: float = 300) -> str:
        """Read until something is on the screen, or the program ends."""
        deadline = time.monotonic() + seconds
        while not until(self.screen) and time.monotonic() < deadline:
            if select.select([self._end], [], [], 0.5)[0]:
                try:
                    piece = os.read(self._end, 65536)
                except OSError:  # how Linux says that the other end is closed
                    break
                if not piece:
                    break
                self.screen += piece.decode(errors="replace")
        return self.screen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def test_at_a_terminal_it_draws_a_bar_and_ctrl_c_loses_nothing(tmp_path: Path) -> None:
    some = re.compile(r"\b([1-9]\d*)/(\d+)")
    with Terminal(SHORT, tmp_path) as terminal:
        terminal.read(until=some.search)
        assert "━" in terminal.screen
        assert "left" in terminal.screen
        os.killpg(terminal.process.pid, signal.SIGINT)  # as Ctrl-C does: to all of the group
        screen = terminal.read()
        assert terminal.process.wait(60) == 1
    assert "the same command resumes" in " ".join(screen.split())
    assert "Traceback" not in screen

    with Terminal(SHORT, tmp_path) as terminal:
        screen = terminal.read()
        assert terminal.process.wait(60) == 0
    first = some.search(screen)
    assert first is not None
    assert int(first[1]) > 0
    assert not re.search(rf"\b0/{first[2]}", screen)  # it did not begin again
    assert "Open reproduction/report.html" in screen
