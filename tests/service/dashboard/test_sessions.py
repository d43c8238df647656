"""Sessions begin with a key, and end with it."""

import time
from pathlib import Path

import pytest

from stopwise.service.dashboard.pages import MAX_SESSIONS, SESSION_SECONDS, Sessions
from stopwise.service.keys import Keys, add_key
from stopwise.service.refusals import Refusal


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


def test_a_key_begins_a_session_and_a_wrong_one_does_not(file: Path) -> None:
    key, text = add_key(file, "laptop", ["decide"])
    found = Sessions(Keys(file))
    for good in (text, f"  {text}\n", f"Bearer {text}"):
        assert found.find(found.begin(good)) == key
    for bad in ("", text[:-1], text.replace(key.id, "0" * 8), "Bearer"):
        with pytest.raises(Refusal):
            found.begin(bad)


def test_cookies_are_random_and_only_ours_are_known(file: Path) -> None:
    _, text = add_key(file, "laptop", ["decide"])
    found = Sessions(Keys(file))
    cookies = {found.begin(text) for _ in range(20)}
    assert len(cookies) == 20
    assert all(len(cookie) >= 43 for cookie in cookies)  # 256 bits
    for none in ("", "x", text, "\udcff"):
        assert found.find(none) is None


def test_a_session_ends_when_its_time_is_over(file: Path) -> None:
    _, text = add_key(file, "laptop", ["decide"])
    clock = Clock()
    found = Sessions(Keys(file), clock)
    cookie = found.begin(text)
    clock.now += SESSION_SECONDS - 1
    assert found.find(cookie) is not None
    clock.now += 1
    assert found.find(cookie) is None
    clock.now -= SESSION_SECONDS  # and does not come back
    assert found.find(cookie) is None


def test_a_session_ends_when_its_key_expires(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = add_key(file, "laptop", ["decide"], expires=time.time() + 3_600)
    found = Sessions(Keys(file))
    cookie = found.begin(text)
    assert found.find(cookie) is not None
    later = time.time() + 3_601
    monkeypatch.setattr("stopwise.service.keys.time.time", lambda: later)
    assert found.find(cookie) is None


def test_too_many_sessions_of_one_key_end_none_of_another(file: Path) -> None:
    _, busy = add_key(file, "busy", ["decide"])
    _, other = add_key(file, "other", ["decide"])
    found = Sessions(Keys(file))
    theirs = found.begin(other)
    cookies = [found.begin(busy) for _ in range(MAX_SESSIONS + 5)]
    assert found.find(theirs) is not None
    alive = [found.find(cookie) is not None for cookie in cookies]
    assert alive == [False] * 5 + [True] * MAX_SESSIONS


def test_secrets_are_not_printed(file: Path) -> None:
    _, text = add_key(file, "laptop", ["decide"])
    found = Sessions(Keys(file))
    assert found.find(found.begin(text)) is not None
    assert text.rpartition("_")[2] not in str(vars(found))
