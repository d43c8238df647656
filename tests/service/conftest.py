"""Fixtures with real stores of both kinds, and with a service that requires keys."""

import asyncio
from collections.abc import Iterator
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import NamedTuple

import pytest

from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.persistence.stores.opening import open_store
from tests.service.database import Database
from tests.service.harness import SPEC, Served, keys_in, served


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    """A PostgreSQL server for this test session."""
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
def store(where: str) -> EventStore:
    """A store of either kind, to be opened in the event loop of the test."""
    return open_store(where)


class Locked(NamedTuple):
    """A service that requires keys, with a key of each scope."""

    running: Served
    file: Path
    keys: dict[str, str]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """A service that requires keys and has a cascade."""
    folder = tmp_path_factory.mktemp("locked")
    file, keys = keys_in(folder)
    with served(folder, keys=file) as running:
        assert running.post("/v1/cascades", SPEC, key=keys["admin"]).status_code == 201
        yield Locked(running, Path(file), keys)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run each coroutine test in a new event loop."""
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    names = signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
