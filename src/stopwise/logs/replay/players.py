"""Who plays: policies by name, saved ones, or ones at hand, made ready for a log."""

import copy
import hashlib
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
from stopwise.features import BoundFeatures, FeaturesLike, Identity, PerStage, Polynomial, Scaled
from stopwise.logs.log import Log
from stopwise.logs.problems import place
from stopwise.logs.replay.survey import Survey
from stopwise.policies.base import Blind, Ints, Policy
from stopwise.policies.contextual import Contextual
from stopwise.policies.persistence import load
from stopwise.policies.recorded import Rounds
from stopwise.policies.registry import POLICIES, make, takes
from stopwise.policies.uss_pd import USSPD, USSPDRidge

Given: TypeAlias = "str | PathLike[str] | Policy"

OWN = ("self", "cascade", "features", "context_dim")  # given by the log, not by the person


class Player:
    """A policy that plays a log.

    Attributes
    ----------
    name : str
        As the person called it.
    policy : Policy
        The policy; nobody else holds it.
    identity : str
        A hash of all that it was before its first round.
    """

    def __init__(self, name: str, policy: Policy, identity: str, log: Log, constant: bool) -> None:
        self.name = name
        self.policy = policy
        self.identity = identity
        self._log = log
        self._constant = constant  # contexts begin with a 1 that the log does not have

    @property
    def takes_labels(self) -> bool:
        """Whether audited labels teach it anything."""
        return isinstance(self.policy, USSPD | USSPDRidge) or "audit" in self.policy.own_steps

    def rebuilds(self, audited: bool) -> bool:
        """Say whether `learn` brings it to where `play` would have.

        Its decisions follow from what it has seen, up to rounding. Chance, and labels, would
        have to be repeated too; such a policy plays again from the start.
        """
        policy = self.policy
        return (
            isinstance(policy, USSPD | USSPDRidge)
            and policy.full_depth_every is None
            and policy.features.maps_in_engine is not None  # a function may do as it likes
            and not policy.own_steps  # so may a step of a subclass
            and not audited
        )

    def play(self, rounds: Rounds, first: int) -> Ints:
        """Decide rounds in order, and learn; ``first`` is the number of the first."""
        if isinstance(self.policy, Blind) and self._whole(rounds):
            return self.policy.run_disagreements(rounds.contexts, rounds.differ)
        rounds = self._seen(rounds)
        try:
            return self.policy.replay(rounds)
        except InvalidContextError as error:
            raise self._located(rounds, first, error) from error

    def learn(self, rounds: Rounds, stops: Ints, first: int) -> None:
        """Learn from rounds that it has decided before."""
        rounds = self._seen(rounds)
        try:
            self.policy.observe_many(rounds, stops)
        except InvalidContextError as error:
            raise self._located(rounds, first, error) from error

    def _seen(self, rounds: Rounds) -> Rounds:
        """Return rounds as the policy is to see them."""
        if rounds.audited is not None and not self.takes_labels:
            rounds = msgspec.structs.replace(rounds, audited=None)
        if self._constant:
            ones = np.ones((rounds.n, 1))
            contexts = np.concatenate([ones, rounds.contexts], axis=1)
            rounds = msgspec.structs.replace(rounds, contexts=contexts)
        return rounds

    def _whole(self, rounds: Rounds) -> bool:
        last = self.policy.cascade.n_arms - 1
        return bool((rounds.reach == last).all()) and not rounds.failed.any()

    def _located(self, rounds: Rounds, first: int, error: Exception) -> InvalidContextError:
        """Name the row of the log at which a context was refused."""
        features = getattr(self.policy, "features", None)
        for row, context in enumerate(rounds.contexts):
            try:
                if isinstance(features, BoundFeatures):
                    features.row(context)
            except InvalidInputError as reason:
                where = place(self._log.path.name, first + row)
                return InvalidContextError(f"{where}, for the policy {self.name!r}: {reason}")
        return InvalidContextError(f"{self._log.path.name}, for {self.name!r}: {error}")


class Named(msgspec.Struct, frozen=True):
    """A policy asked for by name.

    Examples
    --------
    >>> Named.parse("thompson:scale=0.5,forced_rounds=auto")
    Named(policy='thompson', parameters={'scale': 0.5, 'forced_rounds': 'auto'})
    """

    policy: str
    parameters: dict[str, Any]

    @staticmethod
    def parse(text: str) -> "Named | None":
        """Understand ``NAME[:key=value,…]``; None if it does not begin with a policy's name."""
        name, colon, rest = text.partition(":")
        if name not in POLICIES:
            return None
        if POLICIES[name].needs_truth:
            raise InvalidParameterError(
                f"{name!r} must be told the truth, which a log does not know; there are "
                f"{', '.join(playable())}"
            )
        parameters: dict[str, Any] = {}
        for word in rest.split(",") if colon else []:
            key, equals, value = word.partition("=")
            key = key.strip()
            if key not in parameters_of(name) or not equals:
                known = ", ".join(parameters_of(name)) or "none"
                raise InvalidParameterError(
                    f"{text!r}: {word.strip()!r} is no parameter of {name}; write key=value, "
                    f"where key is one of: {known}"
                )
            if key in parameters:
                raise InvalidParameterError(f"{text!r}: {key} is given twice")
            parameters[key] = _value(value.strip())
        return Named(name, parameters)


