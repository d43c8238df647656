"""The OpenAPI document, compared with a real server by Schemathesis.

All checks and phases run (examples, coverage, fuzzing, stateful). Constraints that a schema cannot
express, such as the size of a context, are rejected with documented statuses: 404, 409, 410, 413
or 422.
"""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from stopwise.service.http.openapi import openapi_document
from stopwise.service.http.routes import ROUTES
from tests.service.harness import REVEALING, SPEC, keys_in, served

EXPECTED = """\
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "409", "410", "413", "422"]
"""


def contradictions(folder: Path, *, keys: bool, cascade: str | None, examples: int) -> str:
    """Run Schemathesis; return its report, or "" without failures.

    With ``cascade``, all paths name this cascade and one of its rounds, so that requests reach the
    code behind it; the stateful phase is skipped.
    """
    file, api_keys = keys_in(folder)
    key = api_keys["admin"] if keys else None
    with served(folder, keys=file if keys else None) as running:
        for spec in (SPEC, REVEALING, {**SPEC, "name": "one", "context": 1}):
            assert running.post("/v1/cascades", spec, key=key).status_code == 201
        settings = EXPECTED
        if cascade is not None:
            path = f"/v1/cascades/{cascade}/rounds"
            opened = running.post(path, {"context": [0.5]}, key=key)
            assert opened.status_code == 201
            settings += f'[parameters]\n"path.name" = "{cascade}"\n'
            settings += f'"path.id" = "{opened.json()["id"]}"\n'
        (folder / "settings.toml").write_text(settings)
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis as s; s()"]
        command += ["--config-file", "settings.toml", "run", f"{running.url}/openapi.json"]
        command += ["--checks", "all", "--max-examples", str(examples), "--seed", "1"]
        command += ["--suppress-health-check", "all", "--generation-database", "none"]
        if cascade is not None:
            command += ["--phases", "examples,coverage,fuzzing"]
        if key is not None:
            command += ["-H", f"Authorization: Bearer {key}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(done.stdout)
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counted, done.stdout + done.stderr
    assert int(counted[1]) > 100
    return "" if done.returncode == 0 and counted[1] == counted[2] else done.stdout


def test_the_service_conforms_to_the_document(tmp_path: Path) -> None:
    assert not contradictions(tmp_path, keys=True, cascade=None, examples=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "cascade"), [(True, None), (False, None), (True, "one"), (True, "stages")]
)
def test_the_service_conforms_to_the_document_in_a_long_run(
    tmp_path: Path, keys: bool, cascade: str | None
) -> None:
    assert not contradictions(tmp_path, keys=keys, cascade=cascade, examples=150)


def test_the_document_has_security_and_idempotency_keys() -> None:
    paths = msgspec.json.decode(openapi_document(secured=True))["paths"]
    for route in ROUTES:
        operation = paths[route.path][route.method.lower()]
        assert operation["security"] == ([] if route.scope == "public" else [{"key": []}])
        headers = [p["name"] for p in operation.get("parameters", []) if p["in"] == "header"]
        assert headers == (["Idempotency-Key"] if route.idempotency_key else [])
    repeatable = {route.id for route in ROUTES if route.idempotency_key}
    assert repeatable == {"create_cascade", "open_round", "open_rounds"}


def test_without_keys_the_document_has_no_security() -> None:
    document = msgspec.json.decode(openapi_document(secured=False))
    assert "securitySchemes" not in document["components"]
    for path in document["paths"].values():
        for operation in path.values():
            assert "401" not in operation["responses"]
