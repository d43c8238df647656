"""What the contextual policies share: features in, the native engine, evidence out."""

import copy
import threading
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, integer, real, size_in_bytes
from stopwise.engine.native import Learner, Rule, Trace
from stopwise.errors import InvalidParameterError, WideFeaturesWarning
from stopwise.features import Answers, BoundFeatures, FeaturesLike, Identity, Standard, bind
from stopwise.policies.change import ChangeAlarm
from stopwise.policies.checking import (
    Bools,
    Differ,
    checked_request,
    checked_stop,
    differing,
    encode_outputs,
    first_equals,
    square,
)
from stopwise.policies.estimates import Estimates
from stopwise.policies.labels import check_label
from stopwise.policies.playing import ContextualEngine
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.policies.self_scaling import LAST as MOST_HELD
from stopwise.policies.self_scaling import MOST_FEATURES, HeldRounds
from stopwise.policies.staged import StagedRound, known_row
from stopwise.records import Decision, Floats, Label, LabelRequest, Observation

MAX_CODED = 1024  # combinations of outputs whose codes are stored; classifiers have few
Request: TypeAlias = tuple[float, float, float]  # `LabelRequest` as the engine has it

SMALLEST_RIDGE = 1e-9  # with 10⁶ rounds, H is then still positive definite in double precision
MOST_FORCED = (1 << 53) - 1  # forced rounds: a double holds them exactly
EXPLORED = 0.06  # heuristic, by simulation: of rounds that explore at the beginning, if needed
OWN_RIDGE = 1 / 16  # precision of the prior for features that are not `Standard`: a logit of ±4
COUNTED = 4096  # distinct rows for each stop that the engine counts, whatever the memory
WIDE = 250  # heuristic: features from which a round costs more than some 10 ms (docs/features.md)


