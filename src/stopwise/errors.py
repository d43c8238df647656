"""Every exception Stopwise raises, in one tree.

Catch `StopwiseError` to catch them all. Bad arguments are also `ValueError`, and an unknown policy
or environment name is also a `KeyError`, so code that knows nothing of Stopwise still handles them
well.
"""


class StopwiseError(Exception):
    """The root of the tree.

    Examples
    --------
    >>> issubclass(InvalidContextError, StopwiseError), issubclass(InvalidContextError, ValueError)
    (True, True)
    """


class InvalidInputError(StopwiseError, ValueError):
    """Something handed to Stopwise is not what it must be; the message says what and where."""


class InvalidCascadeError(InvalidInputError):
    """A cascade that cannot exist: too few arms, a bad cost, name or trade-off weight.

    Correct the arms and costs named in the message.
    """


class InvalidParameterError(InvalidInputError):
    """A setting out of its range, such as a confidence above one or a degree below one.

    Correct the setting named in the message.
    """


class InvalidContextError(InvalidInputError):
    """A context of the wrong dimension, not finite, or outside the bound its feature map promises.

    Clean the data, or choose a map which promises less: a larger ``bound``, or `Scaled`.
    """


class InvalidFeaturesError(InvalidInputError):
    """A feature map which gave a wrong shape, a non-finite value or a norm above one.

    Correct the map; the theory behind every confidence bound needs ‖Φ(x)‖₂ ≤ 1.
    """


class InvalidOutputsError(InvalidInputError):
    """Outputs that cannot be compared: a wrong number of them, unhashable ones, or NaN.

    Pass one hashable value for each arm that was run, in cascade order.
    """


class InvalidStopError(InvalidInputError):
    """A stop that is no arm of the cascade.

    Stops count from 0; the deepest is the number of arms less one.
    """


class InvalidLogError(InvalidInputError):
    """A log that cannot be read as rounds: a column, a value or the file is not as it must be.

    The message names the file, the row and the column. Correct them; nothing was written.
    """


class PersistenceError(StopwiseError):
    """A saved file could not be brought back to life."""


class CorruptFileError(PersistenceError):
    """A file that is truncated, damaged (its checksum is wrong) or not written by Stopwise.

    Restore it from a copy; nothing was loaded.
    """


class UnsupportedVersionError(PersistenceError):
    """A file written in a format this version of Stopwise does not read.

    Upgrade Stopwise, or load it with the version named in the message.
    """


class CascadeMismatchError(PersistenceError):
    """A file saved for another cascade than the one it is loaded for.

    What was learnt holds for the saved arms only: load it with that cascade, or start afresh.
    """


class FeaturesMismatchError(PersistenceError):
    """A file saved with feature maps that are not at hand, or differ from those given.

    Pass ``features=`` with the maps that were in use when the file was saved.
    """


class TruthRequiredError(StopwiseError):
    """A comparator that needs the truth, such as an oracle, was not given it.

    Run it in an environment that knows the truth; it cannot serve live traffic.
    """


class AuditNotSupportedError(StopwiseError):
    """A policy was given an audit label and has no use for one.

    Audit labels sharpen the bounds of `USSPD` and `USSPDRidge`; give them to one of these.
    """


class OverrideNotSupportedError(StopwiseError, TypeError):
    """A subclass of a policy overrides a step that could not be called where it is needed.

    Override the step that the message names instead, or beside it; see "A policy of your own".
    """


class UnknownPolicyError(StopwiseError, KeyError):
    """No policy is registered under this name; the message lists those that are."""

    def __str__(self) -> str:
        """Return the message itself: a bare `KeyError` would show it quoted and escaped."""
        return Exception.__str__(self)


class UnknownEnvironmentError(StopwiseError, KeyError):
    """No environment is registered under this name; the message lists those that are."""

    def __str__(self) -> str:
        """Return the message itself: a bare `KeyError` would show it quoted and escaped."""
        return Exception.__str__(self)


class IrreproducibleRunError(StopwiseError):
    """A run was done twice and gave other numbers the second time.

    A run must depend on its spec and seed alone. Two versions of Stopwise or numpy, two kinds of
    processor, or an environment that draws from elsewhere can break that; trust neither result
    until you know which.
    """


class EngineError(StopwiseError):
    """What does the runs failed: a worker process died, or no scheduler answered.

    Finished runs are stored. Start the same campaign again to do the rest.
    """


class FolderBusyError(StopwiseError):
    """Another process is at work in the folder where results are to go.

    Wait for it, or give another folder.
    """


class MissingPackageError(StopwiseError, ImportError):
    """An optional package is needed and not installed; the message says how to install it."""


def missing_package(purpose: str, package: str, extra: str) -> MissingPackageError:
    """Return the error to raise, with the command that installs the extra beside this stopwise."""
    return MissingPackageError(f"{purpose} needs {package}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return how to install an extra: from the checkout stopwise was installed from, if any."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from typing import Any
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin: Any = json.loads(distribution("stopwise").read_text("direct_url.json") or "{}")
        folder = Path(url2pathname(urlsplit(str(origin["url"])).path))
        editable = "-e " if origin["dir_info"].get("editable") else ""
    except (PackageNotFoundError, ValueError, KeyError):  # not from a folder
        return f"pip install 'stopwise[{extra}]'"
    return f"pip install {editable}'{folder}[{extra}]'"


class StoreError(StopwiseError):
    """The event log cannot be reached, read or written: a full disk, a database that is down.

    Fix what the message names. Whatever the service has acknowledged is stored.
    """


class WideFeaturesWarning(UserWarning):
    """A feature map so wide that rounds will be slow; the message says how slow."""


class StageFailureWarning(UserWarning):
    """Most rounds of a `Runner` end because a stage fails; the message names it and the error."""


class CorruptLogError(StopwiseError):
    """An event log that is not as it was written: damaged, or acknowledged events are missing.

    The message says which event is affected. Restore a backup.
    """


class ServiceError(StopwiseError):
    """A service refused a request, or could not be reached.

    Attributes
    ----------
    status : int
        The HTTP status; 0 if there was no answer.
    code : str
        The reason for a program, such as "unknown_round"; "unreachable" or "timeout" without an
        answer.
    field : str or None
        Where in the body of the request, if that is known.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "unreachable", field: str | None = None
    ) -> None:
        super().__init__(message, status, code, field)
        self.status = status
        self.code = code
        self.field = field

    def __str__(self) -> str:
        return str(self.args[0])
