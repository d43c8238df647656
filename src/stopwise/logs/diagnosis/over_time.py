"""Whether disagreement has changed over time, and how long what was seen should count.

Changes are found as by the alarm of a policy. The half-life is that of the models, in which a round
counts 2^(−age/half-life), under which what was observed next is most likely: no label is needed.
"""

from collections.abc import Sequence

import numpy as np

from stopwise.arrays import Bytes, Floats, Ints
from stopwise.engine.native import Adwin
from stopwise.logs.diagnosis.findings import OverTime
from stopwise.logs.diagnosis.models import mu
from stopwise.logs.diagnosis.sampling import Sample
from stopwise.records import Change

HALF_LIVES = tuple(k * 10**e for e in range(2, 8) for k in (1, 2, 5))[2:]  # 500, 1,000, … rounds
STEP, STEPS = 100, 1_000  # rounds that are predicted before models learn them; steps in a log
MOST_ROWS, MOST_COLUMNS, MOST_PAIRS = 100_000, 12, 10  # of models: so that they take seconds
SETTLED = 20  # steps after which one Newton step is enough
ERRORS = 2.0  # standard errors by which a half-life must be better than none


def over_time(rows: Sample, pairs: Sequence[tuple[int, int]], predicted: Floats) -> OverTime:
    """Return the changes in a log and its half-life; ``predicted`` is p̂ of each row and pair."""
    order, changes = np.argsort(rows.number), list[Change]()
    number, d = rows.number[order], rows.differ[order].astype(np.int64)
    unit, block = int(Adwin.UNIT), Adwin.TESTED
    r = unit * d - np.rint(unit * predicted[order]).astype(np.int64)
    starts = np.arange(0, rows.n, block)
    sums = np.array([np.add.reduceat(one, starts) for one in (np.ones_like(d), r, r * r, d)])
    for k, pair in enumerate(pairs):
        window = Adwin(Adwin.CHANCE / len(pairs))
        for start, one in zip(starts.tolist(), sums[:, :, k].T.tolist(), strict=True):
            rows_in, total, squares, disagreed = one
            cut = window.add(rows_in, total, squares, disagreed, int(number[start]))
            if cut is not None:
                last = int(number[min(start + block, rows.n) - 1])
                changes.append(Change(cut[0], pair, cut[1], cut[2], last))
    some = rows.take(slice(MOST_ROWS))  # which are in random order
    some = some.take(np.argsort(some.number))
    spread = some.differ.mean(axis=0)
    often = np.argsort(-spread * (1 - spread))[:MOST_PAIRS]
    span = int(some.number[-1]) + 1
    step = max(STEP, -(-span // STEPS))
    lives = [life for life in HALF_LIVES if 5 * step <= life <= span / 2]
    scores = likelihoods(_columns(some), some.differ[:, often], some.number, step, [np.inf, *lives])
    gains = scores[1:] - scores[0]
    total, error = gains.sum(axis=1), np.sqrt(gains.shape[1]) * gains.std(axis=1)
    half_life = None
    if lives and total.max() > ERRORS * error[total.argmax()]:
        half_life = lives[int(total.argmax())]
    return OverTime(tuple(sorted(changes)), half_life)


def likelihoods(
    phi: Floats, differ: Bytes, number: Ints, step: int, lives: Sequence[float]
) -> Floats:
    """Return ln P(what was observed | models of the rows before), by half-life and step.

    ``phi`` (n, d), ``differ`` (n, pairs) and ``number`` (n,), which ascends, are of rows. After a
    step, θ maximises the likelihood of its rows less (θ − m)ᵀD(θ − m)/2 by one or two Newton steps:
    m is the estimate before, and D the information of the rows that it is from.
    """
    d, edges = phi.shape[1], np.flatnonzero(np.diff(number // step)) + 1
    theta = np.zeros((len(lives), differ.shape[1], d))
    information = np.broadcast_to(np.eye(d), (*theta.shape, d))
    scores: list[Floats] = []
    before = int(number[0])
    for rows in np.split(np.arange(len(phi)), edges):
        x, y, now = phi[rows], differ[rows].T, int(number[rows[-1]])
        kept = 0.5 ** ((now - before) / np.array(lives))
        information, middle, before = information * kept[:, None, None, None], theta, now
        p = np.clip(mu(theta @ x.T), 1e-6, 1 - 1e-6)
        scores.append(np.log(np.where(y > 0, p, 1 - p)).sum(axis=(1, 2)))
        curved = information
        for _ in range(2 if len(scores) <= SETTLED else 1):
            p = mu(theta @ x.T)
            curved = information + ((p * (1 - p))[:, :, None] * x.T) @ x + 1e-3 * np.eye(d)
            slope = (y - p) @ x - (information @ (theta - middle)[..., None])[..., 0]
            theta = theta + np.linalg.solve(curved, slope[..., None])[..., 0]
        information = curved
    return np.array(scores).T


def _columns(rows: Sample) -> Floats:
    """Return the columns of the context that go most with disagreement, scaled, and a constant."""
    x = rows.contexts - rows.contexts.mean(axis=0)
    x = np.clip(x / np.maximum(x.std(axis=0), 1e-9), -3.0, 3.0)
    with_it = np.abs(x.T @ (rows.differ - rows.differ.mean(axis=0))).max(axis=1, initial=0.0)
    return np.hstack([np.ones((rows.n, 1)), x[:, np.argsort(-with_it)[:MOST_COLUMNS]]])
