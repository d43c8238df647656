"""The change alarm: whether arms disagree more, or less, than they did before (docs/change.md).

A residual is d − p: whether two arms disagreed in a round that revealed both, less the chance that
a model of earlier rounds gave it. The residuals of each pair go through ADWIN (Bifet and Gavaldà,
"Learning from time-changing data with adaptive windowing", 2007).

Alarms are the same bits on every machine: sums are integers, chances and logarithms are the
engine's, and everything else is + − × ÷ √ of single numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.engine import native
from stopwise.policies.checking import Differ, Ints
from stopwise.policies.staged import recorded_rows
from stopwise.records import Change, Floats, RecordedRounds

if TYPE_CHECKING:
    from stopwise.policies.estimates import Estimates

BLOCK, KEPT = 64, 256  # rounds that are tested at once; latest rounds that are kept
LEAST, BUCKETS, FRESH = 32, 48, 12  # residuals of a bucket; buckets, and how many are not joined
UNIT = 10_000  # in which residuals are counted
CHANCE = 0.002  # δ of ADWIN for all pairs together; docs/change.md has the rate of false alarms
# Heuristic, in standard deviations: a rule that goes on only where it expects disagreement learns
# where it expected too much, not where too little. Its model has a bias that moves as it learns.
SMALLEST = 0.1


class Adwin:
    """Residuals of a pair since its last change, in buckets: rows n, Σr, Σr², Σd, first round."""

    def __init__(self, chance: float) -> None:
        self.chance = chance
        self.buckets: Ints = np.zeros((0, 5), dtype=np.int64)

    def add(self, sums: Sequence[int], first: int) -> tuple[int, float, float] | None:
        """Add residuals, (n, Σr, Σr², Σd); return `cut` if there are enough to test."""
        if len(self.buckets) and self.buckets[-1, 0] < LEAST:
            self.buckets[-1, :4] += np.array(sums)
        else:
            self.buckets = np.vstack([self.buckets, [*sums, first]])
        if len(self.buckets) > BUCKETS:  # join the two old neighbours that have fewest residuals
            n = self.buckets[:-FRESH, 0]
            k = int((n[:-1] + n[1:]).argmin())
            self.buckets[k, :4] += self.buckets[k + 1, :4]
            self.buckets = np.delete(self.buckets, k + 1, axis=0)
        return self.cut() if self.buckets[-1, 0] >= LEAST else None

    def cut(self) -> tuple[int, float, float] | None:
        """Drop what came before a change; return its round, and disagreement before and after.

        Two parts of n₀ and n₁ residuals, 1/m = 1/n₀ + 1/n₁, differ if their means do by more than
        √(2σ²·ln(2/δ')/m) + 2·ln(2/δ')/(3m) + σ/10, δ' = δ/ln n (section 3 of the paper, but for
        the last term). Before is what the contexts after the change would have shown then.
        """
        n, r, r2, d, first = self.buckets.T  # integers, so that sums are exact
        total, left, sums = int(n.sum()), n.cumsum()[:-1], r.cumsum()[:-1]
        right, per_m = total - left, 1 / left + 1 / (total - left)
        variance = float(r2.sum() / total - (r.sum() / total) ** 2)
        log = native.log(2 * native.log(total) / self.chance)
        limit = np.sqrt(2 * variance * log * per_m) + UNIT * 2 / 3 * log * per_m
        shift = (r.sum() - sums) / right - sums / left
        excess = np.abs(shift) - limit - SMALLEST * math.sqrt(variance)
        k = int(excess.argmax()) if len(excess) else -1
        if k < 0 or excess[k] <= 0:
            return None
        self.buckets = self.buckets[k + 1 :]
        after = float(d[k + 1 :].sum() / right[k])
        return int(first[k + 1]), min(max(after - float(shift[k]) / UNIT, 0.0), 1.0), after

    def forget(self, before: int) -> None:
        """Drop the buckets that begin before a round."""
        self.buckets = self.buckets[self.buckets[:, 4] >= before]

    def move(self, by: int) -> None:
        """Add a number to every residual: the model that they are relative to has changed."""
        n, r, r2 = self.buckets.T[:3]
        r2 += 2 * by * r + by * by * n
        r += by * n


class ChangeAlarm:
    """Watches the residuals of every pair (`Estimates.watch`).

    The model is the policy's own as of 256, 512, 1024, … rounds, and so again after a change. The
    windows then move by the mean difference of the two models over the latest rounds.
    """

    def __init__(
        self, policy: "Estimates", state: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        self.on_change: Callable[[Change], object] | None = None
        self._policy = policy
        self._pairs = np.array(policy.cascade.pairs())
        self._seen = self._era = 0  # rounds so far, and at the last change
        self._model: Floats | None = None
        self._windows = [Adwin(CHANCE / len(self._pairs)) for _ in range(len(self._pairs))]
        # of each round: stop, rule_stop, which pairs differ, context
        width = 2 + len(self._pairs) + policy.features.context_dim
        self._rounds: Floats = np.zeros((KEPT, width))
        if state is not None:
            self._seen, self._era = map(int, state["alarm"].tolist())
            model, buckets = state["alarm_model"], state["alarm_buckets"].reshape(-1, 6)
            self._model = model.reshape(-1, len(self._pairs)) if model.size else None
            self._rounds = state["alarm_rounds"].reshape(KEPT, width)
            for k, window in enumerate(self._windows):
                window.buckets = buckets[buckets[:, 0] == k, 1:]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything but ``on_change``, as arrays by name."""
        buckets = [np.insert(w.buckets, 0, k, axis=1) for k, w in enumerate(self._windows)]
        return {
            "alarm": np.array([self._seen, self._era]),
            "alarm_buckets": np.vstack(buckets),
            "alarm_model": np.zeros(0) if self._model is None else self._model,
            "alarm_rounds": self._rounds.copy(),
        }

    @property
    def room(self) -> int:
        """How many rounds can be added before they are tested."""
        return BLOCK - self._seen % BLOCK

    def add(self, contexts: ArrayLike, differ: Differ, stops: Ints, rule_stops: Ints) -> None:
        """Add rounds that were learned, at most `room`."""
        at, x = self._seen % KEPT, np.asarray(contexts, dtype=np.float64)
        here, n = self._rounds[at : at + len(stops)], 2 + len(self._pairs)
        here[:, 0], here[:, 1], here[:, n:] = stops, rule_stops, 0.0
        here[:, 2:n] = differ * (stops[:, None] >= self._pairs[:, 1])  # what the round revealed
        here[:, n : n + x.shape[1]] = x  # of a round that ended early a part is known
        self._seen += len(stops)
        if len(stops) and self.room == BLOCK:
            self._test(self._rounds[at + len(stops) - BLOCK : at + len(stops)])

    def _test(self, block: Floats) -> None:
        found: list[Change] = []
        if self._model is not None:
            now, (rows, differ, counts) = self._policy.rounds, self._read(block)
            r = (UNIT * differ - _chances(rows, self._model)) * counts
            sums = np.array([counts, r, r * r, differ * counts]).sum(axis=1).T.tolist()
            for (i, j), window, one in zip(self._pairs.tolist(), self._windows, sums, strict=True):
                if one[0] and (cut := window.add(one, now - BLOCK)) is not None:
                    found.append(Change(cut[0], (i, j), cut[1], cut[2], now))
        self._era = self._seen if found else self._era
        age = self._seen - self._era
        if age >= KEPT and age.bit_count() == 1:
            for window in self._windows:
                window.forget(self._policy.rounds - age // 2)
            self._fit()
        for change in found:
            if self.on_change is not None:
                self.on_change(change)

    def _read(self, rounds: Floats) -> tuple[Floats, Ints, Ints]:
        """Return features of rounds, which pairs differ, and which count."""
        (stops, rule_stops), n = rounds[:, :2].T.astype(np.int64), 2 + len(self._pairs)
        differ, (i, j) = rounds[:, 2:n].astype(np.int64), self._pairs.T
        counts = stops[:, None] >= j
        if self._policy.sees_revealed:  # going from i to j must not depend on what came after i
            counts &= (j == i + 1) | (rule_stops[:, None] <= i)
        failed = np.zeros(len(rounds), dtype=np.bool_)
        record = RecordedRounds(rounds[:, n:].copy(), differ.astype(np.uint8), stops + 1, failed)
        return recorded_rows(self._policy.features, record), differ, counts.astype(np.int64)

    def _fit(self) -> None:
        """Take the policy's estimates as the model; ½ for a pair that has none."""
        (rows, _, counts), features = self._read(self._rounds), self._policy.features
        before, self._model = self._model, np.zeros((rows.shape[1], len(self._pairs)))
        for k, (i, j) in enumerate(self._pairs.tolist()):
            start, theta = features.offsets[features.slot_of(i, j)], self._policy.learner.theta(k)
            if theta is not None:
                self._model[start : start + len(theta), k] = theta
        if before is not None:
            moved = _chances(rows, before) - _chances(rows, self._model)
            weight = np.where(counts.any(axis=0), counts, 1)  # all rounds where none counts
            by = np.rint((moved * weight).sum(axis=0) / weight.sum(axis=0))
            for window, one in zip(self._windows, by.tolist(), strict=True):
                window.move(int(one))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "on_change": None}  # a copy reports to nobody


def _chances(rows: Floats, model: Floats) -> Ints:
    """Return p of every row and pair, in units."""
    return np.rint(UNIT * native.chances(rows, model)).astype(np.int64)
