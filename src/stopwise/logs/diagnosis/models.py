"""The fitted disagreement: a logistic regression for each pair, judged on rows it never saw.

The estimator is the policies' own: a `USSPD` that is sent to the last arm in every round learns
exactly the θ̂_ij that it would decide by. The rows are split in halves; each half is predicted by
what the other half taught.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.features import FeaturesLike, PerStage, Polynomial, Scaled, bind
from stopwise.logs.diagnosis.findings import Reliability, ReliabilityBin
from stopwise.logs.diagnosis.intervals import chi_square_limit, wilson
from stopwise.policies.uss_pd import USSPD

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

RIDGE = 1e-3
# Coordinates are scaled by the range of all but this share at either end, and clipped there: one
# sentinel value of −99999 must not squeeze all others together.
STRAY = 0.001
ROWS_FOR_SCALE = 20_000
BINS = 10
ROWS_A_BIN = 50
CHANCE = 0.001
# Rows times pairs that are predicted anew in every draw: 20,000 rows of four arms.
MOST_REDRAWN, MANY_PAIRS = 120_000, 6


class Disagreement:
    """p̂_ij(x) of every pair, fitted on two halves of the rows.

    Parameters
    ----------
    cascade : Cascade
        The arms.
    contexts : ndarray of shape (n, d)
        In random order; d may be zero.
    differ : ndarray of uint8, shape (n, pairs)
        Whether each pair disagreed.
    degree : int
        Of the polynomial in the scaled context.
    sees : sequence of int, optional
        How many coordinates are known when standing at each arm, where stages reveal some.
    fitted : callable, optional
        Called with the number of halves done.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> x = random.uniform(-1, 1, (4000, 1))
    >>> differ = (random.random((4000, 1)) < 0.3).astype(np.uint8)
    >>> model = Disagreement(Cascade([0.1, 0.2]), x, differ)
    >>> bool((np.abs(model.out_of_sample - 0.3) < 0.1).all())
    True
    """

    def __init__(
        self,
        cascade: Cascade,
        contexts: Floats,
        differ: Bytes,
        *,
        degree: int = 1,
        sees: Sequence[int] | None = None,
        fitted: Callable[[int], None] | None = None,
    ) -> None:
        # PerStage needs something to see at the first arm; a constant is what an intercept sees.
        self._blind_start = sees is not None and sees[0] == 0
        if sees is not None and self._blind_start:
            sees = [s + 1 for s in sees]
        x = self._shown(contexts)
        self._cascade = cascade
        self._features = bind(
            _feature_maps(x, cascade.n_arms, degree, sees), x.shape[1], cascade.n_arms
        )
        self.half = (np.arange(len(x)) >= len(x) // 2).astype(np.int64)
        self._thetas: list[list[Floats]] = []  # by the half that is left out
        for left_out in (0, 1):
            taught = self.half != left_out
            self._thetas.append(self._fit(x[taught], differ[taught]))
            if fitted is not None:
                fitted(left_out + 1)
        self.out_of_sample = self.predict(contexts, self.half)
        self.n_features = max(len(theta) for theta in self._thetas[0])

    def _shown(self, contexts: Floats) -> Floats:
        if self._blind_start:
            return np.hstack([np.zeros((len(contexts), 1)), contexts])
        return at_least_one_column(contexts)

    def _fit(self, contexts: Floats, differ: Bytes) -> list[Floats]:
        policy = USSPD(
            self._cascade,
            self._features,
            self._features.context_dim,
            forced_rounds=len(contexts),
            ridge=RIDGE,
        )
        policy.run_disagreements(contexts, differ)
        return [policy.theta(i, j) for i, j in self._cascade.pairs()]

    def redrawn(
        self, contexts: Floats, draws: int, random: np.random.Generator
    ) -> Iterator[Floats]:
        """Yield p̂_ij of the first rows as other samples might have taught it.

        Estimates are drawn from their normal approximation, about those found. ``contexts`` are
        those that were fitted on.
        """
        pairs = self._cascade.pairs()
        n = min(len(contexts), MOST_REDRAWN // max(len(pairs), MANY_PAIRS))
        x = self._shown(contexts)
        # as many of either half: the halves are in order
        asked = [np.flatnonzero(self.half == h)[: (n + 1) // 2] for h in (0, 1)]
        models: list[tuple[slice, int, Floats, Floats, Floats]] = []
        first = 0
        for half in (0, 1):
            here = slice(first, first + len(asked[half]))
            first = here.stop
            taught = np.flatnonzero(self.half != half)
            some = taught[:ROWS_FOR_SCALE]
            more = np.sqrt(len(some) / len(taught))  # all the rows tell so much more
            for k, (i, j) in enumerate(pairs):
                theta = self._thetas[half][k]
                root = covariance_root(self._features.transform(x[some], i, j), theta) * more
                models.append(
                    (here, k, self._features.transform(x[asked[half]], i, j), theta, root)
                )
        for _ in range(draws):
            result = np.empty((first, len(pairs)))
            for here, k, phi, theta, root in models:
                result[here, k] = mu(phi @ (theta + root @ random.standard_normal(len(theta))))
            yield result

    def calmed(self) -> Floats:
        """Return p̂_ij of the rows that were fitted on, as near to constant as the data allow.

        Chance gives a model slopes that the world has not. The logits z are drawn towards their
        mean m, m + λ(z − m), with the least λ for which (1 − λ)²·Σ p̂(1 − p̂)(z − m)², the distance
        of that model from the estimate, is within its 95 % region.
        """
        p = np.clip(self.out_of_sample, 1e-9, 1 - 1e-9)
        z, weight = np.log(p / (1 - p)), p * (1 - p)
        middle = (weight * z).sum(axis=0) / weight.sum(axis=0)
        limit = chi_square_limit(max(self.n_features - 1, 1), 0.05)
        for half in (0, 1):
            mine = self.half == half
            distance = (weight[mine] * (z[mine] - middle) ** 2).sum(axis=0)
            keep = np.maximum(1.0 - np.sqrt(limit / np.maximum(distance, 1e-9)), 0.0)
            z[mine] = middle + keep * (z[mine] - middle)
        return mu(z)

    def predict(self, contexts: Floats, left_out: Ints) -> Floats:
        """Return p̂_ij of each row, (n, pairs), by the model that half had no part in."""
        x = self._shown(contexts)
        result = np.empty((len(x), len(self._cascade.pairs())))
        for half in (0, 1):
            mine = left_out == half
            for k, (i, j) in enumerate(self._cascade.pairs()):
                phi = self._features.transform(x[mine], i, j)
                result[mine, k] = mu(phi @ self._thetas[half][k])
        return result


def covariance_root(phi: Floats, theta: Floats) -> Floats:
    """Return R with RRᵀ the covariance of an estimate: the inverse of its information.

    Examples
    --------
    >>> root = covariance_root(np.ones((400, 1)), np.zeros(1))  # 400 tosses of a coin
    >>> round(abs(float(root[0, 0])), 3)
    0.1
    """
    chance = mu(phi @ theta)
    information = (phi * (chance * (1 - chance))[:, None]).T @ phi
    information[np.diag_indices_from(information)] += RIDGE
    values, vectors = np.linalg.eigh(information)
    return vectors / np.sqrt(np.maximum(values, RIDGE))


def reliability(
    cascade: Cascade, predicted: Floats, differ: Bytes, features: int = 0
) -> tuple[Reliability, ...]:
    """Compare predicted with observed disagreement of each pair, in bins of equally many rows.

    ``features`` is how many numbers each half of the rows had to be fitted by.

    Examples
    --------
    >>> p, d = np.full((100, 1), 0.25), np.array([[1], [0], [0], [0]] * 25, dtype=np.uint8)
    >>> reliability(Cascade([1, 1]), p, d)[0].calibration_error
    0.0
    """
    found: list[Reliability] = []
    for k, (i, j) in enumerate(cascade.pairs()):
        p, d = predicted[:, k], differ[:, k]
        count = int(np.clip(len(p) // ROWS_A_BIN, 1, BINS))
        edges = np.unique(np.quantile(p, np.arange(1, count) / count))
        place = np.searchsorted(edges, p)
        bins: list[ReliabilityBin] = []
        for b in np.unique(place).tolist():
            mine = place == b
            n = int(mine.sum())
            bins.append(ReliabilityBin(n, float(p[mine].mean()), wilson(int(d[mine].sum()), n)))
        off = sum(b.rows * abs(b.predicted - b.observed.value) for b in bins) / len(p)
        found.append(Reliability(i, j, tuple(bins), float(off), features))
    return tuple(found)


def miscalibrated(found: Reliability, limit: float) -> bool:
    """Tell whether predictions are off by more than a limit, and by more than chance explains.

    Examples
    --------
    >>> def made(hits: int) -> Reliability:
    ...     one = ReliabilityBin(1000, 0.3, wilson(hits, 1000))
    ...     return Reliability(0, 1, (one,), abs(hits / 1000 - 0.3))
    >>> miscalibrated(made(310), 0.05), miscalibrated(made(450), 0.05)
    (False, True)
    """
    if found.calibration_error <= limit:
        return False
    return _misfit(found) > chi_square_limit(len(found.bins), CHANCE)


def contradicted(found: Reliability) -> bool:
    """Tell whether a model is false, however little it is off.

    Fitting d numbers to half of n rows moves predictions by chance too: by a variance of
    2d·p(1 − p)/n on average, beside the p(1 − p)·b/n of what is observed in one of b bins.

    Examples
    --------
    >>> bins = (ReliabilityBin(100_000, 0.3, wilson(31_500, 100_000)),)
    >>> (
    ...     contradicted(Reliability(0, 1, bins, 0.015)),
    ...     contradicted(Reliability(0, 1, bins, 0.015, 9)),
    ... )
    (True, False)
    """
    noise = 1.0 + 2.0 * found.features / len(found.bins)
    return _misfit(found) / noise > chi_square_limit(len(found.bins), CHANCE)


def blurred(found: Reliability) -> bool:
    """Tell whether a false model is off by as much as half the spread of its predictions.

    Examples
    --------
    >>> bins = tuple(
    ...     ReliabilityBin(5000, p, wilson(o, 5000)) for p, o in [(0.29, 900), (0.31, 2100)]
    ... )
    >>> blurred(Reliability(0, 1, bins, 0.11))
    True
    """
    rows = np.array([b.rows for b in found.bins])
    predicted = np.array([b.predicted for b in found.bins])
    middle = float(np.average(predicted, weights=rows))
    spread = float(np.sqrt(np.average((predicted - middle) ** 2, weights=rows)))
    return found.calibration_error > 0.5 * spread and contradicted(found)


def _misfit(found: Reliability) -> float:
    return sum(
        b.rows * (b.observed.value - b.predicted) ** 2 / max(b.predicted * (1 - b.predicted), 1e-9)
        for b in found.bins
    )


def fit_chances(contexts: Floats, marks: Bytes, degree: int) -> tuple[FeaturesLike, list[Floats]]:
    """Fit a logistic regression to each column of marks; return the features and the estimates.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> features, (theta,) = fit_chances(x, (x > 0).astype(np.uint8), degree=1)
    >>> bool((bind(features, 1, 2).transform([[0.9]]) @ theta)[0] > 0)
    True
    """
    x = at_least_one_column(contexts)
    features = _feature_map(x, degree)
    thetas: list[Floats] = []
    for k in range(marks.shape[1]):
        # two arms whose "disagreement" is the mark
        policy = USSPD(Cascade([1.0, 1.0]), features, x.shape[1], forced_rounds=len(x), ridge=RIDGE)
        policy.run_disagreements(x, marks[:, k : k + 1])
        thetas.append(policy.theta(0, 1))
    return features, thetas


def mu(z: Floats) -> Floats:
    """Return the logistic function, without overflow.

    Examples
    --------
    >>> mu(np.array([0.0, 1000.0])).tolist()
    [0.5, 1.0]
    """
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def at_least_one_column(contexts: Floats) -> Floats:
    """Return the contexts, a constant in place of none at all.

    Examples
    --------
    >>> at_least_one_column(np.empty((2, 0))).tolist()
    [[0.0], [0.0]]
    """
    x = contexts if contexts.shape[1] else np.zeros((len(contexts), 1))
    return np.ascontiguousarray(x)


def _feature_maps(x: Floats, n_arms: int, degree: int, sees: Sequence[int] | None) -> FeaturesLike:
    if sees is None:
        return _feature_map(x, degree)
    known = list(sees)[: n_arms - 1]
    return PerStage([_feature_map(x[:, :s], degree) for s in known], sees=known)


def _feature_map(x: Floats, degree: int) -> Scaled:
    some = x[:ROWS_FOR_SCALE]  # in random order
    low, high = np.quantile(some, [STRAY, 1 - STRAY], axis=0)
    some = np.clip(some, low, high)
    return Scaled.fit(some, Polynomial(degree), outside="clip").independent(some)
