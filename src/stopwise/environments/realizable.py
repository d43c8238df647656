"""The realizable setting: every pair's disagreement is exactly logistic in the features."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.checks import number
from stopwise.environments.base import Batch, Environment, Floats, Ints
from stopwise.errors import InvalidParameterError
from stopwise.features import BoundFeatures, Polynomial, bind
from stopwise.theory.dominance import dominance_margins, first_candidates

# Contexts are drawn in blocks of at least this many when some may be refused.
BLOCK = 1000
# Fewer survivors than this share, and the margin asked for is a mistake (heuristic).
FEWEST = 0.01


class Realizable(Environment):
    """Pair (i, j) disagrees with chance μ(φᵀθ_ij), drawn independently of other pairs.

    Without a ``degree``, contexts are uniform in [−1, 1]^d, the first coordinate fixed to 1 as
    an intercept, and φ = x/√d: a policy with ``features=Identity()`` has a model that is exactly
    true. With a ``degree``, all coordinates are uniform in [−1, 1] and φ are the features of
    ``Polynomial(degree)``, so that a policy with that map has.

    There are no outputs and no error rates here, only disagreements; the optimal arm is the one
    of the paper's Lemma 2, min{i : C_j − C_i > p_ij(x) for all j > i}.

    Parameters
    ----------
    cascade : Cascade
        The arms and their costs.
    theta : mapping or sequence
        ``{(i, j): θ_ij}`` for every pair of arms, or the θ_ij in the order of
        ``cascade.pairs()``; each has one number for each feature.
    degree : int, optional
        Of the polynomial features.
    context_dim : int, optional
        d; by default it is found from the length of the θ_ij.
    margin : float
        Contexts in which the test is decided by less than this are drawn again: those with
        ξ(x) < margin, and those in which an arm before the optimal one is passed by less. So ξ
        is at least the margin, and no arm is nearly good enough.

    Examples
    --------
    >>> import stopwise as sw
    >>> env = Realizable(sw.Cascade(costs=[0.1, 0.3]), {(0, 1): [-3.0, 2.0]})
    >>> env.sample(4, np.random.default_rng(0)).differ.shape
    (4, 1)
    >>> env = Realizable(sw.Cascade(costs=[0.1, 0.3]), [[-3.0, 2, 0, 1, 0, 0]], degree=2)
    >>> env.context_dim
    2
    """

    name: ClassVar[str] = "realizable"

    def __init__(
        self,
        cascade: Cascade,
        theta: Mapping[tuple[int, int], ArrayLike] | Sequence[ArrayLike],
        *,
        degree: int | None = None,
        context_dim: int | None = None,
        margin: float = 0.0,
    ) -> None:
        self.cascade = cascade
        self.theta = _vectors(cascade, theta)
        self.margin = number("margin", margin, least=0)
        self._features: BoundFeatures | None = None
        length = self.theta.shape[1]
        if degree is None:
            self.context_dim = length if context_dim is None else context_dim
            features = self.context_dim
        else:
            dim = _dimension(length, degree) if context_dim is None else context_dim
            self._features = bind(Polynomial(degree), dim, cascade.n_arms)
            self.context_dim = self._features.context_dim
            features = self._features.n_features
        if features != length:
            raise InvalidParameterError(
                f"theta needs vectors of {features} numbers, one for each feature of "
                f"{self.context_dim} coordinates; these have {length}"
            )

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw rounds: contexts until enough keep the margin, then all disagreements."""
        parts = list(self._parts(rounds, random))
        x, p, table, optimal, margins = (
            np.concatenate(column)[:rounds] for column in zip(*parts, strict=True)
        )
        return Batch(
            contexts=x,
            disagreement=table,
            optimal=optimal,
            margins=margins,
            differ=(random.random(p.shape) < p).astype(np.uint8),
        )

    def _parts(
        self, rounds: int, random: np.random.Generator
    ) -> Iterator[tuple[Floats, Floats, Floats, Ints, Floats]]:
        """Draw contexts with the truth about them, in blocks, until there are enough."""
        block = rounds if self.margin == 0.0 else max(rounds, BLOCK)
        found = drawn = 0
        while found < rounds:
            x, p = self._draw(block, random)
            table = self._table(p)
            optimal = first_candidates(self.cascade, table)
            margins = dominance_margins(self.cascade, table, optimal)
            drawn += block
            if self.margin == 0.0:
                accepted = np.ones(block, dtype=np.bool_)
            else:
                accepted = (margins >= self.margin) & self._passed_clearly(table, optimal)
            found += int(accepted.sum())
            if found < FEWEST * drawn:
                raise InvalidParameterError(
                    f"only {found} of {drawn} contexts have a margin of {self.margin:g} or more; "
                    "ask for less, widen the gaps between costs, or lower the disagreement"
                )
            yield x[accepted], p[accepted], table[accepted], optimal[accepted], margins[accepted]

    def _passed_clearly(self, table: Floats, optimal: Ints) -> NDArray[np.bool_]:
        """Return where every arm before the optimal one is passed by the margin or more."""
        clearly = np.ones(len(table), dtype=np.bool_)
        for i in range(self.cascade.n_arms - 1):
            # by how much arm i is passed: the most that a deeper arm could repair beyond its cost
            passed = (table[:, i, i + 1 :] - self.cascade.gaps[i, i + 1 :]).max(axis=1)
            clearly &= (optimal <= i) | (passed >= self.margin)
        return clearly

    def _draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw contexts and the chance of each pair to disagree there."""
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        if self._features is None:
            x[:, 0] = 1.0
            z: Floats = x @ self.theta.T / np.sqrt(self.context_dim)
        else:
            z = self._features.transform(x) @ self.theta.T
        return x, 0.5 * (1.0 + np.tanh(0.5 * z))  # μ(z), without overflow

    def _table(self, p: Floats) -> Floats:
        table = np.zeros((len(p), self.cascade.n_arms, self.cascade.n_arms))
        for k, (i, j) in enumerate(self.cascade.pairs()):
            table[:, i, j] = p[:, k]
        return table


def _vectors(
    cascade: Cascade, theta: Mapping[tuple[int, int], ArrayLike] | Sequence[ArrayLike]
) -> Floats:
    pairs = cascade.pairs()
    if isinstance(theta, Mapping):
        if set(theta) != set(pairs):
            raise InvalidParameterError(f"theta needs a vector for each of the pairs {pairs}")
        theta = [theta[pair] for pair in pairs]
    if len(theta) != len(pairs):
        raise InvalidParameterError(
            f"theta needs a vector for each of the pairs {pairs}, in that order; there are "
            f"{len(theta)}"
        )
    vectors = [np.array(vector, dtype=np.float64) for vector in theta]
    if len({v.shape for v in vectors}) != 1 or vectors[0].ndim != 1 or not vectors[0].size:
        raise InvalidParameterError("theta needs vectors of one length, that of the features")
    if not np.isfinite(vectors).all():
        raise InvalidParameterError("theta must be finite")
    return np.stack(vectors)


def _dimension(length: int, degree: int) -> int:
    """Return the d whose polynomials of this degree have so many monomials, or one too large."""
    dim = 1
    while degree >= 1 and math.comb(dim + degree, degree) < length:
        dim += 1
    return dim
