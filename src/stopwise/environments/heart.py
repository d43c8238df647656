"""The paper's heart disease cascade: history and rest, then exercise, then imaging."""

from collections.abc import Sequence
from typing import ClassVar

from stopwise.cascade import Cascade
from stopwise.data import load_table
from stopwise.environments.tabular import Tabular, standardised

# The paper does not say how its arms were regularised. Of a grid over scalings and C, these come
# closest to its fractions of weakly dominant contexts: to within 0.0042.
PAPER_C = (1.01, 1.91, 2.0)


class Heart(Tabular):
    """The Cleveland heart disease table, 297 rows; three arms that see 7, 10 and 12 columns.

    Arm 0 sees age to restecg, arm 1 also thalach, exang and oldpeak, arm 2 also slope and ca.
    The last attribute, thal, is left out: the paper has twelve. Columns are `standardised`.

    Parameters
    ----------
    cascade : Cascade
        Three arms and their costs.
    C : sequence of float
        How little each arm is regularised, as in `fit_logistic`.

    Examples
    --------
    >>> import numpy as np
    >>> import stopwise as sw
    >>> env = Heart(sw.Cascade(costs=[0.01, 0.35, 0.5]))
    >>> round(float(env.sample(5000, np.random.default_rng(0)).dominant.mean()), 2)
    0.24
    """

    name: ClassVar[str] = "heart"

    def __init__(self, cascade: Cascade, *, C: Sequence[float] = PAPER_C) -> None:
        _, X, y = load_table("heart")
        super().__init__(cascade, standardised(X[:, :12]), y, columns_per_arm=(7, 10, 12), C=C)
