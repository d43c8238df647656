"""The runner: calls stages until the policy stops, and lets the policy learn."""

import asyncio
import logging
import time
import uuid
import warnings
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from inspect import iscoroutinefunction
from itertools import islice
from threading import Lock
from typing import Any, Literal, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from stopwise.checks import choice, integer, short_repr
from stopwise.errors import (
    InvalidContextError,
    InvalidParameterError,
    StageFailureWarning,
)
from stopwise.policies.labels import Right
from stopwise.policies.protocol import Policy
from stopwise.records import Round
from stopwise.running.round_loop import RoundLoop, check_blocking, drive, drive_async, stages_for
from stopwise.running.stage import StageLike, ask, ask_async, check_equality, seconds
from stopwise.running.tracing import RoundSpan

FAILURE_WINDOW = 20  # rounds; more than half of them failing gives a warning (heuristic)
LOG = logging.getLogger("stopwise.runner")
INSTEAD = "`await runner.arun(case)` in async code, `asyncio.run(runner.arun(case))` elsewhere"


class RoundLog(Protocol):
    """A destination for rounds: a `LogWriter` or any object with ``write``."""

    def write(self, done: Round, /) -> object:
        """Write a round."""
        ...


class Runner:
    """Runs the stages of a cascade until a policy stops, and lets the policy learn.

    In each round, the policy decides arm by arm whether to go on. The arm's stage answers, and the
    numbers it reveals are added to the context. When the policy stops or a stage fails, the round
    is written to the log, and the policy learns from the arms that answered.

    A stage fails if it raises, times out, or returns an answer that cannot be used. The round then
    ends with a `Failure`, and the policy learns as if the round had stopped before that arm. Other
    exceptions (an invalid context, a keyboard interrupt, a cancelled task) propagate to the caller,
    and nothing is learned.

    A runner can be shared by threads: it holds ``runner.lock`` while the policy decides or learns,
    never while a stage runs. Use a policy in one runner only, and hold the lock while you save the
    policy.

    Parameters
    ----------
    stages : sequence
        One per arm, in cascade order: a `Stage`, or its ``run`` argument.
    context : callable, optional
        case → the numbers available before the first arm. Default: the case itself.
    canonical : callable, optional
        Default ``canonical`` of stages; also applied to right answers passed to `label`.
    timeout : float, optional
        Default ``timeout`` of stages, in seconds.
    log : LogWriter, optional
        Receives every round. Any object with a ``write(round)`` method works.
    on_error : {"end", "raise"}
        "end": a failing stage ends the round with a `Failure`. "raise": the stage's exception
        propagates to the caller, and nothing is learned or logged (useful while you write stages).
    on_label_request : callable, optional
        Called with each round that ``wants_label``, after the policy has learned from it. Pass the
        right answer to `label`, immediately or later. Exceptions that the callback raises are
        logged (logger ``stopwise.runner``) and do not affect the round.
    tracer : opentelemetry.trace.Tracer, optional
        Creates a span for each round and for each stage call.

    Examples
    --------
    >>> import stopwise as sw
    >>> cascade = sw.Cascade([0.01, 0.2], names=["sign", "sum"])
    >>> policy = sw.USSPD(cascade, features=sw.Polynomial(degree=2), context_dim=2)
    >>> runner = Runner(policy, [lambda x: x[0] > 0, lambda x: sum(x) > 0])
    >>> done = runner.run([0.5, -0.9])
    >>> done.outputs, done.answer, done.stop
    ((True, False), False, 1)
    """

    def __init__(
        self,
        policy: Policy,
        stages: Sequence[StageLike],
        *,
        context: Callable[[Any], ArrayLike] | None = None,
        canonical: Callable[[Any], Hashable] | None = None,
        timeout: float | None = None,
        log: RoundLog | None = None,
        on_error: Literal["end", "raise"] = "end",
        on_label_request: Callable[[Round], object] | None = None,
        tracer: Any = None,
    ) -> None:
        choice("on_error", on_error, ("end", "raise"))
        if iscoroutinefunction(on_label_request):
            raise InvalidParameterError(
                "on_label_request must not be async; pass a function that starts a task"
            )
        self.policy = policy
        self.ignores_context = not policy.uses_context
        self.stages = stages_for(
            policy.cascade.names,
            stages,
            reveal=self.ignores_context or policy.reveals is not None,
            canonical=canonical,
            timeout=None if timeout is None else seconds(timeout),
        )
        self.context = context
        self.canonical = canonical
        self.log = log
        self.on_error = on_error
        self.on_label_request = on_label_request
        self.tracer = tracer
        self.lock = Lock()
        self._failures: deque[bool] = deque(maxlen=FAILURE_WINDOW)
        self._warned = False

    def run(self, case: Any, *, id: str | None = None) -> Round:  # noqa: A002 (the word for it)
        """Run a case and return its round; ``id`` is random by default.

        Raises `InvalidContextError` before any stage runs if the context does not fit the policy's
        features. For async stages use `arun`.
        """
        check_blocking(self.stages, INSTEAD)
        local = _LocalRound(self, case, id)
        loop = RoundLoop(self.stages, case, local, INSTEAD)
        if self.tracer is None:
            drive(loop.steps(), lambda step: ask(*step))
            return local.finish(loop)
        with RoundSpan(self.tracer, loop, self.policy.cascade, local.id) as span:
            drive(loop.steps(), span.ask)
            return span.finish(local.finish(loop))

    async def arun(self, case: Any, *, id: str | None = None) -> Round:  # noqa: A002 (the word for it)
        """Run a case without blocking the event loop (see `run`).

        Async stages are awaited; other stages run in separate threads. The policy is called only in
        the thread of the loop.
        """
        local = _LocalRound(self, case, id)
        loop = RoundLoop(self.stages, case, local, None)
        if self.tracer is None:
            await drive_async(loop.steps(), lambda step: ask_async(*step))
            return local.finish(loop)
        with RoundSpan(self.tracer, loop, self.policy.cascade, local.id) as span:
            await drive_async(loop.steps(), span.ask_async)
            return span.finish(local.finish(loop))

    def run_many(
        self, cases: Iterable[Any], *, id_of: Callable[[Any], str] | None = None
    ) -> Iterator[Round]:
        """Run cases one after another, and yield each round when it ends.

        Nothing runs until you iterate over the result. The rows of a data frame (pandas or polars)
        are passed as tuples; ``id_of`` maps a case to the id of its round. If a context is invalid,
        `InvalidContextError` states the number of the case; the rounds before it are complete.
        """
        for number, case in enumerate(_rows(cases), 1):
            with _named_case(number):
                done = self.run(case, id=id_of(case) if id_of else None)
            yield done

    async def arun_many(
        self,
        cases: Iterable[Any],
        *,
        concurrency: int = 8,
        id_of: Callable[[Any], str] | None = None,
    ) -> AsyncIterator[Round]:
        """Run cases concurrently, and yield each round when it ends.

        Up to ``concurrency`` rounds run at a time. They are logged, learned from and yielded in the
        order in which they end; ``id_of`` maps a case to the id of its round. If the caller stops
        iterating, unfinished rounds are cancelled and not learned from.
        """
        concurrency = integer("concurrency", concurrency, least=1)

        async def run(number: int, case: Any) -> Round:
            with _named_case(number):
                return await self.arun(case, id=id_of(case) if id_of else None)

        waiting = enumerate(_rows(cases), 1)
        running: set[asyncio.Task[Round]] = set()
        finished: deque[asyncio.Task[Round]] = deque()
        try:
            while True:
                for number, case in islice(waiting, concurrency - len(running)):
                    task = asyncio.create_task(run(number, case))
                    task.add_done_callback(finished.append)
                    running.add(task)
                if not running:
                    return
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                while finished:
                    task = finished.popleft()
                    running.remove(task)
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def label(self, round: Round, answer: Any = None, *, right: Right | None = None) -> None:  # noqa: A002 (the word for it)
        """Pass a label of a finished round to the policy.

        ``answer`` is the right answer in the form of a stage's answer; the runner's ``canonical``
        is applied to it. If only stages have a ``canonical``, the answer is rejected, because the
        runner cannot choose one of them. Alternatively, ``right`` states for each arm that
        answered whether its answer was right (see `Policy.label`).
        """
        canonical = None if answer is None else self._canonical_label(answer)
        with self.lock:
            self.policy.label(round, canonical, right=right)

    def _canonical_label(self, answer: Any) -> Any:
        stages = [repr(stage.name) for stage in self.stages if stage.canonical is not None]
        if self.canonical is None and stages:
            raise InvalidParameterError(
                "a label needs the same `canonical` as answers, but it is set only for stages "
                f"({', '.join(stages)}); pass canonical= to Runner, call policy.label(round, "
                "answer) with an answer in the form of round.outputs, or pass right=[True, False, "
                "…] (one value per arm that answered)"
            )
        return self.canonical(answer) if self.canonical is not None else answer

    def warn_if_failing(self, done: Round) -> None:
        """Warn once if most of the latest rounds failed; ``done`` is the newest."""
        self._failures.append(done.failure is not None)
        failed, n = sum(self._failures), len(self._failures)
        if done.failure is not None and n == FAILURE_WINDOW and 2 * failed > n and not self._warned:
            self._warned = True
            warnings.warn(
                f"{failed} of the last {n} rounds failed, most recently stage "
                f"{self.stages[done.failure.arm].name!r} ({done.failure.message}). The policy "
                'learns little from failed rounds; use on_error="raise" to see the traceback',
                StageFailureWarning,
                stacklevel=2,
            )

    def initial_context(self, case: Any) -> ArrayLike:
        """Return the context of a case before the first arm."""
        x = case if self.context is None else self.context(case)
        try:
            numbers = np.array(x, dtype=np.float64)  # a copy: stages may change the case
        except (TypeError, ValueError):
            numbers = None
        if self.ignores_context and self.context is None and (numbers is None or numbers.ndim != 1):
            return ()
        return x if numbers is None else numbers  # if x is invalid, the policy raises

    def __repr__(self) -> str:
        stages = " → ".join(str(stage.name) for stage in self.stages)
        return f"Runner({stages}) of {self.policy!r}"


