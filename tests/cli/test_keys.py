"""``stopwise keys``: a key is printed once, listed without its secret, and revoked by its id."""

import re
from pathlib import Path

import pytest

from stopwise.service.http.keys import read_keys
from tests.cli.conftest import Run


def test_keys_in_processes_of_their_own(process: Run, tmp_path: Path) -> None:
    added = process("keys", "add", "--name", "dash[board]")
    assert re.fullmatch(r"sw_[0-9a-f]{8}_[\w-]{43}\n", added.stdout)
    _, id_, secret = added.stdout.strip().split("_", 2)
    assert secret not in added.stderr + (tmp_path / "keys.jsonl").read_text()
    listed = process("keys", "list", COLUMNS="200")
    assert all(word in listed.stdout for word in (id_, "dash[board]", "read", "never"))
    assert secret not in listed.stdout
    revoked = process("keys", "revoke", id_)
    assert (revoked.returncode, revoked.stdout) == (0, f"Revoked {id_} (dash[board]).\n")
    assert process("keys", "list").stdout == "keys.jsonl has no keys.\n"


def test_options_and_mistakes(stopwise: Run, tmp_path: Path) -> None:
    words = ("--scope", "decide", "--cascade", "triage", "--rate", "5", "--expires", "90d")
    assert stopwise("keys", "add", "--name", "ward", *words).returncode == 0
    (key,) = read_keys(tmp_path / "keys.jsonl")
    assert (key.scopes, key.cascades, key.rate) == (("decide",), ("triage",), 5.0)
    assert (key.expires or 0) - key.created == pytest.approx(90 * 86_400, abs=60)
    listed = stopwise("keys", "list", COLUMNS="200").stdout
    assert all(word in listed for word in ("decide", "triage", "5/s"))
    before = (tmp_path / "keys.jsonl").read_bytes()
    for wrong in (
        *(("add", "--name", "x", "--scope", "root"), ("add", "--name", "x", "--expires", "0d")),
        *(("add", "--name", ""), ("revoke", "ward"), ("list", "--keys", "none.jsonl")),
    ):
        done = stopwise("keys", *wrong)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert (tmp_path / "keys.jsonl").read_bytes() == before
