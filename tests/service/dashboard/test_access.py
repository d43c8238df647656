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


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Served]:
    """A service that asks nobody for a key."""
    with served(tmp_path) as running:
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

    def token(self) -> str:
        (token,) = set(re.findall(r'name="token" value="([^"]+)"', self.running.get("/").text))
        return token

    def status(self, name: str = "triage") -> str:
        answer = self.running.get(f"/v1/cascades/{name}", key=self.keys["admin"])
        return answer.json()["status"]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    file, keys = keys_in(tmp_path)
    with served(tmp_path, keys=file) as running:
        assert running.post("/v1/cascades", SPEC, key=keys["admin"]).status_code == 201
        yield Locked(running, file, keys)


# --- without keys ---------------------------------------------------------------------------------


def test_without_keys_everybody_may_look(open_service: Served) -> None:
    for path in ("/", "/cascades/triage"):
        answer = open_service.get(path)
        assert answer.status_code == 200
        assert "triage" in answer.text
        assert "read-only" in answer.text
        assert "<form" not in answer.text
        assert "set-cookie" not in answer.headers


def test_without_keys_nobody_may_act(open_service: Served) -> None:
    answer = open_service.ask(
        "POST", "/cascades/triage/retire", data={"confirm": "triage"}, headers=FORM
    )
    assert answer.status_code == 403
    assert "read-only" in answer.text
    assert open_service.get("/v1/cascades/triage").json()["status"] == "active"
    assert open_service.get("/signin").headers["location"] == "/"


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


def test_a_round_is_on_the_page_at_once(open_service: Served) -> None:
    body = {"context": {"age": 0.5, "bmi": 0.25}}
    made = open_service.post("/v1/cascades/triage/rounds", body).json()
    page = open_service.get("/cascades/triage").text
    assert f'id="round-{made["id"]}"' in page
    assert "just now" in page
    assert "1 round" in page


@pytest.mark.parametrize("page", ["0", "-1", "x", "99999999999999999999", "²", ""])
def test_a_page_that_does_not_exist_is_the_nearest(open_service: Served, page: str) -> None:
    answer = open_service.get("/", params={"page": page})
    assert answer.status_code == 200
    assert "triage" in answer.text


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
    assert ("/cascades/triage/retire" in page.text) is (scope == "admin")
    assert (", read-only" in page.text) is (scope != "admin")
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
        "/\\evil.example",
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


