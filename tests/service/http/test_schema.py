"""The published document is true: Schemathesis finds nothing that contradicts it.

All its checks, all its phases (examples, coverage, fuzzing, stateful), against a real server. What
no schema can say (how many numbers a context has, what arms are called) is answered with 404, 409,
410, 413 or 422, each of which the document has for the route.
"""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from stopwise.service import messages
from stopwise.service.http.routes import ROUTES
from stopwise.service.http.schema import EXAMPLES, LINKS, document
from tests.service.http.door import REVEALING, SPEC, keys_in
from tests.service.http.live import served

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
    headers = {"Authorization": f"Bearer {made['admin']}"} if keys else {}
    with served(folder, keys=file if keys else None) as address:
        with httpx.Client(base_url=address, headers=headers) as client:
            for spec in (SPEC, REVEALING, {**SPEC, "name": "one", "context": 1}):
                assert client.post("/v1/cascades", json=spec).status_code == 201
            settings = EXPECTED
            if known is not None:
                here = f"/v1/cascades/{known}/" + ("rounds" if known == "stages" else "decisions")
                begun = client.post(here, json={"context": [0.5]})
                assert begun.status_code == 201
                settings += f'[parameters]\n"path.name" = "{known}"\n'
                settings += f'"path.id" = "{begun.json()["id"]}"\n'
        (folder / "settings.toml").write_text(settings)
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis as s; s()"]
        command += ["--config-file", "settings.toml", "run", f"{address}/openapi.json"]
        command += ["--checks", "all", "--max-examples", str(examples), "--seed", "1"]
        command += ["--suppress-health-check", "all", "--generation-database", "none"]
        if known is not None:
            command += ["--phases", "examples,coverage,fuzzing"]
        for operation in only:
            command += ["--include-operation-id", operation]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(done.stdout)
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counted, done.stdout + done.stderr
    assert int(counted[1]) > 100
    return "" if done.returncode == 0 and counted[1] == counted[2] else done.stdout


def test_nothing_contradicts_the_document(tmp_path: Path) -> None:
    assert not contradictions(tmp_path, keys=True, known=None, examples=4)


@pytest.mark.full
def test_nothing_contradicts_the_document_where_nobody_is_asked_for_a_key(tmp_path: Path) -> None:
    some = ("cascades", "decide", "retire_cascade", "outputs", "readyz", "metrics")
    assert not contradictions(tmp_path, keys=False, known="one", examples=8, only=some)


@pytest.mark.full
@pytest.mark.parametrize(
    ("keys", "known"), [(True, None), (False, None), (True, "one"), (True, "stages")]
)
def test_nothing_contradicts_the_document_however_long_one_looks(
    tmp_path: Path, keys: bool, known: str | None
) -> None:
    assert not contradictions(tmp_path, keys=keys, known=known, examples=150)


# -- what the document must have -----------------------------------------------------------------


def test_every_route_is_documented_with_what_it_takes_gives_and_refuses() -> None:
    paths = msgspec.json.decode(document(secured=True))["paths"]
    documented = {(method.upper(), path) for path, way in paths.items() for method in way}
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
                assert media["examples"]
        if route.writes:
            assert {"400", "401", "403", "413", "415", "422", "429", "500", "503"} <= set(
                operation["responses"]
            )
    assert [r.path for r in ROUTES if r.repeatable] == [
        "/v1/cascades",
        "/v1/cascades/{name}/decisions",
        "/v1/cascades/{name}/decisions:batch",
        "/v1/cascades/{name}/rounds",
    ]


def test_where_nobody_is_asked_for_a_key_the_document_asks_for_none() -> None:
    paper = msgspec.json.decode(document(secured=False))
    assert "securitySchemes" not in paper["components"]
    for way in paper["paths"].values():
        for operation in way.values():
            assert "security" not in operation
            assert "401" not in operation["responses"]


def test_examples_are_of_the_types_they_stand_for_and_there_are_some_for_each() -> None:
    for kind, examples in EXAMPLES.items():
        for example in examples.values():
            assert msgspec.json.decode(msgspec.json.encode(example), type=kind) == example
    bodies = {route.takes for route in ROUTES} - {None}
    assert bodies <= set(EXAMPLES)


def test_links_lead_to_routes_and_fields_that_exist() -> None:
    ids = {route.id: route for route in ROUTES}
    for source, targets in LINKS.items():
        for target, given in targets.items():
            assert set(given) == set(re.findall(r"{(\w+)}", ids[target].path)), (source, target)


def test_schemas_say_where_null_is_no_answer_and_have_patterns_that_others_can_read() -> None:
    text = document(secured=True).decode()
    assert r"\\Z" not in text
    schemas = msgspec.json.decode(text)["components"]["schemas"]
    assert "null" not in schemas["LabelRequest"]["properties"]["label"]["type"]
    assert "null" not in schemas["StepRequest"]["properties"]["output"]["type"]
    for name in dir(messages):
        kind = getattr(messages, name)
        if name.endswith("Request") and isinstance(kind, type):
            assert schemas[name]["additionalProperties"] is False
