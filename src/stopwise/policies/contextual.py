"""What the contextual policies share: features in, the compiled engine, evidence out."""

from collections.abc import Callable, Mapping
from operator import index
from typing import Any, cast

import numpy as np
from numpy import empty, ndarray
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.engine import bank as banks
from stopwise.engine import entry, gram, rule
from stopwise.engine.arrays import Bytes, Floats, Ints
from stopwise.engine.attach import Attachment
from stopwise.errors import (
    InvalidContextError,
    InvalidParameterError,
    StopwiseError,
)
from stopwise.features import FLOAT64, BoundFeatures, FeaturesLike, Identity, bind
from stopwise.policies.base import CHUNK, Policy, Progress, number
from stopwise.records import Decision, PairEvidence

NO_PLAN = np.empty(0)  # tells a kernel that it is given features, not a context
SMALLEST_RIDGE = 1e-9  # with 10⁶ rounds, H is then still positive definite in double precision


class Contextual(Policy):
    """A policy that models each question's answer by a logistic regression on features.

    Holds the engine's arrays and nothing else that changes. Subclasses say by which of the
    engine's rules to decide, and with which constants.
    """

    def __init__(
        self,
        cascade: Cascade,
        features: FeaturesLike | None,
        context_dim: int | None,
        *,
        kind: int,
        forced_rounds: int | str,
        ridge: float,
        lam: float = 0.0,
        settings: Mapping[int, float],
    ) -> None:
        super().__init__(cascade)
        if context_dim is None:
            raise InvalidParameterError(
                "say how many numbers a context has: context_dim=8, for instance"
            )
        self.features: BoundFeatures = bind(
            Identity() if features is None else features, context_dim, cascade.n_arms
        )
        self.ridge = number("ridge", ridge, least=SMALLEST_RIDGE)
        self.forced_rounds = _forced_rounds(forced_rounds)
        self._supervised = kind == rule.SUPERVISED
        self._bank = self._new_bank(lam)
        self._rule = self._new_rule(kind, settings)
        self._attach()
        self._n_pairs = len(cascade.pairs())
        self._no_noise = np.zeros(self._n_pairs)
        self._note_length = self.features.width + 2 * self._n_pairs

    # -- the protocol ---------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """Rounds observed so far."""
        return int(self._bank.counters[banks.ROUNDS])

    def decide(self, x: ArrayLike) -> Decision:
        """Return how deep to go for context ``x``; learns nothing."""
        plan = self._plan
        if plan is None or type(x) is not ndarray or x.dtype is not FLOAT64 or x.ndim != 1:
            return self._decide_slowly(x)
        return self._decide(x, plan)

    def _decide_slowly(self, x: ArrayLike) -> Decision:
        """Decide where features, or the conversion of a context, need Python."""
        return self._decide(self.features.row(x), NO_PLAN)

    def _decide(self, x: Floats, plan: Floats) -> Decision:
        noise = self._noise()
        note = empty(self._note_length)
        stop = entry.decide(self._where, x, plan, noise, note)
        if stop < 0:
            self.features.row(x)  # says what is wrong
            raise InvalidContextError("this context was refused")
        return Decision(
            stop, self._names[stop], self._costs[stop], self, note, noise, self._counters.item(0)
        )

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the stop for every row of ``X``, learning nothing between them."""
        rows = self.features.rows(X)
        return entry.decide_many(self._where, rows, self._noise_table(len(rows)))

    def run(
        self, contexts: ArrayLike, outputs: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order, compiled (see `Policy.run`)."""
        rows = self.features.rows(contexts)
        told = self._checked_table(len(rows), outputs)
        return self._run(rows, lambda start, stop: self._marks(told[start:stop]), progress)

    def run_disagreements(
        self, contexts: ArrayLike, differ: ArrayLike, *, progress: Progress | None = None
    ) -> Ints:
        """Play rounds in order, compiled (see `Policy.run_disagreements`)."""
        rows = self.features.rows(contexts)
        marks = self._checked_marks(len(rows), differ)
        return self._run(rows, lambda start, stop: marks[start:stop], progress)

    def explain(self, decision: Decision) -> tuple[PairEvidence, ...]:
        """Return the comparisons that a decision of this policy rested on."""
        note, noise = decision.note, decision.noise
        if note is None or noise is None:
            return ()
        noted = note[self.features.width :].reshape(-1, 2)
        if np.isnan(noted[0, 1]):
            return ()  # a forced round: nothing was compared
        if decision.round == self.rounds:
            self._solve_exactly(note[: self.features.width], noise, noted)
        values = noted if self._supervised else _mu(noted)
        gaps, logits = self._rule.gaps

        def won(i: int, j: int, k: int) -> bool:  # as the engine compares: in logits
            if self._supervised:
                return bool(gaps[i, j] > noted[k, 1])
            return bool(gaps[i, j] > 1.0 or logits[i, j] > noted[k, 1])

        return tuple(
            PairEvidence(i, j, float(gaps[i, j]), float(p), float(upper), won(i, j, k))
            for k, ((i, j), (p, upper)) in enumerate(zip(self.cascade.pairs(), values, strict=True))
            if i <= decision.stop and not np.isnan(p)
        )

    def _solve_exactly(self, row: Floats, noise: Floats, noted: Floats) -> None:
        """Overwrite the numbers of every comparison by those of the exact estimates."""
        logits: list[float] = []
        bonuses: list[float] = []
        for k, (offset, d, _, _) in enumerate(self._bank.models.tolist()):
            phi = row[offset : offset + d]
            logits.append(float(phi @ self._theta(k)))
            bonuses.append(self._bonus(phi, k, noise))
        for k, (i, j) in enumerate(self.cascade.pairs()):
            if self._supervised:
                noted[k, 0] = _mu(logits[i]) - _mu(logits[j])
                noted[k, 1] = _mu(logits[i] + bonuses[i]) - _mu(logits[j] - bonuses[j])
            else:
                noted[k] = logits[k], logits[k] + bonuses[k]

    def _bonus(self, phi: Floats, k: int, noise: Floats) -> float:
        """Return α‖φ‖_{V⁻¹}, the optimism of model k at features φ."""
        del noise
        matrix, inverse = self._gram(k)
        if not matrix.any():
            return np.inf
        n = self._bank.gram_state[self._bank.models[k, banks.GRAM], gram.COUNT]
        if self._rule.settings[rule.KIND] != rule.BETA:
            n = self.rounds
        size = float(np.sqrt(max(phi @ inverse @ phi, 0.0)))
        return rule.radius(self._rule.settings, self.cascade.n_arms, float(n)) * size

    # -- looking inside ---------------------------------------------------------------------

    def theta(self, i: int, j: int) -> Floats:
        """Return θ̂_ij, the exact estimate of a pair over everything observed so far."""
        return self._theta(self._model(i, j))

    def _theta(self, k: int) -> Floats:
        if not entry.solve(self._where, k, False):
            raise StopwiseError(
                "this estimate has not settled: the data are so nearly separable that the ridge "
                f"({self.ridge:g}) barely holds it. Use a larger ridge"
            )
        d = int(self._bank.models[k, banks.DIM])
        vectors = self._bank.vectors[k]
        return (vectors[banks.THETA_G] + vectors[banks.STEP])[:d].copy()

    def gram(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return V_ij and its inverse, as the confidence bonus uses them.

        Where double precision cannot invert V (directions never seen), both include the small
        multiple of I that made it possible.
        """
        return self._gram(self._model(i, j))

    def _gram(self, k: int) -> tuple[Floats, Floats]:
        g = int(self._bank.models[k, banks.GRAM])
        d = int(self._bank.grams[g, banks.DIM])
        both, state = self._bank.gram[g], self._bank.gram_state[g]
        if state[gram.READY] == 0.0:
            gram.refresh(both, state, d, self._bank.work)
        if state[gram.READY] == 0.0:
            return np.zeros((d, d)), np.full((d, d), np.inf)
        matrix = both[gram.MATRIX, :d, :d] + state[gram.FLOOR] * np.eye(d)
        return matrix, both[gram.INVERSE, :d, :d].copy()

    def observations(self, i: int, j: int) -> int:
        """Return n_ij, how many rounds revealed both arms of a pair."""
        g = int(self._bank.models[self._model(i, j), banks.GRAM])
        return int(self._bank.gram_state[g, gram.COUNT])

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return banks.nbytes(self._bank)

    @property
    def effort(self) -> dict[str, int]:
        """What exactness has cost so far: passes over history, and rows visited by them."""
        c = self._bank.counters
        return {
            "passes": int(c[banks.PASSES]),
            "hessians": int(c[banks.HESSIANS]),
            "rows_visited": int(c[banks.ROWS_VISITED]),
            "rows_kept": int(c[banks.ROWS]),
        }

    def __getstate__(self) -> dict[str, Any]:
        # The attachment holds addresses, which mean nothing in a copy or another process.
        held = self.__dict__.copy()
        for name in ("_attachment", "_where", "_counters"):
            del held[name]
        return held

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        self._bank = banks.copied(self._bank)  # of its own memory
        self._attach()

    def _attach(self) -> None:
        self._attachment = Attachment(self._bank, self._rule)
        self._where = self._attachment.where  # what the kernels take
        self._counters = self._bank.counters
        self._plan = self.features.plan

    # -- learning ---------------------------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int) -> None:
        plan = self._plan
        if plan is None or type(x) is not ndarray or x.dtype is not FLOAT64 or x.ndim != 1:
            x, plan = self.features.row(x), NO_PLAN
        while (done := entry.observe(self._where, x, plan, n, codes)) <= 0:
            if done < 0:
                self.features.row(x)  # says what is wrong
                raise InvalidContextError("this context was refused")
            self._make_room()

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        row = self.features.row(x)
        for k, pair in enumerate(self.cascade.pairs()):
            self._bank.outcomes[k] = differ[pair]
        self._learn_outcomes(row, stop)

    def _learn_outcomes(self, row: Floats, stop: int) -> None:
        while not entry.observe(self._where, row, NO_PLAN, stop + 1, -1):
            self._make_room()

    def _make_room(self) -> None:
        try:
            banks.with_room(self._bank, 1)
        finally:  # whatever happened, kernels must not use addresses that moved
            self._attachment.refresh()

    def _run(
        self,
        rows: Floats,
        outcomes: Callable[[int, int], Bytes],
        progress: Progress | None,
    ) -> Ints:
        # Everything has been checked before the first round is played.
        stops = np.empty(len(rows), dtype=np.int64)
        for start in range(0, len(rows), CHUNK):
            stop = min(start + CHUNK, len(rows))
            marks = outcomes(start, stop)
            noise = self._noise_table(stop - start)
            done = 0
            while done < stop - start:
                self._make_room()
                done += entry.run(
                    self._where,
                    rows[start + done : stop],
                    marks[done:],
                    noise[done:] if len(noise) > 1 else noise,
                    stops[start + done : stop],
                )
            if progress is not None:
                progress(stop, len(rows))
        return stops

    def _noise(self) -> Floats:
        """Return a draw per pair for one decision; rules that draw override this."""
        return self._no_noise

    def _noise_table(self, n: int) -> Floats:
        """Return draws for n decisions, one row each; a single row stands for all."""
        del n
        return self._no_noise[None, :]

    # -- construction and persistence ---------------------------------------------------------

    def _new_bank(self, lam: float) -> banks.Bank:
        features, n_arms = self.features, self.cascade.n_arms
        plan: list[tuple[int, int]] = []  # (slot, arm that must have run) of each model
        if self._supervised:
            if not features.shared:
                raise InvalidParameterError(
                    "the supervised comparator models arms, not pairs: give it one feature map, "
                    "not one per stage or pair"
                )
            plan = [(0, arm) for arm in range(n_arms)]
        else:
            plan = [(features.slot_of(i, j), j) for i, j in self.cascade.pairs()]
        # Models that see the same features in the same rounds have the same V.
        grams = list(dict.fromkeys(plan))

        def line(slot: int, arm: int) -> list[int]:
            return [features.offsets[slot], features.dims[slot], arm]

        return banks.new_bank(
            np.array([[*line(*p), grams.index(p)] for p in plan]),
            np.array([line(*p) for p in grams]),
            n_arms,
            features.width,
            lam,
            self.ridge,
        )

    def _new_rule(self, kind: int, settings: Mapping[int, float]) -> rule.Rule:
        values = np.zeros(rule.N_SETTINGS)
        values[rule.KIND] = kind
        values[rule.FORCED_ROUNDS] = (
            rule.AUTO if self.forced_rounds == "auto" else self.forced_rounds
        )
        values[rule.N_FEATURES] = self.features.n_features
        for place, value in settings.items():
            values[place] = value
        gaps = self.cascade.gaps
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.clip(gaps, 0.0, 1.0)
            logits = np.log(inside) - np.log1p(-inside)
        pairs = np.zeros(gaps.shape, dtype=np.int64)
        for k, pair in enumerate(self.cascade.pairs()):
            pairs[pair] = k
        return rule.Rule(values, np.stack([gaps, logits]), pairs)

    def _model(self, i: int, j: int) -> int:
        n_arms = self.cascade.n_arms
        if self._supervised:
            raise InvalidParameterError("the supervised comparator models arms, not pairs")
        if not 0 <= i < j < n_arms:
            raise InvalidParameterError(
                f"({i}, {j}) is no pair of this cascade: it takes 0 ≤ i < j < {n_arms}"
            )
        return int(self._rule.pairs[i, j])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, as arrays by name."""
        return banks.saved(self._bank)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned; ValueError, and nothing changed, if it does not fit."""
        try:
            banks.restore(self._bank, state)
        finally:
            self._attachment.refresh()


def _mu(z: Any) -> Any:
    """Return μ(z), for a number or an array, without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


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
