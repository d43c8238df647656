"""Open the event store at an address."""

import re
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress

from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.persistence.stores.sqlite import SqliteStore
from stopwise.service.settings import redacted_store


def open_store(where: str) -> EventStore:
    """Return the store at a path (SQLite) or ``postgresql://…``, without opening it."""
    if not where.startswith(("postgresql://", "postgres://")):
        if "://" in where or re.search(r"\b(password|host|dbname|user)\s*=", where):
            # Do not repeat the address, which may contain a password.
            raise InvalidParameterError(
                "the store must be the path of an SQLite file or a PostgreSQL address such as "
                "postgresql://user@host/database"
            )
        return SqliteStore(where)
    try:
        from stopwise.service.persistence.stores.postgres import PostgresStore
    except ImportError as error:
        raise MissingPackageError.of("a log in PostgreSQL", "psycopg", "postgres") from error
    return PostgresStore(where)


@asynccontextmanager
async def open_existing_store(where: str) -> AsyncGenerator[EventStore, None]:
    """Open an existing event log at a path (SQLite) or ``postgresql://…``."""
    store = open_store(where)
    if isinstance(store, SqliteStore):
        try:
            with closing(sqlite3.connect(f"{store.path.as_uri()}?mode=rw", uri=True)) as sql:
                sql.execute("SELECT 1 FROM block, snapshot LIMIT 0")
        except sqlite3.Error as error:
            raise InvalidParameterError(f"there is no event log at {where}: {error}") from None
    elif not _has_tables(where):
        raise InvalidParameterError(f"there is no event log in {redacted_store(where)}")
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def _has_tables(where: str) -> bool:
    import psycopg  # installed: `open_store` needs it too

    with suppress(psycopg.Error), psycopg.connect(where, connect_timeout=5) as connection:
        return connection.execute("SELECT to_regclass('stopwise_log')").fetchone() != (None,)
    return True  # `open` reports the problem
