"""The policies that a replay runs: given by name, by file, or as objects."""

import copy
import inspect
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.cascade import Cascade
from stopwise.errors import (
    InvalidContextError,
    InvalidInputError,
    InvalidParameterError,
    UnknownPolicyError,
)
from stopwise.features import FeaturesLike, Identity, PerStage, Polynomial, Scaled
from stopwise.logs.log import Log
from stopwise.logs.problems import place
from stopwise.logs.replay.summary import LogSummary
from stopwise.policies.base import Ints, Policy
from stopwise.policies.persistence import load
from stopwise.policies.recorded import Rounds
from stopwise.policies.registry import POLICIES, make

PolicyLike: TypeAlias = "str | PathLike[str] | Policy"

FROM_LOG = ("self", "cascade", "features", "context_dim")  # parameters that the log determines


class Candidate:
    """A policy that decides the rounds of a log; `prepare` it before the first round.

    Parameters
    ----------
    name : str
        As the person gave it.
    log : Log
        The rounds.
    policy : Policy or tuple
        A policy that nobody else holds; or a name and parameters, from which `prepare` makes one.
    """

    def __init__(self, name: str, log: Log, policy: "Policy | tuple[str, dict[str, Any]]") -> None:
        self.name = name
        self._log = log
        self._given = policy

    def prepare(self, cascade: Cascade, summary: LogSummary, degree: int) -> None:
        """Make the policy, if it was given by name, for the contexts of the log."""
        if isinstance(self._given, Policy):
            self.policy = self._given
        else:
            name, parameters = self._given
            features, dim = features_of(self._log, summary, degree)
            self.policy = make(name, cascade, features=features, context_dim=dim, **parameters)

    @property
    def learns_from_labels(self) -> bool:
        """Whether the policy uses audited labels."""
        return self.policy.learns_from_labels

    def run(self, rounds: Rounds, first: int) -> Ints:
        """Decide rounds in order, and learn from them; ``first`` is the number of the first."""
        features = self.policy.features
        if not self.learns_from_labels:
            rounds = msgspec.structs.replace(rounds, audited=None)
        if features is not None and features.context_dim > rounds.contexts.shape[1]:
            contexts = np.insert(rounds.contexts, 0, 1.0, axis=1)  # see `features_of`
            rounds = msgspec.structs.replace(rounds, contexts=contexts)
        try:
            return self.policy.run_recorded(rounds)
        except InvalidContextError as error:
            raise self._located(rounds, first, error) from error

    def _located(self, rounds: Rounds, first: int, error: Exception) -> InvalidContextError:
        """Name the row of the log at which a context was refused."""
        features = self.policy.features
        for row, context in enumerate(rounds.contexts):
            try:
                if features is not None:
                    features.row(context)
            except InvalidInputError as reason:
                where = place(self._log.path.name, first + row)
                return InvalidContextError(f"{where}, for the policy {self.name!r}: {reason}")
        return InvalidContextError(f"{self._log.path.name}, for {self.name!r}: {error}")


def candidates(
    given: Sequence[PolicyLike], log: Log, cascade: Cascade, seed: int
) -> list[Candidate]:
    """Check the policies that were given, before the log is read.

    Raises
    ------
    UnknownPolicyError, InvalidParameterError, PersistenceError
        If one cannot be used with this log.
    """
    if not given:
        raise InvalidParameterError("name a policy to replay the log with: 'uss-pd', for instance")
    found: list[Candidate] = []
    for k, one in enumerate(given):
        if not isinstance(one, Policy) and one in given[:k]:
            raise InvalidParameterError(f"{fspath(one)!r} is given twice")
        candidate = _candidate(one, log, cascade, seed)
        taken = {other.name for other in found}
        if candidate.name in taken:
            numbered = (f"{candidate.name} {n}" for n in range(2, len(taken) + 3))
            candidate.name = next(name for name in numbered if name not in taken)
        found.append(candidate)
    return found


