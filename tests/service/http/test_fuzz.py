"""Malformed bodies by the hundred: none makes the service fail, none that is refused changes it.

Bodies are good ones that were damaged: in their bytes (cut, flipped, doubled), or in their values
(a number where a text should be, numbers that are too large, nesting, nothing). A few of them are
still valid, and are carried out; every refused one leaves the state as it was.
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
# JSON, or what passes for it.
WORDS = r"""
null true 0 -1 -0.0 2.5 1e308 -1e-320 2147483648 9007199254740993 1e400 -1e400 01 'x' NaN -Infinity
undefined [] {} [[]] [null] {"":null} "" "ill" "uss-ts" "per_pair" "\u0000" "\ud800" "\udc00\ud800"
{"kind":"polynomial","degree":3}
"""
ODD = [
    *WORDS.split(),
    *(str(2**63), str(2**64), str(10**30), "1" + "0" * 400, "1" + "0" * 6000, ""),
    *('"' + "é" * 50 + '"', '"' + "x" * 5000 + '"', json.dumps([0.1] * 1000)),
    *("[" * 40 + "]" * 40, "[" * 2000 + "]" * 2000, '{"a":' * 600 + "1" + "}" * 600),
]
PIECES = (b'"', b"\\", b"{", b"[", b"]", b",", b"\xff", b"\0", b"9" * 30, b"e99")


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a value."""
    inner = enumerate(value) if isinstance(value, list) else ()
    inner = value.items() if isinstance(value, dict) else inner
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


def damaged_value(good: Any, random: Random) -> bytes:
    body = {"": deepcopy(good)}
    odd: dict[str, str] = {}

    def another() -> str:
        """Return a text that stands for something odd, since `json.dumps` would not write it."""
        name = f"odd {len(odd)}"
        odd[f'"{name}"'] = random.choice(ODD)
        return name

    for _ in range(random.choice((1, 1, 1, 2, 4))):
        *way, last = random.choice(places(body)[1:])
        holder: Any = body
        for key in way:
            holder = holder[key]
        what = random.random()
        if what < 0.7 or not way:
            holder[last] = another()
        elif what < 0.8:
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
    """Send many; fail at the first that the service fails at, or that is refused and works."""
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
            open_rounds()  # so that the next ones find something that is open
        before = state_hash(state)
        assert running.service.state is state, case  # the log was not read again
    connection.close()
    return seen


@pytest.mark.parametrize("n", [600, pytest.param(100_000, marks=pytest.mark.slow)])
def test_malformed_bodies(tmp_path: Path, n: int) -> None:
    # Few cascades, few open rounds: the state is hashed after every request.
    with served(tmp_path, max_cascades=4, max_features=64) as running:
        for spec in (SPEC, REVEALING):
            assert running.post("/v1/cascades", {**spec, "keep_open": 5}).status_code == 201
        seen = fuzz(running, n, Random(5))
        assert running.get("/readyz").status_code == 200
        end = running.get("/v1/state").json()
    with served(tmp_path) as running:  # all that was carried out is in the log, and can be applied
        assert running.get("/v1/state").json() == end
    assert seen[400] + seen[422] > 0.65 * n
    assert seen.keys() >= {200, 201, 400, 409, 422}  # some were fine: the fuzz reaches that far
