"""Specs: descriptions of environments, policies and experiments as plain values."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from stopwise.arrays import Ints
from stopwise.canonical import canonical_json, canonical_value
from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, integer
from stopwise.errors import InvalidParameterError, UnknownPolicyError
from stopwise.features import map_from_spec
from stopwise.policies.protocol import Policy
from stopwise.policies.registry import POLICIES, takes
from stopwise.research.comparators.base import Comparator
from stopwise.research.comparators.registry import COMPARATORS
from stopwise.research.environments.base import Environment
from stopwise.research.environments.registry import make_environment
from stopwise.text import suggestion

# Increase when the same spec and seed give different numbers, for example after a change of a
# default, a random stream or the definition of regret. This changes all keys, so old and new runs
# are not mixed.
FORMAT = 6

# Arguments of policies that the experiment provides.
RESERVED = ("cascade", "features", "context_dim", "seed")


class _Spec(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """A spec, compared and hashed by its canonical JSON."""

    def to_json(self) -> str:
        """Return the canonical JSON of this spec, which msgspec can decode."""
        return canonical_json(msgspec.to_builtins(self)).decode()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


class EnvironmentSpec(_Spec, frozen=True, eq=False):
    """An environment, identified by its name in ``ENVIRONMENTS``.

    ``costs`` contains the c_i of the arms, and ``parameters`` the environment's other arguments as
    plain JSON values.

    Examples
    --------
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> EnvironmentSpec("logistic-arms", (0.1, 0.2), arms).build().context_dim
    1
    """

    name: str
    costs: tuple[float, ...]
    parameters: dict[str, Any] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "parameters", _plain(self.parameters))
        costs = cast(list[float], (Cascade(self.costs).costs + 0.0).tolist())  # −0.0 becomes 0.0
        force_setattr(self, "costs", tuple(costs))

    def build(self) -> Environment:
        """Create the environment; slow if it trains its arms."""
        return make_environment(self.name, Cascade(self.costs), **self.parameters)


class PolicySpec(_Spec, frozen=True, eq=False):
    """A policy by its name in ``POLICIES``, or a comparator by its name in ``COMPARATORS``.

    Custom policies must be registered in ``POLICIES`` (docs/own_policy.md).

    ``parameters`` contains the policy's arguments as plain JSON values, except for the cascade,
    ``context_dim`` and the seed, which the experiment provides. ``features`` is the result of a
    feature map's ``to_spec()``, or None for the policy's default.

    Examples
    --------
    >>> import stopwise as sw
    >>> spec = PolicySpec("uss-pd", {"sigma": 0.2}, sw.Polynomial(degree=2).to_spec())
    >>> spec.build(sw.Cascade(costs=[0.1, 0.2]), context_dim=3, seed=0).features.n_features
    10
    """

    name: str
    parameters: dict[str, Any] = {}
    features: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "parameters", _plain(self.parameters))
        if reserved := [name for name in RESERVED if name in self.parameters]:
            raise InvalidParameterError(
                f"parameters must not contain {reserved[0]!r}, because the experiment provides it"
            )
        if self.features is not None:  # raises for custom functions, which have no spec
            features = map_from_spec(_plain(self.features)).to_spec()
            force_setattr(self, "features", _plain(features))

    def build(self, cascade: Cascade, context_dim: int, seed: int) -> Policy | Comparator:
        """Create the policy for the run with this seed."""
        kind = self._kind()
        parameters = dict(self.parameters)
        if takes(kind, "context_dim"):
            parameters["context_dim"] = context_dim
        if self.features is not None:
            if not takes(kind, "features"):
                raise InvalidParameterError(
                    f"features must be omitted for {self.name!r}, which takes none"
                )
            parameters["features"] = map_from_spec(self.features)
        if takes(kind, "seed"):
            parameters["seed"] = policy_seed(seed)
        return kind(cascade, **parameters)

    def _kind(self) -> type[Policy] | type[Comparator]:
        kinds: dict[str, type[Policy] | type[Comparator]] = {**POLICIES, **COMPARATORS}
        if self.name not in kinds:
            raise UnknownPolicyError(
                f"unknown policy or comparator {self.name!r}; {suggestion(self.name, kinds)}"
            )
        return kinds[self.name]


class ExperimentSpec(_Spec, frozen=True, eq=False):
    """A policy that plays T ``rounds`` of an environment; spec and seed define a run.

    A run's curves are stored at ``checkpoints`` evenly spaced rounds, the last of which is T. If
    there are fewer rounds than checkpoints, they are stored at every round.

    Examples
    --------
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> where = EnvironmentSpec("logistic-arms", (0.1, 0.2), arms)
    >>> spec = ExperimentSpec(where, PolicySpec("uss-ucb"), rounds=1000, checkpoints=4)
    >>> spec.checkpoint_rounds.tolist()
    [250, 500, 750, 1000]
    >>> len(spec.key)
    16
    """

    environment: EnvironmentSpec
    policy: PolicySpec
    rounds: int
    checkpoints: int = 50

    def __post_init__(self) -> None:
        rounds = integer("rounds", self.rounds, least=1)
        force_setattr(self, "rounds", rounds)
        force_setattr(
            self, "checkpoints", min(integer("checkpoints", self.checkpoints, least=1), rounds)
        )

    @property
    def key(self) -> str:
        """The first 16 hex digits of a hash; equal specs have equal keys on any machine."""
        content = canonical_json({"format": FORMAT, "spec": msgspec.to_builtins(self)})
        return hashlib.sha256(content).hexdigest()[:16]

    @property
    def checkpoint_rounds(self) -> Ints:
        """The rounds, counted from 1, at which a run's curves are stored."""
        return np.arange(1, self.checkpoints + 1) * self.rounds // self.checkpoints


def environment_rng(seed: int) -> np.random.Generator:
    """Return the random generator for the environment of a run, the same for all policies."""
    return np.random.default_rng([checked_seed(seed), 0])


def policy_seed(seed: int) -> int:
    """Return the seed for the policy of a run, independent of the environment's generator."""
    state = np.random.SeedSequence([checked_seed(seed), 1]).generate_state(1, np.uint64)
    return int(state[0]) >> 1  # seeds have 63 bits


def _plain(value: Any) -> Any:
    """Return a value as canonical JSON values: lists instead of tuples, 1 instead of 1.0."""
    match value:
        case np.ndarray() | np.generic():
            return _plain(cast(Any, value).tolist())
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return canonical_value(float(value))
        case Mapping() if all(isinstance(name, str) for name in cast(Mapping[Any, Any], value)):
            return {str(k): _plain(v) for k, v in cast(Mapping[Any, Any], value).items()}
        case [*_]:
            return list(map(_plain, value))
        case _:
            raise InvalidParameterError(
                "values in a spec must be finite numbers, strings, booleans, None, lists or dicts "
                f"with string keys, got {value!r}"
            )
