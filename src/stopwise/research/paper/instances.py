"""Environment specs of the paper's problem instances."""

import math
from itertools import combinations

from stopwise.features import Polynomial
from stopwise.research.experiments.spec import EnvironmentSpec
from stopwise.research.paper import choices

Costs = tuple[float, ...]


def synthetic(costs: Costs) -> EnvironmentSpec:
    """Return the spec of the synthetic data set with these costs."""
    parameters = {"C": choices.SYNTHETIC_C, "data_seed": choices.SYNTHETIC_DATA_SEED}
    return EnvironmentSpec("synthetic", costs, parameters)


def pima(costs: Costs) -> EnvironmentSpec:
    """Return the spec of the diabetes data with these costs."""
    return EnvironmentSpec("pima", costs, {"C": choices.PIMA_C})


def heart(costs: Costs) -> EnvironmentSpec:
    """Return the spec of the heart disease data with these costs."""
    return EnvironmentSpec("heart", costs, {"C": choices.HEART_C})


def realizable(n_arms: int, case: int, margin: float) -> EnvironmentSpec:
    """Return the spec of a realizable instance, with θ from `choices` and the captions' costs."""
    monomials = Polynomial(choices.DEGREE).monomials(3)
    theta: list[list[float]] = []
    for i, j in combinations(range(n_arms), 2):
        weights = dict.fromkeys(monomials, 0.0)
        weights[()] = choices.LEVEL - choices.DROP * i + choices.SPREAD * (j - i - 1)
        weights[0,] = choices.SCALE
        weights[1 + i % 2,] = choices.OWN if i < 2 else -choices.OWN
        # compensate for the features, which are the monomials divided by √d'
        theta.append([weights[m] * math.sqrt(len(monomials)) for m in monomials])
    return EnvironmentSpec(
        "realizable",
        choices.realizable_costs(n_arms, case),
        {"theta": theta, "degree": choices.DEGREE, "margin": margin},
    )