def playable() -> list[str]:
    """Return the names of the policies that need no truth.

    Examples
    --------
    >>> "uss-pd" in playable(), "oracle" in playable()
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
    return [word for word in inspect.signature(POLICIES[name]).parameters if word not in OWN]


class Entrant(msgspec.Struct, frozen=True, eq=False):
    """Who is to play, understood and checked as far as can be without reading the log."""

    name: str
    given: Named | Policy
    identity: str


def entrants(given: Sequence[Given], log: Log, cascade: Cascade, seed: int) -> list[Entrant]:
    """Understand who is to play, before the log is read.

    Raises
    ------
    UnknownPolicyError, InvalidParameterError, PersistenceError
        Saying what is not understood.
    """
    if not given:
        raise InvalidParameterError("name a policy to replay the log with: 'uss-pd', for instance")
    found: list[Entrant] = []
    for one in given:
        entrant = _entrant(one, log, cascade, seed)
        taken = [other.name for other in found]
        if any(entrant.identity == other.identity for other in found):
            raise InvalidParameterError(f"{entrant.name!r} is given twice")
        if entrant.name in taken:
            again = next(k for k in range(2, len(taken) + 3) if f"{entrant.name} {k}" not in taken)
            entrant = msgspec.structs.replace(entrant, name=f"{entrant.name} {again}")
        found.append(entrant)
    return found


def ready(entrant: Entrant, log: Log, cascade: Cascade, found: Survey, degree: int) -> Player:
    """Make a policy ready for the first round of a log."""
    given = entrant.given
    if isinstance(given, Policy):
        return Player(entrant.name, given, entrant.identity, log, constant=False)
    policy, constant = _made(given, log, cascade, found, degree)
    return Player(entrant.name, policy, entrant.identity, log, constant)


def features_of(log: Log, found: Survey, degree: int) -> tuple[FeaturesLike, int]:
    """Return features for the contexts of a log, and how many numbers they take.

    Each coordinate is stretched to [−1, 1] over the whole log, so every row keeps the promise;
    then come all products of up to ``degree`` of them. Where nothing is known from the start
    the context begins with a constant 1.
    """
    low, high, sees = found.low, found.high, log.sees
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


def _made(
    named: Named, log: Log, cascade: Cascade, found: Survey, degree: int
) -> tuple[Policy, bool]:
    features, dim = features_of(log, found, degree)
    policy = make(named.policy, cascade, features=features, context_dim=dim, **named.parameters)
    return policy, takes(type(policy), "context_dim") and dim > len(log.context)


def _entrant(given: Given, log: Log, cascade: Cascade, seed: int) -> Entrant:
    if isinstance(given, Policy):
        _check_fits(given, given.name, log, cascade)
        return Entrant(given.name, copy.deepcopy(given), _fingerprint(given))
    text = fspath(given)
    named = Named.parse(text) if isinstance(given, str) else None
    if named is not None:
        if "seed" in parameters_of(named.policy):
            named.parameters.setdefault("seed", seed)
        # a dry run: parameters out of range are refused before the log is read
        make(named.policy, cascade, features=Identity(), context_dim=1, **named.parameters)
        return Entrant(text, named, _hash(msgspec.json.encode(named)))
    if not Path(text).is_file():
        raise UnknownPolicyError(
            f"no policy is called {text!r}, and there is no such file; there are "
            f"{', '.join(playable())}, or the path of a policy that was saved"
        )
    policy = load(text, cascade=cascade)
    _check_fits(policy, text, log, cascade)
    return Entrant(Path(text).name, policy, _hash(Path(text).read_bytes()))


def _check_fits(policy: Policy, name: str, log: Log, cascade: Cascade) -> None:
    if policy.needs_truth:
        raise InvalidParameterError(f"{name}: {policy.name!r} must be told the truth")
    if changes := policy.cascade.differences(cascade):
        raise InvalidParameterError(f"{name} is for another cascade: {'; '.join(changes)}")
    if not isinstance(policy, Contextual):
        return
    features = policy.features
    if features.context_dim != len(log.context):
        raise InvalidParameterError(
            f"{name} takes contexts of {features.context_dim} numbers, but {log.path.name} has "
            f"{len(log.context)} ({', '.join(log.context) or 'none'}); name those it knows, in "
            "their order"
        )
    if log.sees is not None and features.sees is None:
        raise InvalidParameterError(
            f"{name} sees the whole context from the start, but in {log.path.name} arms reveal "
            "parts of it (columns revealed.…)"
        )


def _fingerprint(policy: Policy) -> str:
    """Return a hash of what a policy is and has learned."""
    features = policy.features.to_spec() if isinstance(policy, Contextual) else None
    kind = f"{type(policy).__module__}.{type(policy).__qualname__}"
    digest = hashlib.sha256(msgspec.json.encode([kind, policy.parameters(), features]))
    for name, array in policy.state().items():
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
