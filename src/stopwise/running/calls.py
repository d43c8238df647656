"""Call a stage: here, in a thread that can be left behind, or in an event loop."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, cast

import numpy as np

from stopwise.errors import InvalidParameterError

Call = Callable[[Any], Any]


class Estimator(Protocol):
    """Something fitted, in the manner of scikit-learn: predicts a table row by row."""

    @property  # a method in most, but some create it on access
    def predict(self) -> Any:
        """Called with a table, returns one prediction per row."""
        ...


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
    return inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(
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
            return await answer if inspect.isawaitable(answer) else answer
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
