"""Environments by name, for configuration files and experiment specs."""

from typing import Any

from stopwise.cascade import Cascade
from stopwise.errors import UnknownEnvironmentError
from stopwise.research.environments.base import Environment
from stopwise.research.environments.binary_arms import LogisticArms
from stopwise.research.environments.realizable import Realizable
from stopwise.research.environments.synthetic import Synthetic
from stopwise.research.environments.tabular import Heart, Pima
from stopwise.text import suggestion

ENVIRONMENTS: dict[str, type[Environment]] = {
    environment.name: environment
    for environment in (LogisticArms, Realizable, Synthetic, Pima, Heart)
}


def make_environment(name: str, cascade: Cascade, **parameters: Any) -> Environment:
    """Create an environment by its name in ``ENVIRONMENTS``, with plain values as parameters.

    Examples
    --------
    >>> make_environment("pima", Cascade(costs=[0.01, 0.25, 0.5])).context_dim
    8
    """
    if name not in ENVIRONMENTS:
        raise UnknownEnvironmentError(
            f"unknown environment {name!r} (register custom ones in ENVIRONMENTS); "
            f"{suggestion(name, ENVIRONMENTS)}"
        )
    # All constructors take the cascade first, but their other parameters differ.
    factory: Any = ENVIRONMENTS[name]
    return factory(cascade, **parameters)
