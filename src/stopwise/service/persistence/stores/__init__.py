"""Stores of the event log: SQLite for one machine, PostgreSQL for several."""

import re

from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.service.persistence.stores.base import EventStore
from stopwise.service.persistence.stores.sqlite import SqliteStore


def open_store(where: str) -> EventStore:
    """Return the store at ``postgresql://…`` or at the path of an SQLite file, not opened yet."""
    if not where.startswith(("postgresql://", "postgres://")):
        if "://" in where or re.search(r"\b(password|host|dbname|user)\s*=", where):
            # The message does not repeat it: it may contain a password.
            raise InvalidParameterError(
                "the store is neither the path of an SQLite file nor an address of PostgreSQL: "
                "write postgresql://user@host/database"
            )
        return SqliteStore(where)
    try:
        from stopwise.service.persistence.stores.postgres import PostgresStore
    except ImportError as error:
        raise MissingPackageError.of("a log in PostgreSQL", "psycopg", "postgres") from error
    return PostgresStore(where)
