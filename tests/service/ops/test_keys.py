"""Keys: who is let in, and what becomes of the file underneath a running service."""

import hmac
import json
import logging
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stopwise.errors import InvalidParameterError
from stopwise.service import keys as module
from stopwise.service.keys import Keys, add_key, read_keys, revoke_key, shown
from stopwise.service.refusals import Refusal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    """Time that passes when told to; the file keeps its own."""
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


def refused(keys: Keys, header: str | None, scope=None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        keys.check(header, scope)
    return caught.value


def test_a_key_is_let_in_with_its_scopes(file: Path) -> None:
    key, text = add_key(file, "nightly", ["observe", "decide"])
    assert re.fullmatch(r"sw_[0-9a-f]{8}_[\w-]{43}", text)
    keys = Keys(file)
    assert keys.check(f"Bearer {text}") == key
    assert keys.check(f"bearer  {text} ", "decide").scopes == ("decide", "observe")
    refusal = refused(keys, f"Bearer {text}", "admin")
    assert (refusal.status, refusal.code) == (403, "forbidden")
    assert "admin" in refusal.message


def test_an_admin_may_everything(file: Path) -> None:
    _, text = add_key(file, "boss", ["admin"])
    keys = Keys(str(file))
    for scope in ("decide", "observe", "admin"):
        assert keys.check(f"Bearer {text}", scope).name == "boss"


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
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in repr(key)
    assert secret not in str(shown([key], 0.0))
    assert list(file.parent.iterdir()) == [file]  # nothing is left beside it


def test_the_hash_is_that_of_the_secret(file: Path) -> None:
    """Checked with the program that everybody has, so that others can write such a file too."""
    key, text = add_key(file, "one", ["decide"])
    secret = text.split("_", 2)[2]
    done = subprocess.run(["sha256sum"], input=secret, capture_output=True, text=True, check=True)
    assert key.hash == f"sha256:{done.stdout.split()[0]}"


def test_a_key_expires(file: Path, clock: Clock) -> None:
    _, text = add_key(file, "guest", ["decide"], expires=clock.now + 60)
    keys = Keys(file)
    assert keys.check(f"Bearer {text}").name == "guest"
    assert keys.count() == 1
    clock.now += 60
    refusal = refused(keys, f"Bearer {text}")
    assert refusal.status == 401
    assert "expired" in refusal.message
    assert keys.count() == 0


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


def test_a_young_file_is_read_again_even_if_it_looks_the_same(
    file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes within one tick of the file system's clock look alike."""
    key, text = add_key(file, "one", ["decide"])
    monkeypatch.setattr(module, "_signature", lambda found: "always the same")
    clock.now = file.stat().st_mtime + 0.001
    keys = Keys(file)
    revoke_key(file, key.id)
    clock.now += module.LOOK_EVERY
    assert refused(keys, f"Bearer {text}").status == 401


def test_an_unchanged_file_is_not_read_again(
    file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = add_key(file, "one", ["decide"])
    clock.now = file.stat().st_mtime + 100
    keys = Keys(file)
    reads: list[Path] = []
    monkeypatch.setattr(module, "read_keys", lambda path: reads.append(path) or [])
    for _ in range(5):
        clock.now += module.LOOK_EVERY
        assert keys.check(f"Bearer {text}").name == "one"
    assert reads == []


@pytest.mark.parametrize("harm", ["half", "gone", "open", "folder"])
def test_a_broken_file_keeps_the_last_good_keys_and_is_told(
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
    assert len(caplog.records) == 1  # told once, not every second
    assert str(file) in str(vars(caplog.records[0]))
    assert "sha256" not in str(vars(caplog.records[0]))
    if harm == "folder":
        file.rmdir()
    file.write_bytes(content)
    file.chmod(0o600)
    revoke_key(file, keys.check(f"Bearer {text}").id)
    clock.now += module.LOOK_EVERY
    assert refused(keys, f"Bearer {text}").status == 401  # mended, and revoked


def test_an_emptied_file_lets_nobody_in(file: Path, clock: Clock) -> None:
    key, text = add_key(file, "one", ["admin"])
    keys = Keys(file)
    revoke_key(file, key.id)
    assert file.read_bytes() == b""
    clock.now += module.LOOK_EVERY
    assert refused(keys, f"Bearer {text}").status == 401
    assert refused(keys, None).status == 401


@pytest.mark.parametrize(
    "change",
    [
        {"hash": "sha256:00"},
        {"hash": "md5:" + 64 * "0"},
        {"scopes": []},
        {"scopes": ["root"]},
        {"id": "../x"},
        {"id": ""},
        {"more": 1},
        {"created": None},
        {"expires": "tomorrow"},
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


def test_an_id_that_is_there_twice_is_refused(file: Path) -> None:
    add_key(file, "one", ["decide"])
    file.write_text(file.read_text() * 2)
    with pytest.raises(InvalidParameterError, match="twice"):
        read_keys(file)


def test_a_file_that_is_not_there_is_refused(file: Path) -> None:
    with pytest.raises(InvalidParameterError, match=r"keys\.jsonl"):
        Keys(file)


@pytest.mark.parametrize(
    ("name", "scopes", "expires"),
    [
        ("", ["decide"], None),
        ("a\nb", ["decide"], None),
        ("x" * 101, ["decide"], None),
        ("a", [], None),
        ("a", ["decide", "root"], None),
        ("a", ["decide"], 5.0),
    ],
)
def test_what_cannot_be_a_key_is_not_made(
    file: Path, name: str, scopes: list[str], expires: float | None
) -> None:
    with pytest.raises(InvalidParameterError):
        add_key(file, name, scopes, expires)
    assert not file.exists()


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
