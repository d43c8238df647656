"""What the contextual policies share: features in, the native engine, evidence out."""

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import integer, real
from stopwise.engine.native import Learner, Rule
from stopwise.errors import InvalidParameterError, StopwiseError, WideFeaturesWarning
from stopwise.features import BoundFeatures, FeaturesLike, Identity, bind
from stopwise.policies.base import CHUNK, Policy
from stopwise.policies.checking import Bools, Ints, ToPlay, learned_ends
from stopwise.policies.overrides import check_record
from stopwise.policies.randomness import checked_seed, generator, restored, stored
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.policies.staged import StagedRound, known_row, recorded_rows
from stopwise.records import Decision, PairCoverage, PairEvidence, Rounds

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Found = TypeVar("Found")

SMALLEST_RIDGE = 1e-9  # with 10⁶ rounds, H is then still positive definite in double precision
LARGEST_EVERY = 10_000  # of `full_depth_every`: the weight of a round continued at random
MOST_FORCED = (1 << 53) - 1  # forced rounds: a double holds them exactly
NO_STAGE = 1 << 30  # for the engine: features that see the complete context from the start
WIDE = 250  # heuristic: features from which a round costs more than some 10 ms (docs/features.md)
GRAM_RESIDUAL = 1e-7  # ‖V·V⁻¹ − I‖ of what `gram` returns


