"""API keys: authentication, scopes, rate limits, and changes of the key file."""

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
from stopwise.service.domain.errors import RequestError
from stopwise.service.http import keys as module
from stopwise.service.http.keys import Key, Keys, add_key, read_keys, revoke_key


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


class Clock:
    """Time set by the test."""

    now = 2e9

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def check(keys: Keys, header: str | None, scope=None, cascade: str | None = None) -> Key:
    key = keys.identify(header)
    keys.check(key, scope, cascade)
    return key


def refused(keys: Keys, text: str | None, scope=None, cascade: str | None = None) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check(keys, text and f"Bearer {text}", scope, cascade)
    return caught.value


def test_only_the_hash_of_a_key_is_stored_with_its_scopes(file: Path) -> None:
    key, text = add_key(file, "nightly", ["observe", "decide", "observe"])
    assert re.fullmatch(r"sw_[0-9a-f]{8}_[\w-]{43}", text)
    keys = Keys(file)
    assert check(keys, f"Bearer {text}") == key
    assert check(keys, f"bearer  {text} ", "decide").scopes == ("observe", "decide")
    refusal = refused(keys, text, "admin")
    assert refusal.code == "forbidden"
    assert "admin" in refusal.message
    secret = text.split("_", 2)[2]
    assert key.hash == f"sha256:{sha256(secret.encode()).hexdigest()}"
    assert secret not in file.read_text() + repr(key)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]  # no temporary files
    _, boss = add_key(file, "boss", ["admin"])
    for scope in ("decide", "observe", "admin"):
        assert check(Keys(file), f"Bearer {boss}", scope).name == "boss"


