"""The tree of exceptions: where each belongs, and that each can be sent to another process."""

import inspect
import json
import pickle
from pathlib import Path

import pytest

from stopwise import errors

ALL = [
    kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if not issubclass(kind, Warning) and not name.startswith("_")
]


@pytest.mark.parametrize("kind", ALL)
def test_there_is_one_tree_and_every_error_survives_a_pickle(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.StopwiseError)
    assert issubclass(kind, ValueError) == kind.__name__.startswith("Invalid")
    assert issubclass(kind, KeyError) == kind.__name__.startswith("Unknown")
    copy = pickle.loads(pickle.dumps(kind("what to do:\n'this'")))
    assert type(copy) is kind
    assert str(copy) == "what to do:\n'this'"  # a plain KeyError would show its repr


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
    assert str(errors.MissingPackageError.of("a log in Parquet", "pyarrow", "logs")).endswith(
        command
    )
