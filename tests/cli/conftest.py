"""The program itself, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def stopwise(tmp_path: Path) -> Run:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "100", **more}
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        return subprocess.run(
            [sys.executable, "-m", "stopwise", *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=environment,
            timeout=300,
            check=False,
        )

    return run
