"""``stopwise``: it teaches, it answers at once, and it says in a sentence what is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest

import stopwise as sw
from tests.cli.conftest import Run


def test_help_begins_with_something_to_try(stopwise: Run) -> None:
    done = stopwise("--help")
    assert done.returncode == 0
    assert "stopwise reproduce --quick" in done.stdout
    assert done.stderr == ""


def test_the_version(stopwise: Run) -> None:
    done = stopwise("--version")
    assert (done.returncode, done.stdout) == (0, f"stopwise {sw.__version__}\n")


def test_alone_it_shows_its_help(stopwise: Run) -> None:
    done = stopwise()
    assert "reproduce" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["reproduec"], ["--verson"], ["reproduce", "extra"]])
def test_what_is_not_understood_is_a_usage_error(stopwise: Run, words: list[str]) -> None:
    done = stopwise(*words)
    assert done.returncode == 2
    assert "Usage" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("heavy", ["numpy", "matplotlib", "pyarrow", "distributed"])
def test_the_program_starts_without_anything_heavy(heavy: str) -> None:
    script = f"import sys, stopwise.cli.main; print({heavy!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_failure_is_a_sentence(stopwise: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    done = stopwise("reproduce", "--quick", "--only", "table1", "--out", "taken")
    assert done.returncode == 1
    assert done.stderr.startswith("stopwise: ")
    assert "taken" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_debugging_shows_where_it_failed(stopwise: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    words = ("reproduce", "--quick", "--only", "table1", "--out", "taken")
    done = stopwise(*words, STOPWISE_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
