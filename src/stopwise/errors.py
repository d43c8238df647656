"""Exceptions and warnings (docs/errors.md)."""


class StopwiseError(Exception):
    """Base class of all Stopwise exceptions."""


class InvalidInputError(StopwiseError, ValueError):
    """An invalid argument, which the message names."""


class InvalidCascadeError(InvalidInputError):
    """An invalid cascade: too few arms, or an invalid cost, name or trade-off weight."""


class InvalidParameterError(InvalidInputError):
    """An invalid parameter, such as a confidence above 1 or an unknown executor."""


class InvalidContextError(InvalidInputError):
    """A context that has the wrong dimension, is not finite, or exceeds a feature map's bound.

    If a single value is invalid, ``coordinate`` is its index, ``problem`` describes what is wrong,
    ``advice`` says how to fix it in Python, and ``row`` is the row if contexts are a table.
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
    """A feature map returned features of the wrong shape, not finite, or with a norm above 1."""


class InvalidOutputsError(InvalidInputError):
    """Invalid outputs: the wrong number of outputs, unhashable values, or NaN."""


class InvalidStopError(InvalidInputError):
    """An arm that does not exist; arms are numbered from 0."""


class InvalidLogError(InvalidInputError):
    """An unreadable log; the message names the file, the row and the column."""


class PersistenceError(StopwiseError):
    """A policy could not be saved or loaded."""


class CorruptFileError(PersistenceError):
    """A file that is truncated, is damaged (wrong checksum), or is not a Stopwise policy."""


class UnsupportedVersionError(PersistenceError):
    """A file in a format that this version of Stopwise cannot read."""


class CascadeMismatchError(PersistenceError):
    """A file saved for another cascade; its estimates apply only to that cascade."""


class FeaturesMismatchError(PersistenceError):
    """A file saved with feature maps that are missing from ``features=`` or differ from it."""


class TruthRequiredError(StopwiseError):
    """A comparator, such as an oracle, was called without the ground truth that it requires."""


class LabelsNotSupportedError(StopwiseError):
    """A label was passed to a policy that does not learn from labels."""


class FinalPolicyError(StopwiseError, TypeError):
    """A built-in policy was subclassed; subclass `Policy` instead, and delegate to the built-in."""


class PolicyCheckError(StopwiseError, AssertionError):
    """A policy does not follow the protocol; the message says what was expected."""


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
        """Return an error that states the command to install an extra of Stopwise."""
        return cls(f"{purpose} needs {package}: pip install 'stopwise[{extra}]'")


class StoreError(StopwiseError):
    """The event log is unavailable, for example because a disk is full or a database is down."""


class CostUnitWarning(UserWarning):
    """An arm costs more than one wrong answer; costs may be amounts of money."""


class WideFeaturesWarning(UserWarning):
    """A policy has so many features that rounds are slow; the message estimates the time."""


class LabelWarning(UserWarning):
    """A policy cannot learn from the labels of a run; the message says why."""


class StageFailureWarning(UserWarning):
    """A stage ends most rounds of a `Runner` by failing; the message names the stage and error."""


class CorruptLogError(StopwiseError):
    """An event log that is damaged or lacks acknowledged events."""


class ServiceError(StopwiseError):
    """A service rejected a request, or could not be reached.

    ``status`` is the HTTP status, or 0 without a response. ``code`` is the machine-readable reason,
    such as "unknown_round", "unreachable" or "timeout". ``field`` is the invalid field of the
    request body, if any.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "unreachable", field: str | None = None
    ) -> None:
        super().__init__(message, status, code, field)
        self.status, self.code, self.field = status, code, field

    def __str__(self) -> str:
        return str(self.args[0])
