"""``stopwise keys``: add, list and revoke."""

import re
from pathlib import Path

import pytest

from stopwise.service.http.keys import read_keys
from tests.cli.conftest import Run


def test_a_key_is_added_listed_and_revoked(process: Run, tmp_path: Path) -> None:
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


def test_options_of_keys_add_are_stored_and_listed(stopwise: Run, tmp_path: Path) -> None:
    options = ("--scope", "decide", "--cascade", "triage", "--rate", "5", "--expires", "90d")
    assert stopwise("keys", "add", "--name", "ward", *options).returncode == 0
    (key,) = read_keys(tmp_path / "keys.jsonl")
    assert (key.scopes, key.cascades, key.rate) == (("decide",), ("triage",), 5.0)
    assert (key.expires or 0) - key.created == pytest.approx(90 * 86_400, abs=60)
    listed = stopwise("keys", "list", COLUMNS="200").stdout
    assert all(word in listed for word in ("decide", "triage", "5/s"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "--name", "x", "--scope", "root"),
        ("add", "--name", "x", "--expires", "0d"),
        ("add", "--name", ""),
        ("revoke", "ward"),
        ("list", "--keys", "none.jsonl"),
    ],
    ids=" ".join,
)
def test_a_usage_error_is_one_line_and_changes_nothing(
    stopwise: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    assert stopwise("keys", "add", "--name", "ward").returncode == 0
    before = (tmp_path / "keys.jsonl").read_bytes()
    result = stopwise("keys", *arguments)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert (tmp_path / "keys.jsonl").read_bytes() == before


def test_list_and_revoke_accept_a_key_file(stopwise: Run) -> None:
    file = ("--keys", "other.jsonl")
    stopwise("keys", "add", "--name", "ward", *file)
    listed = stopwise("keys", "list", *file, COLUMNS="200").stdout
    id_ = re.findall(r"\b[0-9a-f]{8}\b", listed)[0]
    assert stopwise("keys", "revoke", id_, *file).returncode == 0
    assert stopwise("keys", "list", *file).stdout == "other.jsonl has no keys.\n"
