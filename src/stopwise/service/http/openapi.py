"""The OpenAPI 3.1 document, generated from the table of routes.

The schemas contain only the constraints that hold for every cascade. The service itself validates
values that depend on the cascade (such as the names of its arms) or on the kind of its features or
policy, and responds with 422 if they are invalid.
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
from stopwise.service.http.routes import PUBLIC, ROUTES, Route
from stopwise.version import __version__

Json: TypeAlias = dict[str, Any]

DESCRIPTION = """\
Stopwise learns online, without labels, how far to go in a cascade of tests, classifiers or \
models.

Create a cascade. Open a round with a context. Run the arms up to index `stop` or, if stages \
reveal the context, the arm at index `next`. Report the outputs. The policy learns from the \
disagreements between the arms.

The body of every error is an `ErrorAnswer`. Every change that a success response confirms is \
durable.
"""
_IDEMPOTENCY_KEY = (
    "Makes retries safe. Requests with the same key and the same body are executed once; later "
    "ones get 200 and the result of the first. The same key with a different body is rejected "
    "(409). Each cascade remembers its last 100,000 keys."
)
_PARAMETERS: dict[str, Json] = {
    name: {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": description,
        "schema": {"type": "string", "pattern": pattern},
        "example": example,
    }
    for name, where, description, pattern, example in (
        ("name", "path", "The name of the cascade.", "^[a-z0-9][a-z0-9_-]{0,63}$", "triage"),
        ("id", "path", "The id of the round.", "^[0-9]{1,18}-[0-9a-f]{5}$", "17-0c3fa"),
        ("Idempotency-Key", "header", _IDEMPOTENCY_KEY, "^[!-~]{1,200}$", "order-2026-000017"),
    )
}

_RETRY_AFTER: Json = {
    "description": "Seconds to wait before a retry.",
    "required": True,
    "schema": {"type": "integer"},
}


def openapi_document(*, secured: bool) -> bytes:
    """Return the OpenAPI document; ``secured`` is whether the service requires API keys."""
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, secured)
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Stopwise",
            "version": __version__,
            "summary": "Decide how far to go in a cascade.",
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": _body_schemas()[1]},
    }
    if secured:
        document["components"]["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "sw_<id>_<secret>",
                "description": "An API key created by `stopwise keys add`.",
            }
        }
    # In JSON Schema, $ matches only the end of the string.
    return msgspec.json.encode(document).replace(rb"\\Z", b"$")


def _operation(route: Route, secured: bool) -> Json:
    summary, _, description = cleandoc(route.operation.__doc__ or "").partition("\n")
    if secured and route.scope != PUBLIC:
        scope = f"with the scope `{route.scope}`" if route.scope else "with any scope"
        description += f"\n\nRequires a key {scope}."
    operation: Json = {
        "operationId": route.id,
        "summary": summary.rstrip("."),
        "description": " ".join(description.split("\n")).strip().replace("  ", "\n\n"),
        "responses": _responses(route, secured),
    }
    if secured:
        operation["security"] = [] if route.scope == PUBLIC else [{"key": []}]
    names = re.findall(r"{(\w+)}", route.path)
    if route.idempotency_key:
        names.append("Idempotency-Key")
    if names:
        operation["parameters"] = [_PARAMETERS[name] for name in names]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": _body_schemas()[0][route.body]}},
        }
    return operation


def _responses(route: Route, secured: bool) -> Json:
    schemas, _ = _body_schemas()
    responses: Json = {}
    for status, (body, description) in route.responses.items():
        content = {route.media_type: {"schema": schemas[body]}}
        responses[str(status)] = {"description": description, "content": content}
    codes_by_status: dict[int, list[str]] = {}
    for code in error_codes(route, secured):
        codes_by_status.setdefault(CODES[code].status, []).append(code)
    for status, codes in sorted(codes_by_status.items()):
        only_these: Json = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        responses[str(status)] = {
            "description": " ".join(CODES[code].meaning for code in codes),
            "content": {JSON: {"schema": {"allOf": [schemas[m.ErrorAnswer], only_these]}}},
        }
        if status in (429, 503):
            responses[str(status)]["headers"] = {"Retry-After": _RETRY_AFTER}
    return responses


def error_codes(route: Route, secured: bool) -> list[str]:
    """Return the error codes that a route can respond with, in the order of `CODES`.

    Examples
    --------
    >>> error_codes(next(route for route in ROUTES if route.path == "/healthz"), secured=True)
    ['bad_request', 'internal']
    """
    codes = {"bad_request", "internal", *route.errors}
    if not secured:
        codes.add("forbidden")  # requests that another site caused
    elif route.scope != PUBLIC:
        codes |= {"unauthorized", "forbidden", "too_many_requests"}
    if route.method == "POST":
        codes |= {"too_large", "unsupported_media_type", "invalid", "too_many_requests"}
    if route.path.startswith("/v1") or route.path == "/readyz":
        codes.add("unavailable")
    if "{" in route.path:
        codes.add("unknown_path")
    return [code for code in CODES if code in codes]


# -- schemas of bodies ---------------------------------------------------------------------------


@cache
def _body_schemas() -> tuple[dict[Any, Json], Json]:
    """Return the schema (usually a reference) of each body type, and the components by name."""
    types: list[Any] = [m.ErrorAnswer]
    for route in ROUTES:
        types += [body for body, _ in route.responses.values()]
        if route.body is not None:
            types.append(route.body)
    template = "#/components/schemas/{name}"
    schemas, components = msgspec.json.schema_components(types, ref_template=template)
    for schema in components.values():
        _describe_properties(schema)
    spec = components["CascadeSpec"]["properties"]
    maps = ["standard", "identity", "polynomial", "scaled", "per_stage", "per_pair"]
    for field, kinds, default in (
        ("features", maps, {"kind": "polynomial", "degree": 1}),
        ("policy", list(POLICIES), {"kind": "uss-laplace", "labels": 100}),
    ):
        kind = {"properties": {"kind": {"enum": kinds}}, "required": ["kind"]}
        spec[field] |= {**kind, "default": default}
    not_null = ["boolean", "number", "string", "array", "object"]
    components["LabelReport"]["properties"]["label"]["type"] = not_null
    components["LabelReport"]["oneOf"] = [{"required": ["label"]}, {"required": ["right"]}]
    components["Fault"]["properties"]["code"]["enum"] = list(CODES)
    return dict(zip(types, schemas, strict=True)), components


def _describe_properties(schema: Json) -> None:
    """Move the descriptions of attributes from the class docstring to the properties."""
    summary, _, attributes = schema.get("description", "").partition("Attributes\n")
    if summary:
        schema["description"] = " ".join(summary.split())
    for name, text in re.findall(r"(?m)^ *(\w+) : .*\n((?: {8}.*\n?)+)", attributes):
        schema["properties"][name].setdefault("description", " ".join(text.split()))
