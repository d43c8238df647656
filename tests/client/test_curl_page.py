"""docs/curl.md, run from top to bottom with the real curl against a real service."""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stopwise.service.http.routes import ROUTES
from tests.client.pages import agrees, blocks
from tests.service.harness import served

PAGE = Path(__file__).parents[2] / "docs" / "curl.md"
SHOWN_URL = "http://127.0.0.1:8350"


@dataclass(frozen=True)
class Example:
    command: str
    answer: str


def examples() -> list[Example]:
    """Return each command with what is shown below it.

    A command goes on where a line ends with a backslash or within quotes.
    """
    found: list[Example] = []
    for block in blocks(PAGE, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            size = next(n for n in range(1, len(lines) + 1) if whole("\n".join(lines[:n])))
            found.append(Example("\n".join(lines[:size]), "\n".join(lines[size:])))
    return found


def whole(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


class Ids:
    """The ids on the page, and what they are in this run: learned from the answers."""

    def __init__(self) -> None:
        self.real: dict[str, str] = {}

    def in_command(self, command: str) -> str:
        for shown, real in self.real.items():
            command = command.replace(shown, real)
        return command

    def same(self, received: Any, shown: str) -> bool:
        return isinstance(received, str) and self.real.setdefault(shown, received) == received


def parsed(shown: str) -> Any:
    """Read JSON in which … stands for anything, and at the end of a list or object for more."""
    text = re.sub(r",\s*…\s*}", ', "…": "…"}', shown)
    text = re.sub(r"([:,\[]\s*)…(?=\s*[,\]}])", r'\1"…"', text)
    return json.loads(text)


def like(received: Any, shown: Any, ids: Ids) -> bool:
    if shown == "…":
        return True
    if isinstance(shown, dict):
        more = "…" in shown
        fields = {name for name in shown if name != "…"}
        if not isinstance(received, dict) or not (
            fields <= set(received) if more else fields == set(received)
        ):
            return False
        return all(
            ids.same(received[name], shown[name])
            if name == "id"
            else like(received[name], shown[name], ids)
            for name in fields
        )
    if isinstance(shown, list):
        if not isinstance(received, list):
            return False
        if shown[-1:] == ["…"]:
            shown, received = shown[:-1], received[: len(shown) - 1]
        return len(received) == len(shown) and all(
            like(one, other, ids) for one, other in zip(received, shown, strict=True)
        )
    if isinstance(shown, str):
        return isinstance(received, str) and agrees(received, shown)
    return type(received) is type(shown) and received == shown


def compared(received: str, shown: str, ids: Ids) -> bool:
    try:
        rule_stop = parsed(shown)
    except json.JSONDecodeError:  # text, or an answer with its status behind it
        lines, wanted_lines = received.splitlines(), ids.in_command(shown).splitlines()
        return len(lines) == len(wanted_lines) and all(map(agrees, lines, wanted_lines))
    return like(json.loads(received), rule_stop, ids)


@pytest.fixture(scope="module")
def curl() -> str:
    found = shutil.which("curl")
    if found is None:
        pytest.fail("curl is not installed")
    return found


def test_the_page_does_what_it_shows(
    curl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOPWISE_KEY", "not-asked-for-here")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    ids = Ids()
    with served(tmp_path) as service:
        for example in examples():
            command = ids.in_command(example.command).replace(SHOWN_URL, service.url)
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                capture_output=True,
                check=False,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert compared(done.stdout, example.answer, ids), (
                f"{command}\nsaid  {done.stdout}\nshown {example.answer}"
            )


def requested(command: str) -> tuple[str, str]:
    """Return the method and path of a curl command."""
    words = shlex.split(command)
    (url,) = (word for word in words if word.startswith(SHOWN_URL))
    return ("POST" if {"--json", "POST"} & set(words) else "GET"), urlsplit(url).path


def test_every_route_is_on_the_page() -> None:
    requests = [requested(example.command) for example in examples()]
    missing = [
        f"{route.method} {route.path}"
        for route in ROUTES
        if not any(
            route.method == method
            and re.fullmatch(re.sub(r"\{\w+\}", r"[\\w-]+", route.path), path)
            for method, path in requests
        )
    ]
    assert missing == []
