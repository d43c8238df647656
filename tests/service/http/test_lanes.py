"""The hot lane gives the same answers as the routes behind it, to the last header."""

from pathlib import Path
from typing import Any

from stopwise.service.http.app import Gate
from stopwise.service.http.fast import FastLane
from tests.service.http.door import SPEC, keys_in, opened

DECISIONS = "/v1/cascades/triage/decisions"


def behind(lane: FastLane) -> Any:
    """Return the application without its hot lane."""
    gate = lane._app  # pyright: ignore[reportPrivateUsage] (what is compared)
    assert isinstance(gate, Gate)
    return gate


def asked(first: str) -> list[tuple[str, bytes, dict[str, str]]]:
    """Return requests for the three hot routes, good and bad, after a first decision."""
    good: dict[str, bytes] = {
        DECISIONS: b'{"context":[0.1,0.2]}',
        f"{DECISIONS}:batch": b'{"contexts":[[0.1,0.2],{"age":0,"bmi":1}]}',
        f"{DECISIONS}/{first}/outputs": b'{"outputs":["a","b","b"]}',
    }
    bad = [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"context":[1,"x"],"contexts":[["x"]],"outputs":3}',
        b'{"context":[1e999],"x":1}',
        b'{"context":[5,5]}',
        b'{"contexts":[[0,0],[5,5]]}',
        b'{"contexts":[]}',
        b'{"outputs":{"nobody":1}}',
        b'{"outputs":' + b"[" * 50 + b"]" * 50 + b"}",
        b"[" * 100_000,
        b" " * 3000,
    ]
    found: list[tuple[str, bytes, dict[str, str]]] = []
    for path, body in good.items():
        found += [(path, body, {}), (path, body, {})]
        found += [(path, body[:-1] + b',"evidence":true}', {})]
        found += [(path, body[:-1] + b',"final":true}', {})]
        found += [(path, body, {"idempotency-key": "k" + path[-1]})] * 2
        found += [(path, body, {"idempotency-key": "two words"})]
        found += [(path, body, {"content-type": "text/plain"})]
        found += [(path, body, {"content-type": "application/json; charset=utf-8"})]
        found += [(path, body, {"content-encoding": "br"})]
        found += [(path, body, {"authorization": other}) for other in ("", "Bearer sw_a_b")]
        found += [(path, body, {"content-length": "99999999"})]
        found += [(path.replace("triage", name), body, {}) for name in ("nobody", "ä", " ")]
        found += [(path, broken, {}) for broken in bad]
    found += [(f"{DECISIONS}/{id_}/outputs", b'{"outputs":[1]}', {}) for id_ in ("x", "9-00000")]
    found += [(f"{DECISIONS}/{first}/outputs", b'{"outputs":["z"]}', {})]  # said otherwise before
    return found


def test_both_lanes_answer_alike(tmp_path: Path) -> None:
    told: list[list[Any]] = []
    states: list[object] = []
    for name, wrap in (("hot", lambda lane: lane), ("behind", behind)):
        folder = tmp_path / name
        folder.mkdir()
        file, keys = keys_in(folder)
        with opened(folder, wrap, keys=file, max_body=2500) as door:
            key = {"authorization": f"Bearer {keys['admin']}", "content-type": "application/json"}
            assert door.post("/v1/cascades", SPEC, headers=key).status_code == 201
            answers: list[Any] = []
            first = door.post(DECISIONS, {"context": [0, 0]}, headers=key).json()["id"]
            for path, body, headers in asked(first):
                length = {"content-length": str(len(body))}
                answer = door.run(door.raw("POST", path, {**length, **key, **headers}, [body]))
                answers.append((path, body[:80], headers, answer))
            told.append(answers)
            numbers = {at: sum(h.counts) for at, h in door.service.numbers.answers.items()}
            hash_ = [one.ledger.status.tobytes() for one in door.service.state.order]
            states.append(
                (hash_, {at: n for at, n in numbers.items() if at[0] != "create_cascade"})
            )
    for hot, slow in zip(*told, strict=True):
        assert hot == slow
    assert states[0] == states[1]  # the same decisions, and counted under the same names
    statuses = {answer[0] for _, _, _, answer in told[0]}
    assert statuses >= {200, 201, 400, 401, 404, 409, 413, 415, 422}


def test_both_lanes_ask_for_the_same_scope(tmp_path: Path) -> None:
    for wrap in (lambda lane: lane, behind):
        folder = tmp_path / wrap.__name__.strip("<>")
        folder.mkdir()
        file, keys = keys_in(folder)
        with opened(folder, wrap, keys=file) as door:
            for path, needs in (
                (DECISIONS, "decide"),
                (f"{DECISIONS}:batch", "decide"),
                (f"{DECISIONS}/0-0a00e/outputs", "observe"),
            ):
                for scope, key in keys.items():
                    status = door.post(path, key=key).status_code
                    assert status == (400 if scope in (needs, "admin") else 403), (path, scope)
