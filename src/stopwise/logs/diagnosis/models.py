"""The fitted disagreement: a logistic regression for each pair, tested on other rows.

The estimator is the policies' own: a `USSPD` that goes to the last arm in every round learns
exactly the θ̂_ij that it would decide by. Each half of the rows is predicted by the other's model.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike, PerStage, Polynomial, Scaled, bind
from stopwise.intervals import chi_square_critical_value, wilson
from stopwise.logs.diagnosis.findings import Fit, Reliability, ReliabilityBin
from stopwise.policies.uss_pd import USSPD
from stopwise.progress import Progress, no_progress

RIDGE = 1e-3
# Coordinates are scaled by the range of all but this share at either end, and clipped there: one
# sentinel value of −99999 must not squeeze all others together.
STRAY = 0.001
ROWS_FOR_SCALE = 20_000
BINS = 10
ROWS_PER_BIN = 50
CHANCE = 0.001
BADLY_OFF, ROUGHLY_OFF = 0.10, 0.05
# Rows times pairs that are predicted anew in every draw: 20,000 rows of four arms.
MOST_REDRAWN, MANY_PAIRS = 120_000, 6


class Redrawn(NamedTuple):
    """Predictions p̂_ij (m, pairs) that other samples might have given, for some of the rows."""

    rows: Ints
    predictions: Iterator[Floats]


class Disagreement:
    """p̂_ij(x) of every pair, fitted on two halves of the rows, which are in random order.

    ``contexts`` are (n, d), d may be zero; ``differ`` (n, pairs) is whether each pair disagreed.
    ``degree`` is that of the polynomial in the scaled context. Where stages reveal coordinates,
    ``sees`` is how many are known at each arm.
    """

    def __init__(
        self,
        cascade: Cascade,
        contexts: Floats,
        differ: Bytes,
        *,
        degree: int = 1,
        sees: Sequence[int] | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self._constant = contexts.shape[1] == 0
        x = self._inputs(contexts)
        self._cascade = cascade
        features: FeaturesLike = _feature_map(x, degree)
        if sees is not None:
            known = list(sees)[: cascade.n_arms - 1]
            features = PerStage([_feature_map(x, degree, s) for s in known])
        self._features = bind(features, x.shape[1], cascade.n_arms)
        self.half = (np.arange(len(x)) >= len(x) // 2).astype(np.int64)
        self._thetas: list[list[Floats]] = []  # by the half that is left out
        for left_out in (0, 1):
            used = self.half != left_out
            self._thetas.append(self._fit(x[used], differ[used]))
            progress("fitting", left_out + 1, 2)
        self.out_of_sample = self.predict(contexts, self.half)
        self.n_features = max(len(theta) for theta in self._thetas[0])

    def _inputs(self, contexts: Floats) -> Floats:
        columns = [np.zeros((len(contexts), 1)), contexts] if self._constant else [contexts]
        return np.ascontiguousarray(np.hstack(columns))

    def _fit(self, contexts: Floats, differ: Bytes) -> list[Floats]:
        policy = USSPD(
            self._cascade,
            self._features,
            self._features.context_dim,
            forced_rounds=len(contexts),
            ridge=RIDGE,
        )
        policy.run(contexts, differ=differ)
        return [policy.theta(i, j) for i, j in self._cascade.pairs()]

    def redrawn(self, contexts: Floats, draws: int, random: np.random.Generator) -> Redrawn:
        """Return p̂_ij of the first rows of each half, as other samples might have given it.

        Estimates are drawn from their normal approximation, about those found. ``contexts`` are
        those that were fitted on.
        """
        pairs = self._cascade.pairs()
        n = min(len(contexts), MOST_REDRAWN // max(len(pairs), MANY_PAIRS))
        x = self._inputs(contexts)
        shown = [np.flatnonzero(self.half == half)[: (n + 1) // 2] for half in (0, 1)]
        models: list[list[tuple[Floats, Floats, Floats]]] = []  # for each half, of each pair
        for half in (0, 1):
            used = np.flatnonzero(self.half != half)
            some = used[:ROWS_FOR_SCALE]
            scale = np.sqrt(len(some) / len(used))  # all the rows know so much more
            models.append([])
            for theta, (i, j) in zip(self._thetas[half], pairs, strict=True):
                root = _covariance_root(self._features.transform(x[some], i, j), theta) * scale
                phi = self._features.transform(x[shown[half]], i, j)
                models[half].append((phi, theta, root))

        def drawn(phi: Floats, theta: Floats, root: Floats) -> Floats:
            return mu(phi @ (theta + root @ random.standard_normal(len(theta))))

        predictions = (
            np.vstack([np.column_stack([drawn(*m) for m in half]) for half in models])
            for _ in range(draws)
        )
        return Redrawn(np.concatenate(shown), predictions)

    def flattened(self) -> Floats:
        """Return p̂_ij of the rows that were fitted on, as near to constant as the data allow.

        Chance gives a model slopes that are not real. The logits z are moved towards their mean m,
        m + λ(z − m), with the least λ for which (1 − λ)²·Σ p̂(1 − p̂)(z − m)², the distance
        of that model from the estimate, is within its 95 % region.
        """
        p = np.clip(self.out_of_sample, 1e-9, 1 - 1e-9)
        z, weight = np.log(p / (1 - p)), p * (1 - p)
        middle = (weight * z).sum(axis=0) / weight.sum(axis=0)
        limit = chi_square_critical_value(max(self.n_features - 1, 1), 0.05)
        for half in (0, 1):
            mine = self.half == half
            distance = (weight[mine] * (z[mine] - middle) ** 2).sum(axis=0)
            keep = np.maximum(1.0 - np.sqrt(limit / np.maximum(distance, 1e-9)), 0.0)
            z[mine] = middle + keep * (z[mine] - middle)
        return mu(z)

    def predict(self, contexts: Floats, left_out: Ints) -> Floats:
        """Return p̂_ij of each row, (n, pairs), by the model that did not use its half."""
        x = self._inputs(contexts)
        result = np.empty((len(x), len(self._cascade.pairs())))
        for half in (0, 1):
            mine = left_out == half
            for k, (i, j) in enumerate(self._cascade.pairs()):
                phi = self._features.transform(x[mine], i, j)
                result[mine, k] = mu(phi @ self._thetas[half][k])
        return result


def _covariance_root(phi: Floats, theta: Floats) -> Floats:
    """Return R with RRᵀ the covariance of an estimate: the inverse of its information."""
    chance = mu(phi @ theta)
    information = (phi * (chance * (1 - chance))[:, None]).T @ phi
    information[np.diag_indices_from(information)] += RIDGE
    values, vectors = np.linalg.eigh(information)
    return vectors / np.sqrt(np.maximum(values, RIDGE))


def reliability(predicted: Floats, differ: Bytes, features: int = 0) -> tuple[Reliability, ...]:
    """Compare predicted with observed disagreement of each pair, in bins of equally many rows.

    ``features`` is how many numbers were fitted to each half of the rows.
    """
    found: list[Reliability] = []
    for k in range(predicted.shape[1]):
        p, d = predicted[:, k], differ[:, k]
        count = int(np.clip(len(p) // ROWS_PER_BIN, 1, BINS))
        edges = np.unique(np.quantile(p, np.arange(1, count) / count))
        place = np.searchsorted(edges, p)
        bins: list[ReliabilityBin] = []
        for b in np.unique(place).tolist():
            mine = place == b
            n = int(mine.sum())
            bins.append(ReliabilityBin(n, float(p[mine].mean()), wilson(int(d[mine].sum()), n)))
        off = float(sum(b.rows * abs(b.predicted - b.observed.value) for b in bins) / len(p))
        found.append(Reliability(tuple(bins), off, judge_fit(bins, off, features)))
    return tuple(found)


def judge_fit(bins: Sequence[ReliabilityBin], off: float, features: int = 0) -> Fit:
    """Judge predictions that are off by ``off`` on average.

    They are bad if off by more than 0.10, and by more than chance explains (χ² over the bins);
    rough if off by more than 0.05, or by half the spread of the predictions. Fitting d numbers to
    half of n rows adds a variance of 2d·p(1 − p)/n to the p(1 − p)·b/n of one of b bins: χ² is
    divided by 1 + 2d/b before predictions are called rough.

    Examples
    --------
    >>> seen = [wilson(hits, 1000) for hits in (310, 370, 450)]
    >>> tuple(judge_fit([ReliabilityBin(1000, 0.3, s)], abs(s.value - 0.3)) for s in seen)
    ('good', 'rough', 'bad')
    """
    rows = np.array([b.rows for b in bins])
    p = np.array([b.predicted for b in bins])
    observed = np.array([b.observed.value for b in bins])
    misfit = float((rows * (observed - p) ** 2 / np.maximum(p * (1 - p), 1e-9)).sum())
    limit = chi_square_critical_value(len(bins), CHANCE)
    if off > BADLY_OFF and misfit > limit:
        return "bad"
    spread = float(np.sqrt(np.average((p - np.average(p, weights=rows)) ** 2, weights=rows)))
    beyond_chance = misfit / (1.0 + 2.0 * features / len(bins)) > limit
    return "rough" if beyond_chance and off > min(ROUGHLY_OFF, 0.5 * spread) else "good"


def mu(z: Floats) -> Floats:
    """Return the logistic function, without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _feature_map(x: Floats, degree: int, seen: int | None = None) -> Scaled:
    """Return the map of contexts of which the first ``seen`` coordinates are known, or all."""
    some = x[:ROWS_FOR_SCALE]  # in random order
    low, high = np.quantile(some, [STRAY, 1 - STRAY], axis=0)
    some = np.clip(some, low, high)
    every = Polynomial(degree).monomials(x.shape[1])
    unseen = [m for m in every if seen is not None and any(c >= seen for c in m)]
    inner = Polynomial(degree, without=tuple(unseen))
    return Scaled.fit(some, inner, outside="clip").independent(some)
