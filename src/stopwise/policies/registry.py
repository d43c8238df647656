"""Every policy by name, for configuration files, logs and saved policies."""

from typing import Any

from stopwise.cascade import Cascade
from stopwise.errors import UnknownPolicyError
from stopwise.policies.base import Policy
from stopwise.policies.baselines import Clairvoyant, FixedDepth, Oracle, RandomDepth
from stopwise.policies.contextual import Contextual
from stopwise.policies.noncontextual import USSTS, USSUCB
from stopwise.policies.supervised import Supervised
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD, USSPDRidge

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        USSPD,
        USSPDRidge,
        Thompson,
        USSUCB,
        USSTS,
        Supervised,
        FixedDepth,
        RandomDepth,
        Oracle,
        Clairvoyant,
    )
}


def make(name: str, cascade: Cascade, **parameters: Any) -> Policy:
    """Make a policy by its name.

    Parameters
    ----------
    name : str
        As in ``POLICIES``: "uss-pd", "thompson", …
    cascade : Cascade
        The arms and their costs.
    **parameters
        Of that policy. ``features`` and ``context_dim`` may be given to any; policies that look
        at no context ignore them.

    Examples
    --------
    >>> make("fixed-depth", Cascade(costs=[0.1, 0.2]), context_dim=3).decide([0, 0, 0]).stop
    1
    """
    if name not in POLICIES:
        raise UnknownPolicyError(f"no policy is called {name!r}; there are {', '.join(POLICIES)}")
    policy = POLICIES[name]
    if not issubclass(policy, Contextual):
        parameters = {k: v for k, v in parameters.items() if k not in ("features", "context_dim")}
    return policy(cascade, **parameters)
