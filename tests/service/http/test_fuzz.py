"""Malformed bodies by the thousand: none makes the service fail, none that is refused changes it.

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

from tests.service.harness import REVEALING, SPEC, Served, served

JSON = {"content-type": "application/json"}
ROUNDS, STAGED = "/v1/cascades/triage/rounds", "/v1/cascades/stages/rounds"
GOOD: dict[str, Any] = {
    "/v1/cascades": {
        **SPEC,
        "name": "new",
        "tradeoff": 1.5,
        "features": {
            "kind": "scaled",
            "inner": {"kind": "identity"},
            "center": [0, 0],
            "scale": [1, 1],
        },
        "policy": {"kind": "uss-pd", "delta": 0.1, "forced_rounds": 10},
        "keep_open": 10,
    },
    ROUNDS: {"context": [0.2, 0.7], "evidence": True},
    f"{ROUNDS}:batch": {"contexts": [[0.2, 0.7], {"age": 0.1, "bmi": 0.2}]},
    f"{ROUNDS}/{{whole}}/outputs": {
        "outputs": {"history": "healthy", "glucose": ["ill", 1]},
        "final": False,
    },
    f"{ROUNDS}/{{whole}}/label": {"label": {"a": [1, 2]}},
    STAGED: {"context": [0.5]},
    f"{STAGED}/{{staged}}/outputs": {"outputs": ["x"], "revealed": [0.1]},
    "/v1/cascades/none/retire": {},
}


class Literal:
    """JSON, or what passes for it, that `json.dumps` would not write."""

    def __init__(self, text: str) -> None:
        self.text = text


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    -0.0,
    2.5,
    1e308,
    -1e-320,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    10**30,
    "",
    "\x00",
    "é" * 50,
    "x" * 5000,
    "ill",
    "uss-ts",
    "per_pair",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"kind": "polynomial", "degree": 3},
    [0.1] * 1000,
    Literal("1e400"),
    Literal("-1e400"),
    Literal("1" + "0" * 400),
    Literal("1" + "0" * 6000),
    Literal("NaN"),
    Literal("-Infinity"),
    Literal("01"),
    Literal("'x'"),
    Literal('"\\ud800"'),
    Literal('"\\udc00\\ud800"'),
    Literal("[" * 40 + "]" * 40),
    Literal("[" * 2000 + "]" * 2000),
    Literal('{"a":' * 600 + "1" + "}" * 600),
    Literal("undefined"),
    Literal(""),
]


def written(value: Any) -> bytes:
    if isinstance(value, Literal):
        return value.text.encode()
    if isinstance(value, dict):
        return (
            b"{"
            + b",".join(json.dumps(k).encode() + b":" + written(v) for k, v in value.items())
            + b"}"
        )
    if isinstance(value, list):
        return b"[" + b",".join(map(written, value)) + b"]"
    return json.dumps(value).encode()


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a value."""
    found = [at]
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, one in inner:
        found += places(one, (*at, key))
    return found


def odd(random: Random) -> Any:
    return deepcopy(random.choice(ODD))


def damaged_value(good: Any, random: Random) -> bytes:
    body = {"": deepcopy(good)}
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        *way, last = random.choice(places(body)[1:])
        holder: Any = body
        for key in way:
            holder = holder[key]
        what = random.random()
        if what < 0.7:
            holder[last] = odd(random)
        elif what < 0.8 and len(way) > 0:
            del holder[last]
        elif isinstance(holder, dict):
            holder[random.choice(("extra", "kind", "", "final", "revealed", "0"))] = odd(random)
        else:
            holder.insert(0, odd(random))
        if not body:
            break
    return written(body.get(""))


def damaged_bytes(good: Any, random: Random) -> bytes:
    body = bytearray(written(good))
    for _ in range(random.choice((1, 1, 2, 5))):
        a, b = sorted(random.choices(range(len(body) + 1), k=2))
        what = random.randrange(6)
        if what == 0:
            del body[a:]
        elif what == 1:
            del body[a : a + random.randrange(1, 4)]
        elif what == 2:
            body[a:a] = random.choice(
                (b'"', b"\\", b"{", b"[", b"]", b",", b"\xff", b"\0", b"9" * 30, b"e99")
            )
        elif what == 3 and a < len(body):
            body[a] ^= 1 << random.randrange(8)
        elif what == 4:
            body[a:b] = body[a:b] * 2
        else:
            body[a:b] = random.randbytes(random.randrange(8))
    return bytes(body)


def bodies(n: int, seed: int) -> list[tuple[str, bytes]]:
    random = Random(seed)
    found: list[tuple[str, bytes]] = []
    for _ in range(n):
        path, good = random.choice(list(GOOD.items()))
        what = random.random()
        if what < 0.6:
            body = damaged_value(good, random)
        elif what < 0.95:
            body = damaged_bytes(good, random)
        else:
            body = random.randbytes(random.randrange(200))
        found.append((path, body))
    return found


def fuzz(running: Served, cases: list[tuple[str, bytes]]) -> Counter[int]:
    """Send them all; fail at the first that the service fails at, or that is refused and works."""
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
            status, answer = post(path, written(GOOD[path]))
            assert status == 201, answer
            ids[kind] = json.loads(answer)["id"]

    open_rounds()
    before = state.hash()
    for path, body in cases:
        status, answer = post(path.format(**ids), body)
        seen[status] += 1
        case = (path, body[:300], answer[:300])
        assert status < 500, case
        if status >= 400:
            assert set(json.loads(answer)) == {"error"}, case
            assert state.hash() == before, case
            continue
        if "{" in path:
            open_rounds()  # so that the next ones find something that is open
        before = state.hash()
        assert running.service.state is state, case  # the log was not read again
    connection.close()
    return seen


def check(folder: Path, n: int, seed: int) -> Counter[int]:
    # Few cascades, few open rounds: the state is hashed after every request.
    with served(folder, max_cascades=4, max_features=64) as running:
        for spec in (SPEC, REVEALING):
            assert running.post("/v1/cascades", {**spec, "keep_open": 5}).status_code == 201
        seen = fuzz(running, bodies(n, seed))
        assert running.get("/readyz").status_code == 200
        end = running.get("/v1/state").json()
    with served(folder) as running:  # all that was carried out is in the log, and can be applied
        assert running.get("/v1/state").json() == end
    return seen


def test_six_hundred_malformed_bodies(tmp_path: Path) -> None:
    seen = check(tmp_path, 600, seed=5)
    assert seen[400] + seen[422] > 400
    assert seen.keys() >= {200, 201, 400, 409, 422}  # some were fine: the fuzz reaches that far


@pytest.mark.slow
def test_a_hundred_thousand_malformed_bodies(tmp_path: Path) -> None:
    seen = check(tmp_path, 100_000, seed=6)
    assert seen[400] + seen[422] > 70_000
