"""Accuracy from agreement alone, and the arms that are dearer and look worse.

Assumed: given the right answer, and among cases about equally hard, arms err independently. The
second half matters. Hard cases are hard for all arms, so that over all cases they err together;
rows are therefore cut into strata by how much disagreement the models predict from the context,
the accuracies are estimated in each, and the average is taken.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.logs.diagnosis.findings import (
    AccuracyEstimate,
    Agreement,
    Estimate,
    IndependenceCheck,
    WorseArm,
)
from stopwise.logs.diagnosis.intervals import Z99_ONE_SIDED, around, tail
from stopwise.logs.diagnosis.intervals import mean as paired
from stopwise.logs.diagnosis.latent import fit_latent
from stopwise.logs.diagnosis.planning import rows_to_settle
from stopwise.logs.diagnosis.plug_in import plug_in_stops
from stopwise.logs.diagnosis.rank_one import fit_rank_one

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Codes = Ints | NDArray[np.int16]

# Strata: fewer than this many rows say too little, more than five remove little more (heuristic).
ROWS_A_STRATUM = 1500
MOST_STRATA = 5
# More rows than this only sharpen an estimate whose assumptions are the larger error.
MOST_ROWS = 50_000
# Where cases of one stratum still differ, accuracies are off by up to about this: a smaller
# difference between arms is not told (heuristic, from simulations).
WORSE_BY = 0.02
# Agreement misfits from this much on.
MISFIT = 0.01
# Fewer rows, or agreement of most pairs above this, leave too little to check by (heuristic).
LEAST_TO_CHECK, NEARLY_ALWAYS = 1000, 0.97
# An alarm matters where the rule goes to the arm in this share of the rows, and would lose less
# by this share without it.
OFTEN, WORTH_IT = 0.01, 0.01
CHANCE = 0.01


class Accuracies(NamedTuple):
    """Of every arm: ``mean`` (K,), its ``covariance``, and by stratum (S, K); and the check."""

    mean: Floats
    covariance: Floats
    by_stratum: Floats
    check: IndependenceCheck


def strata(predicted: Floats) -> Ints:
    """Return the stratum of every row: by how much disagreement is predicted, pairs averaged.

    Examples
    --------
    >>> np.bincount(strata(np.linspace(0, 1, 3000)[:, None])).tolist()
    [1500, 1500]
    """
    difficulty = np.asarray(predicted.mean(axis=1), dtype=np.float64)
    count = int(np.clip(len(predicted) // ROWS_A_STRATUM, 1, MOST_STRATA))
    edges = np.quantile(difficulty, np.arange(1, count) / count)
    # renumbered, for ties can leave a stratum empty
    place = np.asarray(np.searchsorted(edges, difficulty), dtype=np.int64)
    return np.unique(place, return_inverse=True)[1]


def accuracies(
    outputs: Codes,
    differ: Bytes,
    stratum: Ints,
    classes: int | None,
    names: Sequence[str],
) -> Accuracies:
    """Estimate how often each of three or more arms is right.

    Parameters
    ----------
    outputs : ndarray of shape (n, K)
        Codes 0 … L − 1; not looked at for free text.
    differ : ndarray of uint8, shape (n, pairs)
        Whether each pair disagreed.
    stratum : ndarray of shape (n,)
        Of each row.
    classes : int or None
        L; None for free text.
    names : sequence of str
        Of the arms, for words.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> truth, right = random.integers(0, 2, 20000), random.random((20000, 3)) < [0.7, 0.8, 0.9]
    >>> said = np.where(right, truth[:, None], 1 - truth[:, None])
    >>> differ = np.column_stack([said[:, i] != said[:, j] for i, j in [(0, 1), (0, 2), (1, 2)]])
    >>> found = accuracies(said, differ.astype(np.uint8), np.zeros(20000, int), 2, "abc")
    >>> found.mean.round(1), found.check.checked
    (array([0.7, 0.8, 0.9]), False)
    """
    n_arms = outputs.shape[1]
    count = int(stratum.max()) + 1
    mean, covariance = np.zeros(n_arms), np.zeros((n_arms, n_arms))
    by_stratum, predicted = np.zeros((count, n_arms)), np.zeros((n_arms, n_arms))
    for s in range(count):
        mine = stratum == s
        if classes is None:
            fit = fit_rank_one(differ[mine], n_arms)
        else:
            fit = fit_latent(outputs[mine].astype(np.int64), max(classes, 2))
        share = float(mine.mean())
        by_stratum[s] = np.clip(fit.accuracy, 0.0, 1.0)
        mean += share * by_stratum[s]
        covariance += share**2 * fit.covariance
        predicted += share * fit.agreement
    check = UNCHECKABLE if n_arms == 3 else _check_pairs(differ, predicted, names)
    return Accuracies(mean, covariance, by_stratum, check)


UNCHECKABLE = IndependenceCheck(
    checked=False,
    passed=False,
    statistic=0.0,
    p_value=1.0,
    words=(
        "Whether the arms err independently cannot be checked with three arms: their agreement is "
        "just enough to estimate accuracies from, and leaves nothing to check them by. Take them "
        "as a hint."
    ),
)


TOO_LITTLE = IndependenceCheck(
    checked=False,
    passed=False,
    statistic=0.0,
    p_value=1.0,
    words=(
        "There is too little to check whether the arms err independently by: few rows, or arms "
        "that nearly always agree. Take the accuracies as a hint."
    ),
)


def _check_pairs(differ: Bytes, predicted: Floats, names: Sequence[str]) -> IndependenceCheck:
    """Compare how often each pair agrees with what independent errors predict."""
    arms = range(len(names))
    pairs = [(i, j) for i in arms for j in arms if i < j]
    observed = 1.0 - differ.mean(axis=0)
    expected = np.array([predicted[pair] for pair in pairs])
    excess = observed - expected
    error = np.sqrt(np.maximum(expected * (1 - expected), 1e-9) / len(differ))
    z = excess / error
    worst = int(np.argmax(np.abs(z)))
    p_value = min(1.0, len(pairs) * tail(float(z[worst])))  # Bonferroni
    first, second = (names[a] for a in pairs[worst])
    passed = not (p_value < CHANCE and float(np.abs(excess).max()) > MISFIT)
    more = "more" if excess[worst] > 0 else "less"
    if passed and (len(differ) < LEAST_TO_CHECK or np.median(observed) > NEARLY_ALWAYS):
        return TOO_LITTLE
    if passed:
        words = (
            "Nothing here contradicts the assumption that arms err independently: they agree with "
            "each other about as often as they then would (largest difference "
            f"{100 * abs(excess[worst]):.1f} points, between {first} and {second}). That is no "
            "proof: mistakes that all the cheaper arms share look the same."
        )
    else:
        words = (
            f"The arms do not err independently: {first} and {second} agree on "
            f"{100 * observed[worst]:.1f} % of the rows, {100 * abs(excess[worst]):.1f} points "
            f"{more} than independent errors would give. Either these two share their mistakes, or "
            "the others do; arms that do look more accurate than they are, and the rest less. Take "
            "the accuracies as a hint."
        )
    return IndependenceCheck(True, passed, float(abs(z[worst])), float(p_value), words)


def read_agreement(
    cascade: Cascade,
    predicted: Floats,
    outputs: Codes,
    differ: Bytes,
    classes: int | None,
    wrong: Bytes | None = None,
) -> Agreement | None:
    """Return what the agreement of the arms says about who is right; None for two arms.

    ``wrong`` (n, K) says which arm erred on labelled rows, where there are any: an arm that looks
    worse is held against it.
    """
    if cascade.n_arms < 3:
        return None
    some = slice(0, MOST_ROWS)  # in random order
    stratum = strata(predicted[some])
    found = accuracies(outputs[some], differ[some], stratum, classes, cascade.names)
    errors = np.sqrt(np.maximum(np.diag(found.covariance), 0.0))
    worse, refuted = _worse_arms(
        cascade,
        found,
        predicted[some],
        stratum,
        lambda arm: _without_one(outputs[some], differ[some], stratum, classes, arm),
        differ[some].mean(axis=0),
        wrong,
    )
    return Agreement(
        classes=None if classes is None else max(classes, 2),
        accuracies=tuple(
            AccuracyEstimate(i, _within(around(float(a), float(e))))
            for i, (a, e) in enumerate(zip(found.mean, errors, strict=True))
        ),
        check=found.check,
        worse=worse,
        losses=tuple((cascade.cumulative + 1.0 - found.mean).tolist()),
        rule_loss=_estimated_loss(cascade, predicted[some], found.by_stratum, stratum)[1],
        refuted=refuted,
    )


def _without_one(
    outputs: Codes, differ: Bytes, stratum: Ints, classes: int | None, arm: int
) -> Floats:
    """Return the accuracies as estimated without one arm: NaN for that arm."""
    n_arms = outputs.shape[1]
    pairs = [(i, j) for i in range(n_arms) for j in range(i + 1, n_arms)]
    rest = [i for i in range(n_arms) if i != arm]
    columns = [k for k, pair in enumerate(pairs) if arm not in pair]
    result = np.full(n_arms, np.nan)
    names = [str(i) for i in rest]
    result[rest] = accuracies(outputs[:, rest], differ[:, columns], stratum, classes, names).mean
    return result


def _within(estimate: Estimate) -> Estimate:
    return Estimate(estimate.value, max(estimate.low, 0.0), min(estimate.high, 1.0))


def _worse_arms(
    cascade: Cascade,
    found: Accuracies,
    predicted: Floats,
    stratum: Ints,
    without_one: Callable[[int], Floats],
    rates: Floats,
    wrong: Bytes | None,
) -> tuple[tuple[WorseArm, ...], tuple[str, ...]]:
    """Name every arm that looks less accurate than a cheaper one (one-sided 99 %).

    Those that labels refute are returned in words instead.

    Where the arms do not err independently, two that share their mistakes look right and a better
    arm looks worse. One of the two left out, that ends: so an arm is then named only if it
    looks worse whichever third arm is left out.
    """
    worse: list[WorseArm] = []
    refuted: list[str] = []
    stops = plug_in_stops(cascade, predicted)
    again: list[Floats] = []
    if found.check.checked and not found.check.passed and cascade.n_arms > 3:
        again = [without_one(arm) for arm in range(cascade.n_arms)]
    for arm in range(1, cascade.n_arms):
        better = int(np.argmax(found.mean[:arm]))
        difference = float(found.mean[better] - found.mean[arm])
        c = found.covariance
        error = float(np.sqrt(max(c[arm, arm] + c[better, better] - 2 * c[arm, better], 0.0)))
        if difference < WORSE_BY or difference < Z99_ONE_SIDED * error:
            continue
        if any(other[better] - other[arm] < WORSE_BY for other in again):  # NaN is not less
            continue
        labels = None if wrong is None else _by_labels(cascade, wrong, arm, better)
        if labels is not None and labels.difference.high < 0:
            refuted.append(
                f"Agreement made {cascade.names[arm]} look worse than {cascade.names[better]}; "
                f"the labels refute it: {labels.words}."
            )
            continue
        cost_now, loss_now = _estimated_loss(cascade, predicted, found.by_stratum, stratum)
        rest = [i for i in range(cascade.n_arms) if i != arm]
        columns = [k for k, pair in enumerate(cascade.pairs()) if arm not in pair]
        cost_without, loss_without = _estimated_loss(
            without(cascade, arm), predicted[:, columns], found.by_stratum[:, rest], stratum
        )
        estimate = around(difference, error)
        worse.append(
            WorseArm(
                worse=arm,
                better=better,
                difference=estimate,
                cost_now=cost_now,
                cost_without=cost_without,
                loss_now=loss_now,
                loss_without=loss_without,
                words=_alarm(
                    cascade,
                    (arm, better),
                    (float(found.mean[arm]), float(found.mean[better])),
                    estimate,
                    (cost_now, cost_without),
                    (loss_now, loss_without),
                    found.check,
                    float(rates[cascade.pairs().index((better, arm))]),
                    labels,
                ),
                drives=bool((stops >= arm).mean() >= OFTEN)
                and loss_without <= (1 - WORTH_IT) * loss_now,
                confirmed=labels is not None and labels.difference.low > 0,
            )
        )
    return tuple(worse), tuple(refuted)


class _Labels(NamedTuple):
    """By how much more one arm errs than another, by labels, row by row; and in words."""

    difference: Estimate
    words: str


def _by_labels(cascade: Cascade, wrong: Bytes, arm: int, better: int) -> _Labels:
    difference = paired(wrong[:, arm].astype(np.float64) - wrong[:, better])
    low, high = 100 * difference.low, 100 * difference.high
    words = (
        f"on {len(wrong):,} labelled rows {cascade.names[arm]} errs in "
        f"{100 * wrong[:, arm].mean():.1f} % and {cascade.names[better]} in "
        f"{100 * wrong[:, better].mean():.1f} % (95 % interval of the difference {low:.1f} to "
        f"{high:.1f} points)"
    )
    return _Labels(difference, words)


def without(cascade: Cascade, arm: int) -> Cascade:
    """Return the cascade without one arm, its own cost saved.

    Examples
    --------
    >>> without(Cascade([0.1, 0.2, 0.3], names=["a", "b", "c"]), 1)
    Cascade(a 0.1 → c 0.4)
    """
    return Cascade(
        np.delete(cascade.costs, arm),
        names=[n for i, n in enumerate(cascade.names) if i != arm],
        tradeoff=np.delete(cascade.tradeoff, arm),
    )


def _estimated_loss(
    cascade: Cascade, predicted: Floats, by_stratum: Floats, stratum: Ints
) -> tuple[float, float]:
    """Return cost per round of the rule, and cost plus error as the agreement estimates it."""
    stops = plug_in_stops(cascade, predicted)
    cost = float(cascade.cumulative[stops].mean())
    return cost, cost + float(1.0 - by_stratum[stratum, stops].mean())


def _alarm(
    cascade: Cascade,
    arms: tuple[int, int],
    right: tuple[float, float],
    difference: Estimate,
    cost: tuple[float, float],
    loss: tuple[float, float],
    check: IndependenceCheck,
    rate: float,
    labels: _Labels | None,
) -> str:
    worse, better = (cascade.names[a] for a in arms)
    low, high = 100 * difference.low, 100 * difference.high
    words = (
        f"{worse} costs more than {better} and by their agreement looks less accurate: right on "
        f"about {100 * right[0]:.0f} % of the rows against {100 * right[1]:.0f} %, a difference "
        f"of {100 * difference.value:.0f} points (95 % interval {low:.0f} to {high:.0f}, if arms "
        "err independently). "
    )
    without_it = (
        f"without {worse} the rule would cost {cost[1]:.3g} per round instead of {cost[0]:.3g}, "
        f"and {loss[1]:.3g} instead of {loss[0]:.3g} with errors counted (estimated)."
    )
    if labels is not None and labels.difference.low > 0:
        return f"{words}Labels confirm that it is worse: {labels.words}. W{without_it[1:]}"
    doubt = (
        ""
        if check.passed
        else ", which does not hold here"
        if check.checked
        else ", which could not be checked"
    )
    n = rows_to_settle(rate, difference.value)
    settles = f"labels on about {n:,} random rows would"
    if labels is not None:
        settles += f", and those there are do not settle it: {labels.words}"
    return (
        f"{words}That rests on arms erring independently{doubt}. Either {worse} is worse than "
        f"{better}, or the cheaper arms share mistakes that {worse} does not make; agreement "
        f"alone cannot tell these apart; {settles}. If it is worse, {without_it}"
    )