def parse_policy(text: str) -> tuple[str, dict[str, Any]] | None:
    """Read ``NAME[:key=value,…]``; None if it does not begin with a policy's name.

    Examples
    --------
    >>> parse_policy("thompson:scale=0.5,forced_rounds=auto")
    ('thompson', {'scale': 0.5, 'forced_rounds': 'auto'})
    """
    name, colon, rest = text.partition(":")
    if name not in POLICIES:
        return None
    if POLICIES[name].needs_truth:
        raise InvalidParameterError(
            f"{name!r} needs the truth, which a log does not hold; choose from "
            f"{', '.join(replayable())}"
        )
    allowed = parameters_of(name)
    parameters: dict[str, Any] = {}
    for word in rest.split(",") if colon else []:
        key, equals, value = map(str.strip, word.partition("="))
        if key not in allowed or not equals:
            raise InvalidParameterError(
                f"{text!r}: {word.strip()!r} is no parameter of {name}; write key=value, "
                f"where key is one of: {', '.join(allowed) or 'none'}"
            )
        if key in parameters:
            raise InvalidParameterError(f"{text!r}: {key} is given twice")
        parameters[key] = _value(value)
    return name, parameters


def replayable() -> list[str]:
    """Return the names of the policies that need no truth.

    Examples
    --------
    >>> "uss-pd" in replayable(), "oracle" in replayable()
    (True, False)
    """
    return [name for name, policy in POLICIES.items() if not policy.needs_truth]


def parameters_of(name: str) -> list[str]:
    """Return the parameters of a policy that a person may set.

    Examples
    --------
    >>> parameters_of("thompson")
    ['scale', 'forced_rounds', 'ridge', 'seed']
    """
    return [word for word in inspect.signature(POLICIES[name]).parameters if word not in FROM_LOG]


def features_of(log: Log, summary: LogSummary, degree: int) -> tuple[FeaturesLike, int]:
    """Return features for the contexts of a log, and how many numbers they take.

    Each coordinate is scaled to [−1, 1] over the log, so that no row is outside; then come all
    products of up to ``degree`` of them. Where nothing is known before the first arm, the context
    begins with a constant 1.
    """
    low, high, sees = summary.low, summary.high, log.sees
    if not len(low):
        return Identity(), 1
    if sees is not None and sees[0] == 0:
        low, high = np.append(1.0, low), np.append(1.0, high)
        sees = tuple(n + 1 for n in sees)

    def scaled(n: int) -> Scaled:
        return Scaled.fit(np.stack([low[:n], high[:n]]), Polynomial(degree=degree))

    if sees is None:
        return scaled(len(low)), len(low)
    return PerStage([scaled(n) for n in sees], sees=sees), len(low)


def _candidate(given: PolicyLike, log: Log, cascade: Cascade, seed: int) -> Candidate:
    if isinstance(given, Policy):
        _check_fits(given, given.name, log, cascade)
        return Candidate(given.name, log, copy.deepcopy(given))
    text = fspath(given)
    named = parse_policy(text) if isinstance(given, str) else None
    if named is not None:
        name, parameters = named
        if "seed" in parameters_of(name):
            parameters.setdefault("seed", seed)
        # parameters out of range are refused before the log is read
        make(name, cascade, features=Identity(), context_dim=1, **parameters)
        return Candidate(text, log, named)
    if not Path(text).is_file():
        raise UnknownPolicyError(
            f"no policy is called {text!r}, and there is no such file; choose from "
            f"{', '.join(replayable())}, or give the path of a saved policy"
        )
    policy = load(text, cascade=cascade)
    _check_fits(policy, text, log, cascade)
    return Candidate(Path(text).name, log, policy)


def _check_fits(policy: Policy, name: str, log: Log, cascade: Cascade) -> None:
    if policy.needs_truth:
        raise InvalidParameterError(f"{name}: {policy.name!r} needs the truth")
    if changes := policy.cascade.differences(cascade):
        raise InvalidParameterError(f"{name} is for another cascade: {'; '.join(changes)}")
    features = policy.features
    if features is None:
        return
    if features.context_dim != len(log.context):
        raise InvalidParameterError(
            f"{name} takes contexts of {features.context_dim} numbers, but {log.path.name} has "
            f"{len(log.context)} ({', '.join(log.context) or 'none'}); name the columns that the "
            "policy was made for, in their order"
        )
    if log.sees is not None and features.sees is None:
        raise InvalidParameterError(
            f"{name} sees the complete context from the start, but in {log.path.name} arms reveal "
            "parts of it (columns revealed.…)"
        )


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
