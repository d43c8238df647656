"""The problem instances of the paper, as specs."""

import math

from stopwise.cascade import Cascade
from stopwise.experiments.spec import EnvironmentSpec
from stopwise.features import Polynomial
from stopwise.paper import choices

Costs = tuple[float, ...]


def synthetic(costs: Costs) -> EnvironmentSpec:
    """Return the synthetic data set with these costs."""
    parameters = {"C": choices.SYNTHETIC_C, "data_seed": choices.SYNTHETIC_DATA_SEED}
    return EnvironmentSpec("synthetic", costs, parameters)


def pima(costs: Costs) -> EnvironmentSpec:
    """Return the diabetes data with these costs."""
    return EnvironmentSpec("pima", costs, {"C": choices.PIMA_C})


def heart(costs: Costs) -> EnvironmentSpec:
    """Return the heart disease data with these costs."""
    return EnvironmentSpec("heart", costs, {"C": choices.HEART_C})


def realizable(n_arms: int, case: int, margin: float) -> EnvironmentSpec:
    """Return a realizable instance: its θ as in `choices`, its costs as in the captions.

    Examples
    --------
    >>> realizable(4, 1, 0.14).build().context_dim
    3
    """
    monomials = Polynomial(choices.DEGREE).monomials(3)
    middle = Cascade(choices.realizable_costs(n_arms, 2))
    theta: list[list[float]] = []
    for i, j in middle.pairs():
        gap = min(float(middle.gaps[i, j]), choices.LARGEST_GAP)
        direction = (i,) if i < 3 else (0, 0)
        steepness = choices.SLOPE * (1 if i < 3 else choices.FOURTH_STEEPNESS)
        edge = choices.EDGE if i < 3 else choices.FOURTH_EDGE
        weights = dict.fromkeys(monomials, 0.0)
        weights[()] = math.log(gap / (1 - gap)) - choices.SLOPE * edge
        weights[()] -= choices.SPREAD * (j - i - 1)
        weights[direction] = steepness
        # features are the monomials divided by √d', and θ undoes that
        theta.append([weights[m] * math.sqrt(len(monomials)) for m in monomials])
    return EnvironmentSpec(
        "realizable",
        choices.realizable_costs(n_arms, case),
        {"theta": theta, "degree": choices.DEGREE, "margin": margin},
    )
