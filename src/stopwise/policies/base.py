"""The protocol that every policy follows, and the checks at its door."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.errors import (
    AuditNotSupportedError,
    InvalidContextError,
    InvalidOutputsError,
    InvalidParameterError,
    InvalidStopError,
)
from stopwise.policies.descent import Descent
from stopwise.policies.recorded import Rounds
from stopwise.records import Decision, PairEvidence, Round

Ints = NDArray[np.int64]
Marks = NDArray[np.uint8]  # 0 or 1 for every pair: whether its arms disagree
Pairs = Mapping[tuple[int, int], bool] | ArrayLike
Progress = Callable[[int, int], object]

MAX_HEARD = 1024  # combinations of outputs remembered; classifiers have few
CHUNK = 65_536  # rounds played at once: bounds the memory of a long run
MAX_ARMS = 15  # outputs travel as codes of four bits in one 64-bit integer


class Policy(ABC):
    """Decides how deep to go, and learns from what the arms then say.

    Subclasses write the rule (`decide`) and what a round teaches (`_learn`); everything a caller
    can get wrong is checked here, before any state changes.

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    """

    name: ClassVar[str]
    needs_truth: ClassVar[bool] = False

    def __init__(self, cascade: Cascade) -> None:
        if not isinstance(cascade, Cascade):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
            raise InvalidParameterError(
                f"a policy needs a Cascade first, not {type(cascade).__name__}: "
                "write Cascade(costs=[...])"
            )
        if cascade.n_arms > MAX_ARMS:
            raise InvalidParameterError(
                f"this cascade has {cascade.n_arms} arms; policies take at most {MAX_ARMS}"
            )
        self.cascade = cascade
        self._names = cascade.names
        self._heard: dict[Hashable, tuple[int, int]] = {}  # outputs seen → codes
        self._costs = cast(list[float], cascade.cumulative.tolist())

    # -- the protocol ---------------------------------------------------------------------

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Rounds observed so far."""

    @abstractmethod
    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""

    def start(self, x: ArrayLike | None) -> Descent:
        """Begin a round that is decided step by step, as stages answer.

        Parameters
        ----------
        x : array_like
            What is known before the first arm; None for a policy that looks at no context. Stages
            may add to it where the features say so (`PerStage` with ``sees``).

        Returns
        -------
        Descent
            Says which arm to run next, or to stop; then learns from what it was given.
        """
        return Descent(self, x)

    def resume(self, state: Mapping[str, Any]) -> Descent:
        """Take up a round under way from what its `Descent.state` returned."""
        return Descent.resumed(self, state)

    def observe(
        self, x: ArrayLike, outputs: Sequence[Hashable], *, wanted: int | None = None
    ) -> None:
        """Learn from the outputs of arms 0 … stop.

        Parameters
        ----------
        x : array_like
            The context the round began with.
        outputs : sequence
            What arms 0 to the stop said; any hashable values, compared by equality. Their number
            says where the round stopped.
        wanted : int, optional
            ``decision.wanted``, for a policy that sends some rounds on by chance.
        """
        try:
            if type(outputs) is not str:
                outputs = tuple(outputs)
            n, codes = self._heard[outputs]
        except (KeyError, TypeError):
            n, codes = self._coded(outputs)
            if len(self._heard) < MAX_HEARD:
                self._heard[outputs] = n, codes
        self._learn(x, n, codes, n - 1 if wanted is None else self._checked_stop(wanted))

    def audit(self, done: Round, label: Hashable) -> None:
        """Learn from the right answer to a round that has ended, where the policy can.

        Parameters
        ----------
        done : Round
            The round, one of those chosen at random to be audited.
        label : hashable
            The right answer, in the form in which outputs are compared.
        """
        del done, label
        raise AuditNotSupportedError(
            f"{type(self).__name__} does not learn from labels; USSPD and USSPDRidge do"
        )

    def observe_disagreements(self, x: ArrayLike, stop: int, pairs: Pairs) -> None:
        """Learn from a round of which only the pairwise disagreements are known.

        Parameters
        ----------
        x : array_like
            The context.
        stop : int
            0-based index of the last arm that ran.
        pairs : mapping or array_like
            For every i < j ≤ stop whether arms i and j disagreed: ``{(i, j): bool}``, or a
            square table of which the upper triangle is read.
        """
        stop = self._checked_stop(stop)
        self._learn_pairs(x, stop, self._checked_pairs(stop, pairs))

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the stop for every row of ``X``, learning nothing between them."""
        return np.array([self.decide(x).stop for x in np.asarray(X)], dtype=np.int64)

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one, what is left to chance included.

        Returns
        -------
        stops, wanted : ndarray of shape (n,)
            The stop of every row, and where the rule itself stops (see `Decision.wanted`).
        """
        decisions = [self.decide(x) for x in np.asarray(X)]
        stops = np.array([decision.stop for decision in decisions], dtype=np.int64)
        return stops, np.array([decision.wanted for decision in decisions], dtype=np.int64)

    def run(
        self, contexts: ArrayLike, outputs: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order: decide, reveal outputs as deep as decided, learn.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
            One context a round.
        outputs : array_like of shape (n, K)
            What every arm would say; only what a stop reveals is looked at.
        progress : callable, optional
            Called as ``progress(done, of)`` now and then.

        Returns
        -------
        ndarray of shape (n,)
            The stops.
        """
        xs = as_table(contexts)
        told = self._checked_table(rounds_in(xs), outputs)

        def reveal(t: int, stop: int) -> None:
            self.observe(xs[t], cast(list[Hashable], told[t, : stop + 1].tolist()))

        return self._one_by_one(xs, reveal, progress)

    def run_disagreements(
        self, contexts: ArrayLike, differ: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds of which only the pairwise disagreements are known.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
            One context a round.
        differ : array_like of shape (n, K(K−1)/2)
            Whether each pair would disagree, in the order of ``cascade.pairs()``; only what a
            stop reveals is looked at.
        progress : callable, optional
            Called as ``progress(done, of)`` now and then.

        Returns
        -------
        ndarray of shape (n,)
            The stops.
        """
        xs = as_table(contexts)
        marks = self._checked_marks(rounds_in(xs), differ)
        square = np.zeros((len(self._names),) * 2, dtype=np.bool_)
        above = np.triu_indices(len(square), 1)  # the order of cascade.pairs()

        def reveal(t: int, stop: int) -> None:
            square[above] = marks[t]
            self.observe_disagreements(xs[t], stop, square)

        return self._one_by_one(xs, reveal, progress)

    def replay(self, rounds: Rounds, *, progress: Progress | None = None) -> Ints:
        """Play recorded rounds in order: decide, reveal what the record knows, learn.

        A round in which the policy goes deeper than the record reaches teaches it nothing.

        Parameters
        ----------
        rounds : Rounds
            The record.
        progress : callable, optional
            Called as ``progress(done, of)`` now and then.

        Returns
        -------
        ndarray of shape (n,)
            The stops decided, also where the record does not reach them.
        """
        checked = self._checked_rounds(rounds)
        square = np.zeros((len(self._names),) * 2, dtype=np.bool_)
        above = np.triu_indices(len(square), 1)

        def reveal(t: int, stop: int) -> None:
            known = int(checked.reach[t])
            if checked.failed[t]:
                stop = min(stop, known)
            if 0 <= stop <= known:
                square[above] = checked.differ[t]
                self.observe_disagreements(checked.contexts[t], stop, square)

        return self._one_by_one(checked.contexts, reveal, progress)

    def observe_many(
        self, rounds: Rounds, stops: ArrayLike, *, wanted: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds as if this policy had decided them so; decides nothing.

        Starts a policy with what a log can teach it.

        Parameters
        ----------
        rounds : Rounds
            The record.
        stops : array_like of shape (n,)
            Where each round ended; those that the record does not reach teach nothing.
        wanted : array_like of shape (n,), optional
            Where the rule would have ended each, for a policy that sends some on by chance.
        """
        del wanted
        checked = self._checked_rounds(rounds)
        square = np.zeros((len(self._names),) * 2, dtype=np.bool_)
        above = np.triu_indices(len(square), 1)
        for t, stop in enumerate(self._taught(checked, stops).tolist()):
            if stop >= 0:
                square[above] = checked.differ[t]
                self.observe_disagreements(checked.contexts[t], stop, square)

    def _one_by_one(
        self, xs: NDArray[Any], reveal: Callable[[int, int], None], progress: Progress | None
    ) -> Ints:
        stops = np.empty(len(xs), dtype=np.int64)
        for t in range(len(xs)):
            stops[t] = stop = self.decide(xs[t]).stop
            reveal(t, stop)
            if progress is not None and (t % 1024 == 1023 or t + 1 == len(xs)):
                progress(t + 1, len(xs))
        return stops

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind a decision; none for a rule that does not compare."""
        del decision
        return ()

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the policy to one file that `stopwise.load` continues from, bit for bit."""
        from stopwise.policies.persistence import save

        save(self, path)

    # -- what a subclass provides ---------------------------------------------------------

    @abstractmethod
    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        """Learn from the outputs of n arms, as codes of four bits that are equal when they are."""

    @abstractmethod
    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        """Learn from disagreements: (K, K), read in the upper triangle up to the stop."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal, untaught policy, as plain values."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, as arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned; raise ValueError if it does not fit."""

    # -- checks -----------------------------------------------------------------------------

    def _coded(self, outputs: Sequence[Hashable]) -> tuple[int, int]:
        """Check outputs; return how many there are, and codes by first occurrence.

        Four bits an arm, so that equal outputs have equal codes: an integer is the quickest thing
        to hand to a kernel.
        """
        first: dict[Hashable, int] = {}
        codes = arm = 0
        if isinstance(outputs, str | bytes):
            raise InvalidOutputsError(
                f"outputs must be a list of what the arms said, not one text: [{outputs!r}, …]"
            )
        try:
            for y in outputs:
                codes |= first.setdefault(y, arm) << 4 * arm
                if y != y:
                    raise InvalidOutputsError(
                        f"the output of arm {arm} is NaN, which equals nothing, itself included; "
                        "if the arm failed, give the outputs before it only"
                    )
                arm += 1
        except TypeError as error:
            raise InvalidOutputsError(
                f"outputs must be a sequence of hashable values (numbers, strings, tuples …), "
                f"one per arm that ran; got {_shown(outputs)} ({error})"
            ) from None
        if not 0 < arm <= len(self._names):
            raise InvalidOutputsError(
                f"{arm} outputs for a cascade of {len(self._names)} arms: give the outputs of arms "
                f"0 to the stop, which is between 1 and {len(self._names)} values"
            )
        return arm, codes

    def _checked_stop(self, stop: int) -> int:
        try:
            index = int(np.asarray(stop).item()) if stop == int(stop) else -1
        except (TypeError, ValueError, OverflowError):
            index = -1
        if not 0 <= index < len(self._names):
            raise InvalidStopError(
                f"stop is {stop!r}, but this cascade's arms are 0 to {len(self._names) - 1}"
            )
        return index

    def _checked_pairs(self, stop: int, pairs: Pairs) -> NDArray[np.bool_]:
        n_arms = len(self._names)
        differ = np.zeros((n_arms, n_arms), dtype=np.bool_)
        wanted = [(i, j) for j in range(stop + 1) for i in range(j)]
        if isinstance(pairs, Mapping):
            given = cast(Mapping[tuple[int, int], object], pairs)
            missing = [p for p in wanted if p not in given]
            extra = [p for p in given if p not in wanted]
            if missing or extra:
                raise InvalidOutputsError(
                    f"a round that stopped at arm {stop} tells about the pairs {wanted}; "
                    + (f"missing: {missing}. " if missing else "")
                    + (f"not among them: {extra}." if extra else "")
                )
            values: list[object] = [given[p] for p in wanted]
        else:
            table = np.asarray(pairs)
            if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) <= stop:
                raise InvalidOutputsError(
                    f"a table of disagreements must be square and reach arm {stop}; this has shape "
                    f"{table.shape}"
                )
            values = [table[p].item() for p in wanted]
        for (i, j), value in zip(wanted, values, strict=True):
            if value not in (0, 1):
                raise InvalidOutputsError(
                    f"pair ({i}, {j}): whether two arms disagreed is True or False, not {value!r}"
                )
            differ[i, j] = bool(value)
        return differ

    def _checked_table(self, n_rounds: int, outputs: ArrayLike) -> NDArray[Any]:
        table = as_table(outputs)
        if table.shape != (n_rounds, len(self._names)):
            raise InvalidOutputsError(
                f"outputs must be a table of {n_rounds} rounds by {len(self._names)} arms, not "
                f"{table.shape}"
            )
        if table.dtype.kind not in "biuSU":
            unequal = np.asarray(table != table, dtype=np.bool_)
            if unequal.any():
                t, arm = np.argwhere(unequal)[0]
                raise InvalidOutputsError(
                    f"the output of arm {arm} in round {t} is NaN, which equals nothing, itself "
                    "included"
                )
        if table.dtype.kind == "O":
            for place, y in enumerate(table.flat):
                if not _hashable(y):
                    t, arm = divmod(place, len(self._names))
                    raise InvalidOutputsError(
                        "outputs must be hashable values (numbers, strings, tuples …); arm "
                        f"{arm} in round {t} said {_shown(y)}"
                    )
        return table

    def _checked_marks(self, n_rounds: int, differ: ArrayLike) -> Marks:
        table, pairs = as_table(differ), self.cascade.pairs()
        if table.shape != (n_rounds, len(pairs)):
            raise InvalidOutputsError(
                f"disagreements must be a table of {n_rounds} rounds by {len(pairs)} pairs, not "
                f"{table.shape}"
            )
        if table.dtype.kind != "b":
            neither = np.asarray((table != 0) & (table != 1), dtype=np.bool_)
            if neither.any():
                t, k = np.argwhere(neither)[0].tolist()
                raise InvalidOutputsError(
                    f"pair {pairs[k]} in round {t}: whether two arms disagreed is True or False, "
                    f"not {_shown(table[t, k])}"
                )
        # one kind of array, so that kernels are compiled once: no views, nothing read-only
        return np.require(table, dtype=np.uint8, requirements=["C", "W", "E"])

    def _checked_rounds(self, rounds: Rounds) -> Rounds:
        """Check that a record fits this cascade; return it in one kind of array."""
        n, last = rounds.n, len(self._names) - 1
        contexts = np.asarray(rounds.contexts, dtype=np.float64)
        if contexts.ndim != 2 or len(contexts) != n:
            raise InvalidContextError(
                f"a record of {n} rounds needs a table of as many contexts, not {contexts.shape}"
            )
        reach = np.ascontiguousarray(rounds.reach, dtype=np.int64)
        if reach.ndim != 1 or (n and not -1 <= int(reach.min()) <= int(reach.max()) <= last):
            raise InvalidStopError(f"reach tells an arm a round, from -1 to {last}")
        failed = np.asarray(rounds.failed, dtype=np.bool_)
        if failed.shape != (n,):
            raise InvalidOutputsError(f"failed must be {n} values, not of shape {failed.shape}")
        wrong, audited = rounds.wrong, rounds.audited
        if audited is not None and (audited.shape != (n,) or wrong is None):
            raise InvalidOutputsError("audited rounds need a flag each, and `wrong` beside it")
        if wrong is not None and wrong.shape != (n, last + 1):
            raise InvalidOutputsError(f"wrong must be {n} rounds by {last + 1} arms")
        differ = self._checked_marks(n, rounds.differ)
        return Rounds(contexts, differ, reach, failed, wrong, audited)

    def _taught(self, rounds: Rounds, stops: ArrayLike) -> Ints:
        """Return how far each round teaches if it ended at ``stops``; −1 where nothing."""
        ends = np.array(stops, dtype=np.int64)
        if ends.shape != (rounds.n,):
            raise InvalidStopError(f"there are {rounds.n} rounds, but stops of shape {ends.shape}")
        if len(ends) and not -1 <= int(ends.min()) <= int(ends.max()) < len(self._names):
            raise InvalidStopError(f"stops must be arms, 0 to {len(self._names) - 1}")
        ends = np.where(rounds.failed, np.minimum(ends, rounds.reach), ends)
        return np.where(ends <= rounds.reach, ends, -1)

    def _marks(self, told: NDArray[Any]) -> Marks:
        """Return whether each pair of arms said different things: (n, K) → (n, K(K−1)/2)."""
        pairs = self.cascade.pairs()
        marks = np.empty((len(told), len(pairs)), dtype=np.uint8)
        for k, (i, j) in enumerate(pairs):
            marks[:, k] = told[:, i] != told[:, j]
        return marks

    def _decision(self, stop: int) -> Decision:
        return Decision(stop, self._names[stop], self._costs[stop])

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # a policy is its state: two must never share any

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.parameters().items())
        return f"{type(self).__name__}({self.cascade!r}, {shown}) after {self.rounds} rounds"


class Uncontextual(Policy):
    """A policy that does not look at the context; it only counts rounds, unless told more."""

    def __init__(self, cascade: Cascade) -> None:
        super().__init__(cascade)
        self._rounds: int = 0

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._rounds

    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        del x, n, codes, wanted
        self._rounds += 1

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        del x, stop, differ
        self._rounds += 1

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, as arrays by name."""
        return {"rounds": np.array([self._rounds], dtype=np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned."""
        rounds = state["rounds"]
        if rounds.dtype != np.int64 or rounds.shape != (1,) or rounds[0] < 0:
            raise ValueError("its number of rounds is impossible")
        self._rounds = int(rounds[0])


class Blind(Uncontextual):
    """A policy that sees no context and no truth, and plays a series of rounds at once.

    Subclasses write the series (`_play`) beside the single `decide`.
    """

    def run(
        self, contexts: ArrayLike, outputs: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order, all at once (see `Policy.run`)."""
        told = self._checked_table(rounds_in(as_table(contexts)), outputs)
        return self._run(len(told), lambda start, end: self._marks(told[start:end]), progress)

    def run_disagreements(
        self, contexts: ArrayLike, differ: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order, all at once (see `Policy.run_disagreements`)."""
        marks = self._checked_marks(rounds_in(as_table(contexts)), differ)
        return self._run(len(marks), lambda start, end: marks[start:end], progress)

    def _run(self, n: int, marks: Callable[[int, int], Marks], progress: Progress | None) -> Ints:
        # Everything has been checked before the first round is played.
        stops = np.empty(n, dtype=np.int64)
        for start in range(0, n, CHUNK):
            end = min(start + CHUNK, n)
            self._play(stops[start:end], partial(marks, start, end))
            self._rounds += end - start
            if progress is not None:
                progress(end, n)
        return stops

    @abstractmethod
    def _play(self, stops: Ints, marks: Callable[[], Marks]) -> None:
        """Play rounds in order: fill in the stops and learn all but the number of rounds.

        ``marks()`` tells of every round whether each pair disagrees: (n, K(K−1)/2).
        """


def number(
    name: str,
    value: float,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Return a parameter as a float, or say which range it must lie in.

    Examples
    --------
    >>> number("delta", 0.05, above=0, below=1)
    0.05
    """
    try:
        v = float(value)
    except (TypeError, ValueError, OverflowError):
        v = math.nan
    inside = (
        (above is None or v > above)
        and (least is None or v >= least)
        and (below is None or v < below)
        and (most is None or v <= most)
    )
    if not (math.isfinite(v) and inside):
        limits = {"above": above, "at least": least, "below": below, "at most": most}
        wanted = " and ".join(f"{word} {b:g}" for word, b in limits.items() if b is not None)
        raise InvalidParameterError(f"{name} must be a number {wanted}, not {value!r}")
    return v


def as_table(values: ArrayLike) -> NDArray[Any]:
    """Return values as an array that keeps each as it is: "1" and 1 must not become equal.

    Examples
    --------
    >>> as_table([["1", 1]]).tolist()
    [['1', 1]]
    """
    if isinstance(values, np.ndarray):
        return cast(NDArray[Any], values)
    return np.array(values, dtype=np.object_)


def rounds_in(table: NDArray[Any]) -> int:
    """Return how many rounds a table of contexts has.

    Examples
    --------
    >>> rounds_in(np.zeros((5, 2)))
    5
    """
    if table.ndim == 0:
        raise InvalidContextError("contexts must be a table with one row a round, not one value")
    return len(table)


def _hashable(y: object) -> bool:
    try:
        hash(y)
    except TypeError:
        return False
    return True


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
