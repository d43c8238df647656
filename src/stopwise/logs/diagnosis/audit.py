"""What labels on some rows add: who errs how often, and whether the label-free rule is right.

The labelled rows are taken to be a random sample of the rows.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.features import BoundFeatures, bind
from stopwise.logs.diagnosis.findings import Audit, Estimate, PairAudit
from stopwise.logs.diagnosis.intervals import Z95, mean, wilson
from stopwise.logs.diagnosis.models import (
    at_least_one_column,
    covariance_root,
    fit_chances,
    mu,
)
from stopwise.logs.diagnosis.plug_in import plug_in_stops

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# Fewer labels settle nothing.
LEAST_LABELS = 30
# A model of errors gets one feature for so many labels, else it is linear.
LABELS_A_FEATURE = 20
DRAWS = 200
MOST_ROWS = 20_000


class Rows(NamedTuple):
    """Rows by what is known of them: contexts (n, d) at the first arm, and p̂ (n, pairs)."""

    contexts: Floats
    predicted: Floats


def read_audit(
    cascade: Cascade,
    labelled: Rows,
    wrong: Bytes,
    everyone: Rows,
    *,
    degree: int,
    random: np.random.Generator,
) -> Audit:
    """Return what the labelled rows say.

    Parameters
    ----------
    cascade : Cascade
        The arms.
    labelled : Rows
        The labelled rows.
    wrong : ndarray of uint8, shape (n, K)
        Which arm erred there.
    everyone : Rows
        Rows over which to take the share that is weakly dominant.
    degree : int
        Of the polynomial in the models of the errors.
    random : Generator
        For the uncertainty of that share.
    """
    n = len(wrong)
    stops = plug_in_stops(cascade, labelled.predicted)
    rule = wrong[np.arange(n), stops] + cascade.cumulative[stops]
    fixed = wrong + cascade.cumulative
    best = int(np.argmin(fixed.mean(axis=0)))
    return Audit(
        rows=n,
        errors=tuple(wilson(int(w), n) for w in wrong.sum(axis=0)),
        pairs=tuple(
            PairAudit(
                first=i,
                second=j,
                rows=n,
                harm=wilson(int(((wrong[:, i] == 0) & (wrong[:, j] == 1)).sum()), n),
                repair=wilson(int(((wrong[:, i] == 1) & (wrong[:, j] == 0)).sum()), n),
            )
            for i, j in cascade.pairs()
        ),
        weakly_dominant=weak_dominance(
            cascade, labelled.contexts, wrong, everyone, degree=degree, random=random
        ),
        rule_loss=mean(rule),
        best_fixed=best,
        best_fixed_loss=mean(fixed[:, best]),
        lost=mean(rule - fixed[:, best]),
        rule_depth=float(stops.mean()),
    )


def weak_dominance(
    cascade: Cascade,
    contexts: Floats,
    wrong: Bytes,
    everyone: Rows,
    *,
    degree: int,
    random: np.random.Generator,
) -> Estimate:
    """Estimate the share of rows that are weakly dominant (WD).

    A logistic regression of each arm's errors on the context gives γ̂_i(x), hence the best arm
    i*(x), the arm of least γ̂_i(x) + C_i; a row counts where C_j − C_i* > p̂_i*j(x) for all
    j > i*. The interval moves the error models within what the labels leave open (normal draws
    about the estimates, with the inverse of the information as covariance), and adds the chance of
    the rows. Near ties between arms the estimate errs to either side; with few labels the interval
    says so.
    """
    features, thetas = _error_models(contexts, wrong, degree)
    taught = features.transform(at_least_one_column(contexts))
    x = at_least_one_column(everyone.contexts[:MOST_ROWS])
    phi, predicted = features.transform(x), everyone.predicted[:MOST_ROWS]
    spare = np.column_stack([*_spares(cascade, predicted), np.full(len(phi), np.inf)]) > 0

    def share(candidates: list[Floats]) -> float:
        loss = np.column_stack([mu(phi @ t) for t in candidates]) + cascade.cumulative
        # ties go to the deepest, as in the paper
        best = cascade.n_arms - 1 - np.argmin(loss[:, ::-1], axis=1)
        return float(spare[np.arange(len(phi)), best].mean())

    value = share(thetas)
    roots = [covariance_root(taught, theta) for theta in thetas]
    draws = [
        share([t + r @ random.standard_normal(len(t)) for t, r in zip(thetas, roots, strict=True)])
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    rows = Z95 * (value * (1 - value) / len(phi)) ** 0.5
    return Estimate(value, max(min(low, value) - rows, 0.0), min(max(high, value) + rows, 1.0))


def _error_models(
    contexts: Floats, wrong: Bytes, degree: int
) -> tuple[BoundFeatures, list[Floats]]:
    columns = max(contexts.shape[1], 1)
    if degree > 1:
        features, thetas = fit_chances(contexts, wrong, degree)
        bound = bind(features, columns, 2)
        if bound.n_features * LABELS_A_FEATURE <= len(contexts):
            return bound, thetas
    features, thetas = fit_chances(contexts, wrong, 1)
    return bind(features, columns, 2), thetas


def _spares(cascade: Cascade, predicted: Floats) -> list[Floats]:
    """Return min_j (C_j − C_i − p̂_ij) of each arm but the last."""
    spares: list[Floats] = []
    for i in range(cascade.n_arms - 1):
        columns = [k for k, (first, _) in enumerate(cascade.pairs()) if first == i]
        spares.append((cascade.gaps[i, i + 1 :] - predicted[:, columns]).min(axis=1))
    return spares
