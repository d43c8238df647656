"""One BLAS thread: the referee's matrices are small, and threads only get in each other's way."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield
