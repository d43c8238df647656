"""The paper's diabetes cascade: patient profile, then glucose, then insulin."""

from collections.abc import Sequence
from typing import ClassVar

from stopwise.cascade import Cascade
from stopwise.data import load_table
from stopwise.environments.tabular import Tabular, standardised

# The paper does not say how its arms were regularised. Of a grid over scalings and C, these come
# closest to its fractions of weakly dominant contexts: to within 0.0024.
PAPER_C = (1.5, 0.4, 0.4)


class Pima(Tabular):
    """The PIMA Indians diabetes table, 768 rows; three arms that see 6, 7 and 8 columns.

    The profile is pregnancies, blood pressure, skin thickness, body mass, pedigree and age;
    arm 1 is also told glucose, arm 2 glucose and insulin. Columns are `standardised`.

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
    >>> env = Pima(sw.Cascade(costs=[0.01, 0.35, 0.5]))
    >>> round(float(env.sample(5000, np.random.default_rng(0)).dominant.mean()), 2)
    0.22
    """

    name: ClassVar[str] = "pima"

    def __init__(self, cascade: Cascade, *, C: Sequence[float] = PAPER_C) -> None:
        _, X, y = load_table("pima")
        super().__init__(cascade, standardised(X), y, columns_per_arm=(6, 7, 8), C=C)
