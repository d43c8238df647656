"""The realizable setting: every pair's disagreement is exactly logistic in the context."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from stopwise.cascade import Cascade
from stopwise.environments.base import Batch, Environment, Floats
from stopwise.errors import InvalidParameterError


class Realizable(Environment):
    """Pair (i, j) disagrees with chance μ(xᵀθ_ij / √d), drawn independently of other pairs.

    Contexts are uniform in [−1, 1]^d, the first coordinate fixed to 1 as an intercept; with
    ``features=Identity()`` a policy's model is then exactly true. There are no outputs and no
    error rates here, only disagreements; the optimal arm is the one of the paper's Lemma 2,
    min{i : C_j − C_i > p_ij(x) for all j > i}.

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    theta : mapping
        ``{(i, j): θ_ij}`` for every pair of arms, each of context_dim numbers.

    Examples
    --------
    >>> import stopwise as sw
    >>> env = Realizable(sw.Cascade(costs=[0.1, 0.3]), {(0, 1): [-3.0, 2.0]})
    >>> env.sample(4, np.random.default_rng(0)).differ.shape
    (4, 1)
    """

    def __init__(self, cascade: Cascade, theta: Mapping[tuple[int, int], ArrayLike]) -> None:
        self.cascade = cascade
        pairs = cascade.pairs()
        if set(theta) != set(pairs):
            raise InvalidParameterError(f"theta needs a vector for each of the pairs {pairs}")
        vectors = [np.asarray(theta[p], dtype=np.float64) for p in pairs]
        if len({v.shape for v in vectors}) != 1 or vectors[0].ndim != 1 or not vectors[0].size:
            raise InvalidParameterError("theta needs vectors of one length, that of a context")
        if not np.isfinite(vectors).all():
            raise InvalidParameterError("theta must be finite")
        self.theta = np.stack(vectors)
        self.context_dim = self.theta.shape[1]

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw rounds."""
        n_arms, pairs = self.cascade.n_arms, self.cascade.pairs()
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        x[:, 0] = 1.0
        z: Floats = x @ self.theta.T / np.sqrt(self.context_dim)
        p: Floats = 0.5 * (1.0 + np.tanh(0.5 * z))  # μ(z), without overflow
        table = np.zeros((rounds, n_arms, n_arms))
        for k, (i, j) in enumerate(pairs):
            table[:, i, j] = p[:, k]
        loses = np.triu(self.cascade.gaps <= table, 1).any(axis=2)
        return Batch(
            contexts=x,
            disagreement=table,
            optimal=np.argmin(loses, axis=1).astype(np.int64),
            differ=(random.random(p.shape) < p).astype(np.uint8),
        )
