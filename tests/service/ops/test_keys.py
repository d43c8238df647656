"""Keys: what each may do, and what happens when the file changes under a running service."""

import hmac
import json
import logging
import re
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stopwise.errors import InvalidParameterError
from stopwise.service import keys as module
from stopwise.service.keys import Keys, add_key, read_keys, revoke_key
from stopwise.service.refusals import Refusal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    """Time that the test sets; the times of the file are real."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Clock:
    def __init__(self) -> None:
        self.now = 2e9

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def refused(keys: Keys, header: str | None, scope=None, cascade: str | None = None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        keys.check(header, scope, cascade)
    return caught.value


def test_a_key_has_its_scopes(file: Path) -> None:
    key, text = add_key(file, "nightly", ["observe", "decide"])
    assert re.fullmatch(r"sw_[0-9a-f]{8}_[\w-]{43}", text)
    keys = Keys(file)
    assert keys.check(f"Bearer {text}") == key
    assert keys.check(f"bearer  {text} ", "decide").scopes == ("decide", "observe")
    refusal = refused(keys, f"Bearer {text}", "admin")
    assert (refusal.status, refusal.code) == (403, "forbidden")
    assert "admin" in refusal.message
    _, boss = add_key(file, "boss", ["admin"])
    for scope in ("decide", "observe", "admin"):
        assert Keys(file).check(f"Bearer {boss}", scope).name == "boss"


def test_everybody_else_is_refused(file: Path) -> None:
    key, text = add_key(file, "one", ["decide"])
    _, other = add_key(file, "two", ["decide"])
    secret = text.removeprefix(f"sw_{key.id}_")
    keys = Keys(file)
    wrong = [
        None,
        "",
        "Bearer",
        "Bearer ",
        text,
        f"Basic {text}",
        f"Bearer {text}x",
        f"Bearer {text[:-1]}",
        f"Bearer sw_{key.id}_",
        f"Bearer sw_{key.id}",
        f"Bearer {secret}",
        f"Bearer sw__{secret}",
        f"Bearer sw_00000000_{secret}",
        f"Bearer sw_{key.id}_{other.split('_', 2)[2]}",
        f"Bearer xx_{key.id}_{secret}",
        f"Bearer sw_{key.id}_{key.hash}",
        f"Bearer sw_{key.id}_{key.hash[7:]}",
        "Bearer sw_\udcff_é\x00",
        "Bearer " + "sw_" * 10_000,
    ]
    for header in wrong:
        refusal = refused(keys, header)
        assert (refusal.status, refusal.code) == (401, "unauthorized"), header
        assert secret not in refusal.message


def test_an_unknown_id_costs_the_same_hash_and_comparison(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = add_key(file, "one", ["decide"])
    keys = Keys(file)
    compared: list[tuple[int, int]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(module, "compare_digest", compare)
    for header in (f"Bearer sw_{key.id}_wrong", "Bearer sw_unknown_wrong", "nonsense"):
        refused(keys, header)
    assert compared == [(32, 32)] * 3


def test_only_hashes_are_kept_and_only_the_owner_reads_them(file: Path) -> None:
    key, text = add_key(file, "one", ["decide"])
    secret = text.split("_", 2)[2]
    assert key.hash == f"sha256:{sha256(secret.encode()).hexdigest()}"
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in repr(key)
    assert list(file.parent.iterdir()) == [file]  # nothing is left beside it


def test_a_key_expires(file: Path, clock: Clock) -> None:
    _, text = add_key(file, "guest", ["decide"], expires=clock.now + 60)
    keys = Keys(file)
    assert keys.check(f"Bearer {text}").name == "guest"
    assert keys.count() == 1
    clock.now += 60
    refusal = refused(keys, f"Bearer {text}")
    assert (refusal.status, refusal.code) == (401, "unauthorized")
    assert keys.count() == 0
    statuses = [refused(keys, None).status for _ in range(2)]
    assert statuses == [401, 401]


def test_refused_requests_count_too(file: Path, clock: Clock) -> None:
    _, text = add_key(file, "busy", ["read"], rate=2)
    keys = Keys(file)
    statuses = [refused(keys, f"Bearer {text}", "admin").status for _ in range(3)]
    assert statuses == [403, 403, 429]


def test_a_key_may_be_limited_to_some_cascades(file: Path) -> None:
    key, text = add_key(file, "ward", ["decide", "admin"], cascades=["triage", "ward", "triage"])
    _, free = add_key(file, "all", ["decide"])
    assert key.cascades == ("triage", "ward")
    keys, header = Keys(file), f"Bearer {text}"
    for scope in ("read", "decide", "admin"):
        assert keys.check(header, scope, "ward") == key
        refusal = refused(keys, header, scope, "wards")
        assert (refusal.status, refusal.code) == (403, "forbidden")
    assert keys.check(header, "decide") == key  # a request that names no cascade
    assert keys.check(f"Bearer {free}", "decide", "wards").cascades == ()


@pytest.mark.parametrize(("rate", "burst"), [(5.0, 5), (2.5, 2), (1.0, 1), (0.1, 1), (100.0, 100)])
def test_a_key_may_be_limited_in_its_rate(
    file: Path, clock: Clock, rate: float, burst: int
) -> None:
    _, text = add_key(file, "busy", ["decide"], rate=rate)
    _, other = add_key(file, "other", ["decide"])
    keys, header = Keys(file), f"Bearer {text}"
    for _ in range(3):  # a bucket that is full again holds no more than before
        clock.now += 1000
        for _ in range(burst):
            keys.check(header)
        refusal = refused(keys, header)
        assert (refusal.status, refusal.code) == (429, "too_many_requests")
        assert refusal.retry_after is not None
        assert 1 <= refusal.retry_after <= max(1, 1 / rate)
        keys.check(f"Bearer {other}")
        clock.now += refusal.retry_after
        keys.check(header)


def test_a_changed_file_does_not_refill_the_bucket(file: Path, clock: Clock) -> None:
    _, text = add_key(file, "busy", ["decide"], rate=0.01)
    keys = Keys(file)
    keys.check(f"Bearer {text}")
    add_key(file, "other", ["decide"])
    clock.now += module.LOOK_EVERY
    assert refused(keys, f"Bearer {text}").status == 429


def test_a_key_is_identified_whatever_it_may_do(file: Path) -> None:
    key, text = add_key(file, "busy", ["read"], rate=0.01, cascades=["triage"])
    keys = Keys(file)
    keys.check(f"Bearer {text}")
    for _ in range(3):
        assert keys.identify(f"Bearer {text}") == key  # counts nothing
    with pytest.raises(Refusal) as caught:
        keys.identify("Bearer sw_x_y")
    assert caught.value.status == 401


def test_added_and_revoked_while_running(file: Path, clock: Clock) -> None:
    first, old = add_key(file, "old", ["decide"])
    keys = Keys(file)
    _, new = add_key(file, "new", ["decide"])
    refused(keys, f"Bearer {new}")  # not looked at yet
    clock.now += module.LOOK_EVERY
    assert keys.check(f"Bearer {new}").name == "new"
    assert revoke_key(file, first.id) == first
    clock.now += module.LOOK_EVERY
    assert keys.check(f"Bearer {new}").name == "new"
    assert refused(keys, f"Bearer {old}").status == 401


@pytest.mark.parametrize("harm", ["half", "gone", "open", "folder"])
def test_a_broken_file_keeps_the_last_good_keys_and_is_reported(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    _, text = add_key(file, "one", ["decide"])
    keys = Keys(file)
    content = file.read_bytes()
    if harm == "half":
        file.write_bytes(content[: len(content) // 2])
    elif harm == "open":
        file.chmod(0o666)
    else:
        file.unlink()
        if harm == "folder":
            file.mkdir()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.now += module.LOOK_EVERY
            assert keys.check(f"Bearer {text}").name == "one"
            assert refused(keys, "Bearer sw_x_y").status == 401
    assert len(caplog.records) == 1  # once, not every second
    assert str(file) in str(vars(caplog.records[0]))
    assert "sha256" not in str(vars(caplog.records[0]))
    if harm == "folder":
        file.rmdir()
    file.write_bytes(content)
    file.chmod(0o600)
    revoke_key(file, keys.check(f"Bearer {text}").id)
    clock.now += module.LOOK_EVERY
    assert refused(keys, f"Bearer {text}").status == 401  # repaired, and revoked


@pytest.mark.parametrize(
    "change",
    [
        {"hash": "sha256:00"},
        {"scopes": ["root"]},
        {"id": "../x"},
        {"more": 1},
        {"created": None},
        {"expires": 1e300},
        {"rate": 0},
        {"cascades": ["No Such Name"]},
    ],
)
def test_a_line_that_is_no_key_is_refused_by_its_number(
    file: Path, change: dict[str, object]
) -> None:
    add_key(file, "one", ["decide"])
    add_key(file, "two", ["decide"])
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n\n{json.dumps(json.loads(second) | change)}\n")
    with pytest.raises(InvalidParameterError, match="line 3") as caught:
        Keys(file)
    assert json.loads(second)["hash"] not in str(caught.value)


@pytest.mark.parametrize(
    "how",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 101},
        {"scopes": []},
        {"scopes": ["decide", "root"]},
        {"expires": 5.0},
        {"rate": 0},
        {"rate": float("inf")},
        {"cascades": ["triage", "Triage"]},
    ],
)
def test_what_cannot_be_a_key_is_not_made(file: Path, how: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        add_key(file, **{"name": "one", "scopes": ["decide"], **how})
    assert not file.exists()
    with pytest.raises(InvalidParameterError, match=r"keys\.jsonl"):
        Keys(file)  # a file that is not there


def test_revoking_a_key_that_is_not_there_does_not_repeat_what_was_typed(file: Path) -> None:
    _, text = add_key(file, "one", ["decide"])
    with pytest.raises(InvalidParameterError) as caught:
        revoke_key(file, text)
    assert text.split("_", 2)[2] not in str(caught.value)
    assert len(read_keys(file)) == 1


def test_a_linked_file_stays_linked(file: Path, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    file.symlink_to(place / "real.jsonl")
    add_key(file, "one", ["decide"])
    add_key(file, "two", ["decide"])
    assert file.is_symlink()
    assert len(read_keys(place / "real.jsonl")) == 2


def test_several_programs_adding_at_once_lose_nothing(file: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from stopwise.service.keys import add_key\n"
        "for k in range(5): add_key(Path(sys.argv[1]), f'{sys.argv[2]}-{k}', ['decide'])"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(file), str(k)]) for k in range(4)
    ]
    assert [one.wait(60) for one in running] == [0] * 4
    assert {key.name for key in read_keys(file)} == {f"{i}-{k}" for i in range(4) for k in range(5)}
