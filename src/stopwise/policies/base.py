"""The protocol that every policy follows, and the checks where arguments enter."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial, wraps
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
    OverrideNotSupportedError,
    PersistenceError,
)
from stopwise.features import BoundFeatures
from stopwise.policies.descent import Descent
from stopwise.policies.recorded import Rounds
from stopwise.records import Decision, PairEvidence, Round, Truth

Ints = NDArray[np.int64]
Marks = NDArray[np.uint8]  # 0 or 1 for every pair: whether its arms disagree
Pairs = Mapping[tuple[int, int], bool] | ArrayLike
Progress = Callable[[int, int], object]

MAX_HEARD = 1024  # combinations of outputs remembered; classifiers have few
CHUNK = 65_536  # rounds played at once: bounds the memory of a long run
MAX_ARMS = 15  # outputs travel as codes of four bits in one 64-bit integer

# The steps of a round, and the methods that take many at once or in another way. The package's own
# are written so that both agree. Where a subclass brings a step of its own, the methods that would
# bypass it give way to those of `Policy`, which call the steps one by one.
DECIDING = frozenset({"decide", "_noise"})
BY_OUTPUTS = frozenset({"observe", "_learn"})
BY_PAIRS = frozenset({"observe_disagreements", "_learn_pairs"})
LEARNING = BY_OUTPUTS | BY_PAIRS
STEPS = DECIDING | LEARNING | {"audit"}
BATCHES: dict[str, frozenset[str]] = {
    "decide_many": DECIDING,
    "decide_batch": DECIDING,
    "run": DECIDING | LEARNING,
    "run_disagreements": DECIDING | LEARNING,
    "replay": STEPS,
    "observe_many": LEARNING,
    "start": DECIDING | LEARNING,
    "resume": DECIDING | LEARNING,
}
BY_STEPS = {"run": "_run_by_steps", "run_disagreements": "_run_disagreements_by_steps"}
# What a policy shows of its estimates, and what rounds decided step by step ask of it. The engine
# that decides whole rounds asks for none of these.
SHOWN = ("radius", "theta", "gram", "disagreement", "begin", "should_stop", "decided", "learn_row")
PACKAGE = __name__.partition(".")[0]


def _giving_way(name: str, batch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a batch method that leaves the work to `Policy` where it would bypass a step."""

    @wraps(batch)
    def method(self: "Policy", *args: Any, **kwargs: Any) -> Any:
        if BATCHES[name].isdisjoint(self.own_steps):
            return batch(self, *args, **kwargs)
        return getattr(Policy, BY_STEPS.get(name, name))(self, *args, **kwargs)

    return method


