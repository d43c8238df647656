"""The tree of exceptions: where each hangs, and that each can be read and sent to a process."""

import inspect
import pickle

import pytest

from stopwise import errors

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__ and not issubclass(kind, Warning)
]
INPUTS = ["Cascade", "Parameter", "Context", "Features", "Outputs", "Stop"]


def test_there_is_one_tree() -> None:
    assert len(ALL) >= 15
    assert all(issubclass(kind, errors.StopwiseError) for kind in ALL)


@pytest.mark.parametrize("what", INPUTS)
def test_bad_arguments_are_value_errors(what: str) -> None:
    kind = getattr(errors, f"Invalid{what}Error")
    assert issubclass(kind, errors.InvalidInputError)
    assert issubclass(kind, ValueError)


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


@pytest.mark.parametrize("kind", ALL)
def test_says_when_it_is_raised(kind: type[Exception]) -> None:
    assert kind.__doc__ is not None
    assert kind.__doc__.splitlines()[0].endswith(".")
