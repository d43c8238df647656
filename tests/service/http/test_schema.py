"""Schemathesis finds nothing that contradicts the published OpenAPI document.

All its checks, all its phases (examples, coverage, fuzzing, stateful), against a real server. What
no schema can express (how many numbers a context has, what arms are called) is refused with 404,
409, 410, 413 or 422, each of which the document has for the route.
"""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from stopwise.service.http.routes import ROUTES
from stopwise.service.http.schema import EXAMPLES, LINKS, document
from tests.service.harness import REVEALING, SPEC, keys_in, served

EXPECTED = """\
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "409", "410", "413", "422"]
"""


def contradictions(
    folder: Path,
    *,
    keys: bool,
    known: str | None,
    examples: int,
    only: tuple[str, ...] = (),
) -> str:
    """Run Schemathesis; return its report, empty if it found nothing.

    ``known``: the cascade that every path names, so that requests reach what is behind it. What
    leads from one request to the next (stateful) is left out then: all go to the same place.
    """
    file, made = keys_in(folder)
    key = made["admin"] if keys else None
    with served(folder, keys=file if keys else None) as running:
        for spec in (SPEC, REVEALING, {**SPEC, "name": "one", "context": 1}):
            assert running.post("/v1/cascades", spec, key=key).status_code == 201
        settings = EXPECTED
        if known is not None:
            path = f"/v1/cascades/{known}/rounds"
            opened = running.post(path, {"context": [0.5]}, key=key)
            assert opened.status_code == 201
            settings += f'[parameters]\n"path.name" = "{known}"\n'
            settings += f'"path.id" = "{opened.json()["id"]}"\n'
        (folder / "settings.toml").write_text(settings)
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis as s; s()"]
        command += ["--config-file", "settings.toml", "run", f"{running.url}/openapi.json"]
        command += ["--checks", "all", "--max-examples", str(examples), "--seed", "1"]
        command += ["--suppress-health-check", "all", "--generation-database", "none"]
        if known is not None:
            command += ["--phases", "examples,coverage,fuzzing"]
        for operation in only:
            command += ["--include-operation-id", operation]
        if key is not None:
            command += ["-H", f"Authorization: Bearer {key}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(done.stdout)
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counted, done.stdout + done.stderr
    assert int(counted[1]) > 100
    return "" if done.returncode == 0 and counted[1] == counted[2] else done.stdout


def test_nothing_contradicts_the_document(tmp_path: Path) -> None:
    assert not contradictions(tmp_path, keys=True, known=None, examples=1)


@pytest.mark.slow
def test_nothing_contradicts_the_document_of_a_service_without_keys(tmp_path: Path) -> None:
    some = ("cascades", "open_round", "retire_cascade", "report_outputs", "readyz", "metrics")
    assert not contradictions(tmp_path, keys=False, known="one", examples=8, only=some)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "known"), [(True, None), (False, None), (True, "one"), (True, "stages")]
)
def test_nothing_contradicts_the_document_in_a_long_run(
    tmp_path: Path, keys: bool, known: str | None
) -> None:
    assert not contradictions(tmp_path, keys=keys, known=known, examples=150)


# -- the document itself --------------------------------------------------------------------------


def test_every_route_is_documented_with_its_bodies_answers_and_refusals() -> None:
    paths = msgspec.json.decode(document(secured=True))["paths"]
    documented = {(method.upper(), path) for path, found in paths.items() for method in found}
    assert documented == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = paths[route.path][route.method.lower()]
        assert operation["summary"]
        assert ("requestBody" in operation) == (route.takes is not None)
        assert operation["security"] == ([] if route.needs == "nothing" else [{"key": []}])
        headers = [p["name"] for p in operation.get("parameters", []) if p["in"] == "header"]
        assert headers == (["Idempotency-Key"] if route.repeatable else [])
        for status, response in operation["responses"].items():
            content = response["content"]
            if int(status) >= 400:
                [(kind, media)] = content.items()
                assert kind == "application/json"
                assert {"$ref": "#/components/schemas/ErrorAnswer"} in media["schema"]["allOf"]
        if route.writes:
            assert {"400", "401", "403", "413", "415", "422", "429", "500", "503"} <= set(
                operation["responses"]
            )
    assert [r.path for r in ROUTES if r.repeatable] == [
        "/v1/cascades",
        "/v1/cascades/{name}/rounds",
        "/v1/cascades/{name}/rounds:batch",
    ]


def test_links_lead_to_routes_and_fields_that_exist() -> None:
    ids = {route.id: route for route in ROUTES}
    for source, targets in LINKS.items():
        for target, given in targets.items():
            assert set(given) == set(re.findall(r"{(\w+)}", ids[target].path)), (source, target)


def test_every_body_has_examples_of_its_type() -> None:
    for kind, examples in EXAMPLES.items():
        for example in examples.values():
            assert msgspec.json.decode(msgspec.json.encode(example), type=kind) == example
    bodies = {route.takes for route in ROUTES} - {None}
    assert bodies <= set(EXAMPLES)


def test_the_document_of_a_service_without_keys_asks_for_none() -> None:
    found = msgspec.json.decode(document(secured=False))
    assert "securitySchemes" not in found["components"]
    for path in found["paths"].values():
        for operation in path.values():
            assert "security" not in operation
            assert "401" not in operation["responses"]