class Policy(ABC):
    """Decides how deep to go, and learns from what the arms then say.

    Subclasses write the rule (`decide`) and what a round teaches (`_learn_pairs`); everything a
    caller can get wrong is checked here, before any state changes. A subclass of any policy may
    override these steps: every other method then calls them (docs/own_policy.md).

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    """

    name: ClassVar[str]
    needs_truth: ClassVar[bool] = False
    _steps: ClassVar[Mapping[str, object]]  # the steps of the nearest class of the package

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] == PACKAGE:
            for name in BATCHES.keys() & vars(cls).keys():
                setattr(cls, name, _giving_way(name, vars(cls)[name]))
            cls._steps = {step: getattr(cls, step, None) for step in STEPS}
            return
        own = {step for step, given in cls._steps.items() if getattr(cls, step, None) is not given}
        if own & BY_PAIRS and not own & BY_OUTPUTS and not cls.needs_truth:
            cls._learn = Policy._learn  # which hands outputs on as disagreements
        near = next(base for base in cls.__mro__ if "_steps" in vars(base))
        for name in SHOWN:
            given = getattr(near, name, None)
            if given is not None and getattr(cls, name) is not given and not own & DECIDING:
                raise OverrideNotSupportedError(
                    f"{cls.__name__} overrides {name}, which the decisions of {near.__name__} do "
                    "not ask for. Override decide"
                )

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

    @property
    def own_steps(self) -> frozenset[str]:
        """The steps that are not the package's: overridden by a subclass, or replaced."""
        kind, replaced = type(self), vars(self)
        return frozenset(
            step
            for step, given in kind._steps.items()
            if step in replaced or getattr(kind, step, None) is not given
        )

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
        self._check_steps()
        return Descent(self, x)

    def resume(self, state: Mapping[str, Any]) -> Descent:
        """Take up a round under way from what its `Descent.state` returned."""
        self._check_steps()
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
        """Return the stop for every row of ``X``, learning nothing between them.

        These are the rule's own stops: chance sends none of them on.
        """
        return np.array([self.decide(x).wanted for x in self._contexts(X)], dtype=np.int64)

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one, what is left to chance included.

        Returns
        -------
        stops, wanted : ndarray of shape (n,)
            The stop of every row, and where the rule itself stops (see `Decision.wanted`).
        """
        decisions = [self.decide(x) for x in self._contexts(X)]
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
        return self._run_by_steps(contexts, outputs, progress=progress)

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
        return self._run_disagreements_by_steps(contexts, differ, progress=progress)

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
        self._check_steps(outputs=False)
        checked = self._checked_rounds(rounds)
        xs = self._contexts(checked.contexts)
        audited = np.flatnonzero(() if checked.audited is None else checked.audited)
        if audited.size and "audit" in self.own_steps:
            raise OverrideNotSupportedError(
                f"{type(self).__name__} overrides audit, which takes a label, but recorded rounds "
                "only say which arms were wrong: replay them without audited labels"
            )

        def reveal(t: int, decision: Decision) -> None:
            known = int(checked.reach[t])
            end = min(decision.stop, known) if checked.failed[t] else decision.stop
            if 0 <= end <= known:
                differ = self._square(checked.differ[t])
                self.observe_disagreements(xs[t], end, differ)
                if t in labelled:
                    self._audit_recorded_round(checked, t, end, differ, decision.wanted)

        labelled = set(audited.tolist())
        return self._one_by_one(xs, reveal, progress)

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
        self._check_steps(outputs=False)
        checked = self._checked_rounds(rounds)
        xs = self._contexts(checked.contexts)
        for t, stop in enumerate(self._taught(checked, stops).tolist()):
            if stop >= 0:
                self.observe_disagreements(xs[t], stop, self._square(checked.differ[t]))

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind a decision; none for a rule that does not compare."""
        del decision
        return ()

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the policy to one file that `stopwise.load` continues from, bit for bit."""
        from stopwise.policies.persistence import save
        from stopwise.policies.registry import POLICIES

        if (kind := POLICIES.get(self.name)) is not type(self):
            read = "does not know" if kind is None else f"reads as {kind.__name__}"
            raise PersistenceError(
                f"{type(self).__name__} would be saved as {self.name!r}, which load {read}: give "
                f"it a name of its own and register it, stopwise.POLICIES[name] = "
                f"{type(self).__name__}"
            )
        save(self, path)

    # -- rounds step by step ----------------------------------------------------------------

    def _run_by_steps(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        *,
        optimal: ArrayLike | None = None,
        disagreement: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Ints:
        """Play rounds by `decide` and `observe`, giving them what truth there is."""
        self._check_steps()
        xs = self._contexts(contexts)
        told = self._checked_table(len(xs), cast(ArrayLike, outputs))
        right = None if labels is None else self._checked_labels(len(xs), labels).tolist()
        observe = cast(Callable[..., None], self.observe)

        def reveal(t: int, decision: Decision) -> None:
            truth = () if right is None else (Truth(label=right[t]),)
            stop, wanted = decision.stop, decision.wanted
            by_chance = {"wanted": wanted} if wanted < stop else {}
            observe(xs[t], told[t, : stop + 1].tolist(), *truth, **by_chance)

        return self._one_by_one(xs, reveal, progress, optimal, disagreement)

    def _run_disagreements_by_steps(
        self,
        contexts: ArrayLike,
        differ: ArrayLike | None = None,
        *,
        optimal: ArrayLike | None = None,
        disagreement: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Ints:
        """Play rounds by `decide` and `observe_disagreements`."""
        self._check_steps(outputs=False)
        xs = self._contexts(contexts)
        marks = self._checked_marks(len(xs), cast(ArrayLike, differ))

        def reveal(t: int, decision: Decision) -> None:
            self.observe_disagreements(xs[t], decision.stop, self._square(marks[t]))

        return self._one_by_one(xs, reveal, progress, optimal, disagreement)

    def _one_by_one(
        self,
        xs: NDArray[Any],
        reveal: Callable[[int, Decision], None],
        progress: Progress | None,
        optimal: ArrayLike | None = None,
        disagreement: ArrayLike | None = None,
    ) -> Ints:
        """Decide every round, told the truth that is given, and reveal what the stop reveals."""
        n = len(xs)
        truth = {
            name: np.asarray(given)
            for name, given in (("optimal", optimal), ("disagreement", disagreement))
            if given is not None
        }
        for name, table in truth.items():
            if table.ndim == 0 or len(table) != n:
                raise InvalidParameterError(f"{name} must have one value for each of {n} rounds")
        decide = cast(Callable[..., Decision], self.decide)
        stops = np.empty(n, dtype=np.int64)
        for t in range(n):
            told = (Truth(**{name: table[t] for name, table in truth.items()}),) if truth else ()
            decision = decide(xs[t], *told)
            stops[t] = self._checked_stop(decision.stop)
            reveal(t, decision)
            if progress is not None and (t % 1024 == 1023 or t + 1 == n):
                progress(t + 1, n)
        return stops

    def _audit_recorded_round(
        self, rounds: Rounds, t: int, end: int, differ: NDArray[np.bool_], wanted: int
    ) -> None:
        """Give `audit` a recorded round that has just been played.

        A record knows which arms agreed and which were wrong, not what they said: an output is
        named by the first arm that gave it.
        """
        assert rounds.wrong is not None  # checked beside `audited`
        wrong = cast(list[int], rounds.wrong[t, : end + 1].tolist())
        if 2 in wrong:  # it is not known of all
            return
        outputs = tuple(int(differ[: k + 1, k].argmin()) for k in range(end + 1))
        label = outputs[wrong.index(0)] if 0 in wrong else -1
        context = tuple(rounds.contexts[t].tolist())
        done = Round(str(t), 0.0, context, outputs, outputs, stop=end, wanted=wanted)
        with suppress(AuditNotSupportedError):
            self.audit(done, label)

    def _check_steps(self, *, outputs: bool = True) -> None:
        """Refuse rounds that steps one by one cannot play; ``outputs``: those of arms are known."""
        name = type(self).__name__
        if self._bound is not None and self._bound.sees is not None:
            raise OverrideNotSupportedError(
                f"{name} has steps of its own ({', '.join(sorted(self.own_steps))}), which take a "
                "whole context, but its features see more from stage to stage: give it features "
                "without `sees`"
            )
        if not outputs and (own := self.own_steps) & BY_OUTPUTS and not own & BY_PAIRS:
            raise OverrideNotSupportedError(
                f"{name} overrides {max(own & BY_OUTPUTS)}, which takes outputs, but of these "
                "rounds only disagreements are known: override observe_disagreements too"
            )

    @property
    def _bound(self) -> BoundFeatures | None:
        """The features of a policy that has bound some."""
        features = getattr(self, "features", None)
        return features if isinstance(features, BoundFeatures) else None

    def _contexts(self, contexts: ArrayLike) -> NDArray[Any]:
        """Return contexts as a table; refuse what the features refuse before a round is played."""
        if self._bound is not None:
            self._bound.rows(contexts)
            return np.array(contexts, dtype=np.float64)  # of its own: a step may write to it
        table = np.asarray(contexts)
        rounds_in(table)
        return table

    def _square(self, marks: Marks) -> NDArray[np.bool_]:
        """Return the disagreements of a round, in the order of ``cascade.pairs()``, as a table."""
        square = np.zeros((len(self._names),) * 2, dtype=np.bool_)
        square[_above_diagonal(len(square))] = marks
        return square

    # -- what a subclass provides ---------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        """Learn from the outputs of n arms, as codes of four bits that are equal when they are.

        By default, from which of them differ.
        """
        del wanted
        heard = np.array([codes >> 4 * arm & 15 for arm in range(n)])
        self.observe_disagreements(x, n - 1, heard[:, None] != heard[None, :])

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

    def _checked_labels(self, n_rounds: int, labels: ArrayLike) -> NDArray[Any]:
        right = as_table(labels)
        if right.shape != (n_rounds,) or bool(np.any(right != right)):
            raise InvalidOutputsError(
                f"labels must be {n_rounds} right answers, none of them NaN; this has shape "
                f"{right.shape}"
            )
        return right

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
        return np.ascontiguousarray(table, dtype=np.uint8)

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


# its own, which no __init_subclass__ sees
Policy._steps = {s: getattr(Policy, s, None) for s in STEPS}  # pyright: ignore[reportPrivateUsage]


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


@lru_cache(maxsize=MAX_ARMS)
def _above_diagonal(n_arms: int) -> tuple[Ints, Ints]:
    return np.triu_indices(n_arms, 1)


def _hashable(y: object) -> bool:
    try:
        hash(y)
    except TypeError:
        return False
    return True


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
