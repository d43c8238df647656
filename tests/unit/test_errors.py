"""The tree of exceptions: where each belongs, and that each can be sent to another process."""

import inspect
import pickle

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


def test_a_missing_extra_says_how_to_install_it() -> None:
    error = errors.MissingPackageError.of("a log in Parquet", "pyarrow", "logs")
    assert str(error) == "a log in Parquet needs pyarrow: pip install 'stopwise[logs]'"
