"""Services for the tests of HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.harness import REVEALING, SPEC, Served, served


@contextmanager
def with_cascades(folder: Path) -> Iterator[Served]:
    with served(folder) as running:
        for spec in (SPEC, REVEALING):
            assert running.post("/v1/cascades", spec).status_code == 201
        yield running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    """A service without keys that has two cascades, "triage" and "stages"."""
    with with_cascades(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same for all tests of a module whose requests are refused; nothing may have changed."""
    with with_cascades(tmp_path_factory.mktemp("unchanged")) as running:
        before = running.get("/v1/state").json()
        yield running
        assert running.get("/v1/state").json() == before
