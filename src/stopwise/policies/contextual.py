"""What the contextual policies share: features in, the native engine, evidence out."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import index
from typing import Any, ClassVar, cast

import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.engine.native import Learner, Rule
from stopwise.errors import (
    InvalidContextError,
    InvalidInputError,
    InvalidOutputsError,
    InvalidParameterError,
    StopwiseError,
    WideFeaturesWarning,
)
from stopwise.features import BoundFeatures, FeaturesLike, Identity, bind
from stopwise.policies.base import CHUNK, Policy, Progress, number
from stopwise.policies.descent import Descent, comparable
from stopwise.policies.randomness import chance, restored, stored, whole_seed
from stopwise.policies.recorded import Rounds
from stopwise.policies.staged import StagedDescent, numbers_of
from stopwise.records import Decision, PairEvidence, Round

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

SMALLEST_RIDGE = 1e-9  # with 10⁶ rounds, H is then still positive definite in double precision
LARGEST_EVERY = 10_000  # rounds that one stands for; fewer labels of such rounds say little
NO_STAGE = 1 << 30  # the engine's word for features that see the whole context from the start
WIDE = 250  # heuristic: features from which a round costs more than some 10 ms (docs/features.md)
GRAM_RESIDUAL = 1e-7  # ‖V·V⁻¹ − I‖ of what `gram` returns


class Contextual(Policy):
    """A policy that models each question's answer by a logistic regression on features.

    Holds the engine's learner and nothing else that changes, but what it draws from. Subclasses say
    by which of the engine's rules to decide (`_rule`).
    """

    learns_from_labels: ClassVar[bool] = False
    _draws: ClassVar[bool] = False  # decisions depend on `_noise`
    _supervised: ClassVar[bool] = False  # models arms ("is it wrong?") instead of pairs

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
                "say how many numbers a context has: context_dim=8, for instance"
            )
        self.features: BoundFeatures = bind(
            Identity() if features is None else features, context_dim, cascade.n_arms
        )
        _warn_if_wide(self.features.n_features)
        self.ridge = number("ridge", ridge, least=SMALLEST_RIDGE)
        self.forced_rounds = _forced_rounds(forced_rounds)
        self.full_depth_every = _every(full_depth_every)
        self.seed = whole_seed(seed)
        self._learner = self._new_learner()
        self._chance = chance(self.seed)
        self._n_pairs = len(cascade.pairs())
        self._last = cascade.n_arms - 1
        self._maps = self.features.maps_in_engine

    @abstractmethod
    def _rule(self) -> Rule:
        """Return the engine's rule, with its constants."""

    # -- the protocol ---------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return self._learner.rounds

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""
        noise = self._noise() if self._draws else None
        found = None if (maps := self._maps) is None else self._learner.decide(x, maps, noise)
        if found is None:  # features of one's own, or a context in another form, or a bad one
            found = self._learner.decide(self.features.row(x), None, noise)
            assert found is not None  # features are as they should be
        stop, seen, note = found
        if self.full_depth_every is not None and self._sent(1)[0]:
            return self.decided(self._last, stop, noise, note, seen)
        return Decision(stop, self._names[stop], self._costs[stop], self, note, noise, seen)

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the stop for every row of ``X``, learning nothing between them.

        These are the rule's own stops: chance sends none of them on.
        """
        rows = self.features.rows(X)
        stops = np.empty(len(rows), dtype=np.int64)
        self._learner.decide_many(rows, self._noise_table(len(rows)), stops)
        return stops

    def decide_batch(self, X: ArrayLike) -> tuple[Ints, Ints]:
        """Decide for every row as `decide` would one by one (see `Policy.decide_batch`)."""
        wanted = self.decide_many(X)
        return np.where(self._sent(len(wanted)), self._last, wanted), wanted

    def start(self, x: ArrayLike | None) -> Descent:
        """Begin a round that is decided step by step (see `Policy.start`)."""
        return Descent(self, x) if self.features.sees is None else StagedDescent(self, x)

    def resume(self, state: Mapping[str, Any]) -> Descent:
        """Take up a round under way (see `Policy.resume`)."""
        kind = Descent if self.features.sees is None else StagedDescent
        return kind.resumed(self, state)

    def run(
        self, contexts: ArrayLike, outputs: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order, in the engine (see `Policy.run`)."""
        rows = self.features.rows(contexts)
        told = self._checked_table(len(rows), outputs)
        return self._run(rows, lambda start, stop: self._marks(told[start:stop]), progress)

    def replay(self, rounds: Rounds, *, progress: Progress | None = None) -> Ints:
        """Play recorded rounds in order, in the engine (see `Policy.replay`)."""
        if self._supervised:
            return super().replay(rounds, progress=progress)
        checked = self._checked_rounds(rounds)
        rows = self._rows(checked)
        # as the engine reads it: what a failed round knows differs from what a record lacks
        reach = np.where(checked.failed & (checked.reach >= 0), -2 - checked.reach, checked.reach)
        return self._run(
            rows,
            lambda start, stop: checked.differ[start:stop],
            progress,
            reach,
            checked if checked.audited is not None else None,
        )

    def observe_many(
        self, rounds: Rounds, stops: ArrayLike, *, wanted: ArrayLike | None = None
    ) -> None:
        """Learn from recorded rounds, in the engine (see `Policy.observe_many`)."""
        if self._supervised:
            super().observe_many(rounds, stops)
            return
        checked = self._checked_rounds(rounds)
        ends = self._taught(checked, stops)
        wishes = ends if wanted is None else self._taught(checked, wanted)
        self._learner.learn(self._rows(checked), checked.differ, ends, wishes)

    def audit(self, done: Round, label: Hashable) -> None:
        """Learn from the right answer to a round that has ended (see `Policy.audit`).

        Where arm i was right and a deeper arm j wrong, going on did harm. The chance that i is
        right where the two disagree, q_ij(x), is modelled as p_ij(x) is; with W_ij = p_ij·q_ij the
        rule becomes C_j − C_i > UCB(p_ij − 2·W_ij).
        """
        if not self.learns_from_labels:
            super().audit(done, label)
        outputs = list(done.outputs)
        if label is None or not comparable(label):
            raise InvalidOutputsError(
                f"the label of an audited round is a value like its outputs, not {label!r}"
            )
        if not outputs:
            return
        n, _ = self._coded(outputs)
        right = np.array([output == label for output in outputs], dtype=np.uint8)
        differ = np.zeros(self._n_pairs, dtype=np.uint8)
        for k, (i, j) in enumerate(self.cascade.pairs()):
            differ[k] = j < n and outputs[i] != outputs[j]
        self._learner.label(self._row(done.context, n), done.wanted, right, differ)

    @property
    def audits(self) -> int:
        """Rounds whose right answer was told."""
        return self._learner.labels

    def run_disagreements(
        self, contexts: ArrayLike, differ: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order, in the engine (see `Policy.run_disagreements`)."""
        rows = self.features.rows(contexts)
        marks = self._checked_marks(len(rows), differ)
        return self._run(rows, lambda start, stop: marks[start:stop], progress)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        if decision.note is None:
            return ()
        learner = self._learner
        if decision.round == learner.rounds + learner.labels:  # by the same rule, exact estimates
            note = learner.evidence(decision.note, decision.noise, decision.wanted)
            if note is None:
                raise self._unsettled()
            force_setattr(decision, "note", note)  # to say the same once more has been learned
        found = learner.explain(decision.note, decision.wanted)
        return tuple(PairEvidence(*comparison) for comparison in found)

    # -- looking inside ---------------------------------------------------------------------

    def theta(self, i: int, j: int) -> Floats:
        """Return θ̂_ij, the exact estimate of a pair over everything observed so far."""
        return self._theta(self._model(i, j))

    def _theta(self, k: int) -> Floats:
        theta = self._learner.theta(k)
        if theta is None:
            raise self._unsettled()
        return theta

    def _unsettled(self) -> StopwiseError:
        return StopwiseError(
            "this estimate has not settled: the data are so nearly separable that the ridge "
            f"({self.ridge:g}) barely holds it. Use a larger ridge"
        )

    def gram(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return V_ij and its inverse.

        Where double precision cannot show an inverse of V (directions never seen), both include the
        smallest multiple of I that lets it. The bonus itself needs none: it works on factors of V.
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

        A round that chance sent on counts for all those it stands for.
        """
        return int(self._learner.observations(self._model(i, j)))

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

    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        maps = self._maps
        if maps is None or not self._learner.observe(x, maps, n, wanted, codes):
            self._learner.observe(self._row(x, n), None, n, wanted, codes)

    def _row(self, x: ArrayLike, n: int) -> Floats:
        """Return the features of a round in which n arms spoke.

        Where stages reveal the context, only what was known before the last of them is looked
        at, and only that need be there.
        """
        features = self.features
        if features.sees is None:
            return features.row(x)
        known = numbers_of(x)
        needed = features.sees[n - 2] if n > 1 else 0
        if not needed <= len(known) <= features.context_dim:
            raise InvalidContextError(
                f"a round in which {n} arms spoke has a context of {needed} to "
                f"{features.context_dim} numbers; this has {len(known)}"
            )
        row = np.zeros(features.width)
        for arm in range(n - 1):
            start = features.offsets[arm]
            here = features.stages[arm].row(known[: features.sees[arm]])
            row[start : start + features.dims[arm]] = here
        return row

    def _rows(self, recorded: Rounds) -> Floats:
        """Return the features of recorded rounds; zeros where a stage that never ran stands."""
        features, contexts = self.features, recorded.contexts
        if features.sees is None:
            return features.rows(contexts)
        if contexts.shape[1] != features.context_dim:
            raise InvalidContextError(
                f"contexts form a table of {features.context_dim} columns, one row each; this has "
                f"shape {contexts.shape}"
            )
        rows = np.zeros((len(contexts), features.width))
        for arm, (stage, seen) in enumerate(zip(features.stages, features.sees, strict=True)):
            ran = np.flatnonzero(recorded.reach >= arm)
            start = features.offsets[arm]
            try:
                here = stage.rows(contexts[ran, :seen])
            except InvalidInputError as error:
                raise type(error)(f"standing at arm {arm}: {error}") from error
            rows[ran, start : start + features.dims[arm]] = here
        return rows

    # -- for a `StagedDescent` ------------------------------------------------------------------

    def begin(self) -> tuple[Floats | None, bytes, bool]:
        """Draw what a round's decisions depend on: noise, and whether chance sends it on."""
        return self._noise(), self._learner.begin(), bool(self._sent(1)[0])

    def should_stop(
        self, row: Floats, noise: Floats | None, note: bytes, arm: int
    ) -> tuple[bool, bytes]:
        """Say whether the rule stops at an arm, given the features known there, and why."""
        return self._learner.should_stop(row, noise, note, arm)

    def decided(
        self, stop: int, wanted: int, noise: Floats | None, note: bytes, seen: int | None = None
    ) -> Decision:
        """Return the decision of a round that ended here and that the rule would have ended."""
        if seen is None:
            seen = self._learner.rounds + self._learner.labels
        return Decision(
            stop,
            self._names[stop],
            self._costs[stop],
            self,
            note,
            noise,
            seen,
            wanted if wanted < stop else -1,
        )

    def learn_row(self, row: Floats, outputs: Sequence[Hashable], wanted: int) -> None:
        """Learn from the outputs of a round, given its features as far as they were known."""
        n, codes = self._coded(outputs)
        self._learner.observe(row, None, n, wanted, codes)

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        answers = np.array([differ[pair] for pair in self.cascade.pairs()], dtype=np.uint8)
        self._learner.observe_answers(self._row(x, stop + 1), stop, stop, answers)

    def _run(
        self,
        rows: Floats,
        answers: Callable[[int, int], Bytes],
        progress: Progress | None,
        reach: Ints | None = None,
        audited: Rounds | None = None,
    ) -> Ints:
        # Everything has been checked before the first round is played.
        n = len(rows)
        stops, wanted = np.empty((2, n), dtype=np.int64)
        if reach is None:
            reach = np.full(n, self._last)
        for start in range(0, n, CHUNK):
            here = slice(start, min(start + CHUNK, n))
            size = here.stop - start
            sent, wrong = self._sent(size), None
            if audited is not None and audited.audited is not None and audited.wrong is not None:
                sent |= audited.audited[here].astype(np.uint8) << 1
                wrong = np.ascontiguousarray(audited.wrong[here])
            self._learner.run(
                rows[here],
                answers(start, here.stop),
                reach[here],
                sent,
                self._noise_table(size),
                wrong,
                stops[here],
                wanted[here],
            )
            if progress is not None:
                progress(here.stop, n)
        return stops

    def _sent(self, n: int) -> Bytes:
        """Draw which of n rounds chance sends on to the last arm: 0 or 1 each."""
        if self.full_depth_every is None:
            return np.zeros(n, dtype=np.uint8)
        return (self._chance.random(n) < 1.0 / self.full_depth_every).astype(np.uint8)

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
        if self._supervised:
            if not features.shared:
                raise InvalidParameterError(
                    "the supervised comparator models arms, not pairs: give it one feature map, "
                    "not one per stage or pair"
                )
            asked = [(0, arm) for arm in range(n_arms)]  # (slot, arm that must have run)
        else:
            asked = [(features.slot_of(i, j), j) for i, j in self.cascade.pairs()]
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

    def _chances(self) -> dict[str, int]:
        """Return the parameters of what is left to chance, if anything is."""
        if self.full_depth_every is None:
            return {}
        return {"full_depth_every": self.full_depth_every, "seed": self.seed}

    def _model(self, i: int, j: int) -> int:
        n_arms = self.cascade.n_arms
        if self._supervised:
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
        if self.full_depth_every is not None:
            arrays["random"] = stored(self._chance)
        return arrays

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned; ValueError, and nothing changed, if it does not fit."""
        random = self._chance
        if self.full_depth_every is not None:
            random = restored(state["random"])
        learner = state["learner"]
        if learner.dtype != np.uint8 or learner.ndim != 1:
            raise ValueError(f"learner is {learner.dtype}{learner.shape}, expected bytes")
        self._learner.restore(learner.tobytes())
        self._chance = random


def _warn_if_wide(n_features: int) -> None:
    if n_features > WIDE:
        warnings.warn(
            f"{n_features:,} features are many: once there are as many rounds as features, a round "
            f"costs about {35 * (n_features / 384) ** 3:,.0f} ms, growing with the cube. Fewer say "
            "more: a lower degree, Polynomial.independent(X), or a projection to 50 or so",
            WideFeaturesWarning,
            stacklevel=4,
        )


def _every(given: int | None) -> int | None:
    if given is None:
        return None
    try:
        every = index(given)
    except TypeError:
        every = 0
    if not 2 <= every <= LARGEST_EVERY:
        raise InvalidParameterError(
            f"full_depth_every must be a whole number from 2 to {LARGEST_EVERY:,} (one round in so "
            f"many goes to the last arm), or None, not {given!r}"
        )
    return every


def _forced_rounds(given: int | str) -> int | str:
    if given == "auto":
        return "auto"
    try:
        m = index(cast(int, given))
    except TypeError:
        m = -1
    if not 0 <= m < 1 << 53:
        raise InvalidParameterError(
            f'forced_rounds must be a whole number, 0 or more, or "auto", not {given!r}'
        )
    return m
