"""A full disk, and a database that goes away: nothing is lost, and no restart is needed."""

import resource
from pathlib import Path

import httpx

from tests.service.database import Database
from tests.service.durability.load import Load, check
from tests.service.harness import CONTEXT, ROUNDS, fault, process


def check_unavailable(url: str) -> None:
    """Check that requests are refused in the one shape, and that the service knows it."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False) as client:
        assert fault(client.post(ROUNDS, json=CONTEXT)) == (503, "unavailable")
        paths = ("/readyz", "/healthz", "/v1/cascades")  # no restart would help: it is alive
        assert [client.get(path).status_code for path in paths] == [503, 200, 200]


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    where, load = str(tmp_path / "log.db"), Load(5)
    with process(tmp_path, "--snapshot-every", "200") as server:
        pid = server.process.pid
        with load.running(server.url):
            for room in (0, 50_000):
                load.wait_for(50, 200, 201)
                # No file may grow beyond its size, or a little more.
                largest = max(file.stat().st_size for file in tmp_path.iterdir())
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                limit = largest + room if room else 4096
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))
                load.wait_for(30, 503)
                if not room:
                    check_unavailable(server.url)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
            load.wait_for(50, 200, 201)
        state = check(server, where, load)
        server.end()
        server.start()
        assert server.wait_until_ready() == state


def test_a_database_that_is_restarted_is_survived(
    tmp_path: Path, database: Database, postgres: str
) -> None:
    load = Load(6)
    with process(tmp_path, "--snapshot-every", "200", store=postgres) as server:
        with load.running(server.url):
            for mode in ("fast", "immediate"):
                load.wait_for(40, 200, 201)
                database.stop(mode)
                load.wait_for(20, 503)
                check_unavailable(server.url)
                database.start()
            load.wait_for(40, 200, 201)
        check(server, postgres, load)
