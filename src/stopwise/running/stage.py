"""Stages: the function, estimator or client behind an arm, and calls to it."""

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
MAX_TIMEOUT = 1e6  # seconds; threads cannot wait much longer (heuristic)


class Estimator(Protocol):
    """A fitted estimator with the interface of scikit-learn."""

    @property  # usually a method, but some estimators create it on access
    def predict(self) -> Any:
        """The function from a table to one prediction per row."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """A stage of a cascade: a function, an async function or a fitted estimator.

    Parameters
    ----------
    run : callable or estimator
        case → answer, sync or async; or an object with ``predict``, as in scikit-learn, which is
        called with a table of one row.
    name : str, optional
        Default: the name of the arm.
    reveals : callable, optional
        answer → numbers added to the context for later arms (a lab value, a confidence). Their
        count must not vary. Not called for the last arm.
    cost : callable or float, optional
        answer → the actual cost of the call; or a constant. It is only recorded: decisions use the
        costs of the cascade.
    timeout : float, optional
        Seconds after which the stage counts as failed. An async stage is then cancelled. A sync
        stage continues in its thread, because Python cannot stop it; prefer a timeout of the
        function that you call.
    canonical : callable, optional
        answer → hashable value to compare with the other arms. Default: the answer itself.

    Examples
    --------
    >>> stage = Stage(
    ...     lambda case: {"text": "Spam!", "sure": 0.9},
    ...     reveals=lambda answer: [answer["sure"]],
    ...     canonical=lambda answer: answer["text"].lower().strip("!"),
    ... )
    >>> stage.interpret(stage.call("…"), last=False)
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
                f"a stage needs a fitted estimator, got the class {run.__name__}; create an "
                "instance and fit it"
            )
        if not predicts and not callable(run):
            raise InvalidParameterError(
                "a stage must be a function of a case or an object with `predict`, got "
                f"{type(run).__name__}"
            )
        object.__setattr__(self, "call", prediction(cast(Estimator, run)) if predicts else run)
        for parameter in ("reveals", "canonical"):
            function: object = getattr(self, parameter)
            if function is not None and not callable(function):
                raise InvalidParameterError(
                    f"{parameter} must be a function of an answer, got {function!r}"
                )
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds(self.timeout))
        if self.cost is not None and not callable(self.cost):
            object.__setattr__(self, "cost", real("cost", self.cost, least=0))

    @property
    def is_async(self) -> bool:
        """Whether the stage must be awaited."""
        return is_async(self.call)

    def interpret(
        self, answer: Any, *, last: bool
    ) -> tuple[Hashable, tuple[float, ...], float | None]:
        """Return the output to compare, the revealed numbers and the cost of an answer.

        The last stage reveals nothing. Raises `InvalidOutputsError` if a value is invalid or a
        function of the stage raises.
        """
        if isgenerator(answer) or isasyncgen(answer):
            raise InvalidOutputsError(
                "the stage returned a generator; collect its items and return the answer"
            )
        output = _apply("canonical", self.canonical, answer) if self.canonical else answer
        try:
            hash(output)
        except Exception as error:
            raise _incomparable(output, error) from None
        check_equality(output, output)
        revealed, cost = (), None
        if self.reveals is not None and not last:
            revealed = _apply("reveals", self._revealed, answer)
        if self.cost is not None:
            cost = _apply("cost", self._actual_cost, answer)
        return output, revealed, cost

    def _revealed(self, answer: Any) -> tuple[float, ...]:
        values = list(self.reveals(answer)) if self.reveals else []
        return tuple(vector("reveals", values, error=InvalidOutputsError).tolist())

    def _actual_cost(self, answer: Any) -> float:
        cost = self.cost(answer) if callable(self.cost) else self.cost
        return real("cost", cost, least=0, error=InvalidOutputsError)


StageLike = Call | Estimator | Stage


