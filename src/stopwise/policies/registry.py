"""Every policy by name, for configuration files, logs and saved policies."""

from inspect import Parameter, signature
from typing import Any

from stopwise.cascade import Cascade
from stopwise.errors import UnknownPolicyError
from stopwise.policies.base import Policy
from stopwise.policies.baselines import Clairvoyant, FixedDepth, Oracle, RandomDepth
from stopwise.policies.noncontextual import USSTS, USSUCB
from stopwise.policies.supervised import Supervised
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_pd import USSPD, USSPDRidge

_CONTEXTUAL = (USSPD, USSPDRidge, Thompson)
_OTHERS = (USSUCB, USSTS, Supervised, FixedDepth, RandomDepth, Oracle, Clairvoyant)
POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in (*_CONTEXTUAL, *_OTHERS)}


def make(name: str, cascade: Cascade, **parameters: Any) -> Policy:
    """Create a policy by its name.

    Parameters
    ----------
    name : str
        As in ``POLICIES``: "uss-pd", "thompson", …
    cascade : Cascade
        The arms and their costs.
    **parameters
        Of that policy. ``features`` and ``context_dim`` may be given to any; a policy whose
        constructor does not take them goes without.

    Examples
    --------
    >>> make("fixed-depth", Cascade(costs=[0.1, 0.2]), context_dim=3).decide([0, 0, 0]).stop
    1
    """
    kind = policy_class(name)
    context = {"features", "context_dim"}
    return kind(
        cascade, **{k: v for k, v in parameters.items() if k not in context or takes(kind, k)}
    )


def policy_class(name: str) -> type[Policy]:
    """Return the class of a policy by its name.

    Examples
    --------
    >>> policy_class("thompson").__name__
    'Thompson'
    """
    if name not in POLICIES:
        raise UnknownPolicyError(f"no policy is called {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]


def takes(kind: type[Policy], parameter: str) -> bool:
    """Return whether the constructor of a policy takes a parameter, or passes it to one that does.

    Examples
    --------
    >>> takes(Thompson, "features"), takes(USSUCB, "features")
    (True, False)
    """
    for base in kind.__mro__:
        if "__init__" in vars(base):
            taken = signature(base.__init__).parameters
            if parameter in taken:
                return True
            if not any(p.kind is Parameter.VAR_KEYWORD for p in taken.values()):
                return False
    return False
