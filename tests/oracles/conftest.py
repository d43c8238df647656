"""Use one BLAS thread, which is faster for the small matrices of the referee."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield
