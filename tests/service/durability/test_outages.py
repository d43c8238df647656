"""A full disk and a stopped database lose nothing and need no restart."""

import resource
from pathlib import Path

import httpx

from tests.service.database import Database
from tests.service.durability.load import Load, check
from tests.service.harness import CONTEXT, ROUNDS, SPEC, fault, process


def check_unavailable(url: str) -> None:
    """Check that writes fail with `unavailable` while the service stays alive."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False) as client:
        assert fault(client.post(ROUNDS, json=CONTEXT)) == (503, "unavailable")
        paths = ("/readyz", "/healthz", "/v1/cascades")  # alive, because a restart would not help
        assert [client.get(path).status_code for path in paths] == [503, 200, 200]


def test_service_recovers_from_a_full_disk(tmp_path: Path) -> None:
    where, load = str(tmp_path / "log.db"), Load(5)
    with process(tmp_path, "--snapshot-every", "200") as server:
        pid = server.process.pid
        with load.running(server.url):
            for room in (0, 50_000):
                load.wait_for(50, 200, 201)
                # Limit the size of files to the current size, or a little more.
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


def test_rounds_are_shown_while_the_disk_is_full(tmp_path: Path) -> None:
    """The outputs of the last round are in memory, but possibly not in the log."""
    with process(tmp_path) as server:
        server.wait_until_ready()
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False, verify=False) as client:
            assert client.post("/v1/cascades", json=SPEC).status_code == 201
            ids = [client.post(ROUNDS, json=CONTEXT).json()["id"] for _ in range(4)]
            outputs = {"outputs": ["yes", "no", "no"]}
            assert client.post(f"{ROUNDS}/{ids[0]}/outputs", json=outputs).status_code == 200
            label = f"{ROUNDS}/{ids[0]}/label"
            assert client.post(label, json={"label": "no"}).status_code in (200, 409)
            before = [client.get(f"{ROUNDS}/{id_}").json() for id_ in ids]
            pid = server.process.pid
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
            answer = client.post(f"{ROUNDS}/{ids[3]}/outputs", json={"outputs": ["yes"]})
            assert fault(answer) == (503, "unavailable")
            assert client.get("/readyz").status_code == 503
            shown = [client.get(f"{ROUNDS}/{id_}") for id_ in ids]
            assert [response.status_code for response in shown] == [200, 200, 200, 503]
            assert [response.json() for response in shown[:3]] == before[:3]
            assert client.get("/v1/cascades/triage").status_code == 200
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
            while client.get("/readyz").status_code != 200:
                assert server.process.poll() is None
            outputs = client.get(f"{ROUNDS}/{ids[3]}").json()["outputs"]
            assert outputs == {"history": "yes"}  # written once there was space


def test_service_recovers_from_a_restart_of_the_database(
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
