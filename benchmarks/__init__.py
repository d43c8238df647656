"""Benchmarks of Stopwise and other libraries; see ``python -m benchmarks --help``."""

import os

# Set before numpy is imported, because BLAS libraries read the limits when they load. CPU times
# include all threads, so idle BLAS workers that spin would count, and such small rounds gain
# nothing from a second thread.
for _variable in (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
):
    os.environ.setdefault(_variable, "1")
