"""Every policy by name, for configuration files, logs and saved policies."""

from typing import Any

from stopwise.cascade import Cascade
from stopwise.errors import UnknownPolicyError
from stopwise.policies.base import Policy
from stopwise.policies.baselines import FixedDepth, RandomDepth
from stopwise.policies.noncontextual import USSTS, USSUCB
from stopwise.policies.overrides import constructor_parameters
from stopwise.policies.thompson import Thompson
from stopwise.policies.uss_anchor import USSAnchor
from stopwise.policies.uss_laplace import USSLaplace
from stopwise.policies.uss_pd import USSPD, USSPDRidge

_CONTEXTUAL = (USSLaplace, USSAnchor, USSPD, USSPDRidge, Thompson)
_OTHERS = (USSUCB, USSTS, FixedDepth, RandomDepth)
POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in (*_CONTEXTUAL, *_OTHERS)}


def make(name: str, cascade: Cascade, **parameters: Any) -> Policy:
    """Create a policy by its name, such as "uss-pd" (see ``POLICIES``).

    ``features`` and ``context_dim`` may be given to any; a policy whose constructor does not take
    them goes without.

    Examples
    --------
    >>> make("fixed-depth", Cascade(costs=[0.1, 0.2]), context_dim=3).decide([0, 0, 0]).stop
    1
    """
    kind = policy_class(name)
    optional = [k for k in ("features", "context_dim") if not takes(kind, k)]
    return kind(cascade, **{k: v for k, v in parameters.items() if k not in optional})


def policy_class(name: str) -> type[Policy]:
    """Return the class of a policy by its name."""
    if name not in POLICIES:
        raise UnknownPolicyError(f"no policy is called {name!r}; there are {', '.join(POLICIES)}")
    return POLICIES[name]


def takes(kind: type[Any], parameter: str) -> bool:
    """Return whether the constructor of a policy takes a parameter."""
    return parameter in constructor_parameters(kind)
