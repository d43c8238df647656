"""The OpenAPI 3.1 document, made from the table of routes.

Schemas are exact where a schema can be. What depends on a cascade (how many numbers its contexts
have, what its arms are called) is refused with 422, which the description of every route mentions.
"""

import re
from inspect import cleandoc, signature
from typing import Any, TypeAlias

import msgspec

from stopwise.policies.registry import POLICIES
from stopwise.service import messages as m
from stopwise.service.http.request import JSON
from stopwise.service.http.routes import ROUTES, HealthAnswer, Route
from stopwise.service.refusals import CODES
from stopwise.service.spec import NOT_OFFERED
from stopwise.version import __version__

Json: TypeAlias = dict[str, Any]

ABOUT = """\
Stopwise learns, online and without labels, how deep to go in a cascade of tests, classifiers or \
models.

Create a cascade; open a round with a context; run the arms up to `stop` (or, where stages reveal \
the context, the arm `next`); report their outputs. It learns from where they disagree.

Every error has one shape, `ErrorAnswer`. Whatever is answered with success is durable.
"""
TAGS = {
    "cascades": "What decides: arms, their costs, the context, a policy.",
    "rounds": "How deep to go, and the outputs of the arms.",
    "service": "How the service is.",
}

_ARMS = [m.Arm("history", 0.01), m.Arm("glucose", 0.24), m.Arm("insulin", 0.25)]
_SPEC = m.CascadeSpec("triage", _ARMS, ["age", "bmi"])
_MAP = {"kind": "polynomial", "degree": 1}
_STAGES = {"kind": "per_stage", "maps": [_MAP, _MAP], "sees": [2, 3]}
_STAGED = m.CascadeSpec("stages", _ARMS, 3, features=_STAGES)
_ROUND = m.RoundAnswer("17-0c3fa", "open", "glucose", 0.25, 1, 0)
_REASON = "Stop at glucose: insulin costs 0.25 more and would disagree at most 12 % of the time."
_EVIDENCE = m.Evidence("glucose", "insulin", 0.25, 0.07, 0.12, True)
_TIME = 1_767_225_600.5
_OUTPUTS = {"history": "healthy", "glucose": "ill"}
_VIEW = m.RoundView(
    "17-0c3fa", "learned", 1, None, "glucose", 0.25, _TIME, [0.2, 0.7], _OUTPUTS, False
)

# By type of the body: what to call an example, and the example.
EXAMPLES: dict[Any, dict[str, Any]] = {
    m.CascadeSpec: {"three tests": _SPEC, "stages that reveal": _STAGED},
    m.CascadeView: {
        "active": m.CascadeView(_SPEC, "active", _TIME, 3, 1000, 3, 997, 0, [612, 300, 88], 0.129)
    },
    m.RoundRequest: {
        "in order": m.RoundRequest([0.2, 0.7]),
        "by name, with reasons": m.RoundRequest({"age": 0.2, "bmi": 0.7}, evidence=True),
    },
    m.BatchRequest: {"two": m.BatchRequest([[0.2, 0.7], [0.5, 0.1]])},
    m.RoundAnswer: {
        "whole context": _ROUND,
        "stages reveal": m.RoundAnswer("4-05d1e", "open", "glucose", 0.01, next=1),
        "ended": m.RoundAnswer("17-0c3fa", "learned", "glucose", 0.25, 1),
        "with reasons": msgspec.structs.replace(_ROUND, reason=_REASON, evidence=[_EVIDENCE]),
    },
    m.RoundList: {"one": m.RoundList([_ROUND])},
    m.RoundView: {"ended": _VIEW},
    m.OutputsRequest: {
        "all": m.OutputsRequest(["healthy", "ill"]),
        "one so far": m.OutputsRequest({"glucose": "ill"}),
        "with what it reveals": m.OutputsRequest({"history": "healthy"}, revealed=[0.7]),
        "the last arm failed": m.OutputsRequest(["healthy"], final=True),
    },
    m.LabelRequest: {"ill": m.LabelRequest("ill")},
    m.LabelAnswer: {"first": m.LabelAnswer("17-0c3fa", 1, False)},
    m.StateAnswer: {"now": m.StateAnswer(2048, "9f" * 16, "c4" * 32)},
}

