"""Only `service/http`, the proxy and the client use HTTP statuses; other code uses error codes."""

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


def statuses_in(tree: ast.AST) -> set[str]:
    """Return the HTTP statuses that a module mentions."""
    statuses: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in STATUSES:
            statuses.add(str(node.value))
        elif isinstance(node, ast.alias | ast.Name):
            name = node.name if isinstance(node, ast.alias) else node.id
            statuses |= {name} & {"HTTPStatus", "http.HTTPStatus"}
    return statuses


def test_statuses_are_detected() -> None:
    code = "from http import HTTPStatus\nif answer.status == 404:\n    raise HTTPStatus"
    assert statuses_in(ast.parse(code)) == {"HTTPStatus", "404"}


@pytest.mark.parametrize("file", FILES)
def test_module_outside_of_http_has_no_statuses(file: str) -> None:
    statuses = statuses_in(ast.parse((SOURCE / file).read_text("utf-8")))
    if not file.startswith("service/"):
        statuses -= {"400", "500"}  # counts of rounds, rows and features
    assert not statuses


def test_every_error_has_a_status() -> None:
    pending, codes = [errors.RequestError], set[str]()
    while pending:
        error = pending.pop()
        pending += [sub for sub in error.__subclasses__() if sub.__module__.startswith(PACKAGE)]
        codes |= {error.code} if hasattr(error, "code") else set()
    assert codes == set(CODES)
    assert not hasattr(errors.RequestError("text"), "status")
    assert not hasattr(HttpError("text"), "status")
