"""Access to the API: keys, scopes, rate limits, restricted keys, and cross-site requests."""

import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from stopwise.service.http.keys import add_key
from stopwise.service.http.routes import ROUTES, Route
from tests.service.conftest import Locked
from tests.service.harness import (
    CONTEXT,
    ROUNDS,
    SPEC,
    Served,
    fault,
    keys_in,
    received,
    served,
)

PUBLIC = ("/healthz", "/readyz")
ALL_CASCADES = ("/metrics", "/v1/state")  # not for restricted keys


def fill(path: str, name: str = "triage") -> str:
    return path.replace("{name}", name).replace("{id}", "0-00000")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_each_key_allows_the_routes_of_its_scope(locked: Locked, route: Route) -> None:
    path, required = fill(route.path), route.scope
    if path.endswith("/retire"):
        path = "/v1/cascades/missing/retire"
    for scope, key in locked.keys.items():
        answer = locked.running.ask(route.method, path, key=key)
        if required in (None, "public", scope) or scope == "admin":
            assert answer.status_code != 403, (scope, answer.text)
        else:
            assert fault(answer) == (403, "forbidden")
    for header in (None, "Bearer", "Bearer sw_x_y", "Basic dTpw", "Bearer \xfc"):
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        answer = locked.running.ask(route.method, path, headers=headers)
        if required == "public":
            assert (path in PUBLIC, answer.status_code) == (True, 200)
        else:
            assert fault(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_an_empty_key_file_rejects_every_request(tmp_path: Path) -> None:
    file = tmp_path / "none.jsonl"
    file.touch(mode=0o600)
    with served(tmp_path, keys=str(file)) as running:
        assert fault(running.get("/v1/cascades")) == (401, "unauthorized")
        assert fault(running.post(ROUNDS, CONTEXT)) == (401, "unauthorized")
        assert running.get("/").status_code == 401  # the dashboard too


def test_the_rate_of_a_key_is_enforced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = SimpleNamespace(monotonic=lambda: 1.0, time=time.time)
    monkeypatch.setattr("stopwise.service.http.keys.time", frozen)
    file = tmp_path / "keys.jsonl"
    _, key = add_key(file, "three", ["admin"], rate=3)
    _, two = add_key(file, "two", ["decide"], rate=2)
    with served(tmp_path, keys=str(file), log_requests="all") as running:  # logs the key, too
        for _ in range(3):
            assert running.get("/v1/cascades", key=key).status_code == 200
            assert running.get("/readyz", key=key).status_code == 200  # public: not counted
        refused = running.post(ROUNDS, key=key)
        assert fault(refused) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        answers = [running.get("/v1/state", key=two) for _ in range(2)]  # each counts once
        assert [fault(answer) for answer in answers] == [(403, "forbidden")] * 2


def test_a_restricted_key_accesses_only_its_cascades(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    _, own = add_key(Path(file), "own", ["admin"], cascades=["mine", "later", "mine"])
    with served(tmp_path, keys=file) as running:
        for name in ("mine", "other"):
            spec = {**SPEC, "name": name}
            assert running.post("/v1/cascades", spec, key=keys["admin"]).status_code == 201
        shown = running.get("/v1/cascades", key=own).json()["cascades"]
        assert [cascade["spec"]["name"] for cascade in shown] == ["mine"]
        hidden = [route for route in ROUTES if "{name}" in route.path or route.path in ALL_CASCADES]
        for name in ("other", "missing"):  # the response does not reveal which exists
            for route in hidden:
                answer = running.ask(route.method, fill(route.path, name), key=own)
                assert fault(answer) == (403, "forbidden"), route.path
        answer = running.post("/v1/cascades", {**SPEC, "name": "new"}, key=own)
        assert fault(answer) == (403, "forbidden")
        assert running.post("/v1/cascades/mine/rounds", CONTEXT, key=own).status_code == 201
        assert running.post("/v1/cascades", {**SPEC, "name": "later"}, key=own).status_code == 201


def test_with_keys_readyz_does_not_reveal_the_reason(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    with served(tmp_path, keys=file) as running:
        for holder, attribute in (
            (running.service, "recovering"),
            (running.service.writer, "write_error"),
        ):
            setattr(holder, attribute, "cannot open /srv/secret.db")
            for key in (None, keys["observe"]):
                answer = running.get("/readyz", key=key)
                assert fault(answer) == (503, "unavailable")
                assert "secret" not in answer.text
            setattr(holder, attribute, "")
        assert running.get("/readyz").is_success


def test_a_rejected_request_is_logged_with_its_key_and_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, keys = keys_in(tmp_path)
    own = keys["observe"].split("_")[1]
    with served(tmp_path, keys=file) as running, caplog.at_level(logging.INFO, "stopwise.service"):
        caplog.clear()
        running.post(ROUNDS, {}, key=keys["observe"])
        running.post(ROUNDS, {}, key=f"sw_{own}_wrong")  # an invalid key is not logged
        running.get("/nowhere", key=keys["observe"])
        lines = [vars(record) for record in caplog.records]
        assert [(line["code"], line.get("key")) for line in lines] == [
            ("forbidden", own),
            ("unauthorized", None),
            ("unknown_path", None),
        ]


# -- cross-site requests -------------------------------------------------------------------------

LOCAL = [
    "127.0.0.1:8350",
    "localhost",
    "LOCALHOST:1",
    "[::1]:8350",
    "127.8.9.1",
    "app.localhost:80",
]
FOREIGN = ["evil.example", "localhost.evil.example", "192.168.0.7:8350", "[::2]", "", "::1:::"]


def test_without_keys_only_local_hosts_and_origins_are_accepted(running: Served) -> None:
    for host in LOCAL:
        assert running.get("/v1/cascades", headers={"Host": host}).status_code == 200
        assert running.post(ROUNDS, CONTEXT, headers={"Host": host}).status_code == 201
    for host in FOREIGN:
        for method, path in (("GET", "/v1/cascades"), ("POST", ROUNDS), ("GET", "/healthz")):
            answer = running.ask(method, path, headers={"Host": host}, json=CONTEXT)
            assert fault(answer) == (403, "forbidden"), host
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9999", "x"):
        for path in ("/v1/cascades/triage/retire", ROUNDS):
            answer = running.post(path, CONTEXT, headers={"Origin": origin})
            assert fault(answer) == (403, "forbidden"), origin
    assert running.post(ROUNDS, CONTEXT, headers={"Origin": running.url}).status_code == 201
    view = running.get("/v1/cascades/triage").json()
    assert (view["status"], view["rounds"]) == ("active", len(LOCAL) + 1)


def test_a_response_before_the_body_announces_the_close(running: Served) -> None:
    head = "{} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: 9\r\n\r\n"
    for method, path, host in (
        ("POST", ROUNDS, "evil.example"),
        ("POST", "/nowhere", "localhost"),
        ("GET", "/v1/cascades", "localhost"),
    ):
        with running.connect() as connection:
            connection.sendall(head.format(method, path, host).encode())  # without the body
            assert b"\r\nconnection: close\r\n" in received(connection), path
    assert "connection" not in running.post(ROUNDS, CONTEXT).headers


def test_with_keys_any_host_and_origin_is_accepted(locked: Locked) -> None:
    headers = {"Host": "stopwise.example", "Origin": "https://app.example"}
    answer = locked.running.post(ROUNDS, CONTEXT, headers=headers, key=locked.keys["decide"])
    assert answer.status_code == 201
