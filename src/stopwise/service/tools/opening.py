"""Opening a log that is there already: reading must never make one."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stopwise.errors import InvalidParameterError, UnsupportedVersionError
from stopwise.service.settings import shown_store
from stopwise.service.store.base import Store
from stopwise.service.store.opening import open_store
from stopwise.service.store.sqlite import FORMAT, SqliteStore

TABLES = {"block", "snapshot"}


@asynccontextmanager
async def existing(where: str) -> AsyncGenerator[Store, None]:
    """Open the event log at an address, which must be there.

    Parameters
    ----------
    where : str
        As in the settings: the path of an SQLite file, or ``postgresql://…``.

    Raises
    ------
    InvalidParameterError
        If there is nothing, or something else.
    UnsupportedVersionError
        If a newer version of Stopwise wrote it.
    StoreError
        If it cannot be reached.
    """
    store = open_store(where)
    if isinstance(store, SqliteStore):
        check_file(store.path)
    elif not await _has_tables(where):
        raise InvalidParameterError(f"there is no event log in {shown_store(where)}")
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def is_file(where: str) -> bool:
    """Say whether an address is that of an SQLite file.

    Examples
    --------
    >>> is_file("stopwise.db"), is_file("postgresql://localhost/triage")
    (True, False)
    """
    return isinstance(open_store(where), SqliteStore)


def check_file(path: Path) -> None:
    """Make sure that a file is an event log; its contents are another question.

    Examples
    --------
    >>> check_file(Path("nowhere.db"))
    Traceback (most recent call last):
    stopwise.errors.InvalidParameterError: there is no file nowhere.db
    """
    if not path.exists():
        raise InvalidParameterError(f"there is no file {path}")
    if not path.is_file():
        raise InvalidParameterError(f"{path} is not a file")
    try:
        # rw, not rwc: what is not there is not made
        sql = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
    except sqlite3.Error as error:
        raise InvalidParameterError(f"{path} cannot be opened: {error}") from None
    try:
        tables = {row[0] for row in sql.execute("SELECT name FROM sqlite_master")}
        version = int(sql.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise InvalidParameterError(f"{path} is not an event log of Stopwise: {error}") from None
    finally:
        sql.close()
    if version > FORMAT and tables >= TABLES:
        raise UnsupportedVersionError(
            f"{path} is an event log of format {version}; this Stopwise reads format {FORMAT}. "
            "Update Stopwise"
        )
    if version < 1 or not tables >= TABLES:
        raise InvalidParameterError(f"{path} is an SQLite file, but not an event log of Stopwise")


async def _has_tables(where: str) -> bool:
    import psycopg  # there: `open_store` has asked for it

    with suppress(psycopg.Error):  # `open` words it better
        async with await psycopg.AsyncConnection.connect(where, connect_timeout=5) as connection:
            cursor = await connection.execute("SELECT to_regclass('stopwise_log') IS NOT NULL")
            row = await cursor.fetchone()
            return row is not None and bool(row[0])
    return True
