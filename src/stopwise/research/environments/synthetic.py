"""The paper's synthetic data set; its arms are five classifiers that differ in regularisation."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from stopwise.arrays import Floats
from stopwise.cascade import Cascade
from stopwise.checks import integer, vector
from stopwise.features import Polynomial
from stopwise.research.environments.binary_arms import BinaryArms
from stopwise.research.environments.training import fit_logistic, predict_logistic

# The paper gives neither C nor the seed of its data. This C reproduces its four fractions of weakly
# dominant contexts. The seed is the first of 0, 1, 2, … for which all contexts in instances 2 to 4
# are weakly dominant, as in the paper.
PAPER_C = (1e-4, 1e-2, 1e2, 1e7, 1e-3)
PAPER_DATA_SEED = 1


class Synthetic(BinaryArms):
    """Three features uniform in (−1, 1); the label is 0 if x₁ + x₁x₂ + x₃² < 0, else 1.

    The data set of ``samples`` rows is drawn once, from ``data_seed``. Arm i is a logistic
    classifier θ_i on the monomials Φ(x) of degree one and two, trained on the data set with inverse
    regularisation strength ``C[i]`` (see `fit_logistic`); it answers 1 with probability
    μ(Φ(x)ᵀθ_i). Rounds are the rows in random order, reshuffled after each pass.

    Examples
    --------
    >>> import stopwise as sw
    >>> env = Synthetic(sw.Cascade(costs=[0.01, 0.02, 0.032, 0.05, 0.65]))
    >>> float(env.sample(5000, np.random.default_rng(0)).dominant.mean()) > 0.999
    True
    """

    name: ClassVar[str] = "synthetic"
    context_dim = 3

    def __init__(
        self,
        cascade: Cascade,
        *,
        C: Sequence[float] = PAPER_C,
        samples: int = 5000,
        data_seed: int = PAPER_DATA_SEED,
    ) -> None:
        self.cascade = cascade
        samples = integer("samples", samples, least=1)
        x = np.random.default_rng(data_seed).uniform(-1.0, 1.0, (samples, 3))
        self._contexts = x
        self._labels = (x[:, 0] + x[:, 0] * x[:, 1] + x[:, 2] ** 2 >= 0).astype(np.float64)
        monomials = Polynomial(degree=2, bias=False).monomials(3)
        phi = np.column_stack([x[:, list(m)].prod(axis=1) for m in monomials])
        weights = vector("C", C, size=cascade.n_arms)
        self.weights = np.stack([fit_logistic(phi, self._labels, c, False) for c in weights])
        self._arm_probabilities = predict_logistic(phi, self.weights)

    def draw(self, rounds: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Draw contexts; return them with a_i(x) and y(x) (see `BinaryArms.draw`)."""
        n = len(self._contexts)
        passes = [random.permutation(n) for _ in range(-(-rounds // n))]
        rows = np.concatenate([np.empty(0, dtype=np.int64), *passes])[:rounds]
        return self._contexts[rows], self._arm_probabilities[rows], self._labels[rows]
