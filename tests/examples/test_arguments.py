"""Command-line arguments of the examples: no overwritten files, no ignored options."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "proxy_upstreams.py")


def run(script: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, EXAMPLES / script, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_unknown_options_are_rejected(script: str, tmp_path: Path) -> None:
    done = run(script, "--unknown", cwd=tmp_path)
    assert done.returncode == 2
    assert "unrecognized arguments: --unknown" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("model_traces.py", ["mine"]),
        ("triage_log.py", ["mine"]),
        ("first_cascade.py", ["--out", "mine"]),
        ("digits_cascade.py", ["--out", "mine"]),
        ("own_policy.py", ["--out", "mine"]),
        ("llm_cascade.py", ["--log", "mine"]),
    ],
)
def test_existing_files_are_not_overwritten(
    script: str, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine")
    done = run(script, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "mine exists" in done.stderr
    assert (tmp_path / "mine").read_text() == "mine"


def test_model_traces_are_written(tmp_path: Path) -> None:
    done = run("model_traces.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "traces.jsonl").read_text("utf-8").splitlines()) == 4_000
