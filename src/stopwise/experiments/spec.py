"""What an experiment is: plain values that say all that decides its numbers."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.checks import integer
from stopwise.environments.base import Environment
from stopwise.environments.registry import make_environment
from stopwise.errors import FeaturesMismatchError, InvalidParameterError
from stopwise.features import map_from_spec
from stopwise.policies.base import Policy
from stopwise.policies.randomness import checked_seed
from stopwise.policies.registry import make, policy_class, takes

# Raise it when the same spec and seed come to mean other numbers: a default changed, a stream of
# draws, the definition of regret. Every key changes with it, and old runs are not mixed with new.
FORMAT = 2

# Of a policy's arguments, those that an experiment gives it by itself.
GIVEN = ("cascade", "features", "context_dim", "seed")


class _Spec(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """A value with one spelling: however it was written, equal specs have equal JSON."""

    def to_json(self) -> str:
        """Return the one JSON text of this spec."""
        return _canonical(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a spec back from JSON."""
        try:
            return msgspec.convert(json.loads(text), cls)
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidParameterError(f"this describes no {cls.__name__}: {error}") from error

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


class EnvironmentSpec(_Spec, frozen=True, eq=False):
    """An environment, by name.

    Parameters
    ----------
    name : str
        As in ``ENVIRONMENTS``.
    costs : sequence of float
        c_i of the cascade's arms.
    parameters : dict
        The environment's own, as plain JSON values.

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
        """Check the values and bring them to one form."""
        _check_name(self.name)
        costs = cast(list[float], (Cascade(self.costs).costs + 0.0).tolist())  # −0.0 becomes 0.0
        force_setattr(self, "costs", tuple(costs))
        force_setattr(self, "parameters", _plain_parameters(self.parameters))

    def build(self) -> Environment:
        """Return the environment; costly for those that train their arms."""
        try:
            return make_environment(self.name, Cascade(self.costs), **self.parameters)
        except TypeError as error:
            raise InvalidParameterError(f"environment {self.name!r}: {error}") from error


class PolicySpec(_Spec, frozen=True, eq=False):
    """A policy, by name.

    Parameters
    ----------
    name : str
        As in ``POLICIES``, where one of your own can be registered (docs/own_policy.md).
    parameters : dict
        The policy's own, as plain JSON values. The cascade, the dimension of a context and the
        seed come from the experiment.
    features : dict, optional
        ``to_spec()`` of one feature map; by default the policy's own default, ``Identity()`` for
        those of the package. None for a policy that takes no features.

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
        """Check the values and bring them to one form."""
        _check_name(self.name)
        parameters = _plain_parameters(self.parameters)
        if taken := [name for name in GIVEN if name in parameters]:
            raise InvalidParameterError(
                f"{taken[0]} is no parameter of a policy's spec: the experiment gives it"
            )
        force_setattr(self, "parameters", parameters)
        if self.features is not None:
            try:
                features = map_from_spec(_plain_parameters(self.features)).to_spec()
            except FeaturesMismatchError as error:
                raise InvalidParameterError(
                    "a function of your own cannot be part of a spec: its code is not in the "
                    "text. Use Identity, Polynomial or Scaled"
                ) from error
            force_setattr(self, "features", _plain_parameters(features))

    def build(self, cascade: Cascade, context_dim: int, seed: int) -> Policy:
        """Return the policy of the run with this seed, untaught."""
        parameters: dict[str, Any] = {**self.parameters, "context_dim": context_dim}
        kind = policy_class(self.name)
        if self.features is not None:
            if not takes(kind, "features"):
                raise InvalidParameterError(
                    f"{self.name!r} looks at no context, or not through features: leave its "
                    "features out"
                )
            parameters["features"] = map_from_spec(self.features)
        if takes(kind, "seed"):
            parameters["seed"] = policy_seed(seed)
        try:
            return make(self.name, cascade, **parameters)
        except TypeError as error:
            raise InvalidParameterError(f"policy {self.name!r}: {error}") from error


class ExperimentSpec(_Spec, frozen=True, eq=False):
    """A policy in an environment for a number of rounds: with a seed, a run.

    Parameters
    ----------
    environment : EnvironmentSpec
        Where.
    policy : PolicySpec
        Who.
    rounds : int
        T.
    checkpoints : int
        At how many rounds, evenly spread and ending in T, a run's curves are kept; one of T or
        more keeps every round.

    Examples
    --------
    >>> arms = {"arms": [[1, 0], [4, 0]], "label": [8, 0]}
    >>> where = EnvironmentSpec("logistic-arms", (0.1, 0.2), arms)
    >>> spec = ExperimentSpec(where, PolicySpec("uss-ucb"), rounds=1000, checkpoints=4)
    >>> spec.kept.tolist()
    [250, 500, 750, 1000]
    >>> len(spec.key)
    16
    """

    environment: EnvironmentSpec
    policy: PolicySpec
    rounds: int
    checkpoints: int = 50

    def __post_init__(self) -> None:
        """Check the values and bring them to one form."""
        rounds = integer("rounds", self.rounds, least=1)
        force_setattr(self, "rounds", rounds)
        force_setattr(
            self, "checkpoints", min(integer("checkpoints", self.checkpoints, least=1), rounds)
        )

    @property
    def key(self) -> str:
        """Sixteen hex digits that are equal for equal specs, on any machine, for good."""
        text = _canonical({"format": FORMAT, "spec": msgspec.to_builtins(self)})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def kept(self) -> NDArray[np.int64]:
        """The rounds, counted from 1, at which a run's curves are kept."""
        return np.arange(1, self.checkpoints + 1) * self.rounds // self.checkpoints


def environment_random(seed: int) -> np.random.Generator:
    """Return the stream an environment draws from in the run with this seed.

    It is the same whatever the policy, so that runs of two policies with one seed are paired.

    Examples
    --------
    >>> float(environment_random(3).random()) == float(environment_random(3).random())
    True
    """
    return np.random.default_rng([checked_seed(seed), 0])


def policy_seed(seed: int) -> int:
    """Return a policy's own seed in the run with this seed: independent of the environment's.

    Examples
    --------
    >>> policy_seed(3) != policy_seed(4)
    True
    """
    words = np.random.SeedSequence([checked_seed(seed), 1]).generate_state(1, np.uint64)
    return int(words[0]) >> 1  # seeds have 63 bits


def _canonical(value: object) -> str:
    # Python writes the shortest text that reads back as the same float, on every platform.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _check_name(name: str) -> None:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidParameterError(
            f"a spec names things by a string, as in ENVIRONMENTS or POLICIES, not by {name!r}"
        )


def _plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(parameters, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidParameterError(f"parameters are a dict by name, not {parameters!r}")
    return cast(dict[str, Any], _plain(parameters))


def _plain(value: object) -> object:
    """Return a value as JSON has it, in one spelling: lists, not tuples; 1, not 1.0."""
    if isinstance(value, np.ndarray | np.generic):
        value = cast(object, value.tolist())
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidParameterError(f"a spec cannot hold {value}: give finite numbers")
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value).items()
        if odd := [name for name, _ in items if not isinstance(name, str)]:
            raise InvalidParameterError(f"names in a spec are strings, not {odd[0]!r}")
        return {str(name): _plain(v) for name, v in items}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(v) for v in cast(Sequence[object], value)]
    raise InvalidParameterError(
        f"a spec holds numbers, strings, lists and dicts, not {type(value).__name__}"
    )
