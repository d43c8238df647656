"""docs/client.md and docs/curl.md, run from top to bottom against a real service."""

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
URL = "http://127.0.0.1:8350"  # on the pages
PRINTED = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)  # with what it prints behind it
ID = re.compile(r'"id": ?"([^"…]+)"')


def blocks(page: str, language: str) -> list[str]:
    fenced = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return fenced.findall((DOCS / page).read_text(encoding="utf-8"))


def test_the_page_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Return each curl command with what is shown below it: from the first line without \\ on."""
    found: list[tuple[str, str]] = []
    for block in blocks("curl.md", "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            size = next(n for n in range(1, len(lines) + 1) if complete("\n".join(lines[:n])))
            found.append(("\n".join(lines[:size]), "\n".join(lines[size:])))
    return found


def complete(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:  # within quotes
        return False
    return not command.endswith("\\")


def test_the_page_of_curl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOPWISE_KEY", "not-asked-for-here")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served(tmp_path) as service:
        real = {URL: service.url}  # what the page calls it, and what it is here: ids too

        def here(text: str) -> str:
            for shown, name in real.items():
                text = text.replace(shown, name)
            return text

        for command, shown in commands():
            bash = ["bash", "-o", "pipefail", "-c", here(command)]
            done = subprocess.run(bash, capture_output=True, check=False, text=True, timeout=60)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            for one, other in zip(ID.findall(shown), ID.findall(done.stdout), strict=False):
                real.setdefault(one, other)
            assert agrees(done.stdout, here(shown)), f"{command}\n{done.stdout}\n{shown}"


def test_every_route_is_on_the_page_of_curl() -> None:
    requests: set[tuple[str, str]] = set()
    for command, _ in commands():
        words = shlex.split(command)
        (url,) = (word for word in words if word.startswith(URL))
        method = "POST" if {"--json", "POST"} & set(words) else "GET"
        requests.add((method, urlsplit(url).path))
    for route in ROUTES:
        path = re.sub(r"\{\w+\}", r"[\\w-]+", route.path)
        assert any(m == route.method and re.fullmatch(path, p) for m, p in requests), route.path
