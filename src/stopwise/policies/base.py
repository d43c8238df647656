"""The protocol that every policy follows: deciding and learning, one round or many."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import Parameter
from os import PathLike
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.arrays import Bools, Ints
from stopwise.cascade import Cascade
from stopwise.checks import as_table, rounds_in
from stopwise.errors import InvalidParameterError, LabelsNotSupportedError, LabelWarning
from stopwise.features import BoundFeatures
from stopwise.policies import checking, overrides
from stopwise.policies.checking import ToPlay
from stopwise.policies.labels import Right, label_of, recorded_label
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.progress import Progress, no_progress
from stopwise.records import (
    Decision,
    Label,
    LabelRequest,
    Observation,
    PairEvidence,
    RecordedRounds,
    Round,
)

MAX_CODED = 1024  # combinations of outputs whose codes are stored; classifiers have few
CHUNK = 65_536  # rounds played at once: bounds the memory of a long run
MAX_ARMS = 15  # outputs travel as codes of four bits in one 64-bit integer


class Policy(ABC):
    """Decides how deep to go, and learns from the outputs of the arms that ran.

    Subclasses write the rule (`decide`) and how to learn from a round (`_learn_pairs`). Arguments
    are checked here, before any state changes. A subclass of any policy may override these steps:
    every other method then calls them (docs/own_policy.md).
    """

    name: ClassVar[str]
    uses_context: ClassVar[bool] = True
    overridden_steps: ClassVar[frozenset[str]] = frozenset()  # by a class outside the package
    builtin: "ClassVar[type[Policy]]"  # the nearest class of the package
    features: BoundFeatures | None = None
    forced_rounds: int | str = 0
    encoding: dict[str, Any] | None = None  # how named values become a context: `Encoding.to_spec`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("stopwise."):
            cls.builtin = cls
            return
        steps = cls.overridden_steps = overrides.find_overridden(cls, cls.builtin)
        if steps & overrides.FROM_PAIRS and not steps & overrides.FROM_OUTPUTS:
            cls._learn = Policy._learn  # which compares outputs and passes on what differs
        # By the `decide` of this very class, so that a subclass's may call super().decide_batch.
        batches: dict[str, Callable[[Policy, ArrayLike], Any]] = {
            "decide_many": lambda self, X: self._decide_each(X, cls)[1],
            "decide_batch": lambda self, X: self._decide_each(X, cls),
        }
        for name, batch in batches.items() if steps else ():
            if getattr(cls, name).__module__.startswith("stopwise."):
                setattr(cls, name, batch)

    def __init__(self, cascade: Cascade) -> None:
        if not isinstance(cascade, Cascade) or cascade.n_arms > MAX_ARMS:  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
            raise InvalidParameterError(
                f"a policy needs a Cascade of at most {MAX_ARMS} arms first, such as "
                f"Cascade(costs=[0.1, 0.2]), not {cascade!r}"
            )
        self.cascade = cascade
        self._names = cascade.names
        self._n_arms = cascade.n_arms
        self._codes: dict[Hashable, tuple[int, int]] = {}  # of outputs observed before
        self._costs = cast(list[float], cascade.cumulative.tolist())

    # -- what a policy can do -----------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """d', the number of features; 0 for a policy without."""
        return 0 if self.features is None else self.features.n_features

    @property
    def sees_revealed(self) -> bool:
        """Whether stages reveal parts of the context, so that rounds are decided step by step."""
        return self.features is not None and self.features.sees is not None

    @property
    def learns_from_labels(self) -> bool:
        """Whether `label` is supported."""
        return type(self).learn_label is not Policy.learn_label

    @property
    def asks_for_labels(self) -> bool:
        """Whether rounds may want a label (`LabelRequest`)."""
        return self.learns_from_labels and bool(getattr(self, "labels", 0))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return sum(array.nbytes for array in self.state().values())

    @property
    def effort(self) -> Mapping[str, int]:
        """What exact estimates have cost so far, by name; empty where there are none."""
        return {}

    # -- one round --------------------------------------------------------------------------

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Rounds observed so far."""

    @abstractmethod
    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""

    def observe(
        self, x: ArrayLike, outputs: Sequence[Hashable], *, rule_stop: int | None = None
    ) -> LabelRequest | None:
        """Learn from the outputs of arms 0 … stop; return a request if the label is wanted.

        Outputs are hashable values, compared by equality; the round stopped at the last of them.
        ``rule_stop`` is ``decision.rule_stop``, for a policy that continues some rounds at random.
        """
        try:
            if not isinstance(outputs, str | bytes):
                outputs = tuple(outputs)
            n, codes = self._codes[outputs]
        except (KeyError, TypeError):
            n, codes = checking.encode_outputs(outputs, self._n_arms)
            if len(self._codes) < MAX_CODED:
                self._codes[outputs] = n, codes
        rule = n - 1 if rule_stop is None else checking.checked_stop(rule_stop, self._n_arms)
        return self._learn(x, n, codes, rule)

    def observe_disagreements(
        self, x: ArrayLike, stop: int, pairs: checking.Pairs
    ) -> LabelRequest | None:
        """Learn from a round for which only the pairwise disagreements are known.

        ``stop`` is the 0-based index of the last arm that ran; ``pairs`` says for every
        i < j ≤ stop whether arms i and j disagreed: ``{(i, j): bool}``, or the upper triangle of a
        square table.
        """
        overrides.check_learns_from_pairs(self)
        stop = checking.checked_stop(stop, self._n_arms)
        return self._learn_pairs(x, stop, checking.checked_pairs(pairs, stop, self._n_arms))

    def label(
        self,
        round: Round | RoundInProgress | Observation,  # noqa: A002 (the word for it)
        answer: Hashable = None,
        *,
        right: Right | None = None,
    ) -> None:
        """Learn from the label of a finished round: the right answer, or which arms were right.

        Best for rounds that want it (``wants_label``), early, late or never; of others only if
        they were chosen at random.

        Parameters
        ----------
        round : Round, RoundInProgress or Observation
            Where the label belongs to.
        answer : hashable, optional
            The right answer, in the form in which outputs are compared. An arm was right if its
            output equals it.
        right : sequence of bool, optional
            Instead of ``answer``: whether each arm that answered was right. For outputs of which
            several can be right, such as free text.

        Examples
        --------
        >>> import stopwise as sw
        >>> policy = sw.USSLaplace(sw.Cascade([0.01, 0.3]), context_dim=1, labels=100)
        >>> current = policy.start([0.5])
        >>> while (arm := current.next()) is not None:
        ...     current.give(["in Rome", "in Italy"][arm])
        >>> current.learn()
        >>> policy.label(current, right=[True, True])
        >>> policy.labelled
        1
        """
        label = label_of(round, answer, right, self._n_arms)
        if label is not None:
            self.learn_label(label)

    def learn_label(self, label: Label) -> None:
        """Learn which arms of a finished round were right, where the policy can (see `label`)."""
        del label
        raise LabelsNotSupportedError(
            f"{type(self).__name__} does not learn from labels; USSLaplace and USSPD do"
        )

    def start(self, x: ArrayLike | None) -> RoundInProgress:
        """Begin a round that is decided step by step, as stages answer.

        ``x`` is what is known before the first arm (None for a policy without contexts). Stages
        may add to it where the features say so (`Answers`).
        """
        return self._round_class()(self, x)

    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round from what its `RoundInProgress.state` returned."""
        return self._round_class().resumed(self, state)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind a decision; none for a rule that does not compare."""
        del decision
        return ()

    def alone(self) -> AbstractContextManager[Any]:
        """Return what keeps other threads from changing more than one part of this policy."""
        return nullcontext()

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the policy to one file that `stopwise.load` continues from, bit for bit."""
        from stopwise.policies.persistence import save

        save(self, path)

    # -- many rounds ----------------------------------------------------------------------------

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the rule's own stop for every row of ``X``, learning nothing between them."""
        return Policy.decide_batch(self, X)[1]

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one, random exploration included.

        Returns the stop of every row, and where the rule itself stops (`Decision.rule_stop`).
        """
        own = self.builtin is Policy  # which itself decides nothing
        return self._decide_each(X, type(self) if own else self.builtin)

    def should_stop_many(self, rounds: RecordedRounds) -> Bools:
        """Return whether the rule stops each round at the arm it has reached; learns nothing.

        For rounds that go on together, arm by arm, as the arms that ``answered`` grow in number.
        A round must be asked about at every arm in turn. A rule that draws draws anew at each.
        """
        return self.decide_many(rounds.contexts) < rounds.answered

    def explore_many(self, n: int) -> Bools:
        """Draw which of n rounds go to the last arm, whatever the rule says."""
        return np.zeros(n, dtype=np.bool_)

    def _decide_each(self, X: ArrayLike, kind: "type[Policy]") -> tuple[Ints, Ints]:
        decisions = [kind.decide(self, x) for x in self._contexts(X)]
        stops = [(decision.stop, decision.rule_stop) for decision in decisions]
        first, second = np.array(stops, dtype=np.int64).reshape(-1, 2).T
        return first, second

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        progress: Progress = no_progress,
    ) -> Ints:
        """Play rounds in order: decide, reveal outputs as deep as decided, learn; return the stops.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
        outputs : array_like of shape (n, K)
            What every arm would output; only what a stop reveals is looked at. A policy that
            decides by the truth alone needs none.
        labels : array_like of shape (n,), optional
            The right answers, for a policy that asks for labels, which sees those it asks for; None
            where unknown. `LabelWarning` if such a policy is given none, or if none of 30 or more
            is the output of any arm.
        progress : callable, optional
            Called as ``progress("rounds", done, of)`` now and then.
        """
        n = rounds_in(as_table(contexts))
        answers = self._checked_labels(labels, n)
        table = checking.output_table(outputs, n, self._n_arms)
        observe = cast(Callable[..., LabelRequest | None], self.observe)

        def learn(t: int, x: NDArray[Any], decision: Decision) -> None:
            stop, rule_stop = decision.stop, decision.rule_stop
            explored = {"rule_stop": rule_stop} if rule_stop < stop else {}
            request = observe(x, tuple(table[t, : stop + 1].tolist()), **explored)
            if request is not None:
                self._learn_recorded_label(record, t, stop, rule_stop, request)

        right, labelled = None, None
        if answers is not None:
            right, labelled = checking.right_arms(table, answers)
        elif self.asks_for_labels and n:
            warnings.warn(
                f"{type(self).__name__} asks for labels and run was given none: its requests are "
                "wasted; pass labels=, None where unknown",
                LabelWarning,
                stacklevel=2,
            )
        differ = checking.disagreements(table, self.cascade)
        answered, failed = np.full(n, self._n_arms), np.zeros(n, dtype=np.bool_)
        record = RecordedRounds(cast(Any, contexts), differ, answered, failed, right, labelled)
        return self._play(ToPlay(record, progress), learn)

    def run_disagreements(
        self,
        contexts: ArrayLike,
        differ: ArrayLike,
        *,
        progress: Progress = no_progress,
    ) -> Ints:
        """Play rounds for which only the pairwise disagreements are known.

        As `run`, with ``differ`` of shape (n, K(K−1)/2) in place of outputs: whether each pair
        would disagree, in the order of ``cascade.pairs()``.
        """
        n = rounds_in(as_table(contexts))
        answered, failed = np.full(n, self._n_arms), np.zeros(n, dtype=np.bool_)
        given = RecordedRounds(cast(Any, contexts), cast(Any, differ), answered, failed)
        return Policy.run_recorded(self, given, progress=progress)

    def run_recorded(self, rounds: RecordedRounds, *, progress: Progress = no_progress) -> Ints:
        """Play recorded rounds in order: decide, reveal what the record knows, learn.

        The policy learns nothing from a round in which it goes deeper than arms ``answered``.
        Returns the stops decided, also where these arms did not answer.
        """
        record = overrides.check_record(self, rounds)

        def learn(t: int, x: NDArray[Any], decision: Decision) -> None:
            last = int(record.answered[t]) - 1
            end = min(decision.stop, last) if record.failed[t] else decision.stop
            if 0 <= end <= last:
                differ = checking.square(record.differ[t] > 0, self._n_arms)
                request = self.observe_disagreements(x, end, differ)
                if request is not None:
                    self._learn_recorded_label(record, t, end, decision.rule_stop, request)

        return self._play(ToPlay(record, progress), learn)

    def _learn_recorded_label(
        self, record: RecordedRounds, t: int, stop: int, rule_stop: int, request: LabelRequest
    ) -> None:
        """Give the label that was asked for, if the record has it."""
        label = recorded_label(record, t, stop, rule_stop, request, self._n_arms)
        if label is not None:
            self.learn_label(label)

    def observe_many(
        self, rounds: RecordedRounds, stops: ArrayLike, *, rule_stop: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds without deciding: a warm start from a log.

        ``stops`` are where the rounds ended; nothing is learned where that arm did not answer.
        ``rule_stop`` is where the rule would have ended each (see `observe`).
        """
        del rule_stop
        record = overrides.check_record(self, rounds)
        xs = self._contexts(record.contexts)
        for t, stop in enumerate(checking.learned_ends(record, stops, self._n_arms).tolist()):
            if stop >= 0:
                differ = checking.square(record.differ[t], self._n_arms)
                self.observe_disagreements(xs[t], stop, differ)

    def _play(self, rounds: ToPlay, learn: Callable[[int, NDArray[Any], Decision], None]) -> Ints:
        """Play rounds all at once, or one by one where a step is overridden."""
        if not self.overridden_steps and (stops := self._at_once(rounds)) is not None:
            return stops
        xs = self._contexts(rounds.record.contexts)
        stops = np.empty(len(xs), dtype=np.int64)
        for t, x in enumerate(xs):
            decision = self.decide(x)
            stops[t] = checking.checked_stop(decision.stop, self._n_arms)
            learn(t, x, decision)
            if t % 1024 == 1023 or t + 1 == len(xs):
                rounds.progress("rounds", t + 1, len(xs))
        return stops

    # -- what a subclass provides ---------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> LabelRequest | None:
        """Learn from the outputs of n arms: codes of four bits, equal where the outputs are."""
        del rule_stop
        return self.observe_disagreements(x, n - 1, checking.differing(codes, n))

    @abstractmethod
    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> LabelRequest | None:
        """Learn from disagreements: (K, K), read in the upper triangle up to the stop."""

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal, untrained policy, as plain values.

        Every argument of the constructor is an attribute too, but for the cascade and features.
        """
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        taken = overrides.constructor_parameters(type(self)).items()
        apart = ("self", "cascade", "features", "context_dim")
        names = [name for name, p in taken if p.kind in named and name not in apart]
        return {name: getattr(self, name) for name in names}

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, as arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; raise ValueError if it does not fit."""

    def _at_once(self, rounds: ToPlay) -> Ints | None:
        """Play rounds without calling the steps, or return None where that is not possible."""
        del rounds
        return None

    # -- checks -----------------------------------------------------------------------------

    def _checked_labels(self, labels: ArrayLike | None, n: int) -> NDArray[Any] | None:
        """Return the labels of n rounds, or None; raise if this policy would not use them."""
        if labels is None:
            return None
        if not self.asks_for_labels:
            kind = type(self).__name__
            advice = f"create it with labels=100, for example: {kind}(cascade, …, labels=100)"
            if not self.learns_from_labels:
                advice = "USSLaplace and USSPD do"
            raise InvalidParameterError(f"this {kind} does not ask for labels; {advice}")
        return checking.label_column(labels, n)

    def _round_class(self) -> type[RoundInProgress]:
        overrides.check_complete_contexts(self)
        return RoundInProgress

    def _contexts(self, contexts: ArrayLike) -> NDArray[Any]:
        """Return contexts as a table; refuse what the features refuse before a round is played."""
        overrides.check_complete_contexts(self)
        if self.features is not None:
            self.features.rows(contexts)
            return np.array(contexts, dtype=np.float64)  # a copy: a step may write to it
        table = np.asarray(contexts)
        rounds_in(table)
        return table

    def _decision(self, stop: int) -> Decision:
        return Decision(stop, self._names[stop], self._costs[stop])

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # a policy is its state: two must never share any

    def __repr__(self) -> str:
        text = ", ".join(f"{k}={v!r}" for k, v in self.parameters().items())
        return f"{type(self).__name__}({self.cascade!r}, {text}) after {self.rounds} rounds"


Policy.builtin = Policy
