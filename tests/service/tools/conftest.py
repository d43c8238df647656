"""A log that a service has written, created once and copied for every test."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.service.tools.sample_logs import lived


class SampleLog(NamedTuple):
    where: str
    hash: str  # of the state at its end


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> SampleLog:
    where = str(tmp_path_factory.mktemp("log") / "log.db")
    return SampleLog(where, lived(where))


@pytest.fixture
def sqlite(original: SampleLog, tmp_path: Path) -> SampleLog:
    """A log of its own in an SQLite file."""
    for end in ("", "-owner"):
        shutil.copy(original.where + end, tmp_path / f"log.db{end}")
    return SampleLog(str(tmp_path / "log.db"), original.hash)


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest) -> SampleLog:
    """A log of its own, of either kind."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite")
    where = request.getfixturevalue("postgres")
    return SampleLog(where, lived(where))
