"""Create a policy by name, or load it from a file."""

import os
from pathlib import Path
from typing import Any

from stopwise.cascade import Cascade
from stopwise.errors import CorruptFileError
from stopwise.features import FeaturesLike
from stopwise.policies.persistence import decode
from stopwise.policies.protocol import Policy
from stopwise.policies.registry import policy_class, takes


def make(name: str, cascade: Cascade, **parameters: Any) -> Policy:
    """Create a policy by name, such as "uss-pd" (see ``POLICIES``).

    ``features``, ``context_dim`` and ``reveals`` are ignored if the constructor of the policy does
    not take them; other ``parameters`` are passed on as they are.

    Examples
    --------
    >>> make("fixed-depth", Cascade(costs=[0.1, 0.2]), context_dim=3).decide([0, 0, 0]).stop
    1
    """
    kind = policy_class(name)
    optional = [k for k in ("features", "context_dim", "reveals") if not takes(kind, k)]
    return kind(cascade, **{k: v for k, v in parameters.items() if k not in optional})


def load(
    path: "str | os.PathLike[str]",
    *,
    cascade: Cascade | None = None,
    features: FeaturesLike | None = None,
) -> Policy:
    """Load a saved policy, which continues bit for bit where it left off.

    Raises `CascadeMismatchError` if ``cascade`` is passed and differs from the saved cascade, and
    `FeaturesMismatchError` if ``features`` are passed and differ from the saved features. A policy
    with custom feature maps can be loaded only with ``features``, because code is not saved.

    Examples
    --------
    >>> import tempfile
    >>> import stopwise as sw
    >>> policy = sw.USSPD(sw.Cascade(costs=[0.01, 0.3]), context_dim=2)
    >>> path = Path(tempfile.mkdtemp(), "policy.stopwise")
    >>> policy.save(path)
    >>> sw.load(path).decide([0.5, 1.0]).stop
    1
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CorruptFileError(f"{path} cannot be read: {error}") from error
    return decode(content, path, cascade=cascade, features=features)
