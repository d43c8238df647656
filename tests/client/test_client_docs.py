"""The pages docs/client.md and docs/curl.md, run against a real service."""

import io
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stopwise.service.http.routes import ROUTES
from tests.service.harness import agrees, served

DOCS = Path(__file__).parents[2] / "docs"
URL = "http://127.0.0.1:8350"  # of the service on the pages
PRINTED = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)  # with its output as a comment
ID = re.compile(r'"id": ?"([^"…]+)"')


def blocks(page: str, language: str) -> list[str]:
    fenced = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return fenced.findall((DOCS / page).read_text(encoding="utf-8"))


def test_the_client_page_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, object] = {"__name__": "page"}
    with served(tmp_path) as service:
        monkeypatch.setenv("STOPWISE_URL", service.url)
        for code in blocks("client.md", "python"):
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(code, "client.md", "exec"), names)
            shown = PRINTED.findall(code)
            assert len(shown) == code.count("print(")
            for line, expected in zip(printed.getvalue().splitlines(), shown, strict=True):
                assert agrees(line, expected), f"{line!r} is not {expected!r}"


def commands() -> list[tuple[str, str]]:
    """Return each curl command with its documented output."""
    pairs: list[tuple[str, str]] = []
    for block in blocks("curl.md", "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            size = next(n for n in range(1, len(lines) + 1) if complete("\n".join(lines[:n])))
            pairs.append(("\n".join(lines[:size]), "\n".join(lines[size:])))
    return pairs


def complete(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:  # an open quote
        return False
    return not command.endswith("\\")


def test_the_curl_page_has_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPWISE_KEY", "not-required")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(tmp_path) as service:
        actual = {URL: service.url}  # URL and ids on the page → those of this run

        def substitute(text: str) -> str:
            for documented, value in actual.items():
                text = text.replace(documented, value)
            return text

        for command, shown in commands():
            bash = ["bash", "-o", "pipefail", "-c", substitute(command)]
            done = subprocess.run(bash, capture_output=True, check=False, text=True, timeout=60)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            for documented, id_ in zip(ID.findall(shown), ID.findall(done.stdout), strict=False):
                actual.setdefault(documented, id_)
            assert agrees(done.stdout, substitute(shown)), f"{command}\n{done.stdout}\n{shown}"


def test_the_curl_page_uses_every_route() -> None:
    requests: set[tuple[str, str]] = set()
    for command, _ in commands():
        words = shlex.split(command)
        (url,) = (word for word in words if word.startswith(URL))
        method = "POST" if {"--json", "POST"} & set(words) else "GET"
        requests.add((method, urlsplit(url).path))
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", r"[\\w-]+", route.path)
        assert any(m == route.method and re.fullmatch(path, p) for m, p in requests), route.path
