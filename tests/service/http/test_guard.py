"""Who may come in: keys and scopes, other people's sites, sizes and kinds of bodies."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stopwise.service.http.routes import ROUTES, Route
from stopwise.service.keys import revoke_key
from tests.service.http.door import ADDRESS, SPEC, Door, fault, keys_in, opened

DECISIONS = "/v1/cascades/triage/decisions"
OPEN = ("/healthz", "/readyz", "/openapi.json")


class Locked(NamedTuple):
    door: Door
    keys: dict[str, str]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """A service that asks for keys, with one of each scope."""
    folder = tmp_path_factory.mktemp("locked")
    file, keys = keys_in(folder)
    with opened(folder, keys=file) as door:
        assert door.post("/v1/cascades", SPEC, key=keys["admin"]).status_code == 201
        yield Locked(door, keys)


def place(path: str) -> str:
    return path.replace("{name}", "triage").replace("{id}", "0-00000")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
@pytest.mark.parametrize("sent", [None, "Bearer", "Bearer sw_x_y", "Basic dTpw", "Bearer \xfc"])
def test_without_a_valid_key_nothing_but_health_is_told(
    locked: Locked, route: Route, sent: str | None
) -> None:
    method, path = route.method, place(route.path)
    headers = {} if sent is None else {"Authorization": sent.encode("latin-1")}
    answer = locked.door.ask(method, path, headers=headers)
    if path in OPEN:
        assert answer.status_code == 200
    else:
        assert fault(answer) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.id)
def test_each_scope_opens_its_own_routes(locked: Locked, route: Route) -> None:
    method, path, needs = route.method, place(route.path), route.needs
    if path.endswith("/retire"):
        path = "/v1/cascades/nobody/retire"
    for scope, key in locked.keys.items():
        answer = locked.door.ask(method, path, key=key)
        allowed = needs in (None, "nothing", scope) or scope == "admin"
        assert (answer.status_code == 403) != allowed, (scope, answer.text)
        if not allowed:
            assert fault(answer) == (403, "forbidden")
            assert needs in answer.json()["error"]["message"]


def test_the_scheme_is_free_in_its_case_and_slashes_open_no_back_door(locked: Locked) -> None:
    key = locked.keys["decide"]
    assert locked.door.get("/v1/cascades", headers={"Authorization": f"bEARER {key}"}).is_success
    for path in ("//v1/cascades", "/v1//cascades", "/v1/cascades/", "/v1/./cascades"):
        assert locked.door.get(path).status_code in {401, 404}


def test_a_revoked_key_is_refused_without_a_restart(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    with opened(tmp_path, keys=file) as door:
        assert door.get("/v1/cascades", key=keys["decide"]).is_success
        revoke_key(Path(file), keys["decide"].split("_")[1])
        assert door.service.ready
        for _ in range(600):  # it is noticed within about a second
            answer = door.get("/v1/cascades", key=keys["decide"])
            if not answer.is_success:
                break
            door.run(asyncio.sleep(0.01))
        assert fault(answer) == (401, "unauthorized")
        assert door.get("/v1/state", key=keys["admin"]).is_success


def test_only_who_has_a_key_is_told_why_it_is_not_ready(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    with opened(tmp_path, keys=file) as door:
        for attribute, told in (
            ("recovering", "the service is getting ready"),
            ("_failure", "the log cannot be written now"),
        ):
            setattr(door.service, attribute, "cannot open /srv/secret.db")
            for headers in ({}, {"Authorization": "Bearer sw_x_y"}):
                answer = door.get("/readyz", headers=headers)
                assert fault(answer) == (503, "unavailable")
                assert answer.json()["error"]["message"] == told
            assert "/srv/secret.db" in door.get("/readyz", key=keys["observe"]).text
            setattr(door.service, attribute, "")
        assert door.get("/readyz").is_success


def test_the_log_names_the_key_and_the_code_of_what_was_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In both lanes; of a key that is not valid, nothing."""
    file, keys = keys_in(tmp_path)
    own = keys["observe"].split("_")[1]
    with opened(tmp_path, keys=file) as door, caplog.at_level(logging.INFO, "stopwise.service"):
        for path in (DECISIONS, "/v1/cascades"):
            caplog.clear()
            for key in (keys["observe"], f"sw_{own}_wrong"):
                door.post(path, {}, key=key)
            lines = [one.__dict__["stopwise_fields"] for one in caplog.records]
            found = [(line["status"], line["code"], line.get("key")) for line in lines]
            assert found == [(403, "forbidden", own), (401, "unauthorized", None)]
        caplog.clear()
        door.get("/" + "x" * 5000, key=keys["observe"])
        [line] = [one.__dict__["stopwise_fields"] for one in caplog.records]
        assert (line["code"], line["key"], len(line["path"])) == ("unknown_path", own, 200)


