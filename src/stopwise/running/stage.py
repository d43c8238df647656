"""A stage: the function, estimator or client behind an arm, and how it is called."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from inspect import isasyncgen, isawaitable, iscoroutinefunction, isgenerator
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from stopwise.checks import real, short_repr, vector
from stopwise.errors import InvalidOutputsError, InvalidParameterError

T = TypeVar("T")
Call = Callable[[Any], Any]
MAX_TIMEOUT = 1e6  # seconds; threads cannot wait for much longer (heuristic)


class Estimator(Protocol):
    """Something fitted, in the manner of scikit-learn: predicts a table row by row."""

    @property  # a method in most, but some create it on access
    def predict(self) -> Any:
        """Called with a table, returns one prediction per row."""
        ...


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


def prediction(estimator: Estimator) -> Call:
    """Return an estimator as a function of one case: a table of one row in, one value out."""
    if is_async(estimator.predict):
        raise InvalidParameterError(
            "`predict` is async: give an async function of a case that awaits it"
        )
    return lambda case: _only(estimator.predict([case]))


def _only(predicted: Any) -> Any:
    """Return the one prediction of a table of one row, as plain Python values, for records."""
    if len(predicted) != 1:
        raise ValueError(f"{len(predicted)} predictions for one case")
    value = np.asarray(predicted)[0].tolist()
    if isinstance(value, list):  # several predictions in a row of the table, or one
        values = cast(list[Any], value)
        return values[0] if len(values) == 1 else tuple(values)
    return value


def is_async(run: object) -> bool:
    """Return whether calling it gives something to await."""
    return iscoroutinefunction(run) or iscoroutinefunction(
        getattr(run, "__call__", None)  # noqa: B004 (an object whose __call__ is async)
    )


def ask(run: Call, case: Any, timeout: float | None) -> Any:
    """Call a stage and wait for its answer; TimeoutError if there is none in time.

    Without a timeout the stage runs in this thread. With one it runs in a daemon thread of its own,
    which is left to itself when time is up: Python cannot stop it.
    """
    if timeout is None:
        return run(case)
    asked = _in_thread(run, case)
    try:
        return asked.result(timeout)
    except TimeoutError:
        if asked.done():
            raise  # the stage's own
        raise _too_late(timeout) from None


async def ask_async(run: Call, case: Any, timeout: float | None) -> Any:
    """Call a stage from an event loop without blocking it.

    An async stage is awaited, and cancelled when time is up. Any other runs in a thread of its own
    (see `ask`).
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if is_async(run):
                return await run(case)
            answer = await asyncio.wrap_future(_in_thread(run, case))
            return await answer if isawaitable(answer) else answer
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise  # the stage's own
        raise _too_late(timeout) from None


def _in_thread(run: Call, case: Any) -> "Future[Any]":
    # Not asyncio.to_thread: its threads are joined when the loop ends, so that one stage that hangs
    # would hang the program, and there are few of them.
    asked: Future[Any] = Future()
    asked.set_running_or_notify_cancel()  # from here on it can only be answered
    context = contextvars.copy_context()

    def work() -> None:
        try:
            asked.set_result(context.run(run, case))
        except (StopIteration, CancelledError) as error:  # a future of asyncio cannot carry them
            asked.set_exception(RuntimeError(f"the stage raised {type(error).__name__}"))
        except BaseException as error:  # also KeyboardInterrupt and SystemExit
            asked.set_exception(error)

    threading.Thread(target=work, name="stopwise-stage", daemon=True).start()
    return asked


def _too_late(timeout: float) -> TimeoutError:
    return TimeoutError(f"no answer within {timeout:g} s")