def test_signing_out_ends_the_session(locked: Locked) -> None:
    locked.sign_in("decide")
    token = locked.token()
    assert locked.post("/signout", {"token": "forged"}).status_code == 403
    assert locked.running.get("/").status_code == 200
    answer = locked.post("/signout", {"token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert locked.running.get("/").status_code == 303


def test_signing_in_again_ends_the_session_before(locked: Locked) -> None:
    before = locked.sign_in("admin").headers["set-cookie"].partition(";")[0]
    locked.sign_in("decide")
    assert locked.running.get("/", headers={"cookie": before}).status_code == 303


def test_a_revoked_key_signs_out(locked: Locked) -> None:
    locked.sign_in("decide")
    assert locked.running.get("/").status_code == 200
    revoke_key(locked.file, locked.keys["decide"].split("_")[1])
    deadline = time.monotonic() + 30
    while locked.running.get("/").status_code == 200:  # the file is read again every second
        assert time.monotonic() < deadline


# --- acting ---------------------------------------------------------------------------------------


def test_an_admin_who_types_the_name_retires_a_cascade(locked: Locked) -> None:
    locked.sign_in("admin")
    token = locked.token()
    for confirm in ("", "Triage", "other"):
        answer = locked.post("/cascades/triage/retire", {"token": token, "confirm": confirm})
        assert answer.status_code == 422
        assert 'role="alert"' in answer.text
        assert locked.status() == "active"
    answer = locked.post("/cascades/triage/retire", {"token": token, "confirm": " triage "})
    assert (answer.status_code, answer.headers["location"]) == (303, "/cascades/triage")
    assert locked.status() == "retired"
    page = locked.running.get("/cascades/triage").text
    assert ">retired</span>" in page
    assert "/retire" not in page


@pytest.mark.parametrize("scope", ["decide", "observe"])
def test_nobody_else_does(locked: Locked, scope: str) -> None:
    locked.sign_in(scope)
    fields = {"token": locked.token(), "confirm": "triage"}
    answer = locked.post("/cascades/triage/retire", fields)
    assert answer.status_code == 403
    assert "admin" in answer.text
    assert locked.status() == "active"


def test_a_form_that_is_not_ours_does_nothing(locked: Locked) -> None:
    locked.sign_in("admin")
    good = {"token": locked.token(), "confirm": "triage"}
    path = "/cascades/triage/retire"
    host = f"127.0.0.1:{locked.running.port}"
    foreign: list[tuple[dict[str, str], dict[str, str]]] = [
        ({**good, "token": ""}, {}),
        ({"confirm": "triage"}, {}),
        (good, {"sec-fetch-site": "cross-site"}),
        (good, {"sec-fetch-site": "same-site"}),  # another port of this machine, say
        (good, {"origin": "http://evil.example"}),
        (good, {"origin": "null"}),
        (good, {"origin": f"http://{host}.evil.example"}),
    ]
    for fields, headers in foreign:
        assert locked.post(path, fields, **headers).status_code == 403
    assert locked.post("/signin", {"key": "x"}, origin="http://evil.example").status_code == 403
    assert locked.status() == "active"
    for headers in ({"sec-fetch-site": "same-origin"}, {"origin": f"http://{host}"}):
        assert locked.post(path, {**good, "confirm": ""}, **headers).status_code == 422


def test_without_a_session_a_form_leads_to_sign_in(locked: Locked) -> None:
    answer = locked.post("/cascades/triage/retire", {"confirm": "triage"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    assert locked.post("/signout", {}).headers["location"] == "/signin"
    assert locked.status() == "active"


def test_the_key_itself_is_no_way_into_a_form(locked: Locked) -> None:
    answer = locked.running.ask(
        "POST",
        "/cascades/triage/retire",
        data={"confirm": "triage"},
        headers=FORM,
        key=locked.keys["admin"],
    )
    assert answer.status_code == 303
    assert locked.status() == "active"


def test_a_key_for_some_cascades_sees_and_retires_only_these(locked: Locked) -> None:
    for name in ("mine", "other"):
        spec = {**SPEC, "name": name}
        assert locked.running.post("/v1/cascades", spec, key=locked.keys["admin"]).is_success
    _, locked.keys["mine"] = add_key(locked.file, "mine", ["admin"], cascades=["mine"])
    deadline = time.monotonic() + 30
    while locked.sign_in("mine").status_code != 303:  # the file is read again every second
        assert time.monotonic() < deadline
    page = locked.running.get("/").text
    assert re.findall(r'href="/cascades/([a-z]+)"', page) == ["mine"]
    assert '<p class="large">1</p>' in page
    assert locked.running.get("/cascades/mine").status_code == 200
    unknown, hidden = (locked.running.get(f"/cascades/{name}") for name in ("none", "other"))
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.text.replace("other", "none") == unknown.text
    token = locked.token()
    answer = locked.post("/cascades/other/retire", {"token": token, "confirm": "other"})
    assert answer.status_code == 403
    assert locked.status("other") == "active"
    answer = locked.post("/cascades/mine/retire", {"token": token, "confirm": "mine"})
    assert answer.status_code == 303
    assert locked.status("mine") == "retired"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"key=" + b"x" * 5_000, FORM["content-type"], 413),
        (b"&".join(b"a%d=1" % k for k in range(50)), FORM["content-type"], 401),
        (b"\xff\xfe", FORM["content-type"], 401),
        (b'{"key": "x"}', "application/json", 401),
        (b"key=x", "text/plain", 401),
        (b"key=%ff%fe", FORM["content-type"], 401),
        (b"", FORM["content-type"], 401),
    ],
)
def test_what_is_no_form_is_refused(locked: Locked, body: bytes, kind: str, status: int) -> None:
    answer = locked.running.ask("POST", "/signin", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("origin", ["http://[", "null", "://", "https://evil.example", "\x01"])
def test_a_form_of_another_site_is_refused_whatever_it_calls_itself(
    locked: Locked, origin: str
) -> None:
    assert locked.post("/signin", {"key": "x"}, origin=origin).status_code in {400, 403}


def test_an_empty_file_of_keys_still_asks_for_one(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    for text in keys.values():
        revoke_key(Path(file), text.split("_")[1])
    with served(tmp_path, keys=file) as running:
        assert running.get("/").status_code == 303