class Contextual(Estimates):
    """A policy that models each question's answer by a logistic regression on features.

    Subclasses choose the engine's rule to decide by (`_rule`).
    """

    always_explores: ClassVar[bool] = False  # unless told otherwise
    default_map: ClassVar[type[Identity] | type[Standard]] = Standard
    unset: ClassVar[dict[str, object]] = {"half_life": None, "memory": None}  # not in `parameters`

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None,
        context_dim: int | None,
        forced_rounds: int | str,
        ridge: float | None,
        explore: float | None = None,
        labels: float = 0,
        seed: int = 0,
        transitive: bool = False,
        half_life: float | None = None,
        memory: int | str | None = None,
    ) -> None:
        super().__init__(cascade)
        self._names, self._n_arms = cascade.names, cascade.n_arms
        self._costs = cast(list[float], cascade.cumulative.tolist())
        self._codes: dict[Hashable, tuple[int, int]] = {}  # of outputs observed before
        if context_dim is None:
            if not isinstance(features, Answers):
                raise InvalidParameterError(
                    "give the number of values in a context: context_dim=8, for instance"
                )
            context_dim = 0
        self.features: BoundFeatures = bind(  # pyright: ignore[reportIncompatibleVariableOverride] (never None)
            self.default_map() if features is None else features, context_dim, cascade.n_arms
        )
        if (wide := self.features.n_features) > WIDE:
            warnings.warn(
                f"{wide:,} features are many: once there are as many rounds as features, a round "
                f"costs about {35 * (wide / 384) ** 3:,.0f} ms, growing with the cube. Use fewer: "
                "a lower degree, Polynomial.independent(X), or a projection to 50 or so",
                WideFeaturesWarning,
                stacklevel=3,
            )
        self.ridge = None if ridge is None else real("ridge", ridge, least=SMALLEST_RIDGE)
        if forced_rounds != "auto":
            name = 'forced_rounds, unless "auto",'
            forced_rounds = integer(name, forced_rounds, most=MOST_FORCED)
        self.forced_rounds = forced_rounds
        self.explore = None if explore is None else real("explore", explore, least=0, most=1)
        self.labels = real("labels", labels, least=0)
        if not 0 < self.labels < 1:
            self.labels = integer("labels", labels)
        self.seed = checked_seed(seed)
        self.half_life = (
            None if half_life is None else real("half_life", half_life, least=1, most=1e15)
        )
        self.memory = None if memory is None else size_in_bytes("memory", memory)
        if half_life is not None and memory is not None:
            raise InvalidParameterError("give half_life or memory: a half-life bounds memory, too")
        if half_life is not None and forced_rounds == "auto":
            raise InvalidParameterError(
                'forced_rounds="auto" may never end with a half_life, which keeps V from growing; '
                "give a number"
            )
        self.transitive = transitive
        if transitive and self.features.sees is not None:
            raise InvalidParameterError(
                "transitive=True needs the complete context from the start; stages reveal it here"
            )
        self._n_pairs = len(cascade.pairs())
        self._last = cascade.n_arms - 1
        needed = self.always_explores or self.features.sees is not None or self.labels
        own = EXPLORED if needed else 0.0
        self.share_explored = own if self.explore is None else self.explore  # at the beginning
        self.learner = self.use_features(self.features)
        self.lock = threading.RLock()
        self.held = None
        if self.features.scales_itself:
            self.held = HeldRounds(self.features.context_dim, cascade.n_arms)

    def parameters(self) -> dict[str, Any]:
        """Return the keyword arguments that create an equal, untrained policy (see `Policy`)."""
        given = super().parameters()
        return {k: v for k, v in given.items() if k not in self.unset or v != self.unset[k]}

    @abstractmethod
    def _rule(self) -> Rule:
        """Return the engine's rule, with its constants."""

    def questions(self) -> list[tuple[int, int]]:
        """Return each question's slot of features, and the arm that must have run to answer it."""
        return [(self.features.slot_of(i, j), j) for i, j in self.cascade.pairs()]

    def answered_from(self, i: int, j: int) -> int:
        """Return the first stop of the rounds that count for a pair where stages reveal."""
        del j
        return i + 1

    # -- the protocol ---------------------------------------------------------------------

    def decide(self, x: ArrayLike | None) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""
        if self.held is None:
            return self._decide(cast(ArrayLike, x))
        with self.lock:  # features and learner may be about to change together
            return self._decide(cast(ArrayLike, x))

    def _decide(self, x: ArrayLike) -> Decision:
        trace = None if (maps := self._maps) is None else self.learner.decide(x, maps)
        if trace is None:  # own features, another form of context, or an invalid one
            trace = self.learner.decide(self.features.row(x), None)
            assert trace is not None  # features are valid
        return self.decided(trace.stop, trace.rule_stop, trace)

    @property
    def asks_for_labels(self) -> bool:
        """Whether rounds may want a label (`LabelRequest`)."""
        return self.learns_from_labels and self.labels > 0

    @property
    def engine(self) -> ContextualEngine:
        """What plays many rounds in one call."""
        return ContextualEngine(self)

    def start(self, x: ArrayLike | None = None) -> RoundInProgress:
        """Start a round that is decided step by step (see `Policy.start`)."""
        return StagedRound(self, x) if self.sees_revealed else super().start(x)

    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round from what its `RoundInProgress.state` returned."""
        return StagedRound.resumed(self, state) if self.sees_revealed else super().resume(state)

    # -- for a `StagedRound` ------------------------------------------------------------------

    def decided(self, stop: int, rule_stop: int, trace: Trace) -> Decision:
        """Return the decision of a round that ended at ``stop``."""
        explored_from = rule_stop if rule_stop < stop else None
        return Decision(stop, self._names[stop], self._costs[stop], self, trace, explored_from)

    # -- learning ---------------------------------------------------------------------------

    def observe(
        self,
        x: ArrayLike | None,
        outputs: Sequence[Hashable],
        *,
        rule_stop: int | None = None,
    ) -> LabelRequest | None:
        """Learn from the outputs of arms 0 … stop (see `Policy.observe`)."""
        try:
            if not isinstance(outputs, str | bytes):
                outputs = tuple(outputs)
            n, codes = self._codes[outputs]
        except (KeyError, TypeError):
            n, codes = encode_outputs(outputs, self._n_arms)
            if len(self._codes) < MAX_CODED:
                self._codes[outputs] = n, codes
        rule = n - 1 if rule_stop is None else checked_stop(rule_stop, self._n_arms, "rule_stop")
        return self.learn_round(cast(ArrayLike, x), n, codes, rule)

    def learn_round(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> LabelRequest | None:
        """Learn from the outputs of n arms, given as codes; return a request for the label."""
        if self.held is None and self.alarm is None:
            return _request(self._learn_outputs(x, n, codes, rule_stop))
        with self.lock:
            request = self._learn_outputs(x, n, codes, rule_stop)
            self.hold(x, n - 1, rule_stop, self._listed(differing(codes, n)))
            return _request(request)

    def _learn_outputs(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> Request:
        maps = self._maps
        found = None if maps is None else self.learner.observe(x, maps, n, rule_stop, codes)
        if found is None:
            row = known_row(self.features, x, [codes >> 4 * arm & 15 for arm in range(n)])
            found = self.learner.observe(row, None, n, rule_stop, codes)
            assert found is not None  # features are valid
        return found

    def learn(self, observation: Observation) -> LabelRequest | None:
        """Learn which arms of a round disagreed; return a request for the label."""
        x, stop = cast(ArrayLike, observation.context), observation.stop
        answers = self._listed(observation.differ)
        ends, rule_ends = np.array([stop]), np.array([observation.rule_stop])
        request = np.zeros((1, 3))
        with self.lock:
            row = self.row_of(x, stop + 1, answers)
            self.learner.learn(row[None], answers[None], ends, rule_ends, request)
            self.hold(x, stop, observation.rule_stop, answers)
        return _request(tuple(request[0].tolist()))

    def _listed(self, differ: Bools) -> Differ:
        """Return what differs, (n, n), in the order of the pairs; 0 for arms beyond."""
        n = len(differ)
        pairs = self.cascade.pairs()
        return np.array([j < n and differ[i, j] for i, j in pairs], dtype=np.uint8)

    def row_of(self, x: ArrayLike, n: int, differ: Differ) -> Floats:
        """Return the features of a round of n arms, of which these pairs differed."""
        return known_row(self.features, x, first_equals(square(differ > 0, self._n_arms), n))

    def learn_label(self, label: Label) -> None:
        """Learn which arms of a finished round were right (see `Policy.label`).

        Where arms i < j disagree, labels estimate the gain g_ij(x) of going on: how much more often
        j is right there than i. Going on then corrects p_ij·g_ij, and the rule becomes
        C_j − C_i > UCB(p_ij)·UCB(g_ij).
        """
        check_label(label, self._n_arms)
        observation, request = label.observation, checked_request(label.request)
        n, rule_stop = observation.stop + 1, observation.rule_stop
        table = np.asarray(observation.differ, dtype=np.bool_)[:n, :n]
        right, differ = np.array(label.right, dtype=np.uint8), self._listed(table)
        context = np.asarray(observation.context, dtype=np.float64)
        with self.lock:
            row = known_row(self.features, context, first_equals(table, n))
            self.learner.label(row, rule_stop, right, differ, request)
            if self.held is not None:
                known = context.ravel().tolist()
                self.held.hold_label(known, rule_stop, right.tolist(), differ.tolist(), request)

    # -- features that scale themselves -------------------------------------------------------

    def use_features(self, features: BoundFeatures) -> Learner:
        """Use other features from now on; return an empty learner for them."""
        self.features = features  # pyright: ignore[reportIncompatibleVariableOverride] (never None)
        self._maps = features.maps_in_engine
        return self._new_learner()

    def _new_learner(self) -> Learner:
        """Return a learner of the features used now that has seen nothing."""
        features, cascade = self.features, self.cascade
        scopes = [(slot, arm, arm) for slot, arm in self.questions()]
        if features.sees is not None:
            pairs = zip(scopes, cascade.pairs(), strict=True)
            scopes = [(slot, arm, self.answered_from(*pair)) for (slot, arm, _), pair in pairs]
        # Questions that see the same features in the same rounds have the same V.
        grams = list(dict.fromkeys(scopes))
        offsets, dims, linear = features.offsets, features.dims, features.linear
        return Learner(
            self._rule(),
            n_arms=cascade.n_arms,
            width=features.width,
            questions=[grams.index(one) for one in scopes],
            grams=[(offsets[s], dims[s], arm, first, linear[s]) for s, arm, first in grams],
            gaps=cascade.gaps.ravel().tolist(),
            ridge=self._prior_precision(),
            forced_rounds=-1 if isinstance(self.forced_rounds, str) else self.forced_rounds,
            transitive=self.transitive,
            explore=self.share_explored,
            labels=float(self.labels),
            seed=self.seed,
            half_life=self.half_life or 0.0,
            most_rows=self._most_rows(),
        )

    def _prior_precision(self) -> float:
        """Return the ridge: as given, or what makes the prior that `Standard` describes."""
        if self.ridge is not None:
            return self.ridge
        first = self.features.maps[0]
        return first.size**2 if isinstance(first, Standard) and first.size else OWN_RIDGE

    def _most_rows(self) -> int:
        """Return how many rows of features may be stored one by one, 0 for all."""
        if self.memory is None:
            return 0
        n_questions, width = len(self.questions()), self.features.width
        if self.features.scales_itself:  # as wide as they may become
            width = max(width, MOST_FEATURES * len(self.features.maps))
        row, counted = 8 * width + n_questions / 8, 8 * width + 4 * n_questions + 48
        least = COUNTED * self._n_arms * counted + 1024 * row
        if self.memory < least:
            raise InvalidParameterError(
                f"memory must be at least {least / 1e6:.1f} MB for these features"
            )
        return int((self.memory - least) / row) + 1024

    def hold(
        self, x: ArrayLike, stop: int, rule_stop: int, differ: Differ, asks: bool = True
    ) -> None:
        """Hold a round that was learned while features are still to be fitted; watch it after."""
        context = np.asarray(x, dtype=np.float64).ravel()
        if (held := self.held) is None:
            if self.alarm is not None:
                self.alarm.add(context[None], differ[None], np.array([stop]), np.array([rule_stop]))
            return
        if held.hold(context.tolist(), stop, rule_stop, differ.tolist(), asks):
            held.fit(self)
            if held.full:
                self.held = None

    # -- construction and persistence ---------------------------------------------------------

    def save(self, path: "str | PathLike[str]") -> None:
        """Write the policy to one file (see `Policy.save`)."""
        with self.lock:  # features and learner change together
            super().save(path)

    def __repr__(self) -> str:
        return f"{super().__repr__()} after {self.rounds} rounds"

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, and the random state if there is one, as arrays by name."""
        with self.lock:
            arrays: dict[str, NDArray[Any]] = {
                "learner": np.frombuffer(self.learner.save(), dtype=np.uint8)
            }
            if self.held is not None:
                arrays |= self.held.state()
            arrays |= {} if self.alarm is None else self.alarm.state()
        return arrays

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        learner = state["learner"]
        if learner.dtype != np.uint8 or learner.ndim != 1:
            raise ValueError(f"learner is {learner.dtype}{learner.shape}, expected bytes")
        restored_learner = self._new_learner()
        restored_learner.restore(learner.tobytes())
        held = None
        if self.features.scales_itself and restored_learner.rounds < MOST_HELD:
            held = HeldRounds(self.features.context_dim, self._n_arms)
            held.restore(state, restored_learner.rounds)
        self.alarm = ChangeAlarm(self, state) if "alarm" in state else None
        self.learner, self.held = restored_learner, held

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            apart = {"learner": self.learner.save(), "held": copy.deepcopy(self.held)}
            return {**self.__dict__, **apart, "_maps": None, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()
        self.learner = self.use_features(self.features)
        self.learner.restore(state["learner"])


def _request(found: Request) -> LabelRequest | None:
    probability, explored, rounds = found
    return LabelRequest(probability, explored, int(rounds)) if probability > 0 else None
