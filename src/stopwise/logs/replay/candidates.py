"""The policies that a replay runs: given by name, by file, or as objects."""

import copy
import inspect
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, real
from stopwise.errors import (
    InvalidContextError,
    InvalidInputError,
    InvalidParameterError,
    UnknownPolicyError,
)
from stopwise.features import Answers, FeaturesLike, Identity, Polynomial, Scaled, Standard
from stopwise.logs.cells import parsed
from stopwise.logs.log import Log
from stopwise.logs.problems import place
from stopwise.logs.vocabulary import Vocabulary
from stopwise.policies.base import Policy
from stopwise.policies.persistence import load
from stopwise.policies.registry import POLICIES, make
from stopwise.progress import Progress, no_progress
from stopwise.records import RecordedRounds

PolicyLike: TypeAlias = "str | PathLike[str] | Policy"

FROM_LOG = ("self", "cascade", "features", "context_dim")  # parameters that the log determines


class LogSummary(NamedTuple):
    """How many rounds a log has, its answers, and the range of each coordinate of its contexts."""

    rows: int
    answers: Vocabulary
    low: Floats
    high: Floats


class Candidate(NamedTuple):
    """A policy that decides the rounds of a log, and the name that the user gave it."""

    name: str
    policy: Policy
    log: Log
    given: dict[str, Any] | None = None  # parameters of one that was given by name

    def prepared(self, found: LogSummary, answers: bool) -> "Candidate":
        """Return it with a policy for the contexts of the log, which ``found`` sums up."""
        if self.given is None:
            return self
        name, cascade = self.policy.name, self.policy.cascade
        features, dim = features_of(POLICIES[name], self.log, found, answers)
        policy = make(name, cascade, features=features, context_dim=dim, **self.given)
        return self._replace(policy=policy)

    def run(self, rounds: RecordedRounds, first: int) -> Ints:
        """Decide rounds in order, and learn from them; ``first`` is the number of the first."""
        features = self.policy.features
        if not self.policy.asks_for_labels:
            rounds = msgspec.structs.replace(rounds, right=None, labelled=None)
        if features is not None and features.context_dim > rounds.contexts.shape[1]:
            contexts = np.insert(rounds.contexts, 0, 1.0, axis=1)  # see `features_of`
            rounds = msgspec.structs.replace(rounds, contexts=contexts)
        try:
            return self.policy.run_recorded(rounds)
        except InvalidContextError:
            if features is not None and features.sees is None:
                for row, context in enumerate(rounds.contexts, first):
                    try:
                        features.row(context)
                    except InvalidInputError as error:
                        raise InvalidContextError(
                            f"{self.log.path.name}, {place(row)}, for the policy {self.name!r}: "
                            f"{error}"
                        ) from error
            raise


def candidates(
    given: Sequence[PolicyLike], log: Log, cascade: Cascade, seed: int, labels: float
) -> list[Candidate]:
    """Return the policies to play, or refuse what cannot be used with a log, before it is read."""
    if cascade.names != log.arms:
        raise InvalidParameterError(
            f"the arms of {log.path.name} are {', '.join(log.arms)}, those of the cascade "
            f"{', '.join(cascade.names)}; write Cascade(costs, names=log.arms)"
        )
    if real("labels", labels, least=0) and not log.has_labels:
        raise InvalidParameterError(
            f"{log.path.name} has no labels to answer with; name their column if it is not 'label'"
        )
    found: dict[str, Candidate] = {}
    for one in given:
        candidate = _candidate(one, log, cascade, checked_seed(seed), labels)
        name = candidate.name
        numbered = (f"{name} {n}" if n > 1 else name for n in range(1, len(found) + 2))
        name = next(unused for unused in numbered if unused not in found)
        found[name] = candidate._replace(name=name)
    if labels and not any(one.policy.asks_for_labels for one in found.values()):
        raise InvalidParameterError(
            f"{', '.join(found)} would not use labels: add 'uss-laplace', or ask for none"
        )
    return list(found.values())


