"""``stopwise demo``, in a pipe and in a pseudo-terminal."""

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

from stopwise.cli.demo import CASES, CASES_PER_LINE, MedicalCascade, chart
from tests.cli.conftest import Run, flat

LIMIT = 120.0  # seconds, for a slow machine; nothing is timed
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(
    *options: str, interrupt_when: Callable[[str], bool] = lambda _: False
) -> tuple[int, str]:
    """Run the demo in a terminal of 80 × 24; send Ctrl-C on the first matching screen."""
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    unset = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "stopwise", "demo", *options],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(terminal)
    output = b""
    interrupted = False
    try:
        while select.select([controller], [], [], LIMIT)[0]:
            try:
                chunk = os.read(controller, 65_536)
            except OSError:  # raised on Linux once the process has exited
                break
            if not chunk:
                break
            output += chunk
            if not interrupted and interrupt_when(output.decode(errors="replace")):
                process.send_signal(signal.SIGINT)
                interrupted = True
        return process.wait(LIMIT), output.decode()
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def test_pipe_gets_lines_without_delay(process: Run) -> None:
    done = process("demo", "--seconds", "3600", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout)
    text = flat(done.stdout)
    assert len(re.findall(r"\d cases: \$\d+\.\d\d per case", text)) == CASES // CASES_PER_LINE
    assert "stopwise diagnose LOG" in text
    assert "sw.Runner(policy, stages)" in text


def test_terminal_is_redrawn_and_ends_with_the_summary() -> None:
    code, text = in_terminal("--seconds", "0")
    assert code == 0
    assert "\x1b[" in text
    plain = CONTROL_SEQUENCE.sub("", text)
    for expected in ("always history", "always insulin", f"(case {CASES:,} of {CASES:,})", "█"):
        assert expected in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert "best fixed depth" in flat(plain.rpartition("of 3,000)")[2])
    assert "Traceback" not in text


def test_interrupt_prints_the_summary() -> None:
    code, text = in_terminal(
        "--seconds", "3600", interrupt_when=lambda screen: "(case 1 of" in screen
    )
    assert code == 0
    assert "Traceback" not in text
    plain = flat(CONTROL_SEQUENCE.sub("", text))
    assert re.search(r"\d+ cases cost \$\d+\.\d\d each on average, including wrong answers", plain)
    assert "Try it on your data" in plain


def test_averages_and_savings_match_the_cases() -> None:
    cascade = MedicalCascade()
    assert list(cascade.play()) == [*range(1, CASES + 1)]
    averages = cascade.averages()
    stopwise, every_test = averages["Stopwise"], averages["always insulin"]
    assert cascade.saved[-1] == pytest.approx(CASES * (every_test.total - stopwise.total))
    assert stopwise.total < min(
        average.total for average in averages.values() if average != stopwise
    )
    patients = cascade.patients.tolist()
    wrong = sum(
        bool(cascade.wrong[patient, stop])
        for patient, stop in zip(patients, cascade.stops, strict=True)
    )
    assert stopwise.wrong == pytest.approx(wrong / CASES)
    assert len(set(cascade.stops)) == 3
    assert "less than the best fixed depth, 'always history'" in cascade.summary()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_seeds_save_a_tenth_of_running_every_test(seed: int) -> None:
    cascade = MedicalCascade(seed)
    assert "before the first case" in cascade.summary()
    [*_] = cascade.play()
    assert cascade.saved[-1] > 0.1 * CASES * cascade.averages()["always insulin"].total


@pytest.mark.parametrize(("values", "expected"), [([0], " "), ([-5, 0, 8], "  █")])
def test_chart_shows_losses_and_zeros_as_empty(values: list[int], expected: str) -> None:
    assert chart(values, height=1) == expected


def test_help_has_an_example(stopwise: Run) -> None:
    done = stopwise("demo", "--help")
    assert done.returncode == 0
    assert "stopwise demo --seconds 0" in flat(done.stdout)


def test_negative_seconds_are_rejected(stopwise: Run) -> None:
    assert stopwise("demo", "--seconds", "-1").returncode == 2
