"""Services for tests of the HTTP API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stopwise.service.persistence.snapshots import state_hash
from tests.service.harness import CONTEXT, REVEALING, ROUNDS, SPEC, STAGED, Served, served


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    """A service without keys, with the cascades "triage" and "stages"."""
    with served(tmp_path) as running:
        for spec in (SPEC, REVEALING):
            assert running.post("/v1/cascades", spec).status_code == 201
        yield running


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service shared by tests whose requests are all rejected; its state must not change.

    Each cascade has an open round; "few" allows two.
    """
    with served(tmp_path_factory.mktemp("unchanged")) as running:
        for spec in (SPEC, REVEALING, {**SPEC, "name": "few", "keep_open": 2}):
            assert running.post("/v1/cascades", spec).status_code == 201
        assert running.post(ROUNDS, CONTEXT).status_code == 201
        assert running.post(STAGED, {"context": [0.5]}).status_code == 201
        before = state_hash(running.service.state)
        yield running
        assert state_hash(running.service.state) == before