def check_equality(first: Hashable, second: Hashable) -> None:
    """Raise `InvalidOutputsError` if two values cannot be compared."""
    try:
        for a, b in ((first, second), (second, first)):
            bool(a == b)
            bool(a != b)
    except Exception as error:  # user-defined types may raise anything
        raise _incomparable(first, error) from None


def seconds(
    value: float, name: str = "timeout", *, zero: bool = False, most: float | None = MAX_TIMEOUT
) -> float:
    """Return the value as a number of seconds if it is valid; 0 is valid only with ``zero``."""
    least, above = (0.0, None) if zero else (None, 0.0)
    return real(f"{name} (in seconds)", value, least=least, above=above, most=most)


def _incomparable(value: object, error: Exception) -> InvalidOutputsError:
    return InvalidOutputsError(
        f"answers such as {short_repr(value)} cannot be compared "
        f"({str(error) or type(error).__name__}); give the stage a `canonical` function that "
        "returns a number, a string or a tuple"
    )


def _apply(parameter: str, function: Callable[[Any], T], answer: Any) -> T:
    try:
        return function(answer)
    except InvalidOutputsError:
        raise
    except Exception as error:
        raise InvalidOutputsError(f"{parameter}: {type(error).__name__}: {error}") from error


def prediction(estimator: Estimator) -> Call:
    """Return the function from a case to the prediction of an estimator."""
    if is_async(estimator.predict):
        raise InvalidParameterError(
            "`predict` is async; pass an async function that takes a case and awaits `predict`"
        )
    return lambda case: _single_prediction(estimator.predict([case]))


def _single_prediction(predictions: Any) -> Any:
    """Return the prediction for a table of one row as plain Python values."""
    if len(predictions) != 1:
        raise ValueError(
            f"`predict` must return one value per row, got {len(predictions)} for one row"
        )
    value = np.asarray(predictions)[0].tolist()
    if isinstance(value, list):  # the row of a two-dimensional array of predictions
        values = cast(list[Any], value)
        return values[0] if len(values) == 1 else tuple(values)
    return value


def is_async(run: object) -> bool:
    """Return whether a call must be awaited."""
    return iscoroutinefunction(run) or iscoroutinefunction(
        getattr(run, "__call__", None)  # noqa: B004 (an object whose __call__ is async)
    )


def ask(run: Call, case: Any, timeout: float | None) -> Any:
    """Call a stage and wait for its answer; raise TimeoutError if the answer is late.

    Without a timeout the stage runs in this thread. With a timeout it runs in a separate daemon
    thread, which continues after the timeout, because Python cannot stop it.
    """
    if timeout is None:
        return run(case)
    future = _in_thread(run, case)
    try:
        return future.result(timeout)
    except TimeoutError:
        if future.done():
            raise  # by the stage itself
        raise _timeout_error(timeout) from None


async def ask_async(run: Call, case: Any, timeout: float | None) -> Any:
    """Call a stage from an event loop without blocking it.

    An async stage is awaited, and cancelled on timeout. A sync stage runs in a separate thread (see
    `ask`).
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
            raise  # by the stage itself
        raise _timeout_error(timeout) from None


def _in_thread(run: Call, case: Any) -> "Future[Any]":
    # Not asyncio.to_thread: it has few threads and joins them at the end of the loop, so a stage
    # that hangs would block the exit of the program.
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # it can no longer be cancelled
    context = contextvars.copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(run, case))
        except (StopIteration, CancelledError) as error:  # not allowed in asyncio futures
            future.set_exception(RuntimeError(f"the stage raised {type(error).__name__}"))
        except BaseException as error:  # also KeyboardInterrupt and SystemExit
            future.set_exception(error)

    threading.Thread(target=work, name="stopwise-stage", daemon=True).start()
    return future


def _timeout_error(timeout: float) -> TimeoutError:
    return TimeoutError(f"no answer within {timeout:g} s")
