"""Runs do not depend on the number of threads of numerical libraries.

Sums split into another number of parts would differ in the last bit and could change a decision.
"""

import json
import os
import subprocess
import sys

from stopwise.research.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec

ENVIRONMENTS = [
    EnvironmentSpec("pima", (0.01, 0.35, 0.5)),
    EnvironmentSpec("heart", (0.01, 0.1, 0.3)),
    EnvironmentSpec("synthetic", (0.01, 0.02, 0.032, 0.05, 0.65)),
    EnvironmentSpec("realizable", (0.1, 0.3), {"theta": [[-3, 2, 0, 1, 0, 0]], "degree": 2}),
]
SPECS = [ExperimentSpec(where, PolicySpec("uss-ts"), rounds=3000) for where in ENVIRONMENTS]

DIGEST = """
import hashlib, json, sys
import msgspec
from stopwise.research.experiments.runs import execute
from stopwise.research.experiments.spec import ExperimentSpec

for text in json.loads(sys.stdin.read()):
    trace = msgspec.structs.asdict(execute(msgspec.json.decode(text, type=ExperimentSpec), seed=1))
    bits = [a.tobytes() for a in trace.values() if hasattr(a, "tobytes")]
    print(hashlib.sha256(b"".join(bits)).hexdigest())
"""


def test_runs_are_equal_for_any_number_of_library_threads() -> None:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    single, four = (
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=os.environ | dict.fromkeys(names, threads),
            input=json.dumps([spec.to_json() for spec in SPECS]),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for threads in ("1", "4")
    )
    assert len(set(single)) == len(SPECS)
    assert four == single
