"""A sample log, created once and copied for every test."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.service.tools.sample_logs import write_sample


class SampleLog(NamedTuple):
    where: str
    hash: str  # of the state at its end


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> SampleLog:
    where = str(tmp_path_factory.mktemp("log") / "log.db")
    return SampleLog(where, write_sample(where))


@pytest.fixture
def sqlite(original: SampleLog, tmp_path: Path) -> SampleLog:
    """A copy of the sample log in an SQLite file."""
    for suffix in ("", "-owner"):
        shutil.copy(original.where + suffix, tmp_path / f"log.db{suffix}")
    return SampleLog(str(tmp_path / "log.db"), original.hash)


@pytest.fixture(params=["sqlite", "postgres"])
def log(request: pytest.FixtureRequest) -> SampleLog:
    """A copy of the sample log in either kind of store."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite")
    where = request.getfixturevalue("postgres")
    return SampleLog(where, write_sample(where))