def summarise(log: Log, progress: Progress = no_progress) -> LogSummary:
    """Read a log, and so check it, from end to end; raise `InvalidLogError` if rows are wrong."""
    low, high = np.full(len(log.context), np.inf), np.full(len(log.context), -np.inf)
    arms = [arm for arm, names in enumerate(log.layout.revealed) for _ in names]
    known_from = [-1] * log.begins_with + arms  # after which arm each coordinate is known
    rows, answers = 0, Vocabulary(log.arms)
    for chunk in answers.watch(log.chunks(progress=progress)):
        for c, arm in enumerate(known_from):
            known = chunk.rounds.contexts[chunk.rounds.answered > arm, c]
            low[c] = min(low[c], known.min(initial=np.inf))
            high[c] = max(high[c], known.max(initial=-np.inf))
        rows += chunk.n
    never = low > high  # a coordinate that no row has
    return LogSummary(rows, answers, np.where(never, 0.0, low), np.where(never, 0.0, high))


def features_of(
    kind: type[Policy], log: Log, found: LogSummary, answers: bool
) -> tuple[FeaturesLike | None, int]:
    """Return features for the contexts of a log, and how many numbers they take.

    `Answers` where arms reveal numbers, or if ``answers``. Else a policy has its own default, if
    that scales itself; for others, each coordinate is scaled to [−1, 1] over the log, so that no
    row is outside, after a constant.
    """
    low, high = found.low, found.high
    if log.sees is not None or answers:
        return Answers([len(names) for names in log.layout.revealed]), log.begins_with
    if getattr(kind, "default_map", None) is Standard:
        return None, max(len(low), 1)
    if not len(low):
        return Identity(), 1
    return Scaled.fit(np.stack([low, high]), Polynomial(degree=1)), len(low)


def parse_policy(text: str) -> tuple[str, dict[str, Any]] | None:
    """Read ``NAME[:key=value,…]``; None if it does not begin with a policy's name."""
    name, colon, rest = text.partition(":")
    if name not in POLICIES:
        return None
    allowed = _parameters_of(name)
    parameters: dict[str, Any] = {}
    for word in rest.split(",") if colon else []:
        key, equals, value = map(str.strip, word.partition("="))
        if key not in allowed or not equals or not value:
            raise InvalidParameterError(
                f"{text!r}: {word.strip()!r} is no parameter of {name}; write key=value, "
                f"where key is one of: {', '.join(allowed) or 'none'}"
            )
        parameters[key] = parsed(value)
    return name, parameters


def is_name(given: PolicyLike) -> bool:
    """Return whether a policy is given by name, so that it can be created with any costs."""
    return isinstance(given, str) and given.partition(":")[0] in POLICIES


def _parameters_of(name: str) -> list[str]:
    return [word for word in inspect.signature(POLICIES[name]).parameters if word not in FROM_LOG]


def _candidate(
    given: PolicyLike, log: Log, cascade: Cascade, seed: int, labels: float
) -> Candidate:
    if isinstance(given, Policy):
        _check_fits(given, given.name, log, cascade)
        return Candidate(given.name, copy.deepcopy(given), log)
    text = fspath(given)
    named = parse_policy(text) if isinstance(given, str) else None
    if named is not None:
        name, parameters = named
        for key, value in {"seed": seed, "labels": labels}.items():
            if key in _parameters_of(name):
                parameters.setdefault(key, value)
        # parameters out of range are refused before the log is read
        policy = make(name, cascade, features=Identity(), context_dim=1, **parameters)
        return Candidate(text, policy, log, parameters)
    if not Path(text).is_file():
        raise UnknownPolicyError(
            f"no policy is called {text!r}, and there is no such file; choose from "
            f"{', '.join(POLICIES)}, or give the path of a saved policy"
        )
    policy = load(text, cascade=cascade)
    _check_fits(policy, text, log, cascade)
    return Candidate(Path(text).name, policy, log)


def _check_fits(policy: Policy, name: str, log: Log, cascade: Cascade) -> None:
    if changes := policy.cascade.differences(cascade):
        raise InvalidParameterError(f"{name} is for another cascade: {'; '.join(changes)}")
    if policy.encoding not in (None, log.encoding.to_spec()):
        raise InvalidParameterError(
            f"{name} carries another encoding than {log.path.name}; read the log by that one: "
            "Log(…, encoding=Encoding.from_spec(policy.encoding))"
        )
    features = policy.features
    if features is None:
        return
    if features.context_dim != len(log.context):
        raise InvalidParameterError(
            f"{name} takes contexts of {features.context_dim} numbers, but {log.path.name} has "
            f"{len(log.context)} ({', '.join(log.context) or 'none'}); name the columns that the "
            "policy was created for, in their order"
        )
    if log.sees is not None and features.sees is None:
        raise InvalidParameterError(
            f"{name} sees the complete context from the start, but in {log.path.name} arms reveal "
            "parts of it (columns revealed.…)"
        )
