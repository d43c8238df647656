"""One file per policy: versioned, checked, no pickle.

    8 bytes   b"STOPWISE"
    4 bytes   version of the format, little-endian
    32 bytes  SHA-256 of all that follows
    rest      msgpack: what the policy is, and its arrays as raw little-endian bytes

Nothing in a file is ever executed, and nothing is used before the checksum and every shape have
been verified.
"""

import hashlib
import os
import sys
import threading
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from stopwise.cascade import Cascade
from stopwise.errors import (
    CascadeMismatchError,
    CorruptFileError,
    FeaturesMismatchError,
    InvalidInputError,
    PersistenceError,
    UnsupportedVersionError,
)
from stopwise.features import BoundFeatures, FeaturesLike, bind
from stopwise.policies.base import Policy
from stopwise.policies.registry import POLICIES

MAGIC = b"STOPWISE"
VERSION = 3
_HEAD = len(MAGIC) + 4 + 32


_DTYPES = ("<f8", "<i8", "<i4", "|u1")  # of policies' arrays; others are refused


class _Array(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Saved(msgspec.Struct, frozen=True):
    policy: str
    cascade: dict[str, Any]
    parameters: dict[str, Any]
    features: dict[str, Any] | None
    probes: list[list[float]] | None  # features of a few fixed contexts, for maps without a spec
    arrays: dict[str, _Array]


def encode(policy: Policy) -> bytes:
    """Return a policy as bytes, from which `decode` continues bit for bit.

    Examples
    --------
    >>> import stopwise as sw
    >>> policy = sw.USSPD(sw.Cascade(costs=[0.1, 0.2]), context_dim=2)
    >>> policy.observe([0.1, 0.2], ["yes", "no"])
    >>> decode(encode(policy)).rounds
    1
    """
    bound = policy.features
    saved = _Saved(
        policy=policy.name,
        cascade=policy.cascade.to_dict(),
        parameters=policy.parameters(),
        features=None if bound is None else bound.to_spec(),
        probes=None if bound is None else _probes(bound),
        arrays={name: _packed(array) for name, array in policy.state().items()},
    )
    body = msgspec.msgpack.encode(saved)
    return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body


def save(policy: Policy, path: "str | os.PathLike[str]") -> None:
    """Write a policy to one file, completely or not at all (see `Policy.save`)."""
    if (kind := POLICIES.get(policy.name)) is not type(policy):
        read = "does not know" if kind is None else f"reads as {kind.__name__}"
        own = type(policy).__name__
        raise PersistenceError(
            f"{own} would be saved as {policy.name!r}, which load {read}: give it a name of its "
            f"own and register it, stopwise.POLICIES[name] = {own}"
        )
    content = encode(policy)
    target = Path(path)
    # Written beside the target and moved over it: a crash leaves the old file or the new one.
    beside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def load(
    path: "str | os.PathLike[str]",
    *,
    cascade: Cascade | None = None,
    features: FeaturesLike | None = None,
) -> Policy:
    """Read a policy back; it continues where it was saved, bit for bit.

    Parameters
    ----------
    path : path
        A file written by ``policy.save``.
    cascade : Cascade, optional
        The cascade you are about to use. If it differs from the one saved, loading is refused
        and the difference named: what was learned belongs to those arms and costs.
    features : feature map, optional
        Needed if the policy used a feature map of your own, whose code is not saved; checked
        against the saved description otherwise.

    Returns
    -------
    Policy
        Equal to the one saved, random state included.

    Raises
    ------
    CorruptFileError
        If the file is truncated, damaged or not Stopwise's.
    UnsupportedVersionError
        If a newer Stopwise wrote it, or one from before the first release.
    CascadeMismatchError, FeaturesMismatchError
        If it was saved for another cascade or other features.

    Examples
    --------
    >>> import stopwise as sw, tempfile, pathlib
    >>> policy = sw.USSPD(sw.Cascade(costs=[0.1, 0.2]), context_dim=2)
    >>> policy.observe([0.1, 0.2], ["yes", "no"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "policy.stopwise"
    ...     policy.save(path)
    ...     sw.load(path).rounds
    1
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error}") from error
    return decode(content, path, cascade=cascade, features=features)


def decode(
    content: bytes,
    path: object = "this policy",
    *,
    cascade: Cascade | None = None,
    features: FeaturesLike | None = None,
) -> Policy:
    """Return the policy that `encode` wrote; messages call it ``path`` (see `load`)."""
    saved = _read(path, content)
    kind = POLICIES.get(saved.policy)
    if kind is None:
        raise CorruptFileError(f"{path}: holds an unknown kind of policy, {saved.policy!r}")
    try:
        own = Cascade.from_dict(saved.cascade)
    except (InvalidInputError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path}: its cascade cannot be read ({error})") from error
    if cascade is not None and (changes := own.differences(cascade)):
        raise CascadeMismatchError(
            f"{path} was saved for another cascade: {'; '.join(changes)}. What was learned belongs "
            "to those arms and costs; start a new policy for the changed cascade"
        )
    parameters = dict(saved.parameters)
    if saved.features is not None:
        bound = _features(path, saved, features, own)
        parameters |= {"features": bound.arrangement, "context_dim": bound.context_dim}
    arrays = {name: _unpacked(path, name, array) for name, array in saved.arrays.items()}
    try:
        policy = kind(own, **parameters)
        policy.restore(arrays)
    except (InvalidInputError, KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise CorruptFileError(f"{path}: its contents contradict each other ({error})") from error
    return policy


def _read(path: object, content: bytes) -> _Saved:
    if content[: len(MAGIC)] != MAGIC:
        raise CorruptFileError(f"{path} is not a policy saved by Stopwise")
    if len(content) < _HEAD:
        raise CorruptFileError(f"{path} is truncated: it ends within its header")
    version = int.from_bytes(content[len(MAGIC) : len(MAGIC) + 4], "little")
    if version != VERSION:
        hint = (
            "Update Stopwise"
            if version > VERSION
            else "It is from before the first release: create a new policy and let it learn from "
            "your log if you have one, policy.observe_many(rounds, stops)"
        )
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
    if sys.byteorder == "big":
        array = array.astype(array.dtype.newbyteorder("<"))
    dtype = array.dtype.newbyteorder("<").str
    return _Array(dtype, array.shape, np.ascontiguousarray(array).tobytes())


def _unpacked(path: object, name: str, array: _Array) -> NDArray[Any]:
    try:
        if array.dtype not in _DTYPES:
            raise ValueError(f"it holds {array.dtype!r}")
        dtype = np.dtype(array.dtype)
        values = np.frombuffer(array.data, dtype=dtype).reshape(array.shape)
        return values.astype(dtype.newbyteorder("="))
    except (TypeError, ValueError) as error:
        raise CorruptFileError(f"{path}: its array {name!r} cannot be read ({error})") from error


def _features(
    path: object, saved: _Saved, given: FeaturesLike | None, cascade: Cascade
) -> BoundFeatures:
    spec = saved.features
    try:
        if spec is None:
            raise KeyError("features")
        if given is None:
            return BoundFeatures.from_spec(spec)  # refuses custom maps and says what to do
        context_dim = int(spec["context_dim"])
    except (InvalidInputError, KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path}: its features cannot be read ({error})") from error
    try:
        bound = bind(given, context_dim, cascade.n_arms)
    except InvalidInputError as error:
        raise FeaturesMismatchError(
            f"{path} cannot be continued with the features given: {error}"
        ) from error
    if _described(bound.to_spec()) != _described(spec) or _probes(bound) != saved.probes:
        raise FeaturesMismatchError(
            f"{path} was saved with other features than those given: {_described(spec)} then, "
            f"{_described(bound.to_spec())} now (or a function that computes other values). "
            "Give the same feature map, or start a new policy"
        )
    return bound


def _described(spec: Any) -> Any:
    """Return a spec without the names of functions, which may change where values do not."""
    if isinstance(spec, dict):
        fields = cast(dict[str, Any], spec)
        custom = fields.get("kind") == "custom"
        return {k: _described(v) for k, v in fields.items() if not (custom and k == "name")}
    return [_described(v) for v in cast(list[Any], spec)] if isinstance(spec, list) else spec


def _probes(features: BoundFeatures) -> list[list[float]] | None:
    """Return the features of two fixed contexts, by which another function is detected."""
    steps = np.linspace(-1.0, 1.0, features.context_dim)
    contexts: tuple[ArrayLike, ...] = (0.0 * steps, steps / max(features.context_dim, 1))
    try:
        return [features.row(x).tolist() for x in contexts]
    except Exception:
        return None  # it accepts neither context: its values cannot be compared
