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
from tests.client.scripted import GIVE_UP, Answer, refuse, serving

Connect = Callable[..., Callable[..., Any]]
SECRET = "s3cr" + "et"  # in parts: tracebacks quote the lines of this file


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
        assert signature.return_annotation == awaiting[name].return_annotation, name


def test_httpx_is_imported_when_a_client_is_made() -> None:
    script = """
import sys, stopwise
stopwise.Client, stopwise.AsyncClient
assert "httpx" not in sys.modules
stopwise.Client().close()
assert "httpx" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("kind", [sw.Client, sw.AsyncClient])
def test_the_environment_names_the_service(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(kind()) == f"{kind.__name__}('http://127.0.0.1:8350')"
    monkeypatch.setenv("STOPWISE_URL", "https://stopwise.example/api/")
    assert repr(kind()) == f"{kind.__name__}('https://stopwise.example/api')"
    assert "http://other" in repr(kind("http://other"))
    monkeypatch.setitem(sys.modules, "httpx", None)  # as if it were not installed
    with pytest.raises(sw.errors.MissingPackageError, match=r"pip install .*\[client\]'"):
        kind()


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
        with pytest.raises(sw.errors.ServiceError) as caught:
            connect(url, key=SECRET)("cascades")
    shown.write("".join(traceback.format_exception(caught.value)) + repr(caught.value))
    with pytest.raises(sw.errors.ServiceError) as caught:
        connect(url, key=SECRET, rng=GIVE_UP)("cascades")  # nobody is there any more
    shown.write("".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)))
    shown.write(repr(sw.Client(key=SECRET)) + str(sw.AsyncClient(key=SECRET)))
    for bad in (f"{SECRET} {SECRET}", f"{SECRET}\r\nX: y", f"{SECRET}é"):
        with pytest.raises(sw.errors.InvalidParameterError) as refused:
            sw.Client(key=bad)
        shown.write(str(refused.value))
    with pytest.raises(sw.errors.InvalidParameterError) as refused:
        sw.Client(f"http://me:{SECRET}@example.org")
    shown.write(str(refused.value))
    sw.Client("http://example.org/team@x")  # names no user
    assert SECRET not in shown.getvalue() + caplog.text


ADDRESSES = ("", "example.org", "ftp://a", "http://", "http://a?b=c", "http://a/b c", "http://a:b")
# Of these, the first three are refused only where httpx reads them.
ADDRESSES += ("http://999.9.9.9", "http://xn--a", "http://a\0", "http://[::1", "http://a:99999")


@pytest.mark.parametrize(
    "options",
    [
        *({"url": url} for url in ADDRESSES),
        *({"timeout": 0}, {"timeout": "5"}, {"deadline": float("nan")}),
    ],
)
def test_addresses_and_times_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(sw.errors.InvalidParameterError):
        sw.Client(**options)


def test_a_name_or_an_id_cannot_lead_elsewhere(connect: Connect) -> None:
    with serving(refuse(404, "unknown_round")) as server:
        for name in ("", "Triage", "..", "a" * 65, "a?b", 5):
            with pytest.raises(sw.errors.InvalidParameterError):
                connect(server.url)("open", name, [0.5])
        for wrong in ("", "..", None):
            with pytest.raises(sw.errors.InvalidParameterError):
                connect(server.url)("look_up", "triage", wrong)
        with pytest.raises(sw.errors.ServiceError):
            connect(server.url)("look_up", "triage", "../../state?x=1#y")
    (seen,) = server.seen
    assert seen.path == "/v1/cascades/triage/rounds/..%2F..%2Fstate%3Fx%3D1%23y"


def test_an_httpx_client_of_your_own_is_used_and_left_open() -> None:
    with serving(Answer({"cascades": []})) as server:
        with (
            httpx.Client(headers={"X-Mine": "yes"}) as http,
            sw.Client(server.url, http=http) as client,
        ):
            client.close()
            client.cascades()
        assert server.seen[0].headers["x-mine"] == "yes"
        closed = sw.Client(server.url)
        closed.close()
        closed.close()
        with pytest.raises(RuntimeError, match="closed"):
            closed.cascades()
