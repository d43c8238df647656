"""Signatures, imports, arguments and secrecy of the clients."""

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
from tests.client.scripted import NO_RETRIES, Answer, refuse, serving

Connect = Callable[..., Callable[..., Any]]
SECRET = "s3cr" + "et"  # concatenated, because tracebacks quote this file


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


def test_httpx_is_imported_by_the_first_client() -> None:
    script = """
import sys, stopwise
stopwise.Client, stopwise.AsyncClient
assert "httpx" not in sys.modules
stopwise.Client().close()
assert "httpx" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("kind", [sw.Client, sw.AsyncClient])
def test_the_url_comes_from_the_environment_or_the_argument(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert repr(kind()) == f"{kind.__name__}('http://127.0.0.1:8350')"
    monkeypatch.setenv("STOPWISE_URL", "https://stopwise.example/api/")
    assert repr(kind()) == f"{kind.__name__}('https://stopwise.example/api')"
    assert "http://other" in repr(kind("http://other"))
    monkeypatch.setitem(sys.modules, "httpx", None)  # simulates a missing package
    with pytest.raises(sw.errors.MissingPackageError, match=r"pip install .*\[client\]'"):
        kind()


def test_the_key_comes_from_the_environment_or_the_argument(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPWISE_KEY", "from-outside\n")
    with serving(Answer({"cascades": []})) as server:
        connect(server.url)("cascades")
        connect(server.url, key="explicit")("cascades")
        monkeypatch.delenv("STOPWISE_KEY")
        connect(server.url)("cascades")
    sent = [request.headers.get("authorization") for request in server.requests]
    assert sent == ["Bearer from-outside", "Bearer explicit", None]


def test_the_key_is_never_revealed(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    output = io.StringIO()
    with serving(refuse(401, "unauthorized")) as server:
        url = server.url
        with pytest.raises(sw.errors.ServiceError) as caught:
            connect(url, key=SECRET)("cascades")
    output.write("".join(traceback.format_exception(caught.value)) + repr(caught.value))
    with pytest.raises(sw.errors.ServiceError) as caught:
        connect(url, key=SECRET, rng=NO_RETRIES)("cascades")  # the server has stopped
    output.write("".join(traceback.format_exception(caught.value)) + repr(vars(caught.value)))
    output.write(repr(sw.Client(key=SECRET)) + str(sw.AsyncClient(key=SECRET)))
    for bad in (f"{SECRET} {SECRET}", f"{SECRET}\r\nX: y", f"{SECRET}é"):
        with pytest.raises(sw.errors.InvalidParameterError) as refused:
            sw.Client(key=bad)
        output.write(str(refused.value))
    with pytest.raises(sw.errors.InvalidParameterError) as refused:
        sw.Client(f"http://me:{SECRET}@example.org")
    output.write(str(refused.value))
    sw.Client("http://example.org/team@x")  # a path with @ is valid
    assert SECRET not in output.getvalue() + caplog.text


INVALID_URLS = (
    "",
    "example.org",
    "ftp://a",
    "http://",
    "http://a?b=c",
    "http://a/b c",
    "http://a:b",
    "http://[::1",
    "http://a:99999",
    # Only httpx rejects these.
    "http://999.9.9.9",
    "http://xn--a",
    "http://a\0",
)


@pytest.mark.parametrize(
    "options",
    [
        *({"url": url} for url in INVALID_URLS),
        {"timeout": 0},
        {"timeout": "5"},
        {"deadline": float("nan")},
    ],
)
def test_invalid_urls_and_times_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(sw.errors.InvalidParameterError):
        sw.Client(**options)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        *(("open", (name, [0.5])) for name in ("", "Triage", "..", "a" * 65, "a?b", 5)),
        *(("look_up", ("triage", id_)) for id_ in ("", "..", None)),
    ],
)
def test_invalid_names_and_ids_are_rejected_before_a_request(
    connect: Connect, method: str, arguments: tuple[Any, ...]
) -> None:
    refused = pytest.raises(sw.errors.InvalidParameterError)
    with serving(refuse(404, "unknown_round")) as server, refused:
        connect(server.url)(method, *arguments)
    assert server.requests == []


def test_ids_are_quoted_in_the_path(connect: Connect) -> None:
    with serving(refuse(404, "unknown_round")) as server, pytest.raises(sw.errors.ServiceError):
        connect(server.url)("look_up", "triage", "../../state?x=1#y")
    (request,) = server.requests
    assert request.path == "/v1/cascades/triage/rounds/..%2F..%2Fstate%3Fx%3D1%23y"


def test_a_custom_httpx_client_is_used_and_not_closed() -> None:
    with serving(Answer({"cascades": []})) as server:
        with (
            httpx.Client(headers={"X-Mine": "yes"}) as http,
            sw.Client(server.url, http=http) as client,
        ):
            client.close()
            client.cascades()
        assert server.requests[0].headers["x-mine"] == "yes"
        closed = sw.Client(server.url)
        closed.close()
        closed.close()
        with pytest.raises(RuntimeError, match="closed"):
            closed.cascades()
