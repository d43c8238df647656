"""Run a cascade: call its stages as deep as the policy decides, and let the policy learn."""

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

WATCHED = 20  # rounds; if more than half of the latest failed, there is a warning (heuristic)
LOG = logging.getLogger("stopwise.runner")
INSTEAD = "`await runner.arun(case)` in async code, `asyncio.run(runner.arun(case))` elsewhere"


class RoundLog(Protocol):
    """Where rounds are written: a `LogWriter`, or anything else with ``write``."""

    def write(self, done: Round, /) -> object:
        """Write one round."""
        ...


class Runner:
    """A policy and the stages it decides about.

    In each round the policy decides whether to run the next arm; the arm's stage answers, and what
    it reveals joins the context. When the policy says stop, or a stage fails, the round is written
    to the log, and the policy learns from the arms that answered.

    A stage fails when it raises, times out, or returns something unusable. The round then ends with
    a `Failure` in its record, and the policy learns what it would from a round that stopped before
    that arm. Other exceptions (a case without a proper context, an interrupt from the keyboard, a
    cancelled task) propagate to the caller; the policy has then learned nothing.

    A runner may be used from several threads: it holds ``runner.lock`` while the policy decides or
    learns, never while a stage runs. Give a policy one runner only, and hold the lock while
    you save the policy.

    Parameters
    ----------
    stages : sequence
        One for each arm, in order: a `Stage`, or the ``run`` of one.
    context : callable, optional
        case → the numbers known before the first arm. By default the case is these numbers.
    canonical : callable, optional
        For stages that have no ``canonical`` of their own, and for the answers given to `label`.
    timeout : float, optional
        Seconds, for stages that have no ``timeout`` of their own.
    log : LogWriter, optional
        Where every round is written: anything with ``write(round)``.
    on_error : {"end", "raise"}
        Whether a stage that fails ends the round with a record of it, or its exception propagates
        to the caller (to find mistakes while you write stages; nothing is then learned or logged).
    on_label_request : callable, optional
        Called with each round that ``wants_label``, once it was learned: note it for whoever knows
        the right answer, and give that to `label`, at once or later. What it raises is logged
        (``stopwise.runner``), and the round is returned all the same.
    tracer : opentelemetry.trace.Tracer, optional
        Makes a span for each round, and one for each stage in it.

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
            words = "on_label_request is called, not awaited: give a function that starts a task"
            raise InvalidParameterError(words)
        self.policy = policy
        self.blind = not policy.uses_context
        self.stages = stages_for(
            policy.cascade.names,
            stages,
            reveal=self.blind or policy.reveals is not None,
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
        self._failures: deque[bool] = deque(maxlen=WATCHED)
        self._warned = False

    def run(self, case: Any, *, id: str | None = None) -> Round:  # noqa: A002 (the word for it)
        """Run one case to its end, and return its record; ``id`` is random unless given.

        `InvalidContextError` means that the context is not what the policy's features need: no
        stage was asked. If a stage is async, await `arun`.
        """
        check_blocking(self.stages, INSTEAD)
        local = _LocalRound(self, case, id)
        loop = RoundLoop(self.stages, case, local, INSTEAD)
        if self.tracer is None:
            drive(loop.steps(), lambda step: ask(*step))
            return local.finished(loop)
        with RoundSpan(self.tracer, loop, self.policy.cascade, local.id) as span:
            drive(loop.steps(), span.ask)
            return span.ended(local.finished(loop))

    async def arun(self, case: Any, *, id: str | None = None) -> Round:  # noqa: A002 (the word for it)
        """Run one case to its end without blocking the event loop (see `run`).

        Async stages are awaited; each other stage runs in a thread of its own. The policy is called
        in the thread of the loop only.
        """
        local = _LocalRound(self, case, id)
        loop = RoundLoop(self.stages, case, local, None)
        if self.tracer is None:
            await drive_async(loop.steps(), lambda step: ask_async(*step))
            return local.finished(loop)
        with RoundSpan(self.tracer, loop, self.policy.cascade, local.id) as span:
            await drive_async(loop.steps(), span.ask_async)
            return span.ended(local.finished(loop))

    def run_many(
        self, cases: Iterable[Any], *, id_of: Callable[[Any], str] | None = None
    ) -> Iterator[Round]:
        """Run cases one after another, and yield each round when it has ended.

        Nothing runs until you loop over the result. A data frame (pandas or polars) gives its rows
        as tuples; ``id_of`` maps a case to the id of its round. `InvalidContextError` names the
        case that has no proper context; the rounds before it are done.
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
        """Run many cases at once, and yield each round when it has ended.

        Up to ``concurrency`` rounds are under way. They are learned from, logged and yielded in the
        order in which they end; ``id_of`` (case → id) shows which case a round belongs to. If the
        caller leaves early, rounds still under way are cancelled and not learned from.
        """
        concurrency = integer("concurrency", concurrency, least=1)

        async def run(number: int, case: Any) -> Round:
            with _named_case(number):
                return await self.arun(case, id=id_of(case) if id_of else None)

        waiting = enumerate(_rows(cases), 1)
        under_way: set[asyncio.Task[Round]] = set()
        ended: deque[asyncio.Task[Round]] = deque()
        try:
            while True:
                for number, case in islice(waiting, concurrency - len(under_way)):
                    task = asyncio.create_task(run(number, case))
                    task.add_done_callback(ended.append)
                    under_way.add(task)
                if not under_way:
                    return
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                while ended:
                    under_way.remove(task := ended.popleft())
                    yield task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def label(self, round: Round, answer: Any = None, *, right: Right | None = None) -> None:  # noqa: A002 (the word for it)
        """Give the policy the right answer to a finished round, or which of its arms were right.

        ``answer`` is what a stage would have answered; it is made canonical in the same way. If
        only stages have a ``canonical``, it is refused: the runner cannot know which one to take.
        ``right`` says instead of each arm that answered whether it was right (`Policy.label`).
        """
        canonical = None if answer is None else self._canonical_label(answer)
        with self.lock:
            self.policy.label(round, canonical, right=right)

    def _canonical_label(self, answer: Any) -> Any:
        own = [repr(stage.name) for stage in self.stages if stage.canonical is not None]
        if self.canonical is None and own:
            raise InvalidParameterError(
                f"labels must be made canonical like answers, but only stages ({', '.join(own)}) "
                "have a `canonical`: give Runner a canonical= for labels, or call "
                "policy.label(round, answer) with the answer in the form of the round's outputs, "
                "or say which arms were right: right=[True, False, …]"
            )
        return self.canonical(answer) if self.canonical is not None else answer

    def watch(self, done: Round) -> None:
        """Warn, once, when most of the latest rounds failed."""
        self._failures.append(done.failure is not None)
        failed, n = sum(self._failures), len(self._failures)
        if done.failure is not None and n == WATCHED and 2 * failed > n and not self._warned:
            self._warned = True
            warnings.warn(
                f"{failed} of the last {n} rounds failed; the last time stage "
                f"{self.stages[done.failure.arm].name!r} gave no answer "
                f"({done.failure.message}). Little is learned from such rounds; "
                'on_error="raise" shows where the error comes from',
                StageFailureWarning,
                stacklevel=2,
            )

    def known(self, case: Any) -> ArrayLike:
        """Return what is known of a case before the first arm."""
        x = case if self.context is None else self.context(case)
        try:
            numbers = np.array(x, dtype=np.float64)  # a copy: stages may change the case
        except (TypeError, ValueError):
            numbers = None
        if self.blind and self.context is None and (numbers is None or numbers.ndim != 1):
            return ()  # a policy that looks at no context needs none
        return x if numbers is None else numbers  # the policy says what is wrong with it

    def __repr__(self) -> str:
        stages = " → ".join(str(stage.name) for stage in self.stages)
        return f"Runner({stages}) of {self.policy!r}"


