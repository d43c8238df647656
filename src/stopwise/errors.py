"""Exceptions and warnings (docs/errors.md)."""


class StopwiseError(Exception):
    """Base class of all exceptions of Stopwise."""


class InvalidInputError(StopwiseError, ValueError):
    """An invalid argument; the message names it."""


class InvalidCascadeError(InvalidInputError):
    """An invalid cascade: too few arms, or an invalid cost, name or trade-off weight."""


class InvalidParameterError(InvalidInputError):
    """An option out of range, such as a confidence above 1 or a degree below 1."""


class InvalidContextError(InvalidInputError):
    """A context with the wrong dimension, not finite, or outside the bound of its feature map.

    If a single value is invalid, ``coordinate`` is its index, ``problem`` describes it, ``advice``
    says what to do in Python, and ``row`` is the row of a table.
    """

    coordinate: int | None = None
    problem: str = ""
    advice: str = ""
    row: int | None = None

    @classmethod
    def at(
        cls, coordinate: int, problem: str, advice: str = "", row: int | None = None
    ) -> "InvalidContextError":
        """Return the error for a single coordinate of a context.

        Examples
        --------
        >>> print(InvalidContextError.at(2, "is nan", "drop such rows", row=7))
        row 7, coordinate 2 is nan; drop such rows
        """
        prefix = "" if row is None else f"row {row}, "
        suffix = f"; {advice}" if advice else ""
        error = cls(f"{prefix}coordinate {coordinate} {problem}{suffix}")
        error.coordinate = coordinate
        error.problem = problem
        error.advice = advice
        error.row = row
        return error


class InvalidFeaturesError(InvalidInputError):
    """A feature map returned a wrong shape, a value that is not finite, or a norm above 1."""


class InvalidOutputsError(InvalidInputError):
    """Invalid outputs: a wrong number of them, unhashable values, or NaN."""


class InvalidStopError(InvalidInputError):
    """An arm that does not exist; arms count from 0."""


class InvalidLogError(InvalidInputError):
    """An unreadable log; the message names the file, the row and the column."""


class PersistenceError(StopwiseError):
    """A policy could not be saved or loaded."""


class CorruptFileError(PersistenceError):
    """A file that is truncated, damaged (wrong checksum) or not a Stopwise policy."""


class UnsupportedVersionError(PersistenceError):
    """A file in a format that this version of Stopwise cannot read."""


class CascadeMismatchError(PersistenceError):
    """A file saved for another cascade; its estimates apply only to the saved arms."""


class FeaturesMismatchError(PersistenceError):
    """A file saved with feature maps that are missing or differ from ``features=``."""


class TruthRequiredError(StopwiseError):
    """A comparator, such as an oracle, was called without the truth."""


class LabelsNotSupportedError(StopwiseError):
    """A label for a policy that does not learn from labels."""


class FinalPolicyError(StopwiseError, TypeError):
    """A subclass of a built-in policy; subclass `Policy`, or delegate to a policy."""


class PolicyCheckError(StopwiseError, AssertionError):
    """A policy that does not follow the protocol; the message says what was expected."""


class _UnknownNameError(StopwiseError, KeyError):
    def __str__(self) -> str:  # KeyError would quote and escape the message
        return Exception.__str__(self)


class UnknownPolicyError(_UnknownNameError):
    """An unknown policy name; the message suggests a registered one."""


class UnknownEnvironmentError(_UnknownNameError):
    """An unknown environment name; the message suggests a registered one."""


class ExecutorError(StopwiseError):
    """A Dask cluster failed or did not answer."""


class MissingPackageError(StopwiseError, ImportError):
    """A missing optional package; the message says how to install it."""

    @classmethod
    def of(cls, purpose: str, package: str, extra: str) -> "MissingPackageError":
        """Return the error, with the command that installs an extra of this package."""
        return cls(f"{purpose} needs {package}: pip install 'stopwise[{extra}]'")


class StoreError(StopwiseError):
    """The event log cannot be reached, read or written: a full disk, a database that is down."""


class CostUnitWarning(UserWarning):
    """An arm costs more than one wrong answer; costs may be amounts of money."""


class WideFeaturesWarning(UserWarning):
    """So many features that rounds become slow; the message estimates the time."""


class LabelWarning(UserWarning):
    """The labels of a run teach the policy nothing; the message says why."""


class StageFailureWarning(UserWarning):
    """Most rounds of a `Runner` end because a stage fails; the message names stage and error."""


class CorruptLogError(StopwiseError):
    """A damaged event log, or one from which acknowledged events are missing."""


class ServiceError(StopwiseError):
    """A service rejected a request, or could not be reached.

    ``status`` is the HTTP status (0 without a response), ``code`` the machine-readable reason, such
    as "unknown_round", "unreachable" or "timeout", and ``field`` the invalid field of the body.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "unreachable", field: str | None = None
    ) -> None:
        super().__init__(message, status, code, field)
        self.status, self.code, self.field = status, code, field

    def __str__(self) -> str:
        return str(self.args[0])
