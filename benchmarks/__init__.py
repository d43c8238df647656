"""What a round of Stopwise costs, beside what its peers' rounds cost. Start with ``--help``.

The thread limits below are set before anything imports numpy, because BLAS libraries read them
once, when they load. Every time in these benchmarks is CPU time of the whole process, which adds
up all threads: idle BLAS workers that spin while waiting would be charged to whoever called them,
and rounds this small gain nothing from a second thread anyway.

Compiled code is cached in a folder named after the content of every file with kernels. numba's
own check looks only at the file a function is in, not at those of the functions it calls, so after
an edit elsewhere it may go on running, and here measuring, code that no longer exists.
"""

import hashlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

for _variable in (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
):
    os.environ.setdefault(_variable, "1")


def _fingerprint() -> str:
    """A hash of the kernels of Stopwise, where there is one, and of these benchmarks."""
    files = [path for path in Path(__file__).parent.rglob("*.py") if "numba" in path.read_text()]
    stopwise = find_spec("stopwise")
    if stopwise is not None and stopwise.origin is not None:
        package = Path(stopwise.origin).parent
        files += [package / "monomials.py", *(package / "engine").rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


SOURCES = _fingerprint()
os.environ["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"stopwise-bench-{SOURCES}")
