"""The file format of saved policies.

    8 bytes   b"STOPWISE"
    4 bytes   version of the format, little-endian
    32 bytes  SHA-256 of the body
    body      msgpack: the policy's description, and its arrays as raw little-endian bytes

Loading verifies the checksum and all shapes, and never executes code from the file.
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
DTYPES = ("<f8", "<i8", "<i4", "|u1")  # allowed in saved arrays


class _Array(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    policy: str
    cascade: dict[str, Any]
    parameters: dict[str, Any]
    features: dict[str, Any] | None
    probes: list[list[float]] | None  # features of two fixed contexts, to detect changed functions
    arrays: dict[str, _Array]
    encoding: dict[str, Any] | None = None  # how raw columns become contexts


class Saveable(Protocol):
    """The policy methods that saving needs."""

    name: ClassVar[str]
    cascade: Cascade
    encoding: dict[str, Any] | None

    @property
    def features(self) -> BoundFeatures | None: ...  # noqa: D102 (see `Policy`)

    def parameters(self) -> dict[str, Any]: ...  # noqa: D102

    def state(self) -> dict[str, NDArray[Any]]: ...  # noqa: D102


def encode(policy: Saveable) -> bytes:
    """Serialise a policy; `decode` restores it exactly."""
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
    """Write a policy to a file atomically (see `Policy.save`)."""
    kind = type(policy)
    if POLICIES.get(policy.name) is not kind:
        raise PersistenceError(
            f"{kind.__name__} is not registered under the name {policy.name!r}, so the file could "
            f"not be loaded; give the class a unique name and register it: "
            f"stopwise.POLICIES[{kind.__name__}.name] = {kind.__name__}"
        )
    write_file(Path(path), encode(policy))


def decode(
    content: bytes,
    path: object = "this policy",
    *,
    cascade: Cascade | None = None,
    features: FeaturesLike | None = None,
) -> Any:
    """Restore a policy from the bytes of `encode`; ``path`` names the file in error messages."""
    saved = _read(path, content)
    if saved.policy not in POLICIES:
        raise CorruptFileError(
            f"{path}: unknown policy {saved.policy!r}; register your own policies in "
            "stopwise.POLICIES before loading them"
        )
    kind = POLICIES[saved.policy]
    part = "cascade"  # the part being restored, for error messages
    try:
        saved_cascade = Cascade.from_dict(saved.cascade)
        if cascade is not None and (differences := saved_cascade.differences(cascade)):
            raise CascadeMismatchError(
                f"{path} was saved for another cascade (saved vs requested: "
                f"{'; '.join(differences)}). The estimates apply only to the saved arms and costs; "
                "create a new policy for the requested cascade"
            )
        parameters, part = dict(saved.parameters), "features"
        if saved.features is not None:
            reveals, answers = parameters.get("reveals"), parameters.get("answers")
            stages = stages_of(reveals, answers, saved_cascade.n_arms)
            bound = _features(path, saved, stages, features, saved_cascade)
            parameters |= {"features": bound.assignment, "context_dim": bound.initial_dim}
        part = "parameters or arrays"
        policy: Any = kind(saved_cascade, **parameters)
        policy.restore({name: _unpacked(name, array) for name, array in saved.arrays.items()})
        policy.encoding = saved.encoding
    except (CorruptFileError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFileError(f"{path}: invalid {part} ({error})") from error
    return policy


def _read(path: object, content: bytes) -> _Saved:
    if content[: len(MAGIC)] != MAGIC:
        raise CorruptFileError(f"{path} is not a policy saved by Stopwise")
    if len(content) < _HEAD:
        raise CorruptFileError(f"{path} is truncated: its header is incomplete")
    version = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 4], "little")
    if version != VERSION:
        advice = "update Stopwise"
        if version < VERSION:
            advice = (
                "the file was saved before the first release, so create a new policy and train it "
                "on your log with observe_many"
            )
        raise UnsupportedVersionError(
            f"{path} has format {version}, but this version of Stopwise reads format {VERSION}; "
            f"{advice}"
        )
    body = memoryview(content)[_HEAD:]
    if hashlib.sha256(body).digest() != content[_HEAD - 32 : _HEAD]:
        raise CorruptFileError(f"{path} is truncated or damaged: its checksum does not match")
    try:
        return msgspec.msgpack.decode(body, type=_Saved)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(f"{path}: invalid contents ({error})") from error


def _packed(array: NDArray[Any]) -> _Array:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return _Array(little.dtype.str, array.shape, little.tobytes())


def _unpacked(name: str, array: _Array) -> NDArray[Any]:
    if array.dtype not in DTYPES:
        raise ValueError(f"array {name!r} has unsupported dtype {array.dtype!r}")
    values = np.frombuffer(array.data, dtype=array.dtype).reshape(array.shape)
    return values.astype(values.dtype.newbyteorder("="))


def _features(
    path: object,
    saved: _Saved,
    stages: Stages | None,
    features: FeaturesLike | None,
    cascade: Cascade,
) -> BoundFeatures:
    """Return the saved features, or ``features`` if passed; raise if the two differ."""
    spec = saved.features or {}
    if features is None:
        return BoundFeatures.from_spec(spec, stages)  # raises for custom maps
    context_dim = int(spec["context_dim"])
    try:
        bound = bind(features, context_dim, cascade.n_arms, stages)
    except InvalidInputError as error:
        raise FeaturesMismatchError(
            f"{path} cannot be used with these features: {error}"
        ) from error
    before, after = _without_names(spec), _without_names(bound.to_spec())
    if before != after or _probes(bound) != saved.probes:
        raise FeaturesMismatchError(
            f"{path} was saved with features {before}, but features= is {after} (if these look the "
            "same, a feature function computes different values); pass the same feature map, or "
            "create a new policy"
        )
    return bound


def _without_names(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec without function names, since renaming a function does not change values."""

    def nameless(fields: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in fields.items() if k != "name"}

    return json.loads(json.dumps(spec), object_hook=nameless)


def _probes(features: BoundFeatures) -> list[list[float]] | None:
    """Return the features of two fixed contexts, to detect a changed function."""
    steps = np.linspace(-1.0, 1.0, features.context_dim)
    try:
        return [features.row(x).tolist() for x in (0.0 * steps, steps / len(steps))]
    except Exception:
        return None  # the map rejects these contexts
