"""Python scripts in separate processes."""

import os
import subprocess
import sys
import textwrap
from typing import Any


def run_python(script: str, *arguments: object, **options: Any) -> str:
    """Run a script in a new process and return its output."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )
    return process.stdout
