"""What a page's form is sent with, and whose sessions end when there are too many."""

import logging
from pathlib import Path

import pytest

from stopwise.service.dashboard.sessions import MOST_OF_ONE, Sessions
from stopwise.service.keys import Keys, add_key
from tests.service.http.door import keys_in, opened

FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("origin", ["http://[", "null", "://", "https://evil.example", "\x01"])
def test_a_form_of_another_site_is_refused_whatever_it_calls_itself(
    tmp_path: Path, origin: str
) -> None:
    file, _ = keys_in(tmp_path)
    with opened(tmp_path, keys=file) as door:
        answer = door.ask("POST", "/signin", content=b"key=x", headers={**FORM, "origin": origin})
        assert answer.status_code == 403


def test_whoever_leaves_in_the_middle_of_a_form_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, _ = keys_in(tmp_path)
    with opened(tmp_path, keys=file) as door, caplog.at_level(logging.WARNING):
        headers = {**FORM, "content-length": "40"}
        status, _, _ = door.run(door.raw("POST", "/signin", headers, [b"key="], whole=False))
        assert status == 400
        assert not caplog.records
        large = {**FORM, "content-length": "4097"}
        status, _, _ = door.run(door.raw("POST", "/signin", large, [b"key=" + b"x" * 4093]))
        assert status == 413


def test_too_many_sessions_of_one_key_end_none_of_another(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    _, busy = add_key(file, "busy", ["decide"])
    _, other = add_key(file, "other", ["decide"])
    sessions = Sessions(Keys(file))
    theirs = sessions.begin(other)
    cookies = [sessions.begin(busy) for _ in range(MOST_OF_ONE + 5)]
    assert sessions.find(theirs) is not None
    alive = [sessions.find(cookie) is not None for cookie in cookies]
    assert alive == [False] * 5 + [True] * MOST_OF_ONE
