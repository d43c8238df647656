"""The published description of the API (OpenAPI 3.1), made from the table of routes.

What a schema can say, it says exactly. What depends on a cascade (how many numbers its contexts
have, what its arms are called) no schema can: such requests are refused with 422, which every
description of a route mentions.
"""

import re
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeAlias, cast

import msgspec

from stopwise.policies.registry import POLICIES
from stopwise.service import messages as m
from stopwise.service.http.faults import CODES
from stopwise.service.http.routes import JSON, ROUTES, HealthAnswer, Route
from stopwise.service.spec import NOT_OFFERED
from stopwise.version import __version__

Json: TypeAlias = dict[str, Any]

ABOUT = """\
Stopwise learns, online and without labels, how deep to go in a cascade of tests, classifiers or \
models.

Create a cascade; ask for a decision with a context; run the arms up to `stop`; tell what they \
said. It learns from where they disagree. Cascades whose stages reveal the context are decided in \
rounds, step by step.

Every error has one shape, `ErrorAnswer`. Whatever is answered with success is durable.
"""
TAGS = {
    "cascades": "What decides: arms, their costs, the context, a policy.",
    "decisions": "How deep to go, and what came of it.",
    "rounds": "The same step by step, where stages reveal the context.",
    "service": "How the service is.",
}

_SPEC = m.CascadeSpec(
    "triage",
    [m.Arm("history", 0.01), m.Arm("glucose", 0.24), m.Arm("insulin", 0.25)],
    ["age", "bmi"],
    features={"kind": "polynomial", "degree": 2},
)
_STAGED = m.CascadeSpec(
    "stages",
    [m.Arm("rule", 0.01), m.Arm("model", 0.2), m.Arm("person", 0.5)],
    3,
    features={
        "kind": "per_stage",
        "maps": [{"kind": "polynomial", "degree": 1}, {"kind": "polynomial", "degree": 1}],
        "sees": [2, 3],
    },
)
_DECISION = m.DecisionAnswer("17-0c3fa", 1, "glucose", 0.25)

# By type of the body: what to call an example, and the example.
EXAMPLES: dict[Any, dict[str, Any]] = {
    m.CascadeSpec: {"three tests": _SPEC, "stages that reveal": _STAGED},
    m.CascadeView: {
        "at work": m.CascadeView(
            _SPEC, "active", 1_767_225_600.5, 6, 1000, 3, 997, 0, [612, 300, 88], 0.129
        )
    },
    m.DecisionRequest: {
        "in order": m.DecisionRequest([0.2, 0.7]),
        "by name, with reasons": m.DecisionRequest({"age": 0.2, "bmi": 0.7}, evidence=True),
    },
    m.DecisionAnswer: {
        "plain": _DECISION,
        "with reasons": m.DecisionAnswer(
            "17-0c3fa",
            1,
            "glucose",
            0.25,
            "Stop at glucose: insulin costs 0.25 more and would disagree at most 12 % of the time.",
            [
                m.Evidence("history", "glucose", 0.24, 0.31, 0.38, False),
                m.Evidence("history", "insulin", 0.49, 0.35, 0.44, True),
                m.Evidence("glucose", "insulin", 0.25, 0.07, 0.12, True),
            ],
        ),
    },
    m.BatchRequest: {"two": m.BatchRequest([[0.2, 0.7], [0.5, 0.1]])},
    m.BatchAnswer: {
        "two": m.BatchAnswer([_DECISION, m.DecisionAnswer("18-8a1d0", 0, "history", 0.01)])
    },
    m.DecisionView: {
        "learned": m.DecisionView(
            "17-0c3fa",
            "learned",
            1,
            "glucose",
            0.25,
            1_767_225_600.5,
            [0.2, 0.7],
            {"history": "well", "glucose": "ill"},
            False,
        )
    },
    m.OutputsRequest: {
        "all": m.OutputsRequest(["well", "ill"]),
        "one so far": m.OutputsRequest({"glucose": "ill"}),
        "the last arm failed": m.OutputsRequest(["well"], final=True),
    },
    m.OutputsAnswer: {
        "all told": m.OutputsAnswer("17-0c3fa", "learned", [], False),
        "one to come": m.OutputsAnswer("17-0c3fa", "open", ["history"], False),
    },
    m.LabelRequest: {"ill": m.LabelRequest("ill")},
    m.LabelAnswer: {"first": m.LabelAnswer("17-0c3fa", 1, False)},
    m.RoundRequest: {"one number known": m.RoundRequest([0.2])},
    m.StepRequest: {"the rule has spoken": m.StepRequest(0, "well", [0.7])},
    m.RoundAnswer: {
        "go on": m.RoundAnswer("4-05d1e", "open", 1, "model", None, 0.01),
        "stop here": m.RoundAnswer("4-05d1e", "learned", None, "rule", 0, 0.01),
    },
    m.StateAnswer: {"now": m.StateAnswer(2048, "9f" * 16, "c4" * 32)},
}