class _LocalRound:
    """One round that the runner's policy decides about: the source of its `RoundLoop`."""

    def __init__(self, runner: Runner, case: Any, id: str | None) -> None:  # noqa: A002 (the word for it)
        self._runner = runner
        self.id = uuid.uuid4().hex if id is None else str(id)
        self._time = time.time()
        x = runner.known(case)
        with runner.lock:
            self._current = runner.policy.start(x)
        self._unseen: list[float] = []  # revealed to a policy that looks at no context

    def next(self) -> int | None:
        with self._runner.lock:
            return self._current.next()

    def give(self, output: Hashable, revealed: tuple[float, ...]) -> tuple[()]:
        for earlier in self._current.outputs:
            check_equality(output, earlier)  # or learning could fail, with the round logged
        blind = self._runner.blind
        with self._runner.lock:
            self._current.give(output, () if blind else revealed)
        if blind:
            self._unseen += revealed
        return ()

    def finished(self, loop: RoundLoop) -> Round:
        """Log the round, let the policy learn from it, and return it."""
        current, runner = self._current, self._runner
        if loop.error is not None and runner.on_error == "raise":
            raise loop.error
        counted = runner.stages[0].cost is not None  # then all stages say what they cost
        done = Round(
            id=self.id,
            time=self._time,
            context=(*current.context, *self._unseen),
            outputs=tuple(current.outputs),
            answers=tuple(loop.answers),
            stop=len(loop.answers) - 1 if loop.answers else None,
            rule_stop=current.rule_stop,
            costs=tuple(loop.costs) if counted else None,
            failure=loop.failure,
        )
        with runner.lock:
            # First the log, then the policy: whatever the policy has learned is in the log, in the
            # same order. If writing fails, neither has the round. If the program dies in between,
            # replaying the log restores the policy.
            if runner.log is not None:
                try:
                    runner.log.write(done)
                except Exception as error:
                    error.add_note(
                        f"Round {done.id} was not logged and not learned from; its answer was "
                        f"{short_repr(done.answer)}."
                    )
                    raise
            current.learn()
            done = replace(done, request=current.request)
            runner.watch(done)
        if done.request is not None and runner.on_label_request is not None:
            try:
                runner.on_label_request(done)  # without the lock, for it may call `label`
            except Exception:
                LOG.exception("on_label_request failed for round %s", done.id)
        return done


def _rows(cases: Any) -> Iterator[Any]:
    """Return the cases one by one; of a data frame, its rows."""
    if hasattr(cases, "itertuples"):  # pandas
        return cases.itertuples(index=False, name="Case")
    if hasattr(cases, "iter_rows"):  # polars
        return cases.iter_rows()
    for kind in (str, bytes, Mapping):
        if isinstance(cases, kind):
            raise InvalidParameterError(
                f"cases must be a list of cases or a data frame, not a {kind.__name__}"
            )
    return iter(cases)


@contextmanager
def _named_case(number: int) -> Generator[None]:
    """Name the case whose context was refused."""
    try:
        yield
    except InvalidContextError as error:
        raise InvalidContextError(f"case {number:,} (counted from 1): {error}") from error
