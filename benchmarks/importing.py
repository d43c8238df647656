"""What `import stopwise` costs in a fresh interpreter, and what it drags in."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.report import table
from benchmarks.timing import progress

REPEATS = 5
HEAVY = ("numba", "scipy", "sklearn", "matplotlib")
STATEMENTS = ("import stopwise", "from stopwise import USSPD", "import numpy")
"""A package may put off work until a name is asked for, hence the second; numpy alone is the
yardstick, below which no numerical library can go."""

_CHILD = """
import json, sys, time
start = time.process_time()
{statement}
spent = time.process_time() - start
print(json.dumps([spent, [name for name in {heavy} if name in sys.modules]]))
"""


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Run each statement in fresh interpreters, best of five."""
    rows = []
    for statement in STATEMENTS:
        seconds: float | str = "not installed"
        pulled: list[str] = []
        trials = [trial for _ in range(2 if quick else REPEATS) if (trial := _import(statement))]
        if trials:
            seconds, pulled = min(trials)
        rows.append((statement, seconds, ", ".join(pulled) or "none"))
    progress("")
    note = f"CPU seconds, best of {2 if quick else REPEATS}. Looked for: {', '.join(HEAVY)}."
    text = table("Importing", ["", "CPU seconds", "of the heavy ones, loads"], rows, note)
    names = ("statement", "seconds", "loads")
    return text, {"rows": [dict(zip(names, row, strict=True)) for row in rows]}


def _import(statement: str) -> tuple[float, list[str]] | None:
    """CPU seconds of one import and the heavy modules it loaded; None if it cannot be imported."""
    progress(f"importing: {statement}")
    code = _CHILD.format(statement=statement, heavy=HEAVY)
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    if child.returncode:
        return None
    spent, pulled = json.loads(child.stdout)
    return spent, pulled
