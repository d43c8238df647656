"""What the contextual policies share: features in, the native engine, evidence out."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import integer, number
from stopwise.engine.native import Learner, Rule
from stopwise.errors import (
    InvalidParameterError,
    StopwiseError,
    WideFeaturesWarning,
)
from stopwise.features import BoundFeatures, FeaturesLike, Identity, bind
from stopwise.policies.base import CHUNK, Policy
from stopwise.policies.checking import (
    Bools,
    Ints,
    coded,
    compared,
    differ_table,
    learned_ends,
    output_table,
)
from stopwise.policies.overrides import at_once, check_learns_from_pairs, check_record
from stopwise.policies.randomness import checked_seed, exploration_stream, restored, stored
from stopwise.policies.recorded import Rounds
from stopwise.policies.round_in_progress import RoundInProgress
from stopwise.policies.staged import StagedRound, known_row, recorded_rows
from stopwise.records import Decision, PairCoverage, PairEvidence, Progress, no_progress

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

SMALLEST_RIDGE = 1e-9  # with 10⁶ rounds, H is then still positive definite in double precision
LARGEST_EVERY = 10_000  # of `full_depth_every`: the weight of a round continued at random
MOST_FORCED = (1 << 53) - 1  # forced rounds: a double holds them exactly
NO_STAGE = 1 << 30  # for the engine: features that see the complete context from the start
WIDE = 250  # heuristic: features from which a round costs more than some 10 ms (docs/features.md)
GRAM_RESIDUAL = 1e-7  # ‖V·V⁻¹ − I‖ of what `gram` returns


class Contextual(Policy):
    """A policy that models each question's answer by a logistic regression on features.

    All that changes is the engine's learner and the random streams. Subclasses choose the engine's
    rule to decide by (`_rule`).
    """

    estimates_disagreement: ClassVar[bool] = True

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None,
        context_dim: int | None,
        *,
        forced_rounds: int | str,
        ridge: float,
        full_depth_every: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(cascade)
        if context_dim is None:
            raise InvalidParameterError(
                "give the number of values in a context: context_dim=8, for instance"
            )
        self.features: BoundFeatures = bind(  # pyright: ignore[reportIncompatibleVariableOverride] (never None)
            Identity() if features is None else features, context_dim, cascade.n_arms
        )
        _warn_if_wide(self.features.n_features)
        self.ridge = number("ridge", ridge, least=SMALLEST_RIDGE)
        if forced_rounds != "auto":
            forced_rounds = integer("forced_rounds", forced_rounds, most=MOST_FORCED)
        self.forced_rounds = forced_rounds
        if full_depth_every is not None:
            full_depth_every = integer("full_depth_every", full_depth_every, 2, LARGEST_EVERY)
        self.full_depth_every = full_depth_every
        self.seed = checked_seed(seed)
        self._learner = self._new_learner()
        explores = self.full_depth_every is not None
        self._random = exploration_stream(self.seed) if explores else None
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
        return self._learner.rounds

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""
        noise = self._noise() if self.draws else None
        found = None if (maps := self._maps) is None else self._learner.decide(x, maps, noise)
        if found is None:  # own features, another form of context, or an invalid one
            found = self._learner.decide(self.features.row(x), None, noise)
            assert found is not None  # features are valid
        stop, seen, note = found
        if self.full_depth_every is not None and self._explored(1)[0]:
            return self.decided(self._last, stop, noise, note, seen)
        return Decision(stop, self._names[stop], self._costs[stop], self, note, noise, seen)

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the rule's own stop for every row (see `Policy.decide_many`)."""
        rows = self.features.rows(X)
        stops = np.empty(len(rows), dtype=np.int64)
        self._learner.decide_many(rows, self._noise_table(len(rows)), stops)
        return stops

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one (see `Policy.decide_batch`)."""
        rule_stop = self.decide_many(X)
        return np.where(self._explored(len(rule_stop)), self._last, rule_stop), rule_stop

    @at_once(Policy.start)
    def start(self, x: ArrayLike | None) -> RoundInProgress:
        """Begin a round that is decided step by step (see `Policy.start`)."""
        return RoundInProgress(self, x) if self.features.sees is None else StagedRound(self, x)

    @at_once(Policy.resume)
    def resume(self, state: Mapping[str, Any]) -> RoundInProgress:
        """Resume a round (see `Policy.resume`)."""
        kind = RoundInProgress if self.features.sees is None else StagedRound
        return kind.resumed(self, state)

    @at_once(Policy.run)
    def run(
        self,
        contexts: ArrayLike,
        outputs: ArrayLike,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds in order, in the engine (see `Policy.run`)."""
        rows = self.features.rows(contexts)
        self._checked_truth(len(rows), truth)
        table = output_table(outputs, len(rows), self._n_arms)
        return self._run(rows, lambda part: compared(table[part], self.cascade), progress)

    @at_once(Policy.run_recorded)
    def run_recorded(self, rounds: Rounds, *, progress: Progress = no_progress) -> Ints:
        """Play recorded rounds in order, in the engine (see `Policy.run_recorded`)."""
        checked = check_record(self, rounds)
        rows = recorded_rows(self.features, checked)
        # as the engine reads it: what a failed round knows differs from what a record lacks
        reach = np.where(checked.failed & (checked.reach >= 0), -2 - checked.reach, checked.reach)
        return self._run(rows, lambda part: checked.differ[part], progress, reach, checked)

    @at_once(Policy.observe_many)
    def observe_many(
        self, rounds: Rounds, stops: ArrayLike, *, rule_stop: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds, in the engine (see `Policy.observe_many`)."""
        checked = check_record(self, rounds)
        ends = learned_ends(checked, stops, self._n_arms)
        rule_ends = ends if rule_stop is None else learned_ends(checked, rule_stop, self._n_arms)
        self._learner.learn(recorded_rows(self.features, checked), checked.differ, ends, rule_ends)

    @property
    def audits(self) -> int:
        """Rounds whose label was given to `audit`."""
        return self._learner.labels

    @at_once(Policy.run_disagreements)
    def run_disagreements(
        self,
        contexts: ArrayLike,
        differ: ArrayLike,
        *,
        progress: Progress = no_progress,
        **truth: ArrayLike | None,
    ) -> Ints:
        """Play rounds in order, in the engine (see `Policy.run_disagreements`)."""
        check_learns_from_pairs(self)
        rows = self.features.rows(contexts)
        self._checked_truth(len(rows), truth)
        table = differ_table(differ, len(rows), self.cascade)
        return self._run(rows, lambda part: table[part], progress)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.note is None:
            return ()
        learner = self._learner
        if decision.round == learner.rounds + learner.labels:  # by the same rule, exact estimates
            note = learner.evidence(decision.note, decision.noise, decision.rule_stop)
            if note is None:
                raise self._not_converged()
            force_setattr(decision, "note", note)  # the same evidence later
        found = learner.explain(decision.note, decision.rule_stop)
        return tuple(PairEvidence(*comparison) for comparison in found)

    # -- looking inside ---------------------------------------------------------------------

    def theta(self, i: int, j: int) -> Floats:
        """Return θ̂_ij, the exact estimate of a pair over everything observed so far."""
        return self._theta(self._model(i, j))

    def _theta(self, k: int) -> Floats:
        theta = self._learner.theta(k)
        if theta is None:
            raise self._not_converged()
        return theta

    def _not_converged(self) -> StopwiseError:
        return StopwiseError(
            "this estimate has not converged: the data are so nearly separable that the ridge "
            f"({self.ridge:g}) is too small. Use a larger ridge"
        )

    def gram(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return V_ij and its inverse.

        Where V has no inverse in double precision (directions never seen), both include the
        smallest multiple of I that gives it one. The bonus needs none: it uses factors of V.
        """
        k = self._model(i, j)
        matrix, inverse = self._learner.gram(k)
        if not matrix.trace() > 1e-12:
            return np.zeros_like(matrix), np.full_like(matrix, np.inf)
        eye, floor = np.eye(len(matrix)), 0.0
        while np.linalg.norm((matrix + floor * eye) @ inverse - eye) > GRAM_RESIDUAL:
            floor = max(10.0 * floor, 1e-15 * matrix.trace())
            inverse = np.asarray(np.linalg.inv(matrix + floor * eye), dtype=np.float64)
        return matrix + floor * eye, inverse

    def condition(self, i: int, j: int) -> float:
        """Return how well V_ij is conditioned, λ_max/λ_min; inf while it is singular.

        Large where contexts hardly vary in some direction, about which little is then known.

        Examples
        --------
        >>> import stopwise as sw
        >>> policy = sw.USSPD(sw.Cascade(costs=[0.1, 0.2]), context_dim=2)
        >>> policy.condition(0, 1)
        inf
        >>> for x in ([1.0, 0.0], [0.0, 1.0], [0.0, 1.0]):
        ...     policy.observe(x, ["yes", "no"])
        >>> round(policy.condition(0, 1), 9)
        2.0
        """
        matrix = self._learner.gram(self._model(i, j))[0]
        values = np.linalg.eigvalsh(matrix)
        least, most = float(values[0]), float(values[-1])
        seen = self.observations(i, j) > 0 and least > most * np.finfo(float).eps * len(matrix)
        return most / least if seen else np.inf

    def observations(self, i: int, j: int) -> int:
        """Return n_ij, how many rounds revealed both arms of a pair.

        A round that was continued at random counts with its weight.
        """
        return int(self._learner.observations(self._model(i, j)))

    def least_observed_pair(self) -> PairCoverage | None:
        """Return the pair of arms with the fewest observations."""
        n, i, j = min((self.observations(i, j), i, j) for i, j in self.cascade.pairs())
        return PairCoverage(i, j, n, self.condition(i, j))

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return self._learner.nbytes

    @property
    def effort(self) -> dict[str, int]:
        """What exactness has cost so far: passes over history, and rows visited by them."""
        return self._learner.effort

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_learner": self._learner.save(), "_maps": None}

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        self._learner = self._new_learner()
        self._learner.restore(held["_learner"])
        self._maps = self.features.maps_in_engine

    # -- learning ---------------------------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int, rule_stop: int) -> None:
        maps = self._maps
        if maps is None or not self._learner.observe(x, maps, n, rule_stop, codes):
            self._learner.observe(known_row(self.features, x, n), None, n, rule_stop, codes)

    # -- for a `StagedRound` ------------------------------------------------------------------

    def begin(self) -> tuple[Floats | None, bytes, bool]:
        """Draw what a round's decisions depend on: noise, and whether it goes to the last arm."""
        return self._noise(), self._learner.begin(), bool(self._explored(1)[0])

    def should_stop(
        self, row: Floats, noise: Floats | None, note: bytes, arm: int
    ) -> tuple[bool, bytes]:
        """Return whether the rule stops at an arm, given the features known there, and why."""
        return self._learner.should_stop(row, noise, note, arm)

    def decided(
        self, stop: int, rule_stop: int, noise: Floats | None, note: bytes, seen: int | None = None
    ) -> Decision:
        """Return the decision of a round that ended at ``stop``."""
        if seen is None:
            seen = self._learner.rounds + self._learner.labels
        explored_from = rule_stop if rule_stop < stop else -1
        name, cost = self._names[stop], self._costs[stop]
        return Decision(stop, name, cost, self, note, noise, seen, explored_from)

    def learn_row(self, row: Floats, outputs: Sequence[Hashable], rule_stop: int) -> None:
        """Learn from the outputs of a round, given its features as far as they were known."""
        n, codes = coded(outputs, self._n_arms)
        self._learner.observe(row, None, n, rule_stop, codes)

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: Bools) -> None:
        answers = np.array([differ[pair] for pair in self.cascade.pairs()], dtype=np.uint8)
        self._learner.observe_answers(known_row(self.features, x, stop + 1), stop, stop, answers)

    def _run(
        self,
        rows: Floats,
        answers: Callable[[slice], Bytes],
        progress: Progress,
        reach: Ints | None = None,
        audited: Rounds | None = None,
    ) -> Ints:
        # Everything has been checked before the first round is played.
        n = len(rows)
        stops, rule_stop = np.empty((2, n), dtype=np.int64)
        if reach is None:
            reach = np.full(n, self._last)
        for start in range(0, n, CHUNK):
            here = slice(start, min(start + CHUNK, n))
            size = here.stop - start
            explored, wrong = self._explored(size), None
            if audited is not None and audited.audited is not None and audited.wrong is not None:
                explored |= audited.audited[here].astype(np.uint8) << 1
                wrong = np.ascontiguousarray(audited.wrong[here])
            self._learner.run(
                rows[here],
                answers(here),
                reach[here],
                explored,
                self._noise_table(size),
                wrong,
                stops[here],
                rule_stop[here],
            )
            progress("rounds", here.stop, n)
        return stops

    def _explored(self, n: int) -> Bytes:
        """Draw which of n rounds go to the last arm whatever the rule says: 0 or 1 each."""
        if self.full_depth_every is None or self._random is None:
            return np.zeros(n, dtype=np.uint8)
        return (self._random.random(n) < 1.0 / self.full_depth_every).astype(np.uint8)

    def _noise(self) -> Floats | None:
        """Return a draw per pair for one decision; rules that draw override this."""
        return None

    def _noise_table(self, n: int) -> Floats | None:
        """Return draws for n decisions, one row each, row by row the same stream as `_noise`."""
        del n
        return None

    # -- construction and persistence ---------------------------------------------------------

    def _new_learner(self) -> Learner:
        features, n_arms = self.features, self.cascade.n_arms
        asked = self._questions()
        # Questions that see the same features in the same rounds have the same V.
        grams = list(dict.fromkeys(asked))

        def place(slot: int, arm: int) -> tuple[int, int, int]:
            return features.offsets[slot], features.dims[slot], arm

        return Learner(
            self._rule(),
            n_arms=n_arms,
            width=features.width,
            questions=[(*place(*one), grams.index(one)) for one in asked],
            grams=[
                (*place(slot, arm), NO_STAGE if features.sees is None else slot)
                for slot, arm in grams
            ],
            gaps=self.cascade.gaps.ravel().tolist(),
            ridge=self.ridge,
            forced_rounds=-1 if isinstance(self.forced_rounds, str) else self.forced_rounds,
            weight=self.full_depth_every or 1,
        )

    def _model(self, i: int, j: int) -> int:
        n_arms = self.cascade.n_arms
        if not self.estimates_disagreement:
            raise InvalidParameterError("the supervised comparator models arms, not pairs")
        if not 0 <= i < j < n_arms:
            raise InvalidParameterError(
                f"({i}, {j}) is no pair of this cascade: it takes 0 ≤ i < j < {n_arms}"
            )
        return self.cascade.pairs().index((i, j))

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, and the random state if there is one, as arrays by name."""
        arrays: dict[str, NDArray[Any]] = {
            "learner": np.frombuffer(self._learner.save(), dtype=np.uint8)
        }
        return arrays if self._random is None else {**arrays, "random": stored(self._random)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned; if it does not fit, ValueError and no change."""
        random = None if self._random is None else restored(state["random"])
        learner = state["learner"]
        if learner.dtype != np.uint8 or learner.ndim != 1:
            raise ValueError(f"learner is {learner.dtype}{learner.shape}, expected bytes")
        self._learner.restore(learner.tobytes())
        self._random = random


def _warn_if_wide(n_features: int) -> None:
    if n_features > WIDE:
        warnings.warn(
            f"{n_features:,} features are many: once there are as many rounds as features, a round "
            f"costs about {35 * (n_features / 384) ** 3:,.0f} ms, growing with the cube. Fewer say "
            "more: a lower degree, Polynomial.independent(X), or a projection to 50 or so",
            WideFeaturesWarning,
            stacklevel=4,
        )
