"""Environments from labelled tables; the arms are classifiers of the leading columns."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.checks import integer, vector
from stopwise.research.data import load_table
from stopwise.research.environments.binary_arms import BinaryArms
from stopwise.research.environments.training import checked_table, fit_logistic, predict_logistic

# The paper does not say how its arms were regularised. With these values, the fractions of weakly
# dominant contexts are within 0.0024 and 0.0042 of those in the paper (`benchmarks/arms.py`).
PIMA_C = (1.5, 0.4, 0.4)
HEART_C = (1.01, 1.91, 2.0)


class Tabular(BinaryArms):
    """An environment whose contexts are the rows of a table, in order and repeatedly.

    Arm i is a logistic classifier trained on the leading ``columns_per_arm[i]`` columns, and
    answers 1 with its predicted probability. Deeper arms see more columns, such as test results.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The table, scaled for policies, for example by `standardised`.
    y : array_like of shape (n,)
        The labels, 0 or 1.
    columns_per_arm : sequence of int
        The number of leading columns that each arm sees.
    C : float or sequence of float
        The inverse regularisation strength, one value or one per arm (see `fit_logistic`).
    intercept : bool
        Whether the arms have an intercept.

    Examples
    --------
    >>> import stopwise as sw
    >>> X = standardised([[1, 5, 0], [2, 1, 1], [3, 4, 0], [4, 2, 1]])
    >>> env = Tabular(sw.Cascade(costs=[0.1, 0.2]), X, [0, 0, 1, 1], columns_per_arm=[1, 3])
    >>> env.sample(6, np.random.default_rng(0)).labels.tolist()
    [0, 0, 1, 1, 0, 0]
    """

    name: ClassVar[str] = "tabular"

    def __init__(
        self,
        cascade: Cascade,
        X: ArrayLike,
        y: ArrayLike,
        *,
        columns_per_arm: Sequence[int],
        C: float | Sequence[float] = 1.0,
        intercept: bool = True,
    ) -> None:
        self.cascade = cascade
        self._contexts, labels = checked_table(X, y)
        self._labels = labels.astype(np.float64)
        self.context_dim = self._contexts.shape[1]
        columns = [
            integer("columns_per_arm", k, least=1, most=self.context_dim)
            for k in vector("columns_per_arm", columns_per_arm, size=cascade.n_arms)
        ]
        # One row (w, b) per arm, with weight 0 for columns that the arm does not see.
        self.weights = np.zeros((cascade.n_arms, self.context_dim + 1))
        for arm, c in enumerate(vector("C", C, size=cascade.n_arms)):
            n_columns = columns[arm]
            weights = fit_logistic(self._contexts[:, :n_columns], labels, c, intercept)
            self.weights[arm, :n_columns] = weights[:-1]
            self.weights[arm, -1] = weights[-1]
        self._arm_probabilities = predict_logistic(self._contexts, self.weights)

    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Return contexts in order, with a_i(x) and y(x) (see `BinaryArms.draw`)."""
        rows = np.arange(rounds) % len(self._contexts)
        return self._contexts[rows], self._arm_probabilities[rows], self._labels[rows]


class Pima(Tabular):
    """The paper's diabetes cascade: 768 rows and three arms, which see 6, 7 and 8 columns.

    Arm 0 sees the profile: pregnancies, blood pressure, skin thickness, body mass, pedigree and
    age. Arm 1 also sees glucose, and arm 2 also insulin. Columns are `standardised`.

    Examples
    --------
    >>> import stopwise as sw
    >>> env = Pima(sw.Cascade(costs=[0.01, 0.35, 0.5]))
    >>> round(float(env.sample(5000, np.random.default_rng(0)).dominant.mean()), 2)
    0.22
    """

    name: ClassVar[str] = "pima"

    def __init__(self, cascade: Cascade, *, C: Sequence[float] = PIMA_C) -> None:
        _, X, y = load_table("pima")
        super().__init__(cascade, standardised(X), y, columns_per_arm=(6, 7, 8), C=C)


class Heart(Tabular):
    """The paper's heart disease cascade: 297 rows, three arms that see 7, 10 and 12 columns.

    Arm 0 sees the columns age to restecg, arm 1 also thalach, exang and oldpeak, arm 2 also slope
    and ca. The last attribute, thal, is omitted, because the paper uses twelve columns. Columns are
    `standardised`.

    Examples
    --------
    >>> import stopwise as sw
    >>> cascade = sw.Cascade(costs=[0.1, 0.2, 0.2])
    >>> sw.simulate(sw.FixedDepth(cascade), Heart(cascade), rounds=3, seed=0).stops.tolist()
    [2, 2, 2]
    """

    name: ClassVar[str] = "heart"

    def __init__(self, cascade: Cascade, *, C: Sequence[float] = HEART_C) -> None:
        _, X, y = load_table("heart")
        super().__init__(cascade, standardised(X[:, :12]), y, columns_per_arm=(7, 10, 12), C=C)


def standardised(X: ArrayLike) -> Floats:
    """Scale columns to mean 0 and equal standard deviation, and rows to a norm of at most 1.

    Each column is centred and divided by its population standard deviation; then the table is
    divided by the largest row norm. Constant columns become zero.

    Examples
    --------
    >>> standardised([[1, 7], [2, 7], [3, 7]]).tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    table, _ = checked_table(X, np.zeros(len(np.asarray(X))))
    centred = table - table.mean(axis=0)
    spread = centred.std(axis=0)
    constant = (table == table[0]).all(axis=0)
    scaled = np.where(constant, 0.0, centred) / np.where(constant, 1.0, spread)
    largest = float(np.linalg.norm(scaled, axis=1).max())
    return scaled / largest if largest > 0 else scaled