@pytest.mark.parametrize("path", [DECISIONS, "/v1/cascades"])
def test_what_is_cut_off_when_the_service_stops_may_be_sent_again(still: Door, path: str) -> None:
    """As a server does it: the task of a request that does not end is cancelled."""

    async def cut_off() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        waits = asyncio.Event()

        async def receive() -> dict[str, Any]:
            waits.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = {"host": "localhost", "content-type": "application/json", "content-length": "9"}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": None,
            "server": None,
            "state": {},
        }
        task = asyncio.ensure_future(still.app(scope, receive, send))
        await waits.wait()
        task.cancel()
        await asyncio.wait([task])
        return sent

    start, body = still.run(cut_off())
    assert start["status"] == 503
    headers = dict(start["headers"])
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"retry-after"]) >= 1
    assert b'"code":"unavailable"' in body["body"]


def test_an_empty_file_of_keys_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "none.jsonl"
    file.touch(mode=0o600)
    with opened(tmp_path, keys=str(file)) as door:
        assert fault(door.get("/v1/cascades")) == (401, "unauthorized")
        assert fault(door.post(DECISIONS, {"context": [1]})) == (401, "unauthorized")


# -- other people's sites ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8350", "localhost", "LOCALHOST:1", "[::1]:8350", "127.8.9.1", "app.localhost:80"],
)
def test_names_of_this_machine_are_answered(door: Door, host: str) -> None:
    assert door.get("/v1/cascades", headers={"Host": host}).status_code == 200
    assert door.post(DECISIONS, {"context": [0, 0]}, headers={"Host": host}).status_code == 201


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "192.168.0.7:8350", "[::2]", "", "::1:::"]
)
def test_other_names_are_not(still: Door, host: str) -> None:
    for method, path in (("GET", "/v1/cascades"), ("POST", DECISIONS), ("GET", "/healthz")):
        answer = still.ask(method, path, headers={"Host": host}, json={"context": [0, 0]})
        assert fault(answer) == (403, "forbidden")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "x"])
def test_what_another_site_makes_a_browser_post_is_refused(door: Door, origin: str) -> None:
    before = door.get("/v1/state").json()
    for path in ("/v1/cascades/triage/retire", DECISIONS):
        answer = door.post(path, {"context": [0, 0]}, headers={"Origin": origin})
        assert fault(answer) == (403, "forbidden")
    assert door.get("/v1/state").json() == before
    own = {"Origin": ADDRESS}
    assert door.post(DECISIONS, {"context": [0, 0]}, headers=own).status_code == 201


def test_with_keys_any_name_and_site_will_do(locked: Locked) -> None:
    headers = {"Host": "stopwise.example", "Origin": "https://app.example"}
    answer = locked.door.post(
        DECISIONS, {"context": [0, 0]}, headers=headers, key=locked.keys["decide"]
    )
    assert answer.status_code == 201


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json ;charset="UTF-8"',
    ],
)
def test_json_may_be_declared_in_all_these_ways(door: Door, kind: str) -> None:
    answer = door.post(DECISIONS, content=b'{"context": [0, 0]}', headers={"Content-Type": kind})
    assert answer.status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
@pytest.mark.parametrize("path", [DECISIONS, "/v1/cascades", "/v1/cascades/triage/retire"])
def test_what_is_not_declared_as_json_is_not_read(
    still: Door, headers: dict[str, str], path: str
) -> None:
    answer = still.post(path, content=b'{"context": [0, 0]}', headers=headers)
    assert fault(answer) == (415, "unsupported_media_type")


def test_where_no_body_is_asked_for_none_is_needed(door: Door) -> None:
    assert door.post("/v1/cascades/triage/retire").status_code == 200
    json = {"Content-Type": "application/json"}
    assert door.post("/v1/cascades/triage/retire", content=b"{}", headers=json).is_success
    refused = door.post("/v1/cascades/triage/retire", content=b'{"a": 1}', headers=json)
    assert fault(refused) == (422, "invalid")


@pytest.mark.parametrize("path", [DECISIONS, "/v1/cascades"])
def test_a_body_too_large_is_refused_before_it_is_read(tmp_path: Path, path: str) -> None:
    with opened(tmp_path, max_body=2000) as door:
        headers = {"content-type": "application/json", "content-length": "2001"}
        status, _, _ = door.run(door.raw("POST", path, headers, [b" " * 1000] * 3))
        assert (status, door.left_unread) == (413, 3)
        headers["content-length"] = "9" * 5000
        status, _, _ = door.run(door.raw("POST", path, headers, [b" "]))
        assert status == 413
        # It does not say how large it is: read as far as is allowed.
        headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
        status, _, _ = door.run(door.raw("POST", path, headers, [b" " * 500] * 100))
        assert (status, door.left_unread) == (413, 95)
        body = b'{"context":[0,0]}'
        parts = [body[:3], b"", body[3:], b" " * (2000 - len(body))]
        status, _, _ = door.run(door.raw("POST", path, headers, parts))
        assert status in {404, 422}  # exactly as large as allowed: it is read, and judged


@pytest.mark.parametrize("path", [DECISIONS, "/v1/cascades"])
def test_whoever_leaves_in_the_middle_changes_nothing(still: Door, path: str) -> None:
    """A request whose connection is lost before its body is whole."""
    before = still.get("/v1/state").json()
    headers = {"content-type": "application/json", "content-length": "40"}
    status, _, _ = still.run(still.raw("POST", path, headers, [b'{"context"'], whole=False))
    assert status == 400
    assert still.get("/v1/state").json() == before
