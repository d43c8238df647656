"""Every exception Stopwise raises, in one tree.

Catch `StopwiseError` to catch them all. Bad arguments are also `ValueError`, and an unknown policy
or environment name is also a `KeyError`. What to do about each: ``docs/errors.md``.
"""


class StopwiseError(Exception):
    """The root of the tree."""


class InvalidInputError(StopwiseError, ValueError):
    """An argument is not what it must be; the message says which and why."""


class InvalidCascadeError(InvalidInputError):
    """A cascade that cannot exist: too few arms, a bad cost, name or trade-off weight."""


class InvalidParameterError(InvalidInputError):
    """A setting out of its range, such as a confidence above one or a degree below one."""


class InvalidContextError(InvalidInputError):
    """A context of the wrong dimension, not finite, or outside the bound of its feature map.

    If one number is invalid, ``coordinate`` is its index, ``problem`` what is wrong with it,
    ``advice`` what to do about it in Python, and ``row`` the row of a table.
    """

    coordinate: int | None = None
    problem: str = ""
    advice: str = ""
    row: int | None = None

    @classmethod
    def at(
        cls, coordinate: int, problem: str, advice: str = "", row: int | None = None
    ) -> "InvalidContextError":
        """Return the error of one number of a context.

        Examples
        --------
        >>> print(InvalidContextError.at(2, "is nan", "drop such rows", row=7))
        row 7, coordinate 2 is nan; drop such rows
        """
        place = "" if row is None else f"row {row}, "
        end = f"; {advice}" if advice else ""
        error = cls(f"{place}coordinate {coordinate} {problem}{end}")
        error.coordinate = coordinate
        error.problem = problem
        error.advice = advice
        error.row = row
        return error


class InvalidFeaturesError(InvalidInputError):
    """A feature map gave a wrong shape, a value that is not finite or a norm above one."""


class InvalidOutputsError(InvalidInputError):
    """Outputs that cannot be compared: a wrong number of them, unhashable ones, or NaN."""


class InvalidStopError(InvalidInputError):
    """A stop that is no arm of the cascade; arms count from 0."""


class InvalidLogError(InvalidInputError):
    """A log that cannot be read as rounds; the message names the file, the row and the column."""


class PersistenceError(StopwiseError):
    """A saved file could not be loaded."""


class CorruptFileError(PersistenceError):
    """A file that is truncated, damaged (its checksum is wrong) or not written by Stopwise."""


class UnsupportedVersionError(PersistenceError):
    """A file written in a format this version of Stopwise does not read."""


class CascadeMismatchError(PersistenceError):
    """A file saved for another cascade; what was learned holds for the saved arms only."""


class FeaturesMismatchError(PersistenceError):
    """A file saved with feature maps that are missing or differ from those given."""


class TruthRequiredError(StopwiseError):
    """A comparator that needs the truth, such as an oracle, was not given it."""


class LabelsNotSupportedError(StopwiseError):
    """A policy that does not learn from labels was given one."""


class FinalPolicyError(StopwiseError, TypeError):
    """A built-in policy was subclassed; subclass `Policy`, or hold a policy and call it."""


class PolicyCheckError(StopwiseError, AssertionError):
    """A policy breaks the protocol: `check_policy` says what was expected."""


class _UnknownNameError(StopwiseError, KeyError):
    def __str__(self) -> str:  # a bare KeyError would show the message quoted and escaped
        return Exception.__str__(self)


class UnknownPolicyError(_UnknownNameError):
    """No policy is registered under this name; the message lists those that are."""


class UnknownEnvironmentError(_UnknownNameError):
    """No environment is registered under this name; the message lists those that are."""


class ExecutorError(StopwiseError):
    """A Dask cluster failed or did not answer."""


class MissingPackageError(StopwiseError, ImportError):
    """An optional package is needed and not installed; the message says how to install it."""

    @classmethod
    def of(cls, purpose: str, package: str, extra: str) -> "MissingPackageError":
        """Return the error, with the command that installs the extra of this stopwise."""
        return cls(f"{purpose} needs {package}: pip install 'stopwise[{extra}]'")


class StoreError(StopwiseError):
    """The event log cannot be reached, read or written: a full disk, a database that is down."""


class CostUnitWarning(UserWarning):
    """Costs that add up to more than one wrong answer: perhaps amounts of money."""


class WideFeaturesWarning(UserWarning):
    """A feature map so wide that rounds will be slow; the message says how slow."""


class LabelWarning(UserWarning):
    """A run from whose labels nothing can be learned; the message says why."""


class StageFailureWarning(UserWarning):
    """Most rounds of a `Runner` end because a stage fails; the message names it and the error."""


class CorruptLogError(StopwiseError):
    """An event log that is not as it was written: damaged, or acknowledged events are missing."""


class ServiceError(StopwiseError):
    """A service refused a request, or could not be reached.

    ``status`` is the HTTP status, 0 without an answer; ``code`` the reason for a program, such as
    "unknown_round", or "unreachable" or "timeout"; ``field`` where in the body, if that is known.
    """

    def __init__(
        self, message: str, status: int = 0, code: str = "unreachable", field: str | None = None
    ) -> None:
        super().__init__(message, status, code, field)
        self.status, self.code, self.field = status, code, field

    def __str__(self) -> str:
        return str(self.args[0])
