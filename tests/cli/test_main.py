"""The program ``stopwise``: help, version, errors and import time."""

import subprocess
import sys
from pathlib import Path

import pytest

import stopwise as sw
from tests.cli.conftest import Run


def test_help_suggests_commands_to_try(process: Run) -> None:
    done = process("--help")
    assert done.returncode == 0
    assert "stopwise reproduce --quick" in done.stdout
    assert done.stderr == ""


def test_version_is_printed_and_help_without_arguments(stopwise: Run) -> None:
    done = stopwise("--version")
    assert (done.returncode, done.stdout) == (0, f"stopwise {sw.__version__}\n")
    assert "reproduce" in stopwise().stdout


@pytest.mark.parametrize("words", [["reproduec"], ["--verson"], ["reproduce", "extra"]])
def test_unknown_commands_and_options_are_usage_errors(stopwise: Run, words: list[str]) -> None:
    done = stopwise(*words)
    assert done.returncode == 2
    assert "Usage" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("stopwise.cli.main", {"numpy", "matplotlib", "pyarrow", "distributed", "jinja2"}),
        ("stopwise.research.paper.report", {"matplotlib", "pyarrow"}),
    ],
)
def test_imports_stay_light(module: str, heavy: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert not heavy & {*loaded}


def test_a_failure_is_one_line_and_debug_mode_shows_the_traceback(
    stopwise: Run, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    words = ("reproduce", "--quick", "--only", "table1", "--out", "taken")
    done = stopwise(*words)
    assert done.returncode == 1
    assert done.stderr.startswith("stopwise: ")
    assert "taken" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = stopwise(*words, STOPWISE_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
