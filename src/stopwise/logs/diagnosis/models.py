"""Models of disagreement: one logistic regression per pair, evaluated on held-out rows.

The estimator is that of the policies: a `USSPD` that goes to the last arm in every round learns the
θ̂_ij that it would decide with. Each half of the rows is predicted by the model fitted to the other.
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
# Coordinates are clipped at these quantiles and scaled to the remaining range, so that a sentinel
# value such as −99999 does not compress all others.
TAIL = 0.001
ROWS_FOR_SCALE = 20_000
BINS = 10
ROWS_PER_BIN = 50
FALSE_ALARM_RATE = 0.001
BAD_ERROR, ROUGH_ERROR = 0.10, 0.05
# Rows times pairs predicted in every draw: 20,000 rows of four arms.
MAX_REDRAWN, FULL_PAIRS = 120_000, 6


class ModelDraws(NamedTuple):
    """Predictions p̂_ij of ``rows`` by models drawn around the estimates; each is (rows, pairs)."""

    rows: Ints
    predictions: Iterator[Floats]


class Disagreement:
    """p̂_ij(x) of every pair, cross-fitted on two halves of the rows; rows are in random order.

    ``contexts`` are (n, d) with d ≥ 0; ``differ`` (n, pairs) is whether each pair disagreed.
    ``degree`` is the degree of the polynomial in the scaled context. If arms reveal coordinates,
    ``sees`` is the number of coordinates available after each arm but the last.
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
            counts = list(sees)[: cascade.n_arms - 1]
            features = PerStage([_feature_map(x, degree, count) for count in counts])
        self._features = bind(features, x.shape[1], cascade.n_arms)
        self.half = (np.arange(len(x)) >= len(x) // 2).astype(np.int64)
        self._thetas: list[list[Floats]] = []  # by the half left out
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

    def draw_models(self, contexts: Floats, draws: int, random: np.random.Generator) -> ModelDraws:
        """Return p̂_ij of the first rows of each half, predicted by ``draws`` random models.

        Models are drawn from the normal approximation to the distribution of the estimates.
        ``contexts`` are the contexts that the models were fitted to.
        """
        pairs = self._cascade.pairs()
        n = min(len(contexts), MAX_REDRAWN // max(len(pairs), FULL_PAIRS))
        x = self._inputs(contexts)
        selected = [np.flatnonzero(self.half == half)[: (n + 1) // 2] for half in (0, 1)]
        models: list[list[tuple[Floats, Floats, Floats]]] = []  # for each half, of each pair
        for half in (0, 1):
            used = np.flatnonzero(self.half != half)
            subset = used[:ROWS_FOR_SCALE]
            scale = np.sqrt(len(subset) / len(used))  # information grows with the number of rows
            models.append([])
            for theta, (i, j) in zip(self._thetas[half], pairs, strict=True):
                root = _covariance_root(self._features.transform(x[subset], i, j), theta) * scale
                phi = self._features.transform(x[selected[half]], i, j)
                models[half].append((phi, theta, root))

        def draw(phi: Floats, theta: Floats, root: Floats) -> Floats:
            return mu(phi @ (theta + root @ random.standard_normal(len(theta))))

        predictions = (
            np.vstack([np.column_stack([draw(*m) for m in half]) for half in models])
            for _ in range(draws)
        )
        return ModelDraws(np.concatenate(selected), predictions)

    def flattest_predictions(self) -> Floats:
        """Return p̂_ij of the fitted rows, as nearly constant as the data allow.

        Noise gives a model spurious slopes. So the logits z of each half are moved towards the
        weighted mean m of all logits, to m + λ(z − m), with the smallest λ ≥ 0 for which the
        squared distance from the estimate, (1 − λ)²·Σ p̂(1 − p̂)(z − m)² over the rows of the half,
        is inside the 95 % confidence region of the estimate.
        """
        p = np.clip(self.out_of_sample, 1e-9, 1 - 1e-9)
        z, weight = np.log(p / (1 - p)), p * (1 - p)
        mean = (weight * z).sum(axis=0) / weight.sum(axis=0)
        limit = chi_square_critical_value(max(self.n_features - 1, 1), 0.05)
        for half in (0, 1):
            mine = self.half == half
            distance = (weight[mine] * (z[mine] - mean) ** 2).sum(axis=0)
            keep = np.maximum(1.0 - np.sqrt(limit / np.maximum(distance, 1e-9)), 0.0)
            z[mine] = mean + keep * (z[mine] - mean)
        return mu(z)

    def predict(self, contexts: Floats, left_out: Ints) -> Floats:
        """Return p̂_ij of each row, (n, pairs), by the model that left out the half ``left_out``."""
        x = self._inputs(contexts)
        result = np.empty((len(x), len(self._cascade.pairs())))
        for half in (0, 1):
            mine = left_out == half
            for k, (i, j) in enumerate(self._cascade.pairs()):
                phi = self._features.transform(x[mine], i, j)
                result[mine, k] = mu(phi @ self._thetas[half][k])
        return result


def _covariance_root(phi: Floats, theta: Floats) -> Floats:
    """Return R such that RRᵀ is the covariance of ``theta``, the inverse of the information."""
    chance = mu(phi @ theta)
    information = (phi * (chance * (1 - chance))[:, None]).T @ phi
    information[np.diag_indices_from(information)] += RIDGE
    values, vectors = np.linalg.eigh(information)
    return vectors / np.sqrt(np.maximum(values, RIDGE))


def reliability(predicted: Floats, differ: Bytes, features: int = 0) -> tuple[Reliability, ...]:
    """Compare predicted with observed disagreement of each pair, in bins of equally many rows.

    ``features`` is the number of parameters fitted to each half of the rows.
    """
    results: list[Reliability] = []
    for k in range(predicted.shape[1]):
        p, d = predicted[:, k], differ[:, k]
        count = int(np.clip(len(p) // ROWS_PER_BIN, 1, BINS))
        edges = np.unique(np.quantile(p, np.arange(1, count) / count))
        bin_of = np.searchsorted(edges, p)
        bins: list[ReliabilityBin] = []
        for b in np.unique(bin_of).tolist():
            inside = bin_of == b
            n = int(inside.sum())
            observed = wilson(int(d[inside].sum()), n)
            bins.append(ReliabilityBin(n, float(p[inside].mean()), observed))
        error = float(sum(b.rows * abs(b.predicted - b.observed.value) for b in bins) / len(p))
        results.append(Reliability(tuple(bins), error, classify_fit(bins, error, features)))
    return tuple(results)


def classify_fit(bins: Sequence[ReliabilityBin], error: float, features: int = 0) -> Fit:
    """Classify predictions whose mean calibration error is ``error``.

    They are bad if the error exceeds 0.10 and χ² over the bins is significant. They are rough if
    the error exceeds 0.05 or half the spread of the predictions, and χ²/(1 + 2d/b) is significant,
    for d parameters (``features``) and b bins. The divisor is due to fitting d parameters to half
    of n rows, which adds a variance of 2d·p(1 − p)/n to the p(1 − p)·b/n of each bin.

    Examples
    --------
    >>> seen = [wilson(hits, 1000) for hits in (310, 370, 450)]
    >>> tuple(classify_fit([ReliabilityBin(1000, 0.3, s)], abs(s.value - 0.3)) for s in seen)
    ('good', 'rough', 'bad')
    """
    rows = np.array([b.rows for b in bins])
    p = np.array([b.predicted for b in bins])
    observed = np.array([b.observed.value for b in bins])
    misfit = float((rows * (observed - p) ** 2 / np.maximum(p * (1 - p), 1e-9)).sum())
    limit = chi_square_critical_value(len(bins), FALSE_ALARM_RATE)
    if error > BAD_ERROR and misfit > limit:
        return "bad"
    spread = float(np.sqrt(np.average((p - np.average(p, weights=rows)) ** 2, weights=rows)))
    beyond_chance = misfit / (1.0 + 2.0 * features / len(bins)) > limit
    return "rough" if beyond_chance and error > min(ROUGH_ERROR, 0.5 * spread) else "good"


def mu(z: Floats) -> Floats:
    """Return the logistic function of z, computed without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _feature_map(x: Floats, degree: int, seen: int | None = None) -> Scaled:
    """Return features that use only the first ``seen`` coordinates of contexts, by default all."""
    subset = x[:ROWS_FOR_SCALE]  # rows are in random order
    low, high = np.quantile(subset, [TAIL, 1 - TAIL], axis=0)
    subset = np.clip(subset, low, high)
    monomials = Polynomial(degree).monomials(x.shape[1])
    unseen = [m for m in monomials if seen is not None and any(c >= seen for c in m)]
    inner = Polynomial(degree, without=tuple(unseen))
    return Scaled.fit(subset, inner, outside="clip").independent(subset)