# Where an answer leads: operation → what of its answer or request goes where.
_NAME = "$request.path.name"
LINKS: dict[str, dict[str, Json]] = {
    "create_cascade": {
        target: {"name": "$response.body#/spec/name"}
        for target in ("cascade", "open_round", "open_rounds", "retire_cascade")
    },
    "open_round": {
        target: {"name": _NAME, "id": "$response.body#/id"}
        for target in ("round", "report_outputs", "label_round")
    },
}

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

_TEXT: Json = {"required": True, "schema": {"type": "string"}}
_WAIT: Json = {"required": True, "schema": {"type": "integer", "minimum": 1}}
_RETRY: Json = {"Retry-After": {"description": "Seconds to wait.", **_WAIT}}
_HEADERS: dict[int, Json] = {
    401: {"WWW-Authenticate": _TEXT},
    429: _RETRY,
    500: {"X-Request-Id": _TEXT},
    503: _RETRY,
}


def document(*, secured: bool) -> bytes:
    """Return the OpenAPI document of a service that asks for keys, or does not.

    Examples
    --------
    >>> found = msgspec.json.decode(document(secured=True))
    >>> found["openapi"], found["paths"]["/v1/cascades/{name}/rounds"]["post"]["operationId"]
    ('3.1.0', 'open_round')
    """
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
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "paths": paths,
        "components": {"schemas": _components()},
    }
    if secured:
        found["components"]["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "sw_<id>_<secret>",
                "description": "A key that `stopwise keys add` made.",
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
        "tags": [route.tag],
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
        found["requestBody"] = {"required": True, "content": {JSON: _content(route.takes)}}
    return found


def _responses(route: Route, secured: bool) -> Json:
    found: Json = {}
    for status, (kind, when) in route.gives.items():
        found[str(status)] = {"description": when, "content": {route.media_type: _content(kind)}}
        if route.id in LINKS:
            found[str(status)]["links"] = {
                target: {"operationId": target, "parameters": given}
                for target, given in LINKS[route.id].items()
            }
    by_status: dict[int, list[str]] = {}
    for code in refusals(route, secured):
        by_status.setdefault(CODES[code].status, []).append(code)
    for status, codes in sorted(by_status.items()):
        these: Json = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
        found[str(status)] = {
            "description": " ".join(CODES[code].meaning for code in codes),
            "content": {JSON: {"schema": {"allOf": [_reference(m.ErrorAnswer), these]}}},
        }
        if status in _HEADERS:
            found[str(status)]["headers"] = _HEADERS[status]
    return found


def refusals(route: Route, secured: bool) -> list[str]:
    """Return the codes that a route can be refused with, in the order of the table.

    Examples
    --------
    >>> refusals(next(route for route in ROUTES if route.path == "/healthz"), secured=True)
    ['bad_request', 'internal']
    """
    found = {"bad_request", "internal", *route.refuses}
    if not secured:
        found.add("forbidden")  # what came through somebody else's site
    elif route.needs != "nothing":
        found |= {"unauthorized", "forbidden", "too_many_requests"}
    if route.writes:
        found |= {"too_large", "unsupported_media_type", "invalid", "too_many_requests"}
    if route.path.startswith("/v1") or route.path == "/readyz":
        found.add("unavailable")
    if "{" in route.path:
        found.add("unknown_path")
    return [code for code in CODES if code in found]


def _content(kind: Any) -> Json:
    if kind is str:
        return {"schema": {"type": "string"}}
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {"schema": {"type": "object"}}
    content: Json = {"schema": _reference(kind)}
    if kind in EXAMPLES:
        content["examples"] = {name: {"value": value} for name, value in EXAMPLES[kind].items()}
    return content


def _reference(kind: type[msgspec.Struct]) -> Json:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


# -- the shapes of bodies ----------------------------------------------------------------------


def _components() -> Json:
    kinds = {kind for route in ROUTES for kind, _ in route.gives.values()}
    kinds |= {route.takes for route in ROUTES} | {m.ErrorAnswer, HealthAnswer}
    structs = [k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)]
    _, found = msgspec.json.schema_components(
        sorted(structs, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    for schema in found.values():
        _spread(schema)
    spec = found["CascadeSpec"]["properties"]
    spec["features"] |= {**_features(), "default": _MAP}
    offered = [_policy(name) for name, kind in POLICIES.items() if not kind.needs_truth]
    spec["policy"] |= {"anyOf": offered, "default": {"kind": "uss-pd"}}
    not_null = ["boolean", "number", "string", "array", "object"]
    found["LabelRequest"]["properties"]["label"]["type"] = not_null
    found["Fault"]["properties"]["code"]["enum"] = list(CODES)
    return found


def _spread(schema: Json) -> None:
    """Move what a docstring says of attributes to these."""
    text, _, attributes = schema.get("description", "").partition("Attributes\n")
    if text:
        schema["description"] = " ".join(text.split())
    for name, words in re.findall(r"(?m)^ *(\w+) : .*\n((?: {8}.*\n?)+)", attributes):
        schema["properties"][name].setdefault("description", " ".join(words.split()))


# What a parameter of a policy may be, as the policies check it.
_LIMITS: dict[str, Json] = {
    "delta": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "sigma": {"type": "number", "exclusiveMinimum": 0},
    "kappa": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.25},
    "ridge": {"type": "number", "minimum": 1e-9},
    "lam": {"type": "number", "minimum": 1e-9},
    "S": {"type": "number", "minimum": 0},
    "a": {"type": "number", "exclusiveMinimum": 0},
    "scale": {"type": "number", "minimum": 0},
    "forced_rounds": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "auto"}]},
    "full_depth_every": {"type": "integer", "minimum": 2, "maximum": 10_000},
    "seed": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "depth": {"type": "integer", "minimum": 0},
}