class Contextual(Policy):
    """A policy that models each question's answer by a logistic regression on features.

    Subclasses choose the engine's rule to decide by (`_rule`).
    """

    estimates_disagreement: ClassVar[bool] = True
    draws: ClassVar[bool] = False  # decisions use random numbers

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None,
        context_dim: int | None,
        forced_rounds: int | str,
        ridge: float,
        full_depth_every: int | None = None,
        seed: int = 0,
        transitive: bool = False,
    ) -> None:
        super().__init__(cascade)
        if context_dim is None:
            raise InvalidParameterError(
                "give the number of values in a context: context_dim=8, for instance"
            )
        self.features: BoundFeatures = bind(  # pyright: ignore[reportIncompatibleVariableOverride] (never None)
            Identity() if features is None else features, context_dim, cascade.n_arms
        )
        if (wide := self.features.n_features) > WIDE:
            warnings.warn(
                f"{wide:,} features are many: once there are as many rounds as features, a round "
                f"costs about {35 * (wide / 384) ** 3:,.0f} ms, growing with the cube. Use fewer: "
                "a lower degree, Polynomial.independent(X), or a projection to 50 or so",
                WideFeaturesWarning,
                stacklevel=3,
            )
        self.ridge = real("ridge", ridge, least=SMALLEST_RIDGE)
        if forced_rounds != "auto":
            name = 'forced_rounds, unless "auto",'
            forced_rounds = integer(name, forced_rounds, most=MOST_FORCED)
        self.forced_rounds = forced_rounds
        if full_depth_every is not None:
            full_depth_every = integer("full_depth_every", full_depth_every, 2, LARGEST_EVERY)
        self.full_depth_every = full_depth_every
        self.seed = checked_seed(seed)
        self.transitive = bool(transitive)
        if transitive and self.features.sees is not None:
            words = (
                "transitive=True needs the complete context from the start; stages reveal it here"
            )
            raise InvalidParameterError(words)
        self.learner = self._new_learner()
        # Not the stream of default_rng(seed), from which a caller may draw the contexts.
        explores = full_depth_every is not None
        self._random = generator([self.seed, *b"chance"]) if explores else None
        self._n_pairs = len(cascade.pairs())
        self._last = cascade.n_arms - 1
        self._maps = self.features.maps_in_engine

    @abstractmethod
    def _rule(self) -> Rule:
        """Return the engine's rule, with its constants."""

    def _questions(self) -> list[tuple[int, int]]:
        """Return each question's slot of features, and the arm that must have run to answer it."""
        return [(self.features.slot_of(i, j), j) for i, j in self.cascade.pairs()]

    # -- the protocol ---------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self.learner.rounds

    @property
    def audits(self) -> int:
        """Rounds whose label was given to `audit`."""
        return self.learner.labels

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""
        noise = self._noise() if self.draws else None
        found = None if (maps := self._maps) is None else self.learner.decide(x, maps, noise)
        if found is None:  # own features, another form of context, or an invalid one
            found = self.learner.decide(self.features.row(x), None, noise)
            assert found is not None  # features are valid
        stop, seen, note = found
        if self.full_depth_every is not None and self._explored(1)[0]:
            return self.decided(self._last, stop, noise, note, seen)
        return Decision(stop, self._names[stop], self._costs[stop], self, note, noise, seen)

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the rule's own stop for every row (see `Policy.decide_many`)."""
        rows = self.features.rows(X)
        n = len(rows)
        stops, rule_stop = np.empty((2, n), dtype=np.int64)
        differ, explored = np.zeros((n, len(self._questions())), np.uint8), np.zeros(n, np.uint8)
        nothing, noise = np.full(n, -1), self._noise_table(n)  # nothing is revealed
        self.learner.run(rows, differ, nothing, explored, noise, None, stops, rule_stop)
        return rule_stop

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one (see `Policy.decide_batch`)."""
        rule_stop = Contextual.decide_many(self, X)  # not a subclass's, which may call this
        return np.where(self._explored(len(rule_stop)), self._last, rule_stop), rule_stop

    def observe_many(
        self, rounds: Rounds, stops: ArrayLike, *, rule_stop: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds, in the engine (see `Policy.observe_many`)."""
        if self.overridden_steps:
            super().observe_many(rounds, stops, rule_stop=rule_stop)
            return
        record = check_record(self, rounds)
        ends = learned_ends(record, stops, self._n_arms)
        rule_ends = ends if rule_stop is None else learned_ends(record, rule_stop, self._n_arms)
        self.learner.learn(recorded_rows(self.features, record), record.differ, ends, rule_ends)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.note is None:
            return ()
        learner = self.learner
        if decision.round == learner.rounds + learner.labels:  # by the same rule, exact estimates
            note = learner.evidence(decision.note, decision.noise, decision.rule_stop)
            force_setattr(decision, "note", self._converged(note))  # the same evidence later
        found = learner.explain(decision.note, decision.rule_stop)
        return tuple(PairEvidence(*comparison) for comparison in found)

    # -- looking inside ---------------------------------------------------------------------

    def theta(self, i: int, j: int) -> Floats:
        """Return θ̂_ij, the exact estimate of a pair over everything observed so far."""
        return self._converged(self.learner.theta(self._model(i, j)))

    def _converged(self, found: Found | None) -> Found:
        if found is None:
            raise StopwiseError(
                "this estimate has not converged: the data are so nearly separable that the ridge "
                f"({self.ridge:g}) is too small. Use a larger ridge"
            )
        return found

    def gram(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return V_ij and its inverse.

        Where V has no inverse in double precision (directions never seen), both include the
        smallest multiple of I that gives it one. The bonus needs none: it uses factors of V.
        """
        matrix, inverse = self.learner.gram(self._model(i, j))
        if not matrix.trace() > 1e-12:
            return np.zeros_like(matrix), np.full_like(matrix, np.inf)
        eye, floor = np.eye(len(matrix)), 0.0
        while np.linalg.norm((matrix + floor * eye) @ inverse - eye) > GRAM_RESIDUAL:
            floor = max(10.0 * floor, 1e-15 * matrix.trace())
            inverse = np.asarray(np.linalg.inv(matrix + floor * eye), dtype=np.float64)
        return matrix + floor * eye, inverse

    def condition(self, i: int, j: int) -> float:
        """Return λ_max/λ_min of V_ij, inf while it is singular.

        Large where contexts hardly vary in some direction, about which little is then known.
        """
        values = np.linalg.eigvalsh(self.learner.gram(self._model(i, j))[0])
        least, most = float(values[0]), float(values[-1])
        seen = self.observations(i, j) > 0 and least > most * np.finfo(float).eps * len(values)
        return most / least if seen else np.inf

    def observations(self, i: int, j: int) -> int:
        """Return n_ij, how many rounds revealed both arms of a pair, counted by their weights."""
        return int(self.learner.observations(self._model(i, j)))

    def least_observed_pair(self) -> PairCoverage | None:
        """Return the pair of arms with the fewest observations."""
        n, i, j = min((self.observations(i, j), i, j) for i, j in self.cascade.pairs())
        return PairCoverage(i, j, n, self.condition(i, j))

    def _model(self, i: int, j: int) -> int:
        if not self.estimates_disagreement:
            raise InvalidParameterError("the supervised comparator models arms, not pairs")
        self.features.slot_of(i, j)  # refuses what is no pair
        return self.cascade.pairs().index((i, j))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return self.learner.nbytes

    @property
    def effort(self) -> dict[str, int]:
        """What exactness has cost so far: passes over history, and rows visited by them."""
        return self.learner.effort

    # -- for a `StagedRound` ------------------------------------------------------------------

    def _round_class(self) -> type[RoundInProgress]:
        plain = self.overridden_steps or not self.sees_revealed
        return super()._round_class() if plain else StagedRound

    def begin(self) -> tuple[Floats | None, bytes, bool]:
        """Draw what a round's decisions depend on: noise, and whether it goes to the last arm."""
        return self._noise(), self.learner.begin(), bool(self._explored(1)[0])

    def decided(
        self, stop: int, rule_stop: int, noise: Floats | None, note: bytes, seen: int | None = None
    ) -> Decision:
        """Return the decision of a round that ended at ``stop``."""
        if seen is None:
            seen = self.learner.rounds + self.learner.labels
        explored_from = rule_stop if rule_stop < stop else -1
        name, cost = self._names[stop], self._costs[stop]
        return Decision(stop, name, cost, self, note, noise, seen, explored_from)

    # -- learning ---------------------------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> None:
        maps = self._maps
        if maps is None or not self.learner.observe(x, maps, n, rule_stop, codes):
            self.learner.observe(known_row(self.features, x, n), None, n, rule_stop, codes)

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        answers = np.array([differ[pair] for pair in self.cascade.pairs()], dtype=np.uint8)
        ends = np.array([stop])
        self.learner.learn(known_row(self.features, x, stop + 1)[None], answers[None], ends, ends)

    def _at_once(self, rounds: ToPlay) -> Ints:
        contexts, answers, _, progress, record = rounds
        if record is None:
            rows = self.features.rows(contexts)
            reach = np.full(len(rows), self._last)
        else:
            rows, known = recorded_rows(self.features, record), record.reach
            # as the engine reads it: what a failed round knows differs from what a record lacks
            reach = np.where(record.failed & (known >= 0), -2 - known, known)
        n = len(rows)
        stops, rule_stop = np.empty((2, n), dtype=np.int64)
        for start in range(0, n, CHUNK):
            here = slice(start, min(start + CHUNK, n))
            size = here.stop - start
            explored, wrong = self._explored(size), None
            if record is not None and record.audited is not None and record.wrong is not None:
                explored |= record.audited[here].astype(np.uint8) << 1
                wrong = np.ascontiguousarray(record.wrong[here])
            noise, ends = self._noise_table(size), (stops[here], rule_stop[here])
            self.learner.run(rows[here], answers(here), reach[here], explored, noise, wrong, *ends)
            progress("rounds", here.stop, n)
        return stops

    def _explored(self, n: int) -> Bytes:
        """Draw which of n rounds go to the last arm whatever the rule says: 0 or 1 each."""
        if self.full_depth_every is None or self._random is None:
            return np.zeros(n, dtype=np.uint8)
        return (self._random.random(n) < 1.0 / self.full_depth_every).astype(np.uint8)

    def _noise_table(self, n: int) -> Floats | None:
        """Return draws for n decisions, one row each; rules that draw override this."""
        del n

    def _noise(self) -> Floats | None:
        """Return a draw per pair for one decision, of the same stream."""
        table = self._noise_table(1)
        return None if table is None else table[0]

    # -- construction and persistence ---------------------------------------------------------

    def _new_learner(self) -> Learner:
        features, asked = self.features, self._questions()
        # Questions that see the same features in the same rounds have the same V.
        grams = list(dict.fromkeys(asked))
        offsets, dims, staged = features.offsets, features.dims, features.sees is not None
        return Learner(
            self._rule(),
            n_arms=self.cascade.n_arms,
            width=features.width,
            questions=[grams.index(one) for one in asked],
            grams=[(offsets[s], dims[s], arm, s if staged else NO_STAGE) for s, arm in grams],
            gaps=self.cascade.gaps.ravel().tolist(),
            ridge=self.ridge,
            forced_rounds=-1 if isinstance(self.forced_rounds, str) else self.forced_rounds,
            weight=self.full_depth_every or 1,
            transitive=self.transitive,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, and the random state if there is one, as arrays by name."""
        arrays: dict[str, NDArray[Any]] = {
            "learner": np.frombuffer(self.learner.save(), dtype=np.uint8)
        }
        return arrays if self._random is None else {**arrays, "random": stored(self._random)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        random = None if self._random is None else restored(state["random"])
        learner = state["learner"]
        if learner.dtype != np.uint8 or learner.ndim != 1:
            raise ValueError(f"learner is {learner.dtype}{learner.shape}, expected bytes")
        self.learner.restore(learner.tobytes())
        self._random = random

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learner": self.learner.save(), "_maps": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.learner = self._new_learner()
        self.learner.restore(state["learner"])
        self._maps = self.features.maps_in_engine
