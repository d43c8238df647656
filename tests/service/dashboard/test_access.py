"""Who may look, who may act, and what a page never gives away: over real HTTP."""

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stopwise.service.dashboard.pages import POLICY
from stopwise.service.keys import add_key, revoke_key
from tests.service.harness import SPEC, Served, keys_in, served

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that asks nobody for a key."""
    with served(tmp_path_factory.mktemp("open")) as running:
        assert running.post("/v1/cascades", SPEC).status_code == 201
        yield running


class Locked:
    """A service with keys, and a browser of sorts: it keeps cookies and follows no redirect."""

    def __init__(self, running: Served, file: str, keys: dict[str, str]) -> None:
        self.running = running
        self.file = Path(file)
        self.keys = keys

    def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return self.running.ask("POST", path, data=fields, headers={**FORM, **headers})

    def sign_in(self, scope: str, **fields: str) -> httpx.Response:
        return self.post("/signin", {"key": self.keys[scope], **fields})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    file, keys = keys_in(folder)
    with served(folder, keys=file) as running:
        assert running.post("/v1/cascades", SPEC, key=keys["admin"]).status_code == 201
        yield Locked(running, file, keys)


@pytest.fixture
def locked(shared: Locked) -> Locked:
    """A browser that has not signed in."""
    shared.running.client.cookies.clear()
    return shared


# --- without keys ---------------------------------------------------------------------------------


def test_without_keys_everybody_may_look(open_service: Served) -> None:
    for path in ("/", "/cascades/triage"):
        answer = open_service.get(path)
        assert answer.status_code == 200
        assert "triage" in answer.text
        assert "<form" not in answer.text
        assert "set-cookie" not in answer.headers


def test_every_page_has_the_headers_that_protect_it(open_service: Served) -> None:
    for path in ("/", "/cascades/triage", "/cascades/none"):
        headers = open_service.get(path).headers
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["content-security-policy"] == POLICY
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    assert "'unsafe" not in POLICY


def test_what_is_not_there_is_said_on_a_page(open_service: Served) -> None:
    answer = open_service.get("/cascades/<i>none")
    assert answer.status_code == 404
    assert "none" in answer.text
    assert "<i>" not in answer.text
    assert open_service.get("/static/pages.py").status_code == 404
    assert open_service.get("/static/..%2fpages.py").status_code == 404


def test_files_are_kept_by_browsers_as_long_as_they_are_the_same(open_service: Served) -> None:
    page = open_service.get("/").text
    found = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(found) == 3
    for address in found:
        answer = open_service.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert open_service.get(address.partition("?")[0]).headers["cache-control"] == "no-cache"


def test_many_cascades_are_on_several_pages(open_service: Served) -> None:
    for k in range(100):
        assert open_service.post("/v1/cascades", {**SPEC, "name": f"c{k}"}).status_code == 201
    first, second = (open_service.get("/", params={"page": str(n)}).text for n in (1, 2))
    names = [re.findall(r'href="/cascades/([a-z0-9]+)"', page) for page in (first, second)]
    assert [len(one) for one in names] == [100, 1]
    assert len({*names[0], *names[1]}) == 101
    assert "Page 2 of 2" in second
    assert '<p class="large">101</p>' in first
    assert '<p class="large">101</p>' in second


# --- signing in -----------------------------------------------------------------------------------


def test_with_keys_strangers_are_sent_to_sign_in(locked: Locked) -> None:
    for path, after in (("/", "/signin"), ("/cascades/triage", "/signin?after=/cascades/triage")):
        answer = locked.running.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, after)
        assert answer.text == ""
    page = locked.running.get("/signin?after=/cascades/triage")
    assert page.status_code == 200
    assert 'name="after" value="/cascades/triage"' in page.text
    assert 'type="password"' in page.text
    assert locked.running.get("/static/dashboard.css").status_code == 200  # the form needs it


@pytest.mark.parametrize("scope", ["decide", "observe", "admin"])
def test_any_key_may_look(locked: Locked, scope: str) -> None:
    answer = locked.sign_in(scope, after="/cascades/triage")
    assert (answer.status_code, answer.headers["location"]) == (303, "/cascades/triage")
    page = locked.running.get("/cascades/triage")
    assert page.status_code == 200
    assert f'<span class="soft who">{scope}</span>' in page.text
    assert locked.running.get("/signin").headers["location"] == "/"


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(locked: Locked) -> None:
    cookie = locked.sign_in("decide").headers["set-cookie"]
    assert cookie.startswith("stopwise_")
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    behind_tls = locked.post(
        "/signin", {"key": locked.keys["decide"]}, **{"x-forwarded-proto": "https"}
    )
    assert "Secure" in behind_tls.headers["set-cookie"]


def test_a_wrong_key_gets_nothing(locked: Locked) -> None:
    right = locked.keys["admin"]
    for wrong in ("", "hello", right[:-1], right + "x", "sw__", "\x00", "é" * 50):
        answer = locked.post("/signin", {"key": wrong})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert 'role="alert"' in answer.text
        assert not wrong or wrong not in answer.text.replace("Sign in", "")
    assert locked.running.get("/").status_code == 303


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example",
        "//evil.example",
        "/cascades/../x",
        "/v1/cascades",
        "/cascades/triage\n",
        "javascript:alert(1)",
        "/cascades/triage?x=1",
    ],
)
def test_signing_in_leads_nowhere_else(locked: Locked, after: str) -> None:
    assert locked.sign_in("decide", after=after).headers["location"] == "/"


def test_keys_are_in_no_page_no_address_and_no_log(
    locked: Locked, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = [
        locked.sign_in("admin"),
        locked.post("/signin", {"key": locked.keys["decide"] + "x"}),
    ]
    answers += [locked.running.get(path) for path in ("/", "/cascades/triage", "/signin", "/x")]
    secrets = [key.split("_", 2)[2] for key in locked.keys.values()]
    everything = caplog.text + "".join(f"{a.text}{a.headers}" for a in answers)
    assert not any(secret in everything for secret in secrets)


def test_a_revoked_key_signs_out(locked: Locked) -> None:
    key, locked.keys["guest"] = add_key(locked.file, "guest", ["decide"])
    signed_in_with(locked, "guest")
    assert locked.running.get("/").status_code == 200
    revoke_key(locked.file, key.id)
    deadline = time.monotonic() + 60
    while locked.running.get("/").status_code == 200:  # the file is read again every second
        assert time.monotonic() < deadline


def signed_in_with(locked: Locked, name: str) -> None:
    """Sign in with a key that was just added to the file."""
    deadline = time.monotonic() + 60
    while locked.sign_in(name).status_code != 303:
        assert time.monotonic() < deadline


def test_signing_out_ends_the_session(locked: Locked) -> None:
    locked.sign_in("decide")
    answer = locked.post("/signout", {}, origin="http://evil.example")
    assert answer.status_code == 403
    assert locked.running.get("/").status_code == 200
    answer = locked.post("/signout", {})
    assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert locked.running.get("/").status_code == 303


def test_a_form_of_another_site_is_refused(locked: Locked) -> None:
    host = f"127.0.0.1:{locked.running.port}"
    foreign = [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this machine, for example
        *({"origin": o} for o in ("http://evil.example", "null", "http://[", f"http://{host}.x")),
    ]
    for headers in foreign:
        answer = locked.post("/signin", {"key": locked.keys["admin"]}, **headers)
        assert answer.status_code in {400, 403}, headers
        assert "set-cookie" not in answer.headers
    for headers in ({"sec-fetch-site": "same-origin"}, {"origin": f"http://{host}"}):
        assert locked.post("/signin", {"key": locked.keys["admin"]}, **headers).status_code == 303


def test_a_key_for_some_cascades_sees_only_these(locked: Locked) -> None:
    for name in ("mine", "other"):
        spec = {**SPEC, "name": name}
        assert locked.running.post("/v1/cascades", spec, key=locked.keys["admin"]).is_success
    _, locked.keys["mine"] = add_key(locked.file, "mine", ["admin"], cascades=["mine"])
    signed_in_with(locked, "mine")
    page = locked.running.get("/").text
    assert re.findall(r'href="/cascades/([a-z]+)"', page) == ["mine"]
    assert '<p class="large">1</p>' in page
    assert locked.running.get("/cascades/mine").status_code == 200
    unknown, hidden = (locked.running.get(f"/cascades/{name}") for name in ("none", "other"))
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.text.replace("other", "none") == unknown.text


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"key=" + b"x" * 5_000, FORM["content-type"], 413),
        (b"\xff\xfe", FORM["content-type"], 401),
        (b'{"key": "x"}', "application/json", 401),
        (b"", FORM["content-type"], 401),
    ],
)
def test_what_is_no_form_is_refused(locked: Locked, body: bytes, kind: str, status: int) -> None:
    answer = locked.running.ask("POST", "/signin", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")


def test_nothing_can_be_changed(locked: Locked) -> None:
    locked.sign_in("admin")
    for path in ("/", "/cascades/triage", "/cascades/triage/retire"):
        assert locked.post(path, {"confirm": "triage"}).status_code in {404, 405}
    answer = locked.running.get("/v1/cascades/triage", key=locked.keys["admin"])
    assert answer.json()["status"] == "active"


def test_an_empty_file_of_keys_still_asks_for_one(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    for text in keys.values():
        revoke_key(Path(file), text.split("_")[1])
    with served(tmp_path, keys=file) as running:
        assert running.get("/").status_code == 303
