"""What a round of Stopwise costs, beside what its peers' rounds cost. Start with ``--help``.

The thread limits below are set before anything imports numpy, because BLAS libraries read them
once, when they load. Every time in these benchmarks is CPU time of the entire process, which adds
up all threads: idle BLAS workers that spin while waiting would be charged to whoever called them,
and rounds this small gain nothing from a second thread anyway.
"""

import os

for _variable in (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
):
    os.environ.setdefault(_variable, "1")
