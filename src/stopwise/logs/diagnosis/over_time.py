"""Changes in disagreement over time, and the half-life that predicts best.

Changes are detected in the same way as the drift alarms of a policy. For each half-life, models
weight a round by 2^(−age/half-life); the best half-life gives later disagreement the highest
likelihood. No labels are needed.
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
MIN_STEP = 100  # rounds predicted before the models learn from them
MAX_STEPS = 1_000  # of a log
MAX_ROWS, MAX_COLUMNS, MAX_PAIRS = 100_000, 12, 10  # so that models take seconds
TWO_NEWTON_STEPS = 20  # steps with two Newton steps each; later, one is enough
MIN_STANDARD_ERRORS = 2.0  # by which a half-life must be better than no forgetting


def over_time(rows: Sample, pairs: Sequence[tuple[int, int]], predicted: Floats) -> OverTime:
    """Return the changes in a log and the best half-life; ``predicted`` is p̂ by row and pair."""
    order = np.argsort(rows.number)
    changes: list[Change] = []
    number, d = rows.number[order], rows.differ[order].astype(np.int64)
    unit, block = int(Adwin.RESIDUAL_UNIT), Adwin.TEST_BATCH
    r = unit * d - np.rint(unit * predicted[order]).astype(np.int64)
    starts = np.arange(0, rows.n, block)
    sums = np.array([np.add.reduceat(x, starts) for x in (np.ones_like(d), r, r * r, d)])
    for k, pair in enumerate(pairs):
        window = Adwin(Adwin.FALSE_ALARM / len(pairs))
        for start, block_sums in zip(starts.tolist(), sums[:, :, k].T.tolist(), strict=True):
            count, total, squares, disagreed = block_sums
            cut = window.add(count, total, squares, disagreed, int(number[start]))
            if cut is not None:
                last = int(number[min(start + block, rows.n) - 1])
                changes.append(Change(cut[0], pair, cut[1], cut[2], last))
    sample = rows.take(slice(MAX_ROWS))  # rows are in random order
    sample = sample.take(np.argsort(sample.number))
    rate = sample.differ.mean(axis=0)
    most_varied = np.argsort(-rate * (1 - rate))[:MAX_PAIRS]
    span = int(sample.number[-1]) + 1
    step = max(MIN_STEP, -(-span // MAX_STEPS))
    lives = [life for life in HALF_LIVES if 5 * step <= life <= span / 2]
    scores = likelihoods(
        _columns(sample), sample.differ[:, most_varied], sample.number, step, [np.inf, *lives]
    )
    gains = scores[1:] - scores[0]
    total, error = gains.sum(axis=1), np.sqrt(gains.shape[1]) * gains.std(axis=1)
    half_life = None
    if lives and total.max() > MIN_STANDARD_ERRORS * error[total.argmax()]:
        half_life = lives[int(total.argmax())]
    return OverTime(tuple(sorted(changes)), half_life)


def likelihoods(
    phi: Floats, differ: Bytes, number: Ints, step: int, lives: Sequence[float]
) -> Floats:
    """Return ln P(observed disagreement | models of earlier rows), by half-life and block.

    ``phi`` (n, d), ``differ`` (n, pairs) and the ascending row numbers ``number`` (n,) describe the
    rows, and ``step`` is the length of a block in row numbers. After each block, one or two Newton
    iterations maximise the log-likelihood of the block minus (θ − m)ᵀD(θ − m)/2, where m is the
    previous estimate and D its information, discounted by age.
    """
    d, edges = phi.shape[1], np.flatnonzero(np.diff(number // step)) + 1
    theta = np.zeros((len(lives), differ.shape[1], d))
    information = np.broadcast_to(np.eye(d), (*theta.shape, d))
    scores: list[Floats] = []
    before = int(number[0])
    for rows in np.split(np.arange(len(phi)), edges):
        x, y = phi[rows], differ[rows].T
        now = int(number[rows[-1]])
        decay = 0.5 ** ((now - before) / np.array(lives))
        before = now
        information = information * decay[:, None, None, None]
        prior = theta
        p = np.clip(mu(theta @ x.T), 1e-6, 1 - 1e-6)
        scores.append(np.log(np.where(y > 0, p, 1 - p)).sum(axis=(1, 2)))
        hessian = information
        for _ in range(2 if len(scores) <= TWO_NEWTON_STEPS else 1):
            p = mu(theta @ x.T)
            hessian = information + ((p * (1 - p))[:, :, None] * x.T) @ x + 1e-3 * np.eye(d)
            gradient = (y - p) @ x - (information @ (theta - prior)[..., None])[..., 0]
            theta = theta + np.linalg.solve(hessian, gradient[..., None])[..., 0]
        information = hessian
    return np.array(scores).T


def _columns(rows: Sample) -> Floats:
    """Return a constant and the scaled context columns that covary most with disagreement."""
    x = rows.contexts - rows.contexts.mean(axis=0)
    x = np.clip(x / np.maximum(x.std(axis=0), 1e-9), -3.0, 3.0)
    covariance = np.abs(x.T @ (rows.differ - rows.differ.mean(axis=0))).max(axis=1, initial=0.0)
    return np.hstack([np.ones((rows.n, 1)), x[:, np.argsort(-covariance)[:MAX_COLUMNS]]])