# Where an answer leads: operation → what of its answer or request goes where.
_NAME = "$request.path.name"
LINKS: dict[str, dict[str, Json]] = {
    "create_cascade": {
        target: {"name": "$response.body#/spec/name"}
        for target in ("cascade", "decide", "decide_batch", "start_round", "retire_cascade")
    },
    "decide": {
        target: {"name": _NAME, "id": "$response.body#/id"}
        for target in ("decision", "outputs", "label")
    },
    "start_round": {
        target: {"name": _NAME, "id": "$response.body#/id"}
        for target in ("round", "step", "end_round", "label")
    },
}

_PARAMETERS: dict[str, Json] = {
    "name": {
        "name": "name",
        "in": "path",
        "required": True,
        "description": "The cascade.",
        "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
        "example": "triage",
    },
    "id": {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "As it was answered.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,18}-[0-9a-f]{5}$"},
        "example": "17-0c3fa",
    },
    "Idempotency-Key": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "Makes it safe to send a request again: the same key with the same body is "
        "carried out once, and answered with 200 and what the first one did. The same key with "
        "another body is refused (409). Keys are remembered for each cascade: the last 100,000.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
        "example": "order-2026-000017",
    },
}

_HEADERS: dict[int, Json] = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    429: {
        "Retry-After": {
            "required": True,
            "description": "Seconds to wait.",
            "schema": {"type": "integer", "minimum": 1},
        }
    },
    500: {"X-Request-Id": {"required": True, "schema": {"type": "string"}}},
}
_HEADERS[503] = _HEADERS[429]


def document(*, secured: bool) -> bytes:
    """Return the OpenAPI document of a service.

    Parameters
    ----------
    secured : bool
        Whether it asks for keys.

    Examples
    --------
    >>> paper = msgspec.json.decode(document(secured=True))
    >>> paper["openapi"], paper["paths"]["/v1/cascades/{name}/decisions"]["post"]["operationId"]
    ('3.1.0', 'decide')
    """
    paths: dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, secured)
    paper: Json = {
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
        paper["components"]["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "sw_<id>_<secret>",
                "description": "A key that `stopwise keys add` made.",
            }
        }
    return msgspec.json.encode(paper)


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
    if names or route.repeatable:
        names += ["Idempotency-Key"] if route.repeatable else []
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
        found[str(status)] = {
            "description": " ".join(CODES[code].meaning for code in codes),
            "content": {
                JSON: {
                    "schema": {
                        "allOf": [
                            _reference(m.ErrorAnswer),
                            {"properties": {"error": {"properties": {"code": {"enum": codes}}}}},
                        ]
                    },
                    "examples": {
                        code: {
                            "value": m.ErrorAnswer(m.Fault(code, CODES[code].meaning.rstrip(".")))
                        }
                        for code in codes
                    },
                }
            },
        }
        if status in _HEADERS:
            found[str(status)]["headers"] = _HEADERS[status]
    return found


