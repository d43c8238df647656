"""Tests of the exception hierarchy and of pickling."""

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
def test_errors_have_their_base_classes_and_survive_pickling(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.StopwiseError)
    assert issubclass(kind, ValueError) == kind.__name__.startswith("Invalid")
    assert issubclass(kind, KeyError) == kind.__name__.startswith("Unknown")
    copy = pickle.loads(pickle.dumps(kind("message:\n'quoted'")))
    assert type(copy) is kind
    assert str(copy) == "message:\n'quoted'"  # KeyError would print its repr


def test_a_missing_extra_is_reported_with_the_install_command() -> None:
    error = errors.MissingPackageError.of("a log in Parquet", "pyarrow", "logs")
    assert str(error) == "a log in Parquet needs pyarrow: pip install 'stopwise[logs]'"
