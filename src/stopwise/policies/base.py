"""The protocol that every policy follows: deciding and learning, one round or many."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import rounds_in
from stopwise.errors import AuditNotSupportedError, InvalidParameterError
from stopwise.features import BoundFeatures
from stopwise.policies import overrides
from stopwise.policies.checking import (
    Bools,
    GivenTruth,
    Ints,
    KnownTruth,
    Pairs,
    checked_pairs,
    checked_stop,
    checked_truth,
    coded,
    decoded,
    differ_table,
    learned_ends,
    output_table,
    square,
)
from stopwise.policies.recorded import Rounds, audited_round
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.records import (
    Decision,
    PairCoverage,
    PairEvidence,
    Progress,
    Round,
    Truth,
    no_progress,
)

MAX_CODED = 1024  # combinations of outputs whose codes are stored; classifiers have few
CHUNK = 65_536  # rounds played at once: bounds the memory of a long run
MAX_ARMS = 15  # outputs travel as codes of four bits in one 64-bit integer


class Policy(ABC):
    """Decides how deep to go, and learns from the outputs of the arms that ran.

    Subclasses write the rule (`decide`) and how to learn from a round (`_learn_pairs`). Arguments
    are checked here, before any state changes. A subclass of any policy may override these steps:
    every other method then calls them (docs/own_policy.md).

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    """

    name: ClassVar[str]
    needs_truth: ClassVar[tuple[str, ...]] = ()  # what `run` must be given: "labels", …
    uses_context: ClassVar[bool] = True
    draws: ClassVar[bool] = False  # decisions use random numbers
    estimates_disagreement: ClassVar[bool] = False
    overridden_steps: ClassVar[frozenset[str]] = frozenset()  # by a class outside the package
    features: BoundFeatures | None = None
    forced_rounds: int | str = 0
    builtin: "ClassVar[type[Policy]]"  # the nearest class of the package
    parameter_names: ClassVar[tuple[str, ...]]  # of the keyword arguments, which are attributes too

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if overrides.in_package(cls):
            cls.builtin = cls
            return
        steps = cls.overridden_steps = overrides.find_overridden(cls, cls.builtin)
        if overrides.only_pairs(steps) and not cls.needs_truth:
            cls._learn = Policy._learn  # which compares outputs and passes on what differs
        for name in ("decide_many", "decide_batch") if steps else ():  # these call `decide`
            if getattr(cls, name) is getattr(cls.builtin, name):
                setattr(cls, name, getattr(Policy, name))

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
        """Whether `audit` is supported."""
        return type(self).audit is not Policy.audit

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return sum(array.nbytes for array in self.state().values())

    @property
    def effort(self) -> Mapping[str, int]:
        """What exact estimates have cost so far, by name; empty where there are none."""
        return {}

    def least_observed_pair(self) -> PairCoverage | None:
        """Return the pair of arms with the fewest observations, for a policy that models pairs."""
        return None

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
    ) -> None:
        """Learn from the outputs of arms 0 … stop.

        Parameters
        ----------
        x : array_like
            The context at the start of the round.
        outputs : sequence
            The outputs of arms 0 to the stop; any hashable values, compared by equality. The
            round stopped at the last of them.
        rule_stop : int, optional
            ``decision.rule_stop``, for a policy that continues some rounds at random.
        """
        try:
            if type(outputs) is not str:
                outputs = tuple(outputs)
            n, codes = self._codes[outputs]
        except (KeyError, TypeError):
            n, codes = coded(outputs, self._n_arms)
            if len(self._codes) < MAX_CODED:
                self._codes[outputs] = n, codes
        rule = n - 1 if rule_stop is None else checked_stop(rule_stop, self._n_arms)
        self._learn(x, n, codes, rule)

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
        overrides.check_learns_from_pairs(self)
        stop = checked_stop(stop, self._n_arms)
        self._learn_pairs(x, stop, checked_pairs(pairs, stop, self._n_arms))

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

    def start(self, x: ArrayLike | None) -> RoundInProgress:
        """Begin a round that is decided step by step, as stages answer.

        Parameters
        ----------
        x : array_like
            What is known before the first arm; None for a policy that looks at no context. Stages
            may add to it where the features say so (`PerStage` with ``sees``).

        Returns
        -------
        RoundInProgress
            Names the arm to run next, or stops; then learns from the outputs.
        """
        overrides.check_complete_contexts(self)
        return RoundInProgress(self, x)

    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round from what its `RoundInProgress.state` returned."""
        overrides.check_complete_contexts(self)
        return RoundInProgress.resumed(self, state)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons behind a decision; none for a rule that does not compare."""
        del decision
        return ()

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the policy to one file that `stopwise.load` continues from, bit for bit."""
        from stopwise.policies.persistence import save

        save(self, path)

    # -- many rounds, here one by one -----------------------------------------------------------

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the rule's own stop for every row of ``X``, learning nothing between them."""
        return np.array([self.decide(x).rule_stop for x in self._contexts(X)], dtype=np.int64)

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one, random exploration included.

        Returns
        -------
        stops, rule_stop : ndarray of shape (n,)
            The stop of every row, and where the rule itself stops (see `Decision.rule_stop`).
        """
        decisions = [self.decide(x) for x in self._contexts(X)]
        stops = np.array([decision.stop for decision in decisions], dtype=np.int64)
        return stops, np.array([decision.rule_stop for decision in decisions], dtype=np.int64)

    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds in order: decide, reveal outputs as deep as decided, learn.

        Parameters
        ----------
        contexts : array_like of shape (n, context_dim)
            One context a round.
        outputs : array_like of shape (n, K)
            What every arm would output; only what a stop reveals is looked at.
        progress : callable, optional
            Called as ``progress("rounds", done, of)`` now and then.
        **truth
            What the policy `needs_truth` for, one value a round: ``labels``, ``optimal`` (i*), or
            ``disagreement`` (p_ij, shape (n, K, K)).

        Returns
        -------
        ndarray of shape (n,)
            The stops.
        """
        xs = self._contexts(contexts)
        table = output_table(outputs, len(xs), self._n_arms)
        known = dict(self._checked_truth(len(xs), truth))
        labels = known.pop("labels").tolist() if "labels" in known else None
        observe = cast(Callable[..., None], self.observe)

        def learn(t: int, decision: Decision) -> None:
            label = () if labels is None else (Truth(label=labels[t]),)
            stop, rule_stop = decision.stop, decision.rule_stop
            explored = {"rule_stop": rule_stop} if rule_stop < stop else {}
            observe(xs[t], table[t, : stop + 1].tolist(), *label, **explored)

        return self._one_by_one(xs, learn, progress, known)

    def run_disagreements(
        self,
        contexts: ArrayLike,
        differ: ArrayLike,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds of which only the pairwise disagreements are known.

        Parameters
        ----------
        differ : array_like of shape (n, K(K−1)/2)
            Whether each pair would disagree, in the order of ``cascade.pairs()``; only what a
            stop reveals is looked at.
        contexts, progress, **truth
            As in `run`, which returns the same.
        """
        overrides.check_learns_from_pairs(self)
        xs = self._contexts(contexts)
        table = differ_table(differ, len(xs), self.cascade)
        known = self._checked_truth(len(xs), truth)

        def learn(t: int, decision: Decision) -> None:
            self.observe_disagreements(xs[t], decision.stop, square(table[t], self._n_arms))

        return self._one_by_one(xs, learn, progress, known)

    def run_recorded(self, rounds: Rounds, *, progress: Progress = no_progress) -> Ints:
        """Play recorded rounds in order: decide, reveal what the record knows, learn.

        The policy learns nothing from a round in which it goes deeper than the record reaches.

        Returns
        -------
        ndarray of shape (n,)
            The stops decided, also where the record does not reach them.
        """
        checked = overrides.check_record(self, rounds)
        xs = self._contexts(checked.contexts)

        def learn(t: int, decision: Decision) -> None:
            known = int(checked.reach[t])
            end = min(decision.stop, known) if checked.failed[t] else decision.stop
            if 0 <= end <= known:
                differ = square(checked.differ[t], self._n_arms)
                self.observe_disagreements(xs[t], end, differ)
                known_label = audited_round(checked, t, end, differ, decision.rule_stop)
                if known_label is not None and self.learns_from_labels:
                    self.audit(*known_label)

        return self._one_by_one(xs, learn, progress, {})

    def observe_many(
        self, rounds: Rounds, stops: ArrayLike, *, rule_stop: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds without deciding: a warm start from a log.

        Parameters
        ----------
        rounds : Rounds
            The record.
        stops : array_like of shape (n,)
            Where each round ended; nothing is learned from those that the record does not reach.
        rule_stop : array_like of shape (n,), optional
            Where the rule would have ended each, for a policy that continues some at random.
        """
        del rule_stop
        checked = overrides.check_record(self, rounds)
        xs = self._contexts(checked.contexts)
        for t, stop in enumerate(learned_ends(checked, stops, self._n_arms).tolist()):
            if stop >= 0:
                self.observe_disagreements(xs[t], stop, square(checked.differ[t], self._n_arms))

    def _one_by_one(
        self,
        xs: NDArray[Any],
        learn: Callable[[int, Decision], None],
        progress: Progress,
        truth: KnownTruth,
    ) -> Ints:
        n = len(xs)
        decide = cast(Callable[..., Decision], self.decide)
        stops = np.empty(n, dtype=np.int64)
        for t in range(n):
            known = (Truth(**{name: table[t] for name, table in truth.items()}),) if truth else ()
            decision = decide(xs[t], *known)
            stops[t] = checked_stop(decision.stop, self._n_arms)
            learn(t, decision)
            if t % 1024 == 1023 or t + 1 == n:
                progress("rounds", t + 1, n)
        return stops

    # -- what a subclass provides ---------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> None:
        """Learn from the outputs of n arms: codes of four bits, equal where the outputs are."""
        del rule_stop
        self.observe_disagreements(x, n - 1, decoded(codes, n))

    @abstractmethod
    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        """Learn from disagreements: (K, K), read in the upper triangle up to the stop."""

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that make an equal, untrained policy, as plain values."""
        return {name: getattr(self, name) for name in self.parameter_names}

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, as arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; raise ValueError if it does not fit."""

    # -- checks -----------------------------------------------------------------------------

    def _checked_truth(self, n: int, truth: GivenTruth) -> KnownTruth:
        return checked_truth(type(self).__name__, self.needs_truth, n, truth)

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
