"""The API pages of the documentation, run against a real service and compared with the code."""

import re
from pathlib import Path

import httpx

from stopwise.service.http.errors import CODES
from stopwise.service.http.routes import ROUTES
from stopwise.service.settings import Settings
from tests.service.harness import Served, agrees, served

DOCS = Path(__file__).parents[3] / "docs"
OVERVIEW = (DOCS / "api.md").read_text("utf-8")
# The examples of a page continue those of the pages before it.
PAGES = ("api-cascades", "api-rounds", "api-labels", "api-staged-rounds", "api")


def test_every_request_gets_the_documented_response(tmp_path: Path) -> None:
    text = "".join((DOCS / f"{page}.md").read_text("utf-8") for page in PAGES)
    blocks = re.findall(r"```http\n(.*?)```", text, re.DOTALL)
    assert len(blocks) % 2 == 0
    assert len(blocks) >= 40
    with served(tmp_path) as service:
        for request, documented in zip(blocks[::2], blocks[1::2], strict=True):
            status, _, body = documented.partition("\n\n")
            response = _send(service, request)
            assert response.status_code == int(status), (request, response.text)
            assert agrees(response.text, body), (request, response.text)


def _send(service: Served, request: str) -> httpx.Response:
    head, _, body = request.partition("\n\n")
    first, *lines = head.splitlines()
    method, path = first.split()
    headers = dict(line.split(": ", 1) for line in lines)
    if body.strip():
        headers["Content-Type"] = "application/json"
    return service.ask(method, path, headers=headers, content=body.strip().encode())


def test_the_overview_has_every_route_with_its_scope() -> None:
    rows = re.findall(r"(?m)^\| `(GET|POST) (/\S*)` \|.*\| (\S+) \|$", OVERVIEW)
    scopes = {None: "any", "public": "–"}
    assert rows == [
        (route.method, route.path, scopes.get(route.scope, str(route.scope))) for route in ROUTES
    ]


def test_the_overview_has_every_error_code() -> None:
    table = re.search(r"<!-- errors: begin -->\n(.*)\n<!-- errors: end -->", OVERVIEW, re.DOTALL)
    assert table
    rows = [line.split(" | ")[:3] for line in table[1].splitlines()[2:]]
    assert rows == [[f"| `{code}`", str(row.status), row.meaning] for code, row in CODES.items()]


def test_the_overview_has_the_default_limits() -> None:
    rows = re.findall(r"(?m)^\| `(max_\w+)` \| ([\d,]+)", OVERVIEW)
    assert {name: int(value.replace(",", "")) for name, value in rows} == {
        name: value
        for name in Settings.__struct_fields__
        if name.startswith("max_") and (value := getattr(Settings(), name))
    }
