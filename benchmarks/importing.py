"""Cost of `import stopwise` and a first round in a new interpreter, and the modules they load."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.report import table
from benchmarks.timing import progress

REPEATS = 5
HEAVY = ("numba", "scipy", "sklearn", "matplotlib")

FIRST_ROUND = """
import stopwise as sw
policy = sw.USSPD(sw.Cascade(costs=[0.01, 0.24, 0.25]), context_dim=4, forced_rounds=0)
x = [0.1, -0.2, 0.3, 0.4]
policy.observe(x, [0, 1, 1][: policy.decide(x).stop + 1])
policy.decide(x)
"""

STATEMENTS = {
    "an empty interpreter": "pass",
    "import numpy": "import numpy",
    "import stopwise": "import stopwise",
    "from stopwise import USSPD": "from stopwise import USSPD",
    "import, first round, next decision": FIRST_ROUND,
}
"""The last two include work that a package may defer to the first access of a name or to the first
round; numpy alone is the lower bound of a numerical library."""

_CHILD = """
import json, sys, time
start = time.process_time()
{statement}
spent = time.process_time() - start
peak = None
try:
    with open("/proc/self/status") as status:
        peak = 1024 * int(status.read().split("VmHWM:")[1].split()[0]) / 1e6
except OSError:
    pass
print(json.dumps([spent, peak, [name for name in {heavy} if name in sys.modules]]))
"""
# VmHWM, because ru_maxrss of a child process starts at its parent's memory.

NOTE = f"""\
CPU seconds and peak memory of the process (Linux), best of {{repeats}}.
The first round: a policy for 3 arms and 4 features, decide, observe, and decide again.
Heavy modules: {", ".join(HEAVY)}."""


def run(quick: bool = False) -> tuple[str, dict[str, Any]]:
    """Run each statement in new interpreters and keep the best times."""
    rows = []
    repeats = 2 if quick else REPEATS
    for name, statement in STATEMENTS.items():
        progress(f"importing: {name}")
        seconds: float | str = "not installed"
        peak: float | None = None
        loaded: list[str] = []
        trials = [trial for _ in range(repeats) if (trial := _import(statement))]
        if trials:
            seconds = min(spent for spent, _, _ in trials)
            peak = min((mb for _, mb, _ in trials if mb is not None), default=None)
            loaded = trials[0][2]
        rows.append((name, seconds, peak, ", ".join(loaded) or "none"))
    progress("")
    columns = ["", "CPU seconds", "peak MB", "heavy modules loaded"]
    text = table("Importing", columns, rows, NOTE.format(repeats=repeats))
    names = ("statement", "seconds", "peak_mb", "loads")
    return text, {"rows": [dict(zip(names, row, strict=True)) for row in rows]}


def _import(statement: str) -> tuple[float, float | None, list[str]] | None:
    """Return CPU seconds, peak MB and the heavy modules loaded; None if the import fails."""
    code = _CHILD.format(statement=statement, heavy=HEAVY)
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    if "ModuleNotFoundError" in child.stderr:
        return None
    child.check_returncode()
    spent, peak, loaded = json.loads(child.stdout)
    return spent, peak, loaded
