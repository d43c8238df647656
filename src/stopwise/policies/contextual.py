"""What the contextual policies share: features in, the compiled engine, evidence out."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import index
from typing import Any, cast

import numpy as np
from numpy import empty, ndarray
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.engine import bank as banks
from stopwise.engine import entry, gram, rounds, rule
from stopwise.engine.arrays import Bytes, Floats, Ints
from stopwise.engine.attach import Attachment
from stopwise.errors import (
    InvalidContextError,
    InvalidInputError,
    InvalidOutputsError,
    InvalidParameterError,
    StopwiseError,
)
from stopwise.features import FLOAT64, BoundFeatures, FeaturesLike, Identity, bind
from stopwise.policies.base import CHUNK, Policy, Progress, number
from stopwise.policies.descent import Descent, comparable
from stopwise.policies.randomness import chance, restored, stored, whole_seed
from stopwise.policies.recorded import Rounds
from stopwise.policies.staged import StagedDescent, numbers_of
from stopwise.records import Decision, PairEvidence, Round

NO_PLAN = np.empty(0)  # tells a kernel that it is given features, not a context
SMALLEST_RIDGE = 1e-9  # with 10⁶ rounds, H is then still positive definite in double precision
LARGEST_EVERY = 10_000  # rounds that one stands for: counts of them fit in 32 bits for years
AUDIT = "audit."  # begins the names of saved arrays that hold what labels have shown


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
        self.ridge = number("ridge", ridge, least=SMALLEST_RIDGE)
        self.forced_rounds = _forced_rounds(forced_rounds)
        self.full_depth_every = _every(full_depth_every)
        self.seed = whole_seed(seed)
        self._supervised = kind == rule.SUPERVISED
        self._lam = lam
        self._bank = self._new_bank()
        self._labelled: list[banks.Bank] = []  # of each pair what labels have shown, if any did
        self._audited = 0
        self._chance = chance(self.seed)
        self._rule = self._new_rule(kind, settings)
        self._attach()
        self._n_pairs = len(cascade.pairs())
        self._no_noise = np.zeros(self._n_pairs)
        self._note_length = self.features.width + rule.N_NOTED * self._n_pairs
        self._last = cascade.n_arms - 1

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
        stop = entry.decide(self._where, self._audits, x, plan, noise, note)
        if stop < 0:
            self.features.row(x)  # says what is wrong
            raise InvalidContextError("this context was refused")
        if self.full_depth_every is not None and self._sent(1)[0]:
            return self.decided(self._last, stop, None, noise, note)
        return Decision(
            stop, self._names[stop], self._costs[stop], self, note, noise, self._counters.item(0)
        )

    def decide_many(self, X: ArrayLike) -> Ints:
        """Return the stop for every row of ``X``, learning nothing between them.

        These are the rule's own stops: chance sends none of them on.
        """
        rows = self.features.rows(X)
        return entry.decide_many(self._where, self._audits, rows, self._noise_table(len(rows)))

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
        """Play rounds in order, compiled (see `Policy.run`)."""
        rows = self.features.rows(contexts)
        told = self._checked_table(len(rows), outputs)
        return self._run(rows, lambda start, stop: self._marks(told[start:stop]), progress)

    def replay(self, rounds: Rounds, *, progress: Progress | None = None) -> Ints:
        """Play recorded rounds in order, compiled (see `Policy.replay`)."""
        if self._supervised:
            return super().replay(rounds, progress=progress)
        checked = self._checked_rounds(rounds)
        rows = self._rows(checked)
        # as `entry.run` reads it: what a failed round knows is told from what a record lacks
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
        """Learn from recorded rounds, compiled (see `Policy.observe_many`)."""
        if self._supervised:
            super().observe_many(rounds, stops)
            return
        checked = self._checked_rounds(rounds)
        ends = self._taught(checked, stops)
        wishes = ends if wanted is None else self._taught(checked, wanted)
        rows = self._rows(checked)
        done = 0
        while done < len(rows):
            self._make_room()
            rest = slice(done, None)
            done += entry.learn(
                self._where, rows[rest], checked.differ[rest], ends[rest], wishes[rest]
            )

    def audit(self, done: Round, label: Hashable) -> None:
        """Learn from the right answer to a round that has ended (see `Policy.audit`).

        Where arm i was right and a deeper arm j wrong, going on did harm. The chance that i is
        right where the two disagree, q_ij(x), is modelled as p_ij(x) is; with W_ij = p_ij·q_ij the
        rule becomes C_j − C_i > UCB(p_ij − 2·W_ij).
        """
        if self._rule.settings[rule.KIND] not in (rule.ALPHA, rule.BETA):
            super().audit(done, label)
        outputs = list(done.outputs)
        if label is None or not comparable(label):
            raise InvalidOutputsError(
                f"the label of an audited round is a value like its outputs, not {label!r}"
            )
        if not outputs:
            return
        n, _ = self._coded(outputs)
        right = np.array([output == label for output in outputs], dtype=np.bool_)
        differ = np.array([[a != b for b in outputs] for a in outputs], dtype=np.bool_)
        self._learn_label(self._row(done.context, n), right, differ, done.wanted)

    def _learn_label(
        self, row: Floats, right: NDArray[np.bool_], differ: NDArray[np.bool_], wanted: int
    ) -> None:
        if not self._labelled:
            self._labelled = [self._new_label_bank(k) for k in range(self._n_pairs)]
            self._attach()
        for k, (i, j) in enumerate(self.cascade.pairs()):
            if j >= len(right) or not differ[i, j]:
                continue
            bank = self._labelled[k]
            offset, d = (int(v) for v in self._bank.models[k, : banks.ARM])
            bank.outcomes[0] = right[i]
            told = np.empty(d + 1)
            rounds.label_features(row[offset : offset + d], self.ridge, told)
            # Its one model sees a cascade of two arms, of which the first is nothing; a wish to
            # stop there gives the round its weight, as one between arms i and j does.
            between = self.features.sees is not None and i < wanted < j
            while not entry.observe(self._audits[k], told, NO_PLAN, 2, int(not between), -1):
                self._make_room()
        self._audited += 1

    @property
    def audits(self) -> int:
        """Rounds whose right answer was told."""
        return self._audited

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
        noted = note[self.features.width :].reshape(-1, rule.N_NOTED)
        if np.isnan(noted[0, rule.UPPER]):
            return ()  # a forced round: nothing was compared
        if decision.round == self.rounds:
            self._solve_exactly(note[: self.features.width], noise, noted, decision.wanted)
        with np.errstate(all="ignore"):  # what was not compared holds whatever was in memory
            values = noted if self._supervised else _mu(noted)
        gaps, logits = self._rule.gaps

        def won(i: int, j: int, k: int) -> bool:
            if self._supervised or noted[k, rule.HARM] > 0.0:
                return bool(gaps[i, j] > values[k, rule.UPPER] - 2.0 * noted[k, rule.HARM])
            # as the engine compares: in logits
            return bool(gaps[i, j] > 1.0 or logits[i, j] > noted[k, rule.UPPER])

        return tuple(
            PairEvidence(
                i,
                j,
                float(gaps[i, j]),
                float(values[k, rule.ESTIMATE]),
                float(values[k, rule.UPPER]),
                won(i, j, k),
                float(noted[k, rule.HARM]),
            )
            for k, (i, j) in enumerate(self.cascade.pairs())
            if i <= decision.wanted and not np.isnan(values[k, rule.ESTIMATE])
        )

    def _solve_exactly(self, row: Floats, noise: Floats, noted: Floats, stop: int) -> None:
        """Overwrite the numbers of every comparison by those of the exact estimates."""
        logits: list[float] = []
        bonuses: list[float] = []
        for k, (offset, d, _, _) in enumerate(self._bank.models.tolist()):
            phi = row[offset : offset + d]
            logits.append(float(phi @ self._theta(k)))
            bonuses.append(self._bonus(phi, k, noise))
        for k, (i, j) in enumerate(self.cascade.pairs()):
            noted[k, rule.HARM] = 0.0
            if i > stop:  # features of arms beyond may not even be known
                noted[k, rule.ESTIMATE] = np.nan
            elif self._supervised:
                noted[k, rule.ESTIMATE] = _mu(logits[i]) - _mu(logits[j])
                noted[k, rule.UPPER] = _mu(logits[i] + bonuses[i]) - _mu(logits[j] - bonuses[j])
            else:
                noted[k, : rule.HARM] = logits[k], logits[k] + bonuses[k]
                # labels are looked at where disagreement alone does not let the gap win
                if not self._rule.gaps[rule.GAP, i, j] > _mu(logits[k] + bonuses[k]):
                    noted[k, rule.HARM] = self._harm(row, k, logits[k], bonuses[k])

    def _harm(self, row: Floats, k: int, logit: float, optimism: float) -> float:
        """Return half of what labels take off p̃ at these features; 0 if none tells."""
        if not self._labelled or self._labelled[k].counters[banks.ROUNDS] == 0:
            return 0.0
        labelled = self._labelled[k]
        offset, d = (int(v) for v in self._bank.models[k, : banks.ARM])
        phi = np.empty(d + 1)
        rounds.label_features(row[offset : offset + d], self.ridge, phi)
        entry.solve(self._audits[k], 0, True)
        theta = labelled.vectors[0, banks.THETA_G] + labelled.vectors[0, banks.STEP]
        size = float(np.sqrt(max(phi @ labelled.hessian[0, gram.INVERSE] @ phi, 0.0)))
        gain = 1.0 - 2.0 * _mu(phi @ theta - rounds.label_quantile(labelled, self._rule) * size)
        upper = _mu(logit + optimism)
        return float(upper - gain * (upper if gain > 0 else _mu(logit - optimism))) / 2

    def _bonus(self, phi: Floats, k: int, noise: Floats) -> float:
        """Return α‖φ‖_{V⁻¹}, the optimism of model k at features φ."""
        del noise
        matrix, inverse = self._gram(k)
        if not matrix.any():
            return np.inf
        size = float(np.sqrt(max(phi @ inverse @ phi, 0.0)))
        g = int(self._bank.models[k, banks.GRAM])
        return rounds.radius_of(self._bank, self._rule, g) * size

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

    def condition(self, i: int, j: int) -> float:
        """Return how well V_ij is conditioned, λ_max/λ_min; inf while it is singular.

        Large where contexts hardly vary in some direction, about which little is then known. Only
        looks: `gram` may refresh the inverse that it returns.

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
        g = int(self._bank.models[self._model(i, j), banks.GRAM])
        d = int(self._bank.grams[g, banks.DIM])
        values = np.linalg.eigvalsh(self._bank.gram[g, gram.MATRIX, :d, :d])
        least, most = float(values[0]), float(values[-1])
        return most / least if least > most * np.finfo(float).eps * d else np.inf

    def observations(self, i: int, j: int) -> int:
        """Return n_ij, how many rounds revealed both arms of a pair.

        A round that chance sent on counts for all those it stands for.
        """
        g = int(self._bank.models[self._model(i, j), banks.GRAM])
        return int(self._bank.gram_state[g, gram.COUNT])

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the learned state occupies."""
        return sum(banks.nbytes(bank) for bank in (self._bank, *self._labelled))

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
        for name in ("_attachments", "_where", "_audits", "_counters"):
            del held[name]
        return held

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        self._bank = banks.copied(self._bank)  # of its own memory
        self._labelled = [banks.copied(bank) for bank in self._labelled]
        self._attach()

    def _attach(self) -> None:
        two_arms = rule.Rule(
            self._rule.settings, np.zeros((2, 2, 2)), np.zeros((2, 2), dtype=np.int64)
        )
        self._attachments = [
            (self._bank, Attachment(self._bank, self._rule)),
            *((bank, Attachment(bank, two_arms)) for bank in self._labelled),
        ]
        self._where = self._attachments[0][1].where  # what the kernels take
        # one row for each pair that labels may tell of; none at all while there are no labels
        self._audits = np.array(
            [attachment.where for _, attachment in self._attachments[1:]], dtype=np.int64
        ).reshape(-1, len(self._where))
        self._counters = self._bank.counters
        self._plan = self.features.plan

    # -- learning ---------------------------------------------------------------------------

    def _learn(self, x: ArrayLike, n: int, codes: int, wanted: int) -> None:
        plan = self._plan
        if plan is None or type(x) is not ndarray or x.dtype is not FLOAT64 or x.ndim != 1:
            x, plan = self._row(x, n), NO_PLAN
        while (done := entry.observe(self._where, x, plan, n, wanted, codes)) <= 0:
            if done < 0:
                self.features.row(x)  # says what is wrong
                raise InvalidContextError("this context was refused")
            self._make_room()

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

    def begin(self) -> tuple[Floats, Floats, bool]:
        """Draw what a round's decisions depend on: noise, and whether chance sends it on."""
        note = np.zeros(self._note_length)
        entry.begin_note(self._where, note)
        return self._noise(), note, bool(self._sent(1)[0])

    def stands(self, row: Floats, noise: Floats, note: Floats, arm: int) -> bool:
        """Say whether the rule stops at an arm, given the features known there."""
        return entry.stands(self._where, self._audits, row, noise, note, arm)

    def decided(
        self, stop: int, wanted: int, row: Floats | None, noise: Floats, note: Floats
    ) -> Decision:
        """Return the decision of a round that ended here and that the rule would have ended."""
        if row is not None:
            note[: len(row)] = row
        return Decision(
            stop,
            self._names[stop],
            self._costs[stop],
            self,
            note,
            noise,
            self.rounds,
            wanted if wanted < stop else -1,
        )

    def learn_row(self, row: Floats, outputs: Sequence[Hashable], wanted: int) -> None:
        """Learn from the outputs of a round, given its features as far as they were known."""
        n, codes = self._coded(outputs)
        while not entry.observe(self._where, row, NO_PLAN, n, wanted, codes):
            self._make_room()

    def _learn_pairs(self, x: ArrayLike, stop: int, differ: NDArray[np.bool_]) -> None:
        row = self._row(x, stop + 1)
        for k, pair in enumerate(self.cascade.pairs()):
            self._bank.outcomes[k] = differ[pair]
        self._learn_outcomes(row, stop)

    def _learn_outcomes(self, row: Floats, stop: int) -> None:
        while not entry.observe(self._where, row, NO_PLAN, stop + 1, stop, -1):
            self._make_room()

    def _make_room(self) -> None:
        for k, (bank, attachment) in enumerate(self._attachments):
            try:
                banks.with_room(bank, 1)
            finally:  # whatever happened, kernels must not use addresses that moved
                attachment.refresh()
                if k > 0:
                    self._audits[k - 1] = attachment.where

    def _run(
        self,
        rows: Floats,
        outcomes: Callable[[int, int], Bytes],
        progress: Progress | None,
        reach: Ints | None = None,
        audited: Rounds | None = None,
    ) -> Ints:
        # Everything has been checked before the first round is played.
        n = len(rows)
        stops = np.empty(n, dtype=np.int64)
        wanted = np.empty(n, dtype=np.int64)
        if reach is None:
            reach = np.full(n, self._last)
        for start in range(0, n, CHUNK):
            stop = min(start + CHUNK, n)
            marks = outcomes(start, stop)
            noise = self._noise_table(stop - start)
            sent = self._sent(stop - start)
            if audited is not None and audited.audited is not None:
                sent |= audited.audited[start:stop].astype(np.uint8) << 1  # pause after these
            done = 0
            while done < stop - start:
                self._make_room()
                t = start + done
                done += entry.run(
                    self._where,
                    self._audits,
                    rows[t:stop],
                    marks[done:],
                    reach[t:stop],
                    sent[done:],
                    noise[done:] if len(noise) > 1 else noise,
                    stops[t:stop],
                    wanted[t:stop],
                )
                if audited is not None and start + done > t and sent[done - 1] & 2:
                    at = start + done - 1
                    self._audit_recorded(audited, rows[at], at, int(stops[at]), int(wanted[at]))
            if progress is not None:
                progress(stop, n)
        return stops

    def _audit_recorded(
        self, recorded: Rounds, row: Floats, t: int, stop: int, wanted: int
    ) -> None:
        """Learn the label of a recorded round that was just played."""
        assert recorded.wrong is not None  # checked beside `audited`
        known = int(recorded.reach[t])
        end = min(stop, known) if recorded.failed[t] else stop
        if end > known:
            return
        wrong = recorded.wrong[t, : end + 1]
        if end >= 0 and (wrong < 2).all():
            differ = np.zeros((end + 1, end + 1), dtype=np.bool_)
            for k, (i, j) in enumerate(self.cascade.pairs()):
                if j <= end:
                    differ[i, j] = recorded.differ[t, k]
            self._learn_label(row, wrong == 0, differ, wanted)

    def _sent(self, n: int) -> Bytes:
        """Draw which of n rounds chance sends on to the last arm: 0 or 1 each."""
        if self.full_depth_every is None:
            return np.zeros(n, dtype=np.uint8)
        return (self._chance.random(n) < 1.0 / self.full_depth_every).astype(np.uint8)

    def _noise(self) -> Floats:
        """Return a draw per pair for one decision; rules that draw override this."""
        return self._no_noise

    def _noise_table(self, n: int) -> Floats:
        """Return draws for n decisions, one row each; a single row stands for all."""
        del n
        return self._no_noise[None, :]

    # -- construction and persistence ---------------------------------------------------------

    def _new_bank(self) -> banks.Bank:
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

        def stage(slot: int) -> int:
            return banks.NO_STAGE if features.sees is None else slot

        return banks.new_bank(
            np.array([[*line(*p), grams.index(p)] for p in plan]),
            np.array([[*line(*p), stage(p[0])] for p in grams]),
            n_arms,
            features.width,
            self._lam,
            self.ridge,
            self.full_depth_every or 1,
        )

    def _new_label_bank(self, k: int) -> banks.Bank:
        """Return the state of the model of q_ij, for pair number k: one, and it sees no other."""
        d = int(self._bank.models[k, banks.DIM]) + 1
        bank = banks.new_bank(
            np.array([[0, d, 1, 0]]),
            np.array([[0, d, 1, -1]]),
            2,
            d,
            0.0,
            self.ridge,
            self.full_depth_every or 1,
        )
        bank.counters[banks.AUTO_DONE] = 1  # forced exploration is a matter of disagreements
        return bank

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
        return int(self._rule.pairs[i, j])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, and the random state if there is one, as arrays by name."""
        arrays = banks.saved(self._bank)
        for k, bank in enumerate(self._labelled):
            arrays |= {f"{AUDIT}{k}.{name}": v for name, v in banks.saved(bank).items()}
        if self._labelled:
            arrays[f"{AUDIT}rounds"] = np.array([self._audited], dtype=np.int64)
        if self.full_depth_every is not None:
            arrays["random"] = stored(self._chance)
        return arrays

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `state` returned; ValueError, and nothing changed, if it does not fit."""
        random = self._chance
        if self.full_depth_every is not None:
            random = restored(state["random"])
        labelled: list[banks.Bank] = []
        audited = 0
        if f"{AUDIT}rounds" in state:
            audited = int(state[f"{AUDIT}rounds"].item())
            labelled = [self._new_label_bank(k) for k in range(self._n_pairs)]
        for k, bank in enumerate(labelled):
            banks.restore(bank, {name: state[f"{AUDIT}{k}.{name}"] for name in banks.SAVED})
        banks.restore(self._bank, state)
        self._labelled, self._audited, self._chance = labelled, audited, random
        self._attach()


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
