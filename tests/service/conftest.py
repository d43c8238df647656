"""Both kinds of store, real ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stopwise.service.store import open_store
from stopwise.service.store.base import Store
from tests.service.database import Database


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    """A PostgreSQL server of this test process."""
    database = Database()
    yield database
    database.remove()


@pytest.fixture
def postgres(database: Database) -> str:
    """The address of an empty PostgreSQL store."""
    return database.fresh()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return request.getfixturevalue("postgres")


@pytest.fixture
def store(where: str) -> Store:
    """A store of either kind, still to be opened in the test's own event loop."""
    return open_store(where)
