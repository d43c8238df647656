"""One file per policy: versioned, checked, no pickle.

    8 bytes   b"STOPWISE"
    4 bytes   version of the format, little-endian
    32 bytes  SHA-256 of all that follows
    rest      msgpack: what the policy is, and its arrays as raw little-endian bytes

Nothing in a file is ever executed, or used before the checksum and every shape have been verified.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.errors import (
    CascadeMismatchError,
    CorruptFileError,
    FeaturesMismatchError,
    InvalidInputError,
    PersistenceError,
    UnsupportedVersionError,
)
from stopwise.features import BoundFeatures, FeaturesLike, Stages, bind, stages_of
from stopwise.files import write_file
from stopwise.policies.registry import POLICIES

MAGIC = b"STOPWISE"
VERSION = 9
_HEAD = len(MAGIC) + 4 + 32
DTYPES = ("<f8", "<i8", "<i4", "|u1")  # of policies' arrays; others are refused


class _Array(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    policy: str
    cascade: dict[str, Any]
    parameters: dict[str, Any]
    features: dict[str, Any] | None
    probes: list[list[float]] | None  # features of a few fixed contexts, for maps without a spec
    arrays: dict[str, _Array]
    encoding: dict[str, Any] | None = None  # of named values as contexts, if the policy has one


class Saveable(Protocol):
    """The parts of a policy that a file holds."""

    name: ClassVar[str]
    cascade: Cascade
    encoding: dict[str, Any] | None

    @property
    def features(self) -> BoundFeatures | None: ...  # noqa: D102 (see `Policy`)

    def parameters(self) -> dict[str, Any]: ...  # noqa: D102

    def state(self) -> dict[str, NDArray[Any]]: ...  # noqa: D102


def encode(policy: Saveable) -> bytes:
    """Return a policy as bytes, from which `decode` continues bit for bit."""
    arrays, bound = policy.state(), policy.features
    saved = _Saved(
        policy=policy.name,
        cascade=policy.cascade.to_dict(),
        parameters=policy.parameters(),
        features=None if bound is None else bound.to_spec(),
        probes=None if bound is None else _probes(bound),
        arrays={name: _packed(array) for name, array in arrays.items()},
        encoding=policy.encoding,
    )
    body = msgspec.msgpack.encode(saved)
    return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body


def save(policy: Saveable, path: "str | os.PathLike[str]") -> None:
    """Write a policy to one file, completely or not at all (see `Policy.save`)."""
    own = type(policy)
    if POLICIES.get(policy.name) is not own:
        raise PersistenceError(
            f"{own.__name__} is not registered as {policy.name!r}, so load could not read it: give "
            f"it a name of its own and register it, stopwise.POLICIES[{own.__name__}.name] = "
            f"{own.__name__}"
        )
    write_file(Path(path), encode(policy))


def decode(
    content: bytes,
    path: object = "this policy",
    *,
    cascade: Cascade | None = None,
    features: FeaturesLike | None = None,
) -> Any:
    """Return the policy that `encode` wrote; messages call it ``path`` (see `load`)."""
    saved = _read(path, content)
    if saved.policy not in POLICIES:
        raise CorruptFileError(
            f"{path}: holds an unknown kind of policy, {saved.policy!r}; a policy of your own must "
            "be registered in stopwise.POLICIES before it is loaded"
        )
    kind = POLICIES[saved.policy]
    part = "cascade"  # which is named if it cannot be read
    try:
        own = Cascade.from_dict(saved.cascade)
        if cascade is not None and (changes := own.differences(cascade)):
            raise CascadeMismatchError(
                f"{path} was saved for another cascade: {'; '.join(changes)}. What was learned "
                "belongs to those arms and costs; start a new policy for the changed cascade"
            )
        parameters, part = dict(saved.parameters), "features"
        if saved.features is not None:
            stages = stages_of(parameters.get("reveals"), parameters.get("answers"), own.n_arms)
            bound = _features(path, saved, stages, features, own)
            parameters |= {"features": bound.assignment, "context_dim": bound.initial_dim}
        part = "parameters or arrays"
        policy: Any = kind(own, **parameters)
        policy.restore({name: _unpacked(name, array) for name, array in saved.arrays.items()})
        policy.encoding = saved.encoding
    except (CorruptFileError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFileError(f"{path}: its {part} cannot be read ({error})") from error
    return policy


def _read(path: object, content: bytes) -> _Saved:
    if content[: len(MAGIC)] != MAGIC:
        raise CorruptFileError(f"{path} is not a policy saved by Stopwise")
    if len(content) < _HEAD:
        raise CorruptFileError(f"{path} is truncated: it ends within its header")
    version = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 4], "little")
    if version != VERSION:
        old = "It is from before the first release: let a new policy learn from your log, if you "
        hint = f"{old} have one, by observe_many" if version < VERSION else "Update Stopwise"
        raise UnsupportedVersionError(
            f"{path} is in format {version}; this Stopwise reads format {VERSION}. {hint}"
        )
    body = memoryview(content)[_HEAD:]
    if hashlib.sha256(body).digest() != content[_HEAD - 32 : _HEAD]:
        raise CorruptFileError(f"{path} is truncated or damaged: its checksum does not match")
    try:
        return msgspec.msgpack.decode(body, type=_Saved)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(f"{path}: its contents cannot be read ({error})") from error


def _packed(array: NDArray[Any]) -> _Array:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return _Array(little.dtype.str, array.shape, little.tobytes())


def _unpacked(name: str, array: _Array) -> NDArray[Any]:
    if array.dtype not in DTYPES:
        raise ValueError(f"array {name!r} holds {array.dtype!r}")
    values = np.frombuffer(array.data, dtype=array.dtype).reshape(array.shape)
    return values.astype(values.dtype.newbyteorder("="))


def _features(
    path: object,
    saved: _Saved,
    stages: Stages | None,
    given: FeaturesLike | None,
    cascade: Cascade,
) -> BoundFeatures:
    """Return the saved features, or those given if they are the same."""
    spec = saved.features or {}
    if given is None:
        return BoundFeatures.from_spec(spec, stages)  # refuses custom maps and says what to do
    context_dim = int(spec["context_dim"])
    try:
        bound = bind(given, context_dim, cascade.n_arms, stages)
    except InvalidInputError as error:
        raise FeaturesMismatchError(
            f"{path} cannot be continued with the features given: {error}"
        ) from error
    then, now = _described(spec), _described(bound.to_spec())
    if then != now or _probes(bound) != saved.probes:
        raise FeaturesMismatchError(
            f"{path} was saved with other features than those given: {then} then, {now} now (or a "
            "function that computes other values). Give the same feature map, or start a new policy"
        )
    return bound


def _described(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec without the names of functions, which may change where values do not."""

    def nameless(fields: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in fields.items() if k != "name"}

    return json.loads(json.dumps(spec), object_hook=nameless)


def _probes(features: BoundFeatures) -> list[list[float]] | None:
    """Return the features of two fixed contexts, by which another function is detected."""
    steps = np.linspace(-1.0, 1.0, features.context_dim)
    try:
        return [features.row(x).tolist() for x in (0.0 * steps, steps / len(steps))]
    except Exception:
        return None  # it accepts neither context: its values cannot be compared
