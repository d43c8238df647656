"""Who may look, who may act, and what a page never gives away: the real application."""

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from stopwise.service.dashboard.pages import POLICY
from stopwise.service.keys import revoke_key
from tests.service.http.door import SPEC, Door, keys_in, opened

FORM = {"content-type": "application/x-www-form-urlencoded"}
COOKIE = "stopwise_8350"


@pytest.fixture
def open_door(tmp_path: Path) -> Iterator[Door]:
    """A service that asks nobody for a key."""
    with opened(tmp_path) as door:
        assert door.post("/v1/cascades", SPEC).status_code == 201
        yield door


class Locked:
    """A service with keys, and a browser of sorts: it keeps cookies, and follows nothing."""

    def __init__(self, door: Door, file: str, keys: dict[str, str]) -> None:
        self.door = door
        self.file = Path(file)
        self.keys = keys

    def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return self.door.ask("POST", path, data=fields, headers={**FORM, **headers})

    def sign_in(self, scope: str, **fields: str) -> httpx.Response:
        return self.post("/signin", {"key": self.keys[scope], **fields})

    def token(self) -> str:
        (token,) = set(re.findall(r'name="token" value="([^"]+)"', self.door.get("/").text))
        return token

    def status(self) -> str:
        answer = self.door.get("/v1/cascades/triage", key=self.keys["admin"])
        return answer.json()["status"]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    file, keys = keys_in(tmp_path)
    with opened(tmp_path, keys=file) as door:
        assert door.post("/v1/cascades", SPEC, key=keys["admin"]).status_code == 201
        yield Locked(door, file, keys)


# --- without keys ---------------------------------------------------------------------------------


def test_without_keys_everybody_may_look(open_door: Door) -> None:
    for path in ("/", "/cascades/triage"):
        answer = open_door.get(path)
        assert answer.status_code == 200
        assert "triage" in answer.text
        assert "read-only" in answer.text
        assert "<form" not in answer.text
        assert "set-cookie" not in answer.headers


def test_without_keys_nobody_may_act(open_door: Door) -> None:
    answer = open_door.ask(
        "POST", "/cascades/triage/retire", data={"confirm": "triage"}, headers=FORM
    )
    assert answer.status_code == 403
    assert "read-only" in answer.text
    assert open_door.get("/v1/cascades/triage").json()["status"] == "active"
    assert open_door.get("/signin").headers["location"] == "/"


def test_every_page_has_the_headers_that_protect_it(open_door: Door) -> None:
    for path in ("/", "/cascades/triage", "/cascades/none"):
        headers = open_door.get(path).headers
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["content-security-policy"] == POLICY
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    assert "'unsafe" not in POLICY


def test_what_is_not_there_is_said_on_a_page(open_door: Door) -> None:
    answer = open_door.get("/cascades/<i>none")
    assert answer.status_code == 404
    assert "No cascade is called" in answer.text
    assert "<i>" not in answer.text
    assert open_door.get("/static/pages.py").status_code == 404
    assert open_door.get("/static/..%2fpages.py").status_code == 404


def test_files_are_kept_by_browsers_as_long_as_they_are_the_same(open_door: Door) -> None:
    page = open_door.get("/").text
    found = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(found) == 3
    for address in found:
        answer = open_door.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert open_door.get(address.partition("?")[0]).headers["cache-control"] == "no-cache"


def test_a_decision_is_on_the_page_at_once(open_door: Door) -> None:
    body = {"context": {"age": 0.5, "bmi": 0.25}}
    made = open_door.post("/v1/cascades/triage/decisions", body).json()
    page = open_door.get("/cascades/triage").text
    assert f'id="decision-{made["id"]}"' in page
    assert "just now" in page
    assert "1 decision" in page


@pytest.mark.parametrize("page", ["0", "-1", "x", "99999999999999999999", "²", ""])
def test_a_page_that_does_not_exist_is_the_nearest(open_door: Door, page: str) -> None:
    answer = open_door.get("/", params={"page": page})
    assert answer.status_code == 200
    assert "triage" in answer.text


def test_many_cascades_are_on_several_pages(open_door: Door) -> None:
    for k in range(100):
        assert open_door.post("/v1/cascades", {**SPEC, "name": f"c{k}"}).status_code == 201
    first, second = (open_door.get("/", params={"page": str(n)}).text for n in (1, 2))
    names = [re.findall(r'href="/cascades/([a-z0-9]+)"', page) for page in (first, second)]
    assert [len(one) for one in names] == [100, 1]
    assert len({*names[0], *names[1]}) == 101
    assert "Page 2 of 2" in second
    assert '<p class="large">101</p>' in first
    assert '<p class="large">101</p>' in second


# --- signing in -----------------------------------------------------------------------------------


