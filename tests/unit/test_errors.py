"""The tree of exceptions: where each hangs, and that each can be read and sent to a process."""

import inspect
import json
import pickle
from pathlib import Path

import pytest

from stopwise import errors

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__ and not issubclass(kind, Warning)
]


def test_there_is_one_tree() -> None:
    assert len(ALL) >= 15
    assert all(issubclass(kind, errors.StopwiseError) for kind in ALL)
    for kind in ALL:
        assert not kind.__name__.startswith("Invalid") or issubclass(kind, ValueError)


def test_what_is_wrong_with_a_file_is_not_a_value_error() -> None:
    persistence = [kind for kind in ALL if issubclass(kind, errors.PersistenceError)]
    assert len(persistence) >= 5
    assert not any(issubclass(kind, ValueError) for kind in persistence)


def test_an_unknown_policy_is_a_key_error_that_reads_well() -> None:
    message = "no policy 'usspd'; there are:\n'uss-pd'"
    error = errors.UnknownPolicyError(message)
    assert isinstance(error, KeyError)
    assert str(error) == message  # a plain KeyError would show repr(message)


@pytest.mark.parametrize("kind", ALL)
def test_survives_a_pickle(kind: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what to do")))
    assert type(copy) is kind
    assert str(copy) == "what to do"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'stopwise[logs]'"),
        ({"url": "https://example.org/stopwise.whl", "archive_info": {}}, "'stopwise[logs]'"),
        ({"url": "file:///home/me/stop%20wise", "dir_info": {}}, "'/home/me/stop wise[logs]'"),
        ({"url": "file:///src", "dir_info": {"editable": True}}, "pip install -e '/src[logs]'"),
    ],
)
def test_a_missing_extra_is_installed_beside_the_stopwise_that_runs(
    origin: dict[str, object] | None,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = tmp_path / "stopwise-9.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: stopwise\nVersion: 9\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    assert str(errors.missing_package("a log in Parquet", "pyarrow", "logs")).endswith(command)
