"""Registry of policies by name."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from inspect import signature
from typing import Any

from stopwise.errors import UnknownPolicyError
from stopwise.text import suggestion


class Registry(MutableMapping[str, type[Any]]):
    """Policy classes by name; built-in policies are imported on first use.

    Examples
    --------
    >>> registry = Registry({"fixed-depth": "stopwise.policies.baselines:FixedDepth"})
    >>> registry["fixed-depth"].__name__
    'FixedDepth'
    """

    def __init__(self, builtin: Mapping[str, str]) -> None:
        self._classes: dict[str, type[Any] | str] = dict(builtin)

    def __getitem__(self, name: str) -> type[Any]:
        entry = self._classes[name]
        if isinstance(entry, str):
            module, _, kind = entry.partition(":")
            entry = self._classes[name] = getattr(import_module(module), kind)
        return entry

    def __setitem__(self, name: str, kind: type[Any]) -> None:
        self._classes[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes  # avoids importing the policy


POLICIES = Registry(
    {
        "uss-laplace": "stopwise.policies.uss_laplace:USSLaplace",
        "uss-anchor": "stopwise.policies.uss_anchor:USSAnchor",
        "uss-pd": "stopwise.policies.uss_pd:USSPD",
        "uss-pd-ridge": "stopwise.policies.uss_pd_ridge:USSPDRidge",
        "thompson": "stopwise.policies.thompson:Thompson",
        "uss-ucb": "stopwise.policies.context_free:USSUCB",
        "uss-ts": "stopwise.policies.context_free:USSTS",
        "fixed-depth": "stopwise.policies.baselines:FixedDepth",
        "random-depth": "stopwise.policies.baselines:RandomDepth",
    }
)


def policy_class(name: str) -> type[Any]:
    """Return the class of a policy by name.

    Examples
    --------
    >>> policy_class("uss-ts").__name__
    'USSTS'
    """
    if name not in POLICIES:
        raise UnknownPolicyError(f"unknown policy {name!r}; {suggestion(name, POLICIES)}")
    return POLICIES[name]


def takes(kind: type[Any], parameter: str) -> bool:
    """Return whether the constructor of a policy takes a parameter.

    Examples
    --------
    >>> takes(policy_class("uss-ts"), "seed"), takes(policy_class("uss-ts"), "features")
    (True, False)
    """
    return parameter in signature(kind).parameters