def test_with_keys_strangers_are_sent_to_sign_in(locked: Locked) -> None:
    for path, after in (("/", "/signin"), ("/cascades/triage", "/signin?after=/cascades/triage")):
        answer = locked.door.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, after)
        assert answer.text == ""
    page = locked.door.get("/signin?after=/cascades/triage")
    assert page.status_code == 200
    assert 'name="after" value="/cascades/triage"' in page.text
    assert 'type="password"' in page.text
    assert locked.door.get("/static/dashboard.css").status_code == 200  # the form needs it


@pytest.mark.parametrize("scope", ["decide", "observe", "admin"])
def test_any_key_may_look(locked: Locked, scope: str) -> None:
    answer = locked.sign_in(scope, after="/cascades/triage")
    assert (answer.status_code, answer.headers["location"]) == (303, "/cascades/triage")
    page = locked.door.get("/cascades/triage")
    assert page.status_code == 200
    assert ("/cascades/triage/retire" in page.text) is (scope == "admin")
    assert (", read-only" in page.text) is (scope != "admin")
    assert locked.door.get("/signin").headers["location"] == "/"


def test_the_cookie_is_kept_from_scripts_and_from_other_sites(locked: Locked) -> None:
    cookie = locked.sign_in("decide").headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
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
        assert "not a valid key" in answer.text
        assert not wrong or wrong not in answer.text.replace("Sign in", "")
    assert locked.door.get("/").status_code == 303


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
    answers += [locked.door.get(path) for path in ("/", "/cascades/triage", "/signin", "/x")]
    secrets = [key.split("_", 2)[2] for key in locked.keys.values()]
    everything = caplog.text + "".join(f"{a.text}{a.headers}" for a in answers)
    assert not any(secret in everything for secret in secrets)


def test_signing_out_ends_the_session(locked: Locked) -> None:
    locked.sign_in("decide")
    token = locked.token()
    assert locked.post("/signout", {"token": "forged"}).status_code == 403
    assert locked.door.get("/").status_code == 200
    answer = locked.post("/signout", {"token": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert locked.door.get("/").status_code == 303


def test_signing_in_again_ends_the_session_before(locked: Locked) -> None:
    before = locked.sign_in("admin").headers["set-cookie"].partition(";")[0]
    locked.sign_in("decide")
    assert locked.door.get("/", headers={"cookie": before}).status_code == 303


def test_a_revoked_key_signs_out(locked: Locked) -> None:
    locked.sign_in("decide")
    assert locked.door.get("/").status_code == 200
    revoke_key(locked.file, locked.keys["decide"].split("_")[1])
    deadline = time.monotonic() + 30
    while locked.door.get("/").status_code == 200:  # the file is looked at every second
        assert time.monotonic() < deadline
        time.sleep(0.1)


# --- acting ---------------------------------------------------------------------------------------


def test_an_admin_who_types_the_name_retires_a_cascade(locked: Locked) -> None:
    locked.sign_in("admin")
    token = locked.token()
    for confirm in ("", "Triage", "other"):
        answer = locked.post("/cascades/triage/retire", {"token": token, "confirm": confirm})
        assert answer.status_code == 422
        assert "type its name to confirm" in answer.text
        assert locked.status() == "active"
    answer = locked.post("/cascades/triage/retire", {"token": token, "confirm": " triage "})
    assert (answer.status_code, answer.headers["location"]) == (303, "/cascades/triage")
    assert locked.status() == "retired"
    page = locked.door.get("/cascades/triage").text
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
    host = "127.0.0.1:8350"
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
    answer = locked.door.ask(
        "POST",
        "/cascades/triage/retire",
        data={"confirm": "triage"},
        headers=FORM,
        key=locked.keys["admin"],
    )
    assert answer.status_code == 303
    assert locked.status() == "active"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"key=" + b"x" * 5_000, FORM["content-type"], 413),
        (b"&".join(b"a%d=1" % k for k in range(50)), FORM["content-type"], 400),
        (b"\xff\xfe", FORM["content-type"], 400),
        (b'{"key": "x"}', "application/json", 415),
        (b"key=x", "text/plain", 415),
        (b"key=%ff%fe", FORM["content-type"], 401),
        (b"", FORM["content-type"], 401),
    ],
)
def test_what_is_no_form_is_refused(locked: Locked, body: bytes, kind: str, status: int) -> None:
    answer = locked.door.ask("POST", "/signin", content=body, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")


def test_an_empty_file_of_keys_still_asks_for_one(tmp_path: Path) -> None:
    file, keys = keys_in(tmp_path)
    for text in keys.values():
        revoke_key(Path(file), text.split("_")[1])
    with opened(tmp_path, keys=file) as door:
        assert door.get("/").status_code == 303
