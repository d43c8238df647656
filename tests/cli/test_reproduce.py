"""``stopwise reproduce`` as a process: in a pipe, in a terminal, and interrupted."""

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


def test_list_has_every_table_and_figure(stopwise: Run) -> None:
    done = stopwise("reproduce", "--list")
    assert done.returncode == 0
    assert re.findall(r"^\S+", done.stdout, re.MULTILINE)[1:] == list(EXHIBITS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "tabel1"], "table1"),
        (["--address", "10.0.0.5:8786"], "executor 'dask'"),
        (["--jobs", "0"], "--jobs"),
        (["--seed", "-1"], "--seed"),
        (["--executor", "spark"], "threads"),
    ],
)
def test_usage_errors_exit_with_2_and_write_nothing(
    stopwise: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = stopwise("reproduce", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_pipe_gets_plain_lines_that_lead_with_the_results(process: Run, tmp_path: Path) -> None:
    done = process(
        *TINY, "--out", "here", FORCE_COLOR="", TERM="xterm-256color", PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    assert done.stdout.startswith(
        "Reproduced 1 table or figure of the paper, with 1 test of its claims:"
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["Table", "1", "table1", "1", "0", "0"] in rows
    assert ["total", "1", "0", "0"] in rows
    assert "Open here" + os.sep + "report.html" in done.stdout
    assert (tmp_path / "here" / "report.html").is_file()
    report = (tmp_path / "here" / "report.html").read_text(encoding="utf-8")
    assert "<code>stopwise reproduce --quick --only table1</code>" in report
    assert str(tmp_path) not in report


class Terminal:
    """A process in a terminal of 100 columns."""

    def __init__(self, arguments: tuple[str, ...], cwd: Path) -> None:
        self.screen = ""
        self._master, slave = pty.openpty()
        terminal = {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stopwise", *arguments],
            **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
            cwd=cwd,
            env=os.environ | terminal,
            start_new_session=True,
        )
        os.close(slave)

    def read(self, until: Callable[[str], object] = lambda _: False, seconds: float = 300) -> str:
        """Read until the screen satisfies a condition or the process exits."""
        deadline = time.monotonic() + seconds
        while not until(self.screen) and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.5)[0]:
                try:
                    chunk = os.read(self._master, 65536)
                except OSError:  # raised on Linux once the process has exited
                    break
                if not chunk:
                    break
                self.screen += chunk.decode(errors="replace")
        return self.screen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def test_terminal_shows_a_progress_bar_and_ctrl_c_keeps_finished_runs(tmp_path: Path) -> None:
    progress = re.compile(r"\b([1-9]\d*)/(\d+)")
    with Terminal(SHORT, tmp_path) as terminal:
        terminal.read(until=progress.search)
        assert "━" in terminal.screen
        assert "left" in terminal.screen
        os.killpg(terminal.process.pid, signal.SIGINT)  # Ctrl-C reaches the entire group
        screen = terminal.read()
        assert terminal.process.wait(60) == 1
    assert "repeat the command to resume" in " ".join(screen.split())
    assert "Traceback" not in screen

    with Terminal(SHORT, tmp_path) as terminal:
        screen = terminal.read()
        assert terminal.process.wait(60) == 0
    first = progress.search(screen)
    assert first is not None
    assert int(first[1]) > 0
    assert not re.search(rf"\b0/{first[2]}", screen)  # it resumed
    assert "Open reproduction/report.html" in screen
