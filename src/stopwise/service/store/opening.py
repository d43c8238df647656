"""Which store an address means."""

import re

from stopwise.errors import InvalidParameterError, MissingPackageError
from stopwise.service.store.base import Store
from stopwise.service.store.sqlite import SqliteStore


def open_store(where: str) -> Store:
    """Return the store at an address; its `open` is still to be awaited.

    Parameters
    ----------
    where : str
        ``postgresql://…``, or the path of an SQLite file.

    Raises
    ------
    InvalidParameterError
        If the address of a PostgreSQL database cannot be understood.
    MissingPackageError
        If it needs psycopg, which is not installed.

    Examples
    --------
    >>> type(open_store("stopwise.db")).__name__
    'SqliteStore'
    >>> type(open_store("postgresql://localhost/triage")).__name__
    'PostgresStore'
    """
    if not where.startswith(("postgresql://", "postgres://")):
        if "://" in where or re.search(r"\b(password|host|dbname|user)\s*=", where):
            # (Not shown: it may hold a password.)
            raise InvalidParameterError(
                "the store is neither the path of an SQLite file nor an address of PostgreSQL: "
                "write postgresql://user@host/database"
            )
        return SqliteStore(where)
    try:
        from stopwise.service.store.postgres import PostgresStore
    except ImportError as error:
        raise MissingPackageError(
            "a log in PostgreSQL needs psycopg: pip install 'stopwise[postgres]'"
        ) from error
    return PostgresStore(where)
