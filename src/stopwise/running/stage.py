"""A stage: what stands behind an arm of a cascade."""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from inspect import isasyncgen, isgenerator
from typing import Any

from stopwise.checks import number, short_repr
from stopwise.errors import InvalidOutputsError, InvalidParameterError
from stopwise.running.calls import Call, Estimator, is_async, prediction, yields


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """Something that answers a case: a function, a fitted estimator, an async function.

    Parameters
    ----------
    run : callable or estimator
        case → answer; or an object with ``predict``, as scikit-learn's, which is given a table of
        one row and whose one prediction is the answer; or an async function.
    name : str, optional
        By default that of its arm.
    reveals : callable, optional
        answer → numbers that are added to the context for the arms beyond (a lab value, the
        stage's own confidence); always equally many. Nothing is beyond the last arm, so there it
        is not called.
    cost : callable or float, optional
        answer → what this call really cost, or one number for all calls. For the record; the
        policy decides by the costs of its cascade.
    timeout : float, optional
        Seconds after which the stage has failed. An async stage is then cancelled. Any other is
        left behind in a thread of its own, since Python cannot stop it: prefer a timeout within
        the stage where there is one.
    canonical : callable, optional
        answer → what is compared with the other arms' answers; must be hashable. By default the
        answer itself.

    Examples
    --------
    >>> stage = Stage(
    ...     lambda case: {"text": "Spam!", "sure": 0.9},
    ...     reveals=lambda answer: [answer["sure"]],
    ...     canonical=lambda answer: answer["text"].lower().strip("!"),
    ... )
    >>> stage.judge(stage.call("…"), last=False)
    ('spam', (0.9,), None)
    """

    run: Call | Estimator = field(kw_only=False)
    name: str | None = None
    reveals: Callable[[Any], Iterable[float]] | None = None
    cost: Callable[[Any], float] | float | None = None
    timeout: float | None = None
    canonical: Callable[[Any], Hashable] | None = None
    call: Call = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        run: object = self.run
        if isinstance(run, type) and isinstance(run, Estimator):
            raise InvalidParameterError(
                f"a stage needs a fitted estimator, not the class {run.__name__}: make one, fit it"
            )
        if yields(run):
            raise InvalidParameterError(
                "a stage must return its answer, and this one yields: a generator has no "
                "answer yet. Collect what it yields and return that"
            )
        if isinstance(run, Estimator):
            call = prediction(run)
        elif callable(run):
            call = run
        else:
            raise InvalidParameterError(
                "a stage is a function of a case, or has `predict`; "
                f"a {type(run).__name__} is neither"
            )
        object.__setattr__(self, "call", call)
        for part in ("reveals", "canonical"):
            given: object = getattr(self, part)
            if given is not None and not callable(given):
                raise InvalidParameterError(
                    f"{part} must be a function of an answer, not {given!r}"
                )
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds(self.timeout))
        if self.cost is not None and not callable(self.cost):
            object.__setattr__(self, "cost", number("cost", self.cost, least=0))

    @classmethod
    def of(cls, given: "StageLike") -> "Stage":
        """Return a stage as it is, and anything else as a stage without settings."""
        return given if isinstance(given, Stage) else cls(given)

    @property
    def is_async(self) -> bool:
        """Whether it must be awaited."""
        return is_async(self.call)

    def judge(self, answer: Any, *, last: bool) -> tuple[Hashable, tuple[float, ...], float | None]:
        """Return what an answer means: what is compared, what it reveals, what it cost.

        Parameters
        ----------
        answer : object
            As the stage gave it.
        last : bool
            Whether the stage is the last, beyond which nothing is revealed.

        Raises
        ------
        InvalidOutputsError
            If one of the three is not what it must be, or the function for it raised.
        """
        if isgenerator(answer) or isasyncgen(answer):
            raise InvalidOutputsError(
                "the stage gave a generator, which has no answer yet: collect what it "
                "yields and return that"
            )
        compared = _asked("canonical", self.canonical, answer) if self.canonical else answer
        try:
            hash(compared)
        except Exception as error:
            raise _incomparable(compared, error) from None
        check_equality(compared, compared)
        revealed: tuple[float, ...] = ()
        if self.reveals is not None and not last:
            revealed = _numbers(_asked("reveals", self.reveals, answer))
        cost = self.cost
        if callable(cost):
            cost = _cost(_asked("cost", cost, answer))
        return compared, revealed, cost


StageLike = Call | Estimator | Stage


def check_equality(one: Hashable, other: Hashable) -> None:
    """Raise `InvalidOutputsError` if two values cannot be compared: foreign types may do anything.

    Examples
    --------
    >>> check_equality("spam", 5)
    """
    try:
        for a, b in ((one, other), (other, one)):
            bool(a == b)
            bool(a != b)
    except Exception as error:
        raise _incomparable(one, error) from None


LONGEST = 1e6  # seconds; threads cannot wait for much longer (heuristic)


def seconds(
    given: float, name: str = "timeout", *, zero: bool = False, most: float | None = LONGEST
) -> float:
    """Return a number of seconds, or say what is wrong with it.

    Examples
    --------
    >>> seconds(2)
    2.0
    """
    value = math.nan if isinstance(given, bool | str) else given
    least, above = (0.0, None) if zero else (None, 0.0)
    return number(f"{name} (in seconds)", value, least=least, above=above, most=most)


def message(error: BaseException) -> str:
    """Return the message of an exception; nothing if that fails.

    Examples
    --------
    >>> message(ValueError("too short"))
    'too short'
    """
    try:
        return str(error)
    except Exception:
        return ""


def _incomparable(value: object, error: Exception) -> InvalidOutputsError:
    return InvalidOutputsError(
        f"answers like {short_repr(value)} cannot be compared "
        f"({message(error) or type(error).__name__}); give the stage a `canonical` that makes a "
        "number, a text or a tuple of it"
    )


def _asked(what: str, function: Callable[[Any], Any], answer: Any) -> Any:
    try:
        return function(answer)
    except Exception as error:
        raise InvalidOutputsError(f"{what}: {type(error).__name__}: {message(error)}") from error


def _numbers(given: Any) -> tuple[float, ...]:
    try:
        values = tuple(float(value) for value in given)
    except Exception:
        raise InvalidOutputsError(
            f"reveals must give a list of numbers, not {short_repr(given)}"
        ) from None
    for place, value in enumerate(values):
        if not math.isfinite(value):
            raise InvalidOutputsError(f"reveals gave {value} at place {place}; it must be finite")
    return values


def _cost(given: Any) -> float:
    try:
        cost = float(given)
    except Exception:
        cost = math.nan
    if not 0 <= cost < math.inf:
        raise InvalidOutputsError(f"cost must give a number, 0 or more, not {short_repr(given)}")
    return cost
