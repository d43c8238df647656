"""The OpenAPI 3.1 document, generated from the table of routes.

Schemas have what is true of every cascade. What depends on one (how many numbers its contexts have,
what its arms are called), or on a kind of features or policy, is refused with 422.
"""

import re
from functools import cache
from inspect import cleandoc
from typing import Any, TypeAlias

import msgspec

from stopwise.policies.registry import POLICIES
from stopwise.service.domain import messages as m
from stopwise.service.http.errors import CODES
from stopwise.service.http.request import JSON
from stopwise.service.http.routes import ROUTES, Route
from stopwise.version import __version__

Json: TypeAlias = dict[str, Any]

ABOUT = """\
Stopwise learns, online and without labels, how deep to go in a cascade of tests, classifiers or \
models.

Create a cascade; open a round with a context; run the arms up to `stop` (or, where stages reveal \
the context, the arm `next`); report their outputs. It learns from where they disagree.

Every error has one shape, `ErrorAnswer`. Whatever is answered with success is durable.
"""
_KEY_WORDS = (
    "Makes it safe to send a request again: the same key with the same body is carried out once, "
    "and answered with 200 and what the first one did. The same key with another body is refused "
    "(409). Keys are remembered for each cascade: the last 100,000."
)
_PARAMETERS: dict[str, Json] = {
    name: {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": words,
        "schema": {"type": "string", "pattern": pattern},
        "example": example,
    }
    for name, where, words, pattern, example in (
        ("name", "path", "The cascade.", "^[a-z0-9][a-z0-9_-]{0,63}$", "triage"),
        ("id", "path", "As it was answered.", "^[0-9]{1,18}-[0-9a-f]{5}$", "17-0c3fa"),
        ("Idempotency-Key", "header", _KEY_WORDS, "^[!-~]{1,200}$", "order-2026-000017"),
    )
}

_WAIT: Json = {"description": "Seconds to wait.", "required": True, "schema": {"type": "integer"}}


def document(*, secured: bool) -> bytes:
    """Return the OpenAPI document of a service that asks for keys, or does not."""
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, secured)
    found: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Stopwise",
            "version": __version__,
            "summary": "How deep to go in a cascade.",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": _shapes()[1]},
    }
    if secured:
        found["components"]["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "sw_<id>_<secret>",
                "description": "A key that `stopwise keys add` created.",
            }
        }
    # In JSON Schema, $ is the very end of a text.
    return msgspec.json.encode(found).replace(rb"\\Z", b"$")


def _operation(route: Route, secured: bool) -> Json:
    summary, _, about = cleandoc(route.run.__doc__ or "").partition("\n")
    if secured and route.needs != "nothing":
        scope = f"with the scope `{route.needs}`" if route.needs else "of any scope"
        about += f"\n\nNeeds a key {scope}."
    names = re.findall(r"{(\w+)}", route.path)
    found: Json = {
        "operationId": route.id,
        "summary": summary.rstrip("."),
        "description": " ".join(about.split("\n")).strip().replace("  ", "\n\n"),
        "responses": _responses(route, secured),
    }
    if secured:
        found["security"] = [] if route.needs == "nothing" else [{"key": []}]
    names += ["Idempotency-Key"] if route.repeatable else []
    if names:
        found["parameters"] = [_PARAMETERS[name] for name in names]
    if route.takes is not None:
        found["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": _shapes()[0][route.takes]}},
        }
    return found


def _responses(route: Route, secured: bool) -> Json:
    schemas, found = _shapes()[0], dict[str, Any]()
    for status, (kind, when) in route.gives.items():
        content = {route.media_type: {"schema": schemas[kind]}}
        found[str(status)] = {"description": when, "content": content}
    by_status: dict[int, list[str]] = {}
    for code in error_codes(route, secured):
        by_status.setdefault(CODES[code].status, []).append(code)
    for status, codes in sorted(by_status.items()):
        these: Json = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        found[str(status)] = {
            "description": " ".join(CODES[code].meaning for code in codes),
            "content": {JSON: {"schema": {"allOf": [schemas[m.ErrorAnswer], these]}}},
        }
        if status in (429, 503):
            found[str(status)]["headers"] = {"Retry-After": _WAIT}
    return found


def error_codes(route: Route, secured: bool) -> list[str]:
    """Return the codes that a route can answer with, in the order of the table.

    Examples
    --------
    >>> error_codes(next(route for route in ROUTES if route.path == "/healthz"), secured=True)
    ['bad_request', 'internal']
    """
    found = {"bad_request", "internal", *route.errors}
    if not secured:
        found.add("forbidden")  # what came through somebody else's site
    elif route.needs != "nothing":
        found |= {"unauthorized", "forbidden", "too_many_requests"}
    if route.method == "POST":
        found |= {"too_large", "unsupported_media_type", "invalid", "too_many_requests"}
    if route.path.startswith("/v1") or route.path == "/readyz":
        found.add("unavailable")
    if "{" in route.path:
        found.add("unknown_path")
    return [code for code in CODES if code in found]


# -- the shapes of bodies ----------------------------------------------------------------------


@cache
def _shapes() -> tuple[dict[Any, Json], Json]:
    """Return the schema of every body, mostly a reference, and what these refer to."""
    kinds: list[Any] = [m.ErrorAnswer]
    for route in ROUTES:
        kinds += [kind for kind, _ in route.gives.values()]
        kinds += [] if route.takes is None else [route.takes]
    template = "#/components/schemas/{name}"
    schemas, found = msgspec.json.schema_components(kinds, ref_template=template)
    for schema in found.values():
        _spread(schema)
    spec = found["CascadeSpec"]["properties"]
    maps = ["standard", "identity", "polynomial", "scaled", "per_stage", "per_pair"]
    for part, kinds_of, default in (
        ("features", maps, {"kind": "polynomial", "degree": 1}),
        ("policy", [*POLICIES], {"kind": "uss-laplace", "labels": 100}),
    ):
        kind = {"properties": {"kind": {"enum": kinds_of}}, "required": ["kind"]}
        spec[part] |= {**kind, "default": default}
    not_null = ["boolean", "number", "string", "array", "object"]
    found["LabelReport"]["properties"]["label"]["type"] = not_null
    found["LabelReport"]["oneOf"] = [{"required": ["label"]}, {"required": ["right"]}]
    found["Fault"]["properties"]["code"]["enum"] = list(CODES)
    return dict(zip(kinds, schemas, strict=True)), found


def _spread(schema: Json) -> None:
    """Move descriptions of attributes from the docstring to these."""
    text, _, attributes = schema.get("description", "").partition("Attributes\n")
    if text:
        schema["description"] = " ".join(text.split())
    for name, words in re.findall(r"(?m)^ *(\w+) : .*\n((?: {8}.*\n?)+)", attributes):
        schema["properties"][name].setdefault("description", " ".join(words.split()))
