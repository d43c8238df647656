"""Fuzzing of request bodies: no body causes an internal error, and rejected ones have no effect.

Valid bodies are mutated in their bytes (cut, replaced, doubled) or in their values (wrong types,
numbers out of range, nesting, missing fields). Some mutants are still valid.
"""

import json
from collections import Counter
from copy import deepcopy
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stopwise.service.persistence.snapshots import state_hash
from tests.service.harness import CONTEXT, JSON, REVEALING, ROUNDS, SPEC, STAGED, Served, served

SCALED = {"kind": "scaled", "inner": {"kind": "identity"}, "center": [0, 0], "scale": [1, 1]}
POLICY = {"kind": "uss-pd", "delta": 0.1, "forced_rounds": 10}
GOOD: dict[str, Any] = {
    "/v1/cascades": {
        **SPEC,
        "name": "new",
        "tradeoff": 1.5,
        "features": SCALED,
        "policy": POLICY,
        "keep_open": 10,
    },
    ROUNDS: {**CONTEXT, "evidence": True},
    f"{ROUNDS}:batch": {"contexts": [[0.2, 0.7], {"age": 0.1, "bmi": 0.2}]},
    f"{ROUNDS}/{{whole}}/outputs": {"outputs": {"history": "a", "glucose": [1]}, "final": False},
    f"{ROUNDS}/{{whole}}/label": {"label": {"a": [1, 2]}},
    STAGED: {"context": [0.5]},
    f"{STAGED}/{{staged}}/outputs": {"outputs": ["x"], "revealed": [0.1]},
    "/v1/cascades/none/retire": {},
}
# Unusual or invalid JSON values.
UNUSUAL = r"""
null true 0 -1 -0.0 2.5 1e308 -1e-320 2147483648 9007199254740993 1e400 -1e400 01 'x' NaN -Infinity
undefined [] {} [[]] [null] {"":null} "" "ill" "uss-ts" "per_pair" "\u0000" "\ud800" "\udc00\ud800"
{"kind":"polynomial","degree":3}
"""
ODD = [
    *UNUSUAL.split(),
    str(2**63),
    str(2**64),
    str(10**30),
    "1" + "0" * 400,
    "1" + "0" * 6000,
    "",
    '"' + "é" * 50 + '"',
    '"' + "x" * 5000 + '"',
    json.dumps([0.1] * 1000),
    "[" * 40 + "]" * 40,
    "[" * 2000 + "]" * 2000,
    '{"a":' * 600 + "1" + "}" * 600,
]
PIECES = (b'"', b"\\", b"{", b"[", b"]", b",", b"\xff", b"\0", b"9" * 30, b"e99")


def paths_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a value, as a tuple of keys."""
    inner = enumerate(value) if isinstance(value, list) else ()
    inner = value.items() if isinstance(value, dict) else inner
    return [at, *(path for key, item in inner for path in paths_in(item, (*at, key)))]


def damaged_value(good: Any, random: Random) -> bytes:
    body = {"": deepcopy(good)}
    odd: dict[str, str] = {}

    def another() -> str:
        """Return a placeholder for an unusual value that `json.dumps` cannot write."""
        name = f"odd {len(odd)}"
        odd[f'"{name}"'] = random.choice(ODD)
        return name

    for _ in range(random.choice((1, 1, 1, 2, 4))):
        *parents, last = random.choice(paths_in(body)[1:])
        holder: Any = body
        for key in parents:
            holder = holder[key]
        mutation = random.random()
        if mutation < 0.7 or not parents:
            holder[last] = another()
        elif mutation < 0.8:
            del holder[last]
        elif isinstance(holder, dict):
            holder[random.choice(("extra", "kind", "", "final", "revealed", "0"))] = another()
        else:
            holder.insert(0, another())
    text = json.dumps(body[""])
    for name, value in odd.items():
        text = text.replace(name, value)
    return text.encode()


def damaged_bytes(good: Any, random: Random) -> bytes:
    body = bytearray(json.dumps(good).encode())
    for _ in range(random.choice((1, 1, 2, 5))):
        a, b = sorted(random.choices(range(len(body) + 1), k=2))
        body[a:b] = random.choice((b"", body[a:b] * 2, random.randbytes(8), *PIECES))
    return bytes(body)


def fuzz(running: Served, n: int, random: Random) -> Counter[int]:
    """Send ``n`` bodies and return the counts of statuses.

    Fails on an internal error, or if a rejected body changed the state.
    """
    state = running.service.state
    connection = HTTPConnection("127.0.0.1", running.port, timeout=60)
    seen: Counter[int] = Counter()
    ids: dict[str, str] = {}

    def post(path: str, body: bytes) -> tuple[int, bytes]:
        connection.request("POST", path, body, JSON)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def open_rounds() -> None:
        for kind, path in (("whole", ROUNDS), ("staged", STAGED)):
            status, answer = post(path, json.dumps(GOOD[path]).encode())
            assert status == 201, answer
            ids[kind] = json.loads(answer)["id"]

    open_rounds()
    before = state_hash(state)
    for _ in range(n):
        path, good = random.choice(list(GOOD.items()))
        body = (damaged_value if random.random() < 0.6 else damaged_bytes)(good, random)
        status, answer = post(path.format(**ids), body)
        seen[status] += 1
        case = (path, body[:300], answer[:300])
        assert status < 500, case
        if status >= 400:
            assert set(json.loads(answer)) == {"error"}, case
            assert state_hash(state) == before, case
            continue
        if "{" in path:
            open_rounds()  # later bodies require open rounds
        before = state_hash(state)
        assert running.service.state is state, case  # no reload after an error
    connection.close()
    return seen


@pytest.mark.parametrize("n", [600, pytest.param(100_000, marks=pytest.mark.slow)])
def test_mutated_bodies_are_handled(tmp_path: Path, n: int) -> None:
    # The state is small, because it is hashed after every request.
    with served(tmp_path, max_cascades=4, max_features=64) as running:
        for spec in (SPEC, REVEALING):
            assert running.post("/v1/cascades", {**spec, "keep_open": 5}).status_code == 201
        seen = fuzz(running, n, Random(5))
        assert running.get("/readyz").status_code == 200
        end = running.get("/v1/state").json()
    with served(tmp_path) as running:  # the log reproduces the state
        assert running.get("/v1/state").json() == end
    assert seen[400] + seen[422] > 0.65 * n
    assert seen.keys() >= {200, 201, 400, 409, 422}  # some mutants are valid
