"""docs/api.md: its requests are sent to a real server, its tables compared with the code."""

import re
from pathlib import Path

import httpx

from stopwise.service.http.errors import CODES
from stopwise.service.http.routes import ROUTES
from stopwise.service.settings import Settings
from tests.service.harness import Served, agrees, served

PAGE = Path(__file__).parents[3] / "docs" / "api.md"


def test_every_request_on_the_page_gets_the_answer_on_the_page(tmp_path: Path) -> None:
    blocks = re.findall(r"```http\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) % 2 == 0
    assert len(blocks) >= 40
    with served(tmp_path) as service:
        for asked, shown in zip(blocks[::2], blocks[1::2], strict=True):
            status, _, body = shown.partition("\n\n")
            answer = _send(service, asked)
            assert answer.status_code == int(status), (asked, answer.text)
            assert agrees(answer.text, body), (asked, answer.text)


def _send(service: Served, asked: str) -> httpx.Response:
    head, _, body = asked.partition("\n\n")
    first, *headers = head.splitlines()
    method, path = first.split()
    given = dict(line.split(": ", 1) for line in headers)
    if body.strip():
        given["Content-Type"] = "application/json"
    return service.ask(method, path, headers=given, content=body.strip().encode())


def test_the_page_has_every_route_with_its_scope() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"(?m)^\| `(GET|POST) (/\S*)` \|.*\| (\S+) \|$", page)
    words = {None: "any", "public": "–"}
    assert rows == [
        (route.method, route.path, words.get(route.scope, str(route.scope))) for route in ROUTES
    ]


def test_the_page_has_every_error() -> None:
    page = PAGE.read_text("utf-8")
    found = re.search(r"<!-- errors: begin -->\n(.*)\n<!-- errors: end -->", page, re.DOTALL)
    assert found
    rows = [line.split(" | ")[:3] for line in found[1].splitlines()[2:]]
    assert rows == [[f"| `{code}`", str(row.status), row.meaning] for code, row in CODES.items()]


def test_the_page_has_the_limits_as_they_are() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"(?m)^\| `(max_\w+)` \| ([\d,]+)", page)
    assert {name: int(value.replace(",", "")) for name, value in rows} == {
        name: value
        for name in Settings.__struct_fields__
        if name.startswith("max_") and (value := getattr(Settings(), name))
    }
