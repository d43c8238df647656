"""The realizable setting: every pair's disagreement is exactly logistic in the features."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Bools, Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import real, table
from stopwise.errors import InvalidParameterError
from stopwise.features import BoundFeatures, Polynomial, bind
from stopwise.research.environments.base import Batch, Environment
from stopwise.research.theory.dominance import can_be_optimal, dominance_margins, first_candidates

# Contexts are drawn in blocks of at least this size when some may be rejected.
BLOCK = 1000
# If a smaller share is accepted, the margin or θ is probably wrong (heuristic).
MIN_ACCEPTED_SHARE = 0.01
# Parameters of `cut_weights`.
TOLERANCE, ROUNDING = 1e-9, 1e-12
STEPS, OVERSHOOT = 1000, 1.7  # sufficient when a single point is feasible, the slowest case


class Realizable(Environment):
    """Arms that answer 0 or 1, where arms i and j disagree with probability μ(φᵀθ_ij).

    Without a ``degree``, contexts are uniform in [−1, 1]^d with the first coordinate fixed to 1 as
    an intercept, and φ = x/√d, so the model of a policy with ``features=Identity()`` is exact. With
    a ``degree``, all coordinates are uniform in [−1, 1] and φ are the features of
    ``Polynomial(degree)``, so the model of a policy with that map is exact.

    Such arms exist if the p_ij of each context lie in [a, 2a] with 2a ≤ 2/3 (five arms: [a, 1.5a]
    with 1.5a ≤ 0.6; ``docs/realizable.md``). Otherwise `sample` may raise an error.

    There are no labels. The optimal arm is defined as in the paper's Lemma 2,
    i* = min{i : C_j − C_i > p_ij(x) for all j > i}. If the correct label is the answer of i*, then
    i* is the best arm; with no labels would a deeper arm be better. Contexts in which
    C_i* − C_l > p_{l i*} for an earlier arm l are rejected, because i* cannot be the best arm in
    them, and contextual weak dominance cannot hold.

    Parameters
    ----------
    theta : mapping or sequence
        ``{(i, j): θ_ij}`` for every pair of arms, or the θ_ij in the order of
        ``cascade.pairs()``; each θ_ij has one number per feature.
    degree : int, optional
        The degree of the polynomial features.
    margin : float
        Contexts are rejected if an arm up to the optimal one passes or fails the stopping test by
        less than the margin. So ξ is at least the margin, and no arm before the optimal one nearly
        passes the test.

    Examples
    --------
    >>> import stopwise as sw
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
        margin: float = 0.0,
    ) -> None:
        self.cascade = cascade
        self.theta = _vectors(cascade, theta)
        self.margin = real("margin", margin, least=0)
        self._features: BoundFeatures | None = None
        self.context_dim = length = self.theta.shape[1]
        if degree is not None:
            self.context_dim = _dimension(length, degree)
            self._features = bind(Polynomial(degree), self.context_dim, cascade.n_arms)
            if self._features.n_features != length:
                raise InvalidParameterError(
                    f"theta must have {self._features.n_features} numbers per pair (one per "
                    f"feature of a context with {self.context_dim} coordinates), got {length}"
                )

    def sample(self, rounds: int, random: np.random.Generator) -> Batch:
        """Draw contexts until enough have been accepted, then draw all outputs."""
        accepted = list(self._accepted(rounds, random))
        x, p = (np.concatenate(part)[:rounds] for part in zip(*accepted, strict=True))
        table = self._table(p)
        optimal = first_candidates(self.cascade, table)
        return Batch(
            contexts=x,
            disagreement=table,
            optimal=optimal,
            margins=dominance_margins(self.cascade, table, optimal),
            outputs=self._outputs(x, p, random),
        )

    def _outputs(self, x: Floats, p: Floats, random: np.random.Generator) -> Ints:
        weights, exist = cut_weights(p, self.cascade.n_arms)
        if not exist.all():
            context, probabilities = (values[~exist][0].round(3).tolist() for values in (x, p))
            raise InvalidParameterError(
                f"theta is impossible in {np.sum(~exist)} of {len(p)} contexts: in context "
                f"{context}, the pairs {self.cascade.pairs()} cannot disagree with probabilities "
                f"{probabilities}; keep the probabilities of each context at most 0.6 and within a "
                "factor of 1.5 of each other"
            )
        u = random.random((len(p), 1))
        return cuts(self.cascade.n_arms)[(weights.cumsum(axis=1) <= u).sum(axis=1)]

    def _accepted(
        self, rounds: int, random: np.random.Generator
    ) -> Iterator[tuple[Floats, Floats]]:
        """Draw blocks of contexts, with their p_ij, until enough are accepted."""
        block = rounds if self.margin == 0.0 else max(rounds, BLOCK)
        n_accepted = n_drawn = 0
        while n_accepted < rounds:
            x, p = self._draw(block, random)
            accepted = self._accept(self._table(p))
            n_drawn += block
            n_accepted += int(accepted.sum())
            if n_drawn >= BLOCK and n_accepted < MIN_ACCEPTED_SHARE * n_drawn:
                raise InvalidParameterError(
                    f"only {n_accepted} of {n_drawn} contexts have a margin of at least "
                    f"{self.margin:g} and an arm that can be optimal; lower margin, or change the "
                    "costs or theta so that C_i − C_l ≤ p_li for all l < i, where i is the first "
                    "arm with C_j − C_i > p_ij for all j > i"
                )
            yield x[accepted], p[accepted]
            block = max(rounds, BLOCK)

    def _accept(self, table: Floats) -> Bools:
        """Return whether each context has the required margin and an arm that can be optimal."""
        optimal = first_candidates(self.cascade, table)
        accepted = can_be_optimal(self.cascade, table, optimal)
        for i in range(self.cascade.n_arms - 1):
            spare = (self.cascade.gaps[i, i + 1 :] - table[:, i, i + 1 :]).min(axis=1)
            accepted &= (optimal < i) | (np.abs(spare) >= self.margin)
        return accepted

    def _draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw contexts; return them with the probability that each pair disagrees."""
        x = random.uniform(-1.0, 1.0, (rounds, self.context_dim))
        if self._features is None:
            x[:, 0] = 1.0
            z: Floats = x @ self.theta.T / np.sqrt(self.context_dim)
        else:
            z = self._features.transform(x) @ self.theta.T
        return x, 0.5 * (1.0 + np.tanh(0.5 * z))  # μ(z), without overflow

    def _table(self, p: Floats) -> Floats:
        table = np.zeros((len(p), self.cascade.n_arms, self.cascade.n_arms))
        table[:, *np.triu_indices(self.cascade.n_arms, 1)] = p
        return table


def _vectors(
    cascade: Cascade, theta: Mapping[tuple[int, int], ArrayLike] | Sequence[ArrayLike]
) -> Floats:
    pairs = cascade.pairs()
    if len(theta) != len(pairs) or (isinstance(theta, Mapping) and set(theta) != set(pairs)):
        got = f"pairs {list(theta)}" if isinstance(theta, Mapping) else f"{len(theta)} vectors"
        raise InvalidParameterError(
            f"theta must have one vector for each of the pairs {pairs}, got {got}"
        )
    vectors = [theta[pair] for pair in pairs] if isinstance(theta, Mapping) else theta
    return table("theta", cast(ArrayLike, vectors)).copy()


def _dimension(length: int, degree: int) -> int:
    """Return the smallest d that has at least ``length`` monomials up to this degree."""
    dim = 1
    while degree >= 1 and math.comb(dim + degree, degree) < length:
        dim += 1
    return dim


def cuts(n_arms: int) -> Ints:
    """Return the answers in every cut of one arm, of two arms and of no arm, one row per cut.

    A *cut* is a set of arms that answer 1 while the others answer 0.
    """
    singles = np.eye(n_arms, dtype=np.int64)
    doubles = [singles[i] + singles[j] for i, j in combinations(range(n_arms), 2)]
    return np.concatenate([singles, doubles, np.zeros_like(singles[:1])])


def cut_weights(p: Floats, n_arms: int) -> tuple[Floats, Bools]:
    """Return, for every row of p, the probability of each cut, and whether a solution exists.

    If cuts are drawn with these probabilities, pairs disagree with the probabilities p
    (``docs/realizable.md``). ``p`` has shape (n, K(K−1)/2), in the order of ``Cascade.pairs()``.
    For any t such that

        t_i + t_j ≥ p_ij,   Σ_k≠i (t_i + t_k − p_ik) ≤ 2·t_i,   Σ_i<j p_ij − (K − 3)·Σ_i t_i ≤ 2

    the values v_ij = (t_i + t_j − p_ij)/2 for cut {i, j} and t_i − Σ_k v_ik for cut {i} are
    probabilities that result in p. Each step moves t into the half-space that it violates most
    (Motzkin, Schoenberg, 1954).
    """
    pair_cuts = cuts(n_arms)[n_arms:-1]
    sums = -1.0 - (n_arms - 4) * np.eye(n_arms)
    normals = np.concatenate([pair_cuts, sums, np.full((1, n_arms), n_arms - 3)])
    bounds = np.concatenate([p, -p @ pair_cuts, p.sum(axis=1, keepdims=True) - 2.0], axis=1)
    length = np.maximum(np.linalg.norm(normals, axis=1), 1.0)  # the last is zero for three arms
    t = np.repeat(p.max(axis=1, keepdims=True) / 2, n_arms, axis=1)
    active = np.arange(len(p))
    for _ in range(STEPS):
        violations = (bounds[active] - t[active] @ normals.T) / length
        worst, distance = violations.argmax(axis=1), violations.max(axis=1)
        violated = distance > ROUNDING
        active, worst, distance = active[violated], worst[violated], distance[violated]
        t[active] += (OVERSHOOT * distance / length[worst])[:, None] * normals[worst]
    pairs = (t @ pair_cuts.T - p) / 2
    weights = np.concatenate([t - pairs @ pair_cuts, pairs], axis=1)
    exist = (weights.min(axis=1) >= -TOLERANCE) & (weights.sum(axis=1) <= 1.0 + TOLERANCE)
    return np.maximum(weights, 0.0), exist
