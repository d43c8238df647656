"""The clients as Python sees them: equal, light, and silent about the key."""

import inspect
import io
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import stopwise as sw
from tests.client.scripted import Answer, refuse, serving

Connect = Callable[..., Callable[..., Any]]
SECRET = "s3cr" + "et"  # in parts: tracebacks quote the lines of this file
CLIENTS = [sw.Client, sw.AsyncClient]


def public(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value)
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def test_both_clients_have_the_same_methods() -> None:
    blocking, awaiting = public(sw.Client), public(sw.AsyncClient)
    assert list(blocking) == list(awaiting)
    for name, signature in blocking.items():
        assert signature.parameters == awaiting[name].parameters, name
        result = awaiting[name].return_annotation
        assert name == "round" or signature.return_annotation == result, name
    ours = inspect.signature(sw.Client).parameters
    theirs = inspect.signature(sw.AsyncClient).parameters
    assert list(ours) == list(theirs)


def test_httpx_is_imported_when_a_client_is_made() -> None:
    script = """
import sys, stopwise
stopwise.Client, stopwise.AsyncClient
assert "httpx" not in sys.modules
stopwise.Client().close()
assert "httpx" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("kind", CLIENTS)
def test_without_httpx_it_says_what_to_install(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(sw.MissingPackageError, match=r"pip install .*\[client\]'"):
        kind()


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_environment_says_where_and_who(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(kind()) == f"{kind.__name__}('http://127.0.0.1:8350')"
    monkeypatch.setenv("STOPWISE_URL", "https://stopwise.example/api/")
    assert repr(kind()) == f"{kind.__name__}('https://stopwise.example/api')"
    assert "http://other" in repr(kind("http://other"))


def test_the_key_is_sent_and_an_argument_wins(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPWISE_KEY", "from-outside\n")
    with serving(Answer({"cascades": []})) as server:
        connect(server.url)("cascades")
        connect(server.url, key="given")("cascades")
        monkeypatch.delenv("STOPWISE_KEY")
        connect(server.url)("cascades")
    sent = [seen.headers.get("authorization") for seen in server.seen]
    assert sent == ["Bearer from-outside", "Bearer given", None]


def test_the_key_is_never_shown(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = io.StringIO()
    with serving(refuse(401, "unauthorized")) as server:
        url = server.url
        with pytest.raises(sw.ServiceError) as caught:
            connect(url, key=SECRET)("cascades")
    shown.write("".join(traceback.format_exception(caught.value)) + repr(caught.value))
    with pytest.raises(sw.ServiceError) as caught:
        connect(url, key=SECRET, deadline=0.2)("cascades")  # nobody is there any more
    shown.write("".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)))
    shown.write(repr(sw.Client(key=SECRET)) + str(sw.AsyncClient(key=SECRET)))
    for bad in (f"{SECRET} {SECRET}", f"{SECRET}\r\nX: y", f"{SECRET}é"):
        with pytest.raises(sw.InvalidParameterError) as refused:
            sw.Client(key=bad)
        shown.write(str(refused.value))
    with pytest.raises(sw.InvalidParameterError) as refused:
        sw.Client(f"http://me:{SECRET}@example.org")
    shown.write(str(refused.value))
    assert SECRET not in shown.getvalue() + caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://a",
        "http://",
        "http://a?b=c",
        "http://[::1",
        "http://a:b",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(sw.InvalidParameterError):
        sw.Client(url)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": "5"}, {"deadline": float("nan")}])
def test_times_must_be_seconds(options: dict[str, Any]) -> None:
    with pytest.raises(sw.InvalidParameterError):
        sw.Client(**options)


@pytest.mark.parametrize("name", ["", "Triage", "..", "a" * 65, "a?b", 5])
def test_a_name_that_no_cascade_has_is_refused_here(connect: Connect, name: Any) -> None:
    with serving(Answer({})) as server:
        with pytest.raises(sw.InvalidParameterError):
            connect(server.url)("open", name, [0.5])
        assert server.seen == []


def test_an_id_cannot_lead_elsewhere(connect: Connect) -> None:
    with serving(refuse(404, "unknown_round")) as server:
        with pytest.raises(sw.ServiceError):
            connect(server.url)("look_up", "triage", "../../state?x=1#y")
        for wrong in ("", "..", None):
            with pytest.raises(sw.InvalidParameterError):
                connect(server.url)("look_up", "triage", wrong)
    (seen,) = server.seen
    assert seen.path == "/v1/cascades/triage/rounds/..%2F..%2Fstate%3Fx%3D1%23y"


def test_a_closed_client_says_so() -> None:
    client = sw.Client()
    client.close()
    client.close()
    with pytest.raises(sw.InvalidParameterError, match="closed"):
        client.cascades()


def test_a_client_of_httpx_of_your_own_is_used_and_left_open() -> None:
    with (
        serving(Answer({"cascades": []})) as server,
        httpx.Client(headers={"X-Mine": "yes"}) as http,
    ):
        with sw.Client(server.url, http=http) as client:
            client.cascades()
        assert not http.is_closed
    assert server.seen[0].headers["x-mine"] == "yes"
