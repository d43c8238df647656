"""HTTP stays in `service/http`, the proxy and the client: the rest knows error codes only."""

import ast
from pathlib import Path

import pytest

from stopwise.service.domain import errors
from stopwise.service.http.errors import CODES, HttpError

SOURCE = Path(errors.__file__).parents[2]
SPEAK_HTTP = [SOURCE / "service/http", SOURCE / "proxy", SOURCE / "client"]
FILES = [
    file.relative_to(SOURCE).as_posix()
    for file in sorted(SOURCE.rglob("*.py"))
    if not any(file.is_relative_to(folder) for folder in SPEAK_HTTP)
]
PACKAGE = "stopwise.service."
STATUSES = {row.status for row in CODES.values()}


def http_in(tree: ast.AST) -> set[str]:
    """Return what in a module stands for an HTTP status."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in STATUSES:
            found.add(str(node.value))
        elif isinstance(node, ast.alias | ast.Name):
            name = node.name if isinstance(node, ast.alias) else node.id
            found |= {name} & {"HTTPStatus", "http.HTTPStatus"}
    return found


def test_statuses_are_recognised() -> None:
    code = "from http import HTTPStatus\nif answer.status == 404:\n    raise HTTPStatus"
    assert http_in(ast.parse(code)) == {"HTTPStatus", "404"}


@pytest.mark.parametrize("file", FILES)
def test_no_status_is_outside_of_http(file: str) -> None:
    found = http_in(ast.parse((SOURCE / file).read_text("utf-8")))
    if not file.startswith("service/"):
        found -= {"400", "500"}  # counts of rounds, rows and features
    assert not found


def test_every_error_has_a_status() -> None:
    kinds, codes = [errors.RequestError], set[str]()
    while kinds:
        kind = kinds.pop()
        kinds += [one for one in kind.__subclasses__() if one.__module__.startswith(PACKAGE)]
        codes |= {kind.code} if hasattr(kind, "code") else set()
    assert codes == set(CODES)
    assert not hasattr(errors.RequestError("text"), "status")
    assert not hasattr(HttpError("text"), "status")