def refusals(route: Route, secured: bool) -> list[str]:
    """Return the codes that a route can be refused with, in the order of the table.

    Examples
    --------
    >>> refusals(next(route for route in ROUTES if route.path == "/healthz"), secured=True)
    ['bad_request', 'headers_too_large', 'internal']
    """
    found = {"bad_request", "headers_too_large", "internal", *route.refuses}
    if not secured:
        found.add("forbidden")  # what came through somebody else's site
    elif route.needs != "nothing":
        found.add("unauthorized")
        if route.needs is not None:
            found.add("forbidden")
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
        sorted(structs, key=lambda kind: kind.__name__),
        ref_template="#/components/schemas/{name}",
    )
    for schema in found.values():
        _spread(schema)
    _mend(found)
    spec = found["CascadeSpec"]["properties"]
    spec["features"] |= {**_features(), "default": {"kind": "polynomial", "degree": 1}}
    spec["policy"] |= {"anyOf": [_policy(name) for name in POLICIES if _offered(name)]}
    spec["policy"]["default"] = {"kind": "uss-pd"}
    for name, field in (("LabelRequest", "label"), ("StepRequest", "output")):
        found[name]["properties"][field]["type"] = [
            "boolean",
            "number",
            "string",
            "array",
            "object",
        ]
    found["Fault"]["properties"]["code"]["enum"] = list(CODES)
    return found


def _spread(schema: Json) -> None:
    """Move what a docstring says of attributes to these."""
    text, _, attributes = schema.get("description", "").partition("Attributes\n")
    if text:
        schema["description"] = " ".join(text.split())
    for name, words in re.findall(r"(?m)^ *(\w+) : .*\n((?: {8}.*\n?)+)", attributes):
        schema["properties"][name].setdefault("description", " ".join(words.split()))


def _mend(schema: object) -> None:
    """Write patterns as JSON Schema has them: there, $ is the very end."""
    if isinstance(schema, dict):
        inner = cast(Json, schema)
        if isinstance(inner.get("pattern"), str):
            inner["pattern"] = inner["pattern"].replace(r"\Z", "$")
        for value in inner.values():
            _mend(value)
    elif isinstance(schema, list):
        for value in cast(list[object], schema):
            _mend(value)


def _offered(name: str) -> bool:
    return not POLICIES[name].needs_truth


def _policy(name: str) -> Json:
    taken = signature(POLICIES[name]).parameters.values()
    return _exactly(
        name, {one.name: _parameter(one) for one in taken if one.name not in NOT_OFFERED}
    )


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


def _parameter(one: Parameter) -> Json:
    return _LIMITS[one.name] | ({} if one.default is None else {"default": one.default})


def _features() -> Json:
    above: Json = {"type": "number", "exclusiveMinimum": 0}
    count: Json = {"type": "integer", "minimum": 1}
    coordinates: Json = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    bare = [
        _exactly("identity", {"bound": above}),
        _exactly(
            "polynomial",
            {
                "degree": count,
                "bias": {"type": "boolean"},
                "bound": above,
                "without": {"type": "array", "items": coordinates},
            },
        ),
    ]
    scaled = _exactly(
        "scaled",
        {
            "inner": {"anyOf": bare},
            "center": {"type": "array", "items": {"type": "number"}},
            "scale": {"type": "array", "items": above},
            "outside": {"enum": ["error", "clip"]},
        },
        required=("inner", "center", "scale"),
    )
    several: Json = {"type": "array", "items": {"anyOf": [*bare, scaled]}, "minItems": 1}
    sees: Json = {"anyOf": [{"type": "array", "items": count}, {"type": "null"}]}
    return {
        "anyOf": [
            *bare,
            scaled,
            _exactly("per_stage", {"maps": several, "sees": sees}, required=("maps",)),
            _exactly("per_pair", {"maps": several}, required=("maps",)),
        ]
    }


def _exactly(kind: str, properties: Json, required: tuple[str, ...] = ()) -> Json:
    return {
        "title": kind,
        "type": "object",
        "properties": {"kind": {"const": kind}, **properties},
        "required": ["kind", *required],
        "additionalProperties": False,
    }
