"""A stage: the function, estimator or client behind an arm of a cascade."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from inspect import isasyncgen, isgenerator
from typing import Any, TypeVar, cast

from stopwise.checks import real, short_repr, vector
from stopwise.errors import InvalidOutputsError, InvalidParameterError
from stopwise.running.calls import Call, Estimator, is_async, prediction

T = TypeVar("T")
MAX_TIMEOUT = 1e6  # seconds; threads cannot wait for much longer (heuristic)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """Something that answers a case: a function, a fitted estimator, an async function.

    Parameters
    ----------
    run : callable or estimator
        case → answer; or an object with ``predict``, as in scikit-learn, which is given a table of
        one row and whose one prediction is the answer; or an async function.
    name : str, optional
        By default that of its arm.
    reveals : callable, optional
        answer → numbers that are added to the context for deeper arms (a lab value, the stage's
        own confidence); always the same number of them. Not called for the last arm.
    cost : callable or float, optional
        answer → what this call really cost, or one number for all calls. For the record; the
        policy decides by the costs of its cascade.
    timeout : float, optional
        Seconds after which the stage counts as failed. An async stage is then cancelled. Any other
        is left behind in a thread of its own, since Python cannot stop it: prefer a timeout within
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
        predicts = hasattr(run, "predict")
        if predicts and isinstance(run, type):
            raise InvalidParameterError(
                f"a stage needs a fitted estimator, not the class {run.__name__}: create one and "
                "fit it"
            )
        if not predicts and not callable(run):
            raise InvalidParameterError(
                "a stage is a function of a case, or has `predict`; "
                f"a {type(run).__name__} is neither"
            )
        object.__setattr__(self, "call", prediction(cast(Estimator, run)) if predicts else run)
        for part in ("reveals", "canonical"):
            given: object = getattr(self, part)
            if given is not None and not callable(given):
                raise InvalidParameterError(
                    f"{part} must be a function of an answer, not {given!r}"
                )
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds(self.timeout))
        if self.cost is not None and not callable(self.cost):
            object.__setattr__(self, "cost", real("cost", self.cost, least=0))

    @property
    def is_async(self) -> bool:
        """Whether it must be awaited."""
        return is_async(self.call)

    def judge(self, answer: Any, *, last: bool) -> tuple[Hashable, tuple[float, ...], float | None]:
        """Return what an answer means: what is compared, what it reveals, what it cost.

        ``last`` says whether the stage is the last, which reveals nothing. `InvalidOutputsError` is
        raised if one of the three is not what it must be, or the function for it raised.
        """
        if isgenerator(answer) or isasyncgen(answer):
            raise InvalidOutputsError(
                "the stage gave a generator, which has no answer yet: collect what it "
                "yields and return that"
            )
        compared = _called("canonical", self.canonical, answer) if self.canonical else answer
        try:
            hash(compared)
        except Exception as error:
            raise _incomparable(compared, error) from None
        check_equality(compared, compared)
        revealed, cost = (), None
        if self.reveals is not None and not last:
            revealed = _called("reveals", self._revealed, answer)
        if self.cost is not None:
            cost = _called("cost", self._paid, answer)
        return compared, revealed, cost

    def _revealed(self, answer: Any) -> tuple[float, ...]:
        values = list(self.reveals(answer)) if self.reveals else []
        return tuple(vector("reveals", values, error=InvalidOutputsError).tolist())

    def _paid(self, answer: Any) -> float:
        cost = self.cost(answer) if callable(self.cost) else self.cost
        return real("cost", cost, least=0, error=InvalidOutputsError)


StageLike = Call | Estimator | Stage


def check_equality(one: Hashable, other: Hashable) -> None:
    """Raise `InvalidOutputsError` if two values cannot be compared."""
    try:
        for a, b in ((one, other), (other, one)):
            bool(a == b)
            bool(a != b)
    except Exception as error:  # foreign types may do anything
        raise _incomparable(one, error) from None


def seconds(
    given: float, name: str = "timeout", *, zero: bool = False, most: float | None = MAX_TIMEOUT
) -> float:
    """Return a number of seconds, or refuse it."""
    least, above = (0.0, None) if zero else (None, 0.0)
    return real(f"{name} (in seconds)", given, least=least, above=above, most=most)


def _incomparable(value: object, error: Exception) -> InvalidOutputsError:
    return InvalidOutputsError(
        f"answers like {short_repr(value)} cannot be compared "
        f"({str(error) or type(error).__name__}); give the stage a `canonical` that turns it "
        "into a number, a text or a tuple"
    )


def _called(what: str, function: Callable[[Any], T], answer: Any) -> T:
    try:
        return function(answer)
    except InvalidOutputsError:
        raise
    except Exception as error:
        raise InvalidOutputsError(f"{what}: {type(error).__name__}: {error}") from error