def test_an_invalid_key_is_rejected_after_one_comparison_of_hashes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text = add_key(file, "one", ["decide"])
    _, other = add_key(file, "two", ["decide"])
    secret = text.split("_", 2)[2]
    id_ = key.id
    keys = Keys(file)
    compared: list[tuple[int, int]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(module, "compare_digest", compare)
    wrong = ["", " ", f"{text}x", text[:-1], f"sw_{id_}_", f"sw_{id_}", secret, f"sw__{secret}"]
    wrong += [f"sw_00000000_{secret}", f"sw_{id_}_{other.split('_', 2)[2]}", f"xx_{id_}_{secret}"]
    wrong += [f"sw_{id_}_{key.hash}", f"sw_{id_}_{key.hash[7:]}", "sw_\udcff_é\x00", "sw_" * 10_000]
    for header in (None, "", "Bearer", text, f"Basic {text}", *(f"Bearer {key}" for key in wrong)):
        compared.clear()
        with pytest.raises(RequestError) as caught:
            check(keys, header)
        assert caught.value.code == "unauthorized", header
        assert secret not in caught.value.message
        assert compared == ([(32, 32)] if header else [])  # also for an unknown id


def test_a_key_expires(file: Path, clock: Clock) -> None:
    _, text = add_key(file, "guest", ["decide"], expires=clock.now + 60)
    keys = Keys(file)
    assert (check(keys, f"Bearer {text}").name, keys.count()) == ("guest", 1)
    clock.now += 60
    assert (refused(keys, text).code, keys.count()) == ("unauthorized", 0)
    assert refused(keys, None).code == "unauthorized"


@pytest.mark.parametrize(("rate", "burst"), [(5.0, 5), (2.5, 2), (1.0, 1), (0.1, 1), (100.0, 100)])
def test_the_rate_of_a_key_is_limited(file: Path, clock: Clock, rate: float, burst: int) -> None:
    key, text = add_key(file, "busy", ["decide"], rate=rate)
    _, other = add_key(file, "other", ["decide"])
    keys, header = Keys(file), f"Bearer {text}"
    for _ in range(3):  # the bucket never holds more than one second's tokens
        clock.now += 1000
        for _ in range(burst - 1):
            check(keys, header)
        assert refused(keys, text, "admin").code == "forbidden"  # this takes a token too
        refusal = refused(keys, text)
        assert refusal.code == "too_many_requests"
        assert refusal.retry_after is not None
        assert 1 <= refusal.retry_after <= max(1, 1 / rate)
        assert keys.identify(header) == key  # this takes no token
        check(keys, f"Bearer {other}")
        clock.now += refusal.retry_after
        check(keys, header)


def test_keys_can_be_added_and_revoked_while_running(file: Path, clock: Clock) -> None:
    first, old = add_key(file, "old", ["decide"])
    _, slow = add_key(file, "slow", ["decide"], rate=0.01)
    keys = Keys(file)
    check(keys, f"Bearer {slow}")
    _, new = add_key(file, "new", ["decide"])
    refused(keys, new)  # not reloaded yet
    clock.now += module.RELOAD_EVERY
    assert check(keys, f"Bearer {new}").name == "new"
    # Reloading does not refill the bucket.
    assert refused(keys, slow).code == "too_many_requests"
    assert revoke_key(file, first.id) == first
    clock.now += module.RELOAD_EVERY
    assert check(keys, f"Bearer {new}").name == "new"
    assert refused(keys, old).code == "unauthorized"


@pytest.mark.parametrize("harm", ["half", "gone", "folder", "writable"])
def test_an_invalid_file_is_logged_and_the_old_keys_stay_valid(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    _, text = add_key(file, "one", ["decide"])
    keys, content = Keys(file), file.read_bytes()
    if harm == "half":
        file.write_bytes(content[: len(content) // 2])
    elif harm == "writable":
        file.chmod(0o666)
    else:
        file.unlink()
        if harm == "folder":
            file.mkdir()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            clock.now += module.RELOAD_EVERY
            assert check(keys, f"Bearer {text}").name == "one"
            assert refused(keys, "sw_x_y").code == "unauthorized"
    assert len(caplog.records) == 1  # not once per reload
    assert str(file) in str(vars(caplog.records[0]))
    assert "sha256" not in str(vars(caplog.records[0]))
    if harm == "folder":
        file.rmdir()
    file.write_bytes(content)
    file.chmod(0o600)
    revoke_key(file, check(keys, f"Bearer {text}").id)
    clock.now += module.RELOAD_EVERY
    assert refused(keys, text).code == "unauthorized"  # the repaired file was reloaded


@pytest.mark.parametrize(
    "change",
    [
        {"hash": "sha256:00"},
        {"scopes": ["root"]},
        {"id": "../x"},
        {"more": 1},
        {"rate": 0},
        {"created": None},
        {"expires": 1e300},
        {"cascades": ["No Such Name"]},
    ],
    ids=str,
)
def test_an_invalid_line_is_reported_by_its_number(file: Path, change: dict[str, Any]) -> None:
    add_key(file, "one", ["decide"])
    add_key(file, "two", ["decide"])
    first, second = file.read_text().splitlines()
    for line in (json.dumps(json.loads(second) | change), first):  # invalid, or a duplicate
        file.write_text(f"{first}\n\n{line}\n")
        with pytest.raises(InvalidParameterError, match="line 3") as caught:
            Keys(file)
        assert json.loads(second)["hash"] not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 101},
        {"scopes": []},
        {"expires": 5.0},
        {"scopes": ["decide", "root"]},
        {"rate": 0},
        {"rate": float("inf")},
        {"expires": float("inf")},
        {"cascades": ["triage", "Triage"]},
    ],
    ids=str,
)
def test_an_invalid_key_is_not_created(file: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        add_key(file, **{"name": "one", "scopes": ["decide"], **options})
    assert "cascades" not in options or 'cascades[1] must be a name like "' in str(caught.value)
    assert not file.exists()
    with pytest.raises(InvalidParameterError, match=r"keys\.jsonl"):
        Keys(file)  # the file does not exist


def test_the_error_for_an_unknown_id_does_not_repeat_it(file: Path) -> None:
    _, text = add_key(file, "one", ["decide"])
    with pytest.raises(InvalidParameterError) as caught:
        revoke_key(file, text)
    assert text.split("_", 2)[2] not in str(caught.value)
    assert len(read_keys(file)) == 1


def test_a_symbolic_link_is_preserved(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file.symlink_to(tmp_path / "elsewhere" / "real.jsonl")
    for name in ("one", "two"):
        add_key(file, name, ["decide"])
    assert file.is_symlink()
    assert len(read_keys(file.readlink())) == 2


def test_concurrent_additions_are_all_stored(file: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from stopwise.service.http.keys import add_key\n"
        "for k in range(5): add_key(Path(sys.argv[1]), f'{sys.argv[2]}-{k}', ['decide'])"
    )
    command = [sys.executable, "-c", script, str(file)]
    processes = [subprocess.Popen([*command, str(k)]) for k in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert {key.name for key in read_keys(file)} == {f"{i}-{k}" for i in range(4) for k in range(5)}
