"""``stopwise demo``, in a pipe and in a pseudo-terminal, as users start it."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from fcntl import ioctl

import pytest

from stopwise.cli.demo import CASES, Demo, chart
from tests.cli.conftest import Run, flat

LIMIT = 120.0  # seconds for a slow machine; nothing is timed


def in_terminal(*words: str, stop: Callable[[str], bool] = lambda text: False) -> tuple[int, str]:
    """Run the demo at a terminal of 80 × 24, with Ctrl-C once ``stop`` says so."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")
    own = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [sys.executable, "-m", "stopwise", "demo", *words]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=own | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    seen, sent = b"", False
    try:
        while select.select([ours], [], [], LIMIT)[0]:
            try:
                more = os.read(ours, 65_536)
            except OSError:  # Linux reports the end so
                break
            if not more:
                break
            seen += more
            if not sent and stop(seen.decode(errors="replace")):
                process.send_signal(signal.SIGINT)
                sent = True
        return process.wait(LIMIT), seen.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_in_a_pipe_it_prints_lines_and_does_not_wait(process: Run) -> None:
    done = process("demo", "--seconds", "3600", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout)
    text = flat(done.stdout)
    assert len(re.findall(r"\d cases: \$\d+\.\d\d a case for tests", text)) == CASES // 500
    assert "stopwise diagnose LOG" in text
    assert "sw.Runner(policy, stages)" in text


def test_at_a_terminal_it_draws_over_and_ends_with_the_summary() -> None:
    code, text = in_terminal("--seconds", "0")
    assert code == 0
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for words in ("always history", "always insulin", f"(case {CASES:,} of {CASES:,})", "█"):
        assert words in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "the best fixed depth" in flat(plain.rpartition("of 3,000)")[2])
    assert "Traceback" not in text


def test_an_interrupt_ends_it_with_the_summary() -> None:
    code, text = in_terminal("--seconds", "3600", stop=lambda seen: "(case 1 of" in seen)
    assert code == 0
    assert "Traceback" not in text
    end = flat(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
    assert re.search(r"\d+ cases: \$\d+\.\d\d each, tests and wrong answers", end)
    assert "With your own" in end


def test_the_saving_is_real_and_the_numbers_are_those_of_the_cases() -> None:
    shown = Demo()
    assert list(shown.play()) == [*range(1, CASES + 1)]
    results = shown.results()
    own, last = results["stopwise"], results["always insulin"]
    assert shown.saved[-1] == pytest.approx(CASES * (last[-1] - own[-1]))
    assert own[-1] < min(total for name, (*_, total) in results.items() if name != "stopwise")
    rows = shown.cases.tolist()
    wrong = sum(bool(shown.wrong[row, k]) for row, k in zip(rows, shown.stops, strict=True))
    assert own[1] == pytest.approx(wrong / CASES)
    assert len(set(shown.stops)) == 3
    assert "less than the best fixed depth (always history" in shown.summary()


def test_on_other_splits_it_beats_every_test_for_everybody() -> None:
    for seed in (1, 2, 3):
        shown = Demo(seed)
        assert "before the first case" in shown.summary()
        [*_] = shown.play()
        assert shown.saved[-1] > 0.1 * CASES * shown.results()["always insulin"][-1]


def test_the_chart_copes_with_losses_and_with_nothing_yet() -> None:
    assert chart([0], height=1) == " "
    assert chart([-5, 0, 8], height=1) == "  █"


def test_help_teaches(stopwise: Run) -> None:
    done = stopwise("demo", "--help")
    assert done.returncode == 0
    assert "stopwise demo --seconds 0" in flat(done.stdout)
    assert stopwise("demo", "--seconds", "-1").returncode == 2
