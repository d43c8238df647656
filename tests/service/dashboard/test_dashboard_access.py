"""Access to the dashboard over HTTP: keys, headers and secrets."""

import logging
import re
from collections.abc import Iterator

import httpx
import pytest

from stopwise.service.dashboard.pages import CSP
from stopwise.service.http.keys import add_key, revoke_key
from tests.service.conftest import Locked
from tests.service.harness import SPEC, Served, served

PAGES = ("/", "/cascades/triage")


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service without keys."""
    with served(tmp_path_factory.mktemp("open")) as running:
        assert running.post("/v1/cascades", SPEC).status_code == 201
        yield running


def get(locked: Locked, path: str, key: str, user: str = "") -> httpx.Response:
    """Request a page as a browser does, with the key as the password."""
    return locked.running.get(path, auth=(user.encode(), key.encode()))


@pytest.mark.parametrize("path", [*PAGES, "/cascades/none"])
def test_without_keys_pages_are_public_and_have_security_headers(
    open_service: Served, path: str
) -> None:
    answer = open_service.get(path)
    assert answer.status_code == (404 if "none" in path else 200)
    assert "none" in path or "triage" in answer.text
    headers = answer.headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"] == CSP
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "'unsafe" not in CSP


def test_the_page_of_an_unknown_cascade_escapes_its_name(open_service: Served) -> None:
    answer = open_service.get("/cascades/<i>none")
    assert "none" in answer.text
    assert "<i>" not in answer.text


def test_static_files_are_cached_by_version(open_service: Served) -> None:
    urls = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', open_service.get("/").text))
    assert len(urls) == 3
    for address in urls:
        answer = open_service.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert open_service.get(address.partition("?")[0]).headers["cache-control"] == "no-cache"
    assert open_service.get("/static/pages.py").status_code == 404
    assert open_service.get("/static/..%2fpages.py").status_code == 404


def test_the_overview_shows_100_cascades_and_counts_all(open_service: Served) -> None:
    for k in range(101):
        assert open_service.post("/v1/cascades", {**SPEC, "name": f"c{k}"}).status_code == 201
    page = open_service.get("/").text
    assert len(set(re.findall(r'href="/cascades/([a-z0-9]+)"', page))) == 100
    assert '<p class="large">102</p>' in page
    assert "2 more cascades not shown. Each has a page" in page
    assert open_service.get("/cascades/c100").status_code == 200


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scope", ["decide", "observe", "admin"])
def test_any_valid_key_may_read_pages(locked: Locked, scope: str, path: str) -> None:
    page = get(locked, path, f" {locked.keys[scope]}", user="any")
    assert page.status_code == 200
    assert f'<span class="soft who">{scope}</span>' in page.text
    post = locked.running.post(path, auth=("", locked.keys[scope]))
    assert post.status_code == 405


def test_passwords_are_accepted_by_pages_only_and_static_files_need_none(locked: Locked) -> None:
    # The API accepts no password, because another site can make a browser send it.
    assert get(locked, "/v1/cascades", locked.keys["admin"]).status_code == 401
    assert locked.running.get("/static/dashboard.css").status_code == 200


def test_an_invalid_key_is_rejected_and_no_secret_is_shown(
    locked: Locked, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    right = locked.keys["admin"]
    responses: list[httpx.Response] = []
    for wrong in ("", "hello", right[:-1], right + "x", "sw__", "\x00", "é" * 50):
        responses += [get(locked, path, wrong) for path in PAGES]
    for header in ("Basic", "Basic !", "Basic /w==", f"Bearer {right}", f"Basic {right}"):
        responses += [locked.running.get("/", headers={"authorization": header})]
    responses += [locked.running.get(path) for path in PAGES]
    for answer in responses:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert "triage" not in answer.text
        assert answer.headers["content-security-policy"] == CSP
    responses += [get(locked, path, right) for path in (*PAGES, "/x")]
    everything = caplog.text + "".join(f"{answer.text}{answer.headers}" for answer in responses)
    assert not any(key.split("_", 2)[2] in everything for key in locked.keys.values())


def test_a_restricted_key_sees_only_its_cascades(locked: Locked) -> None:
    for name in ("mine", "other"):
        spec = {**SPEC, "name": name}
        assert locked.running.post("/v1/cascades", spec, key=locked.keys["admin"]).is_success
    key, text = add_key(locked.file, "mine", ["admin"], cascades=["mine"])
    while get(locked, "/", text).status_code != 200:  # until the file is reloaded
        pass
    page = get(locked, "/", text).text
    assert re.findall(r'href="/cascades/([a-z]+)"', page) == ["mine"]
    assert '<p class="large">1</p>' in page
    assert get(locked, "/cascades/mine", text).status_code == 200
    unknown, hidden = (get(locked, f"/cascades/{name}", text) for name in ("none", "other"))
    assert hidden.status_code == unknown.status_code == 404
    assert hidden.text.replace("other", "none") == unknown.text
    revoke_key(locked.file, key.id)
    while get(locked, "/", text).status_code != 401:
        pass