def _policy(name: str) -> Json:
    taken = signature(POLICIES[name]).parameters.values()
    parameters = {
        one.name: _LIMITS[one.name] | ({} if one.default is None else {"default": one.default})
        for one in taken
        if one.name not in NOT_OFFERED
    }
    return _exactly(name, parameters)


def _features() -> Json:
    above: Json = {"type": "number", "exclusiveMinimum": 0}
    count: Json = {"type": "integer", "minimum": 1}
    without = _array(_array({"type": "integer", "minimum": 0}))
    polynomial = {"degree": count, "bias": {"type": "boolean"}, "bound": above, "without": without}
    bare = [_exactly("identity", {"bound": above}), _exactly("polynomial", polynomial)]
    scaling = {
        "inner": {"anyOf": bare},
        "center": _array({"type": "number"}),
        "scale": _array(above),
        "outside": {"enum": ["error", "clip"]},
    }
    scaled = _exactly("scaled", scaling, "inner", "center", "scale")
    maps = _array({"anyOf": [*bare, scaled]}) | {"minItems": 1}
    stages = {"maps": maps, "sees": {"anyOf": [_array(count), {"type": "null"}]}}
    per_stage = _exactly("per_stage", stages, "maps")
    return {"anyOf": [*bare, scaled, per_stage, _exactly("per_pair", {"maps": maps}, "maps")]}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _exactly(kind: str, properties: Json, *required: str) -> Json:
    return {
        "title": kind,
        "type": "object",
        "properties": {"kind": {"const": kind}, **properties},
        "required": ["kind", *required],
        "additionalProperties": False,
    }
