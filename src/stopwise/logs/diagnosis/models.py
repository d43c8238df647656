"""The fitted disagreement: a logistic regression for each pair, judged on rows it never saw.

The estimator is the policies' own: a `USSPD` that is sent to the last arm in every round learns
exactly the θ̂_ij that it would decide by. The rows are split in halves; each half is predicted by
what the other half taught.
"""

from collections.abc import Callable, Sequence

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


def reliability(cascade: Cascade, predicted: Floats, differ: Bytes) -> tuple[Reliability, ...]:
    """Compare predicted with observed disagreement of each pair, in bins of equally many rows.

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
        found.append(Reliability(i, j, tuple(bins), float(off)))
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
    misfit = sum(
        b.rows * (b.observed.value - b.predicted) ** 2 / max(b.predicted * (1 - b.predicted), 1e-9)
        for b in found.bins
    )
    return misfit > chi_square_limit(len(found.bins), CHANCE)


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
