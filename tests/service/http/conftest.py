"""Doors to a service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.http.door import REVEALING, SPEC, Door, opened


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """As `door`, for all tests of a module whose requests are refused; nothing may have changed."""
    with opened(tmp_path_factory.mktemp("still")) as door:
        for spec in (SPEC, REVEALING):
            assert door.post("/v1/cascades", spec).status_code == 201
        before = door.get("/v1/state").json()
        yield door
        assert door.get("/v1/state").json() == before


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """A service without keys that has two cascades, "triage" and "stages"."""
    with opened(tmp_path) as door:
        for spec in (SPEC, REVEALING):
            assert door.post("/v1/cascades", spec).status_code == 201
        yield door