class _LocalRound:
    """A round decided by the runner's policy; the `Decisions` of its `RoundLoop`."""

    def __init__(self, runner: Runner, case: Any, id: str | None) -> None:  # noqa: A002 (the word for it)
        self._runner = runner
        self.id = uuid.uuid4().hex if id is None else str(id)
        self._time = time.time()
        x = runner.initial_context(case)
        with runner.lock:
            self._current = runner.policy.start(x)
        self._unused: list[float] = []  # revealed numbers that the policy ignores

    def next(self) -> int | None:
        with self._runner.lock:
            return self._current.next()

    def give(self, output: Hashable, revealed: tuple[float, ...]) -> tuple[()]:
        for earlier in self._current.outputs:
            check_equality(output, earlier)  # otherwise learning could fail after logging
        ignores_context = self._runner.ignores_context
        with self._runner.lock:
            self._current.give(output, () if ignores_context else revealed)
        if ignores_context:
            self._unused += revealed
        return ()

    def finish(self, loop: RoundLoop) -> Round:
        """Log the round, let the policy learn from it, and return it."""
        current, runner = self._current, self._runner
        if loop.error is not None and runner.on_error == "raise":
            raise loop.error
        has_costs = runner.stages[0].cost is not None  # all stages have a cost, or none
        done = Round(
            id=self.id,
            time=self._time,
            context=(*current.context, *self._unused),
            outputs=tuple(current.outputs),
            answers=tuple(loop.answers),
            stop=len(loop.answers) - 1 if loop.answers else None,
            rule_stop=current.rule_stop,
            costs=tuple(loop.costs) if has_costs else None,
            failure=loop.failure,
        )
        with runner.lock:
            # Log first, so that the log contains every round that the policy learned from, in the
            # same order. If writing fails, neither has the round. If the program dies in between,
            # a replay of the log restores the policy.
            if runner.log is not None:
                try:
                    runner.log.write(done)
                except Exception as error:
                    error.add_note(
                        f"Round {done.id} was neither logged nor learned from; its answer was "
                        f"{short_repr(done.answer)}."
                    )
                    raise
            current.learn()
            done = replace(done, request=current.request)
            runner.warn_if_failing(done)
        if done.request is not None and runner.on_label_request is not None:
            try:
                runner.on_label_request(done)  # without the lock: it may call `label`
            except Exception:
                LOG.exception("on_label_request failed for round %s", done.id)
        return done


def _rows(cases: Any) -> Iterator[Any]:
    """Return an iterator over cases, or over the rows of a data frame."""
    if hasattr(cases, "itertuples"):  # pandas
        return cases.itertuples(index=False, name="Case")
    if hasattr(cases, "iter_rows"):  # polars
        return cases.iter_rows()
    for kind in (str, bytes, Mapping):
        if isinstance(cases, kind):
            raise InvalidParameterError(
                f"cases must be a list of cases or a data frame, got {kind.__name__}"
            )
    return iter(cases)


@contextmanager
def _named_case(number: int) -> Generator[None]:
    """Add the number of the case to an error about its context."""
    try:
        yield
    except InvalidContextError as error:
        raise InvalidContextError(f"case {number:,} (counted from 1): {error}") from error
