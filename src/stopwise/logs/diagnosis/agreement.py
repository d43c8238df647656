"""A question from agreement alone: whether an expensive arm agrees less with the rest.

Let arms err independently given the context and the right answer, arm i be right with chance a_i,
and a wrong arm give each of the L − 1 wrong answers alike. Then for a third arm k

    P(i and k agree) − P(j and k agree) = (a_i − a_j)·(a_k − (1 − a_k)/(L − 1)),

so of i and j the one that agrees more with k is right more often, if k beats chance, a_k > 1/L.
Agreement shows neither assumption to be true. Mistakes that arms share look like accuracy, and
with two answers the exchange of right and wrong in all arms leaves every agreement as it is. So
this may raise a question, and is never an answer.
"""

import numpy as np

from stopwise.cascade import Cascade
from stopwise.logs.chunk import Bytes, Floats
from stopwise.logs.diagnosis.findings import Hint
from stopwise.logs.diagnosis.plug_in import plug_in_stops

# All heuristic: fewer rows raise no question; both halves of the rows must show a difference of
# this share of the rows; the rule must reach the arm in this share, for it to matter.
LEAST_ROWS, LESS_BY, OFTEN = 1000, 0.03, 0.01


def read_hint(cascade: Cascade, predicted: Floats, differ: Bytes) -> Hint | None:
    """Return the question about the arm that most seems worse than a cheaper one, if any does.

    ``predicted`` (n, pairs) is p̂, ``differ`` whether each pair disagreed, of rows in random order.
    """
    if cascade.n_arms < 3 or len(differ) < LEAST_ROWS:
        return None
    halves = np.stack([_agreement(cascade, differ[half::2]) for half in (0, 1)])
    reached = plug_in_stops(cascade, predicted)
    found, most = None, LESS_BY
    for better, worse in cascade.pairs():
        rest = [k for k in range(cascade.n_arms) if k not in (better, worse)]
        agrees = halves[:, [worse, better]][:, :, rest].mean(axis=2)
        less = float(np.diff(agrees, axis=1).min())
        if less > most and (reached >= worse).mean() >= OFTEN:
            mean = agrees.mean(axis=0)
            found, most = Hint(worse, better, (float(mean[0]), float(mean[1]))), less
    return found


def _agreement(cascade: Cascade, differ: Bytes) -> Floats:
    """Return how often each arm agrees with each other one (K, K)."""
    rates = np.eye(cascade.n_arms)
    for (i, j), rate in zip(cascade.pairs(), 1.0 - differ.mean(axis=0), strict=True):
        rates[i, j] = rates[j, i] = rate
    return rates
