"""Replay a log: policies, given by name or file, decide its rounds in order."""

import copy
import inspect
import warnings
from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from stopwise.arrays import Floats, Ints
from stopwise.cascade import Cascade
from stopwise.checks import checked_seed, real
from stopwise.errors import (
    CostUnitWarning,
    InvalidContextError,
    InvalidInputError,
    InvalidParameterError,
    UnknownPolicyError,
)
from stopwise.executors import make_executor
from stopwise.features import Identity, Polynomial, Scaled
from stopwise.files import write_files
from stopwise.logs.log import Log
from stopwise.logs.partitions import map_partitions
from stopwise.logs.replay.combine import choose, merged
from stopwise.logs.replay.figure import png
from stopwise.logs.replay.results import Replay
from stopwise.logs.replay.tally import Tally
from stopwise.logs.rows import describe_row, parse_number
from stopwise.policies.batch import CHUNK
from stopwise.policies.creation import load, make
from stopwise.policies.protocol import Policy
from stopwise.policies.registry import POLICIES
from stopwise.progress import Progress, no_progress
from stopwise.records import RecordedRounds
from stopwise.text import suggestion

PolicyLike: TypeAlias = "str | PathLike[str] | Policy"

CANDIDATES = ("uss-laplace", "uss-anchor", "uss-pd")
WEIGHTS = tuple(round(2.0 ** (k / 2), 3) for k in range(-6, 7))  # 1/8 to 8: tried for a limit
SCALE_THEMSELVES = ("uss-laplace", "uss-anchor", "thompson")  # their features, by default
# Parameters that the log determines.
FROM_LOG = ("self", "cascade", "features", "context_dim", "reveals", "answers")


def replay(
    log: Log,
    cascade: Cascade,
    policies: Sequence[PolicyLike] = CANDIDATES,
    *,
    out: "str | PathLike[str] | None" = None,
    labels: float = 0,
    answers: bool = False,
    seed: int = 0,
    by: str | None = None,
    weights: Sequence[float] = (),
    target_error: float | None = None,
    budget: float | None = None,
    executor: str = "threads",
    jobs: int | None = None,
    address: str | None = None,
    progress: Progress = no_progress,
    chunk_rows: int = CHUNK,
) -> Replay:
    r"""Find out what policies would have done with the rounds of a log.

    Every policy decides the rounds in order. It sees the outputs of the arms up to its stop, and
    learns from them. Where the log ends before the decision, the round cannot be evaluated and
    the policy learns nothing from it; such rounds are counted (``beyond``).

    Parameters
    ----------
    log : Log
        The rounds.
    cascade : Cascade
        The arms of the log and their costs.
    policies : sequence of str, path or Policy
        A policy by name, ``"uss-laplace"``, ``"thompson:scale=0.5"``, created for the contexts of
        the log; the path of a saved policy, or a policy: a copy of it continues from there.
    out : path, optional
        A folder for ``replay.json`` and, with matplotlib, ``replay.png``.
    labels : int or float
        How many labels each policy given by name may ask for (see `USSLaplace`); it gets the answer
        if the log has it.
    answers : bool
        Whether policies given by name see which arms have agreed so far.
    seed : int
        Of policies by name that use random numbers.
    by : str, optional
        A column: rounds with the same value are a tenant's, and policies start anew with each.
        Totals are the sums of the tenants' counts.
    weights : sequence of float
        By which to multiply the costs that policies are created with, each in its turn; every
        result is at the costs as given. Default: 1, or `WEIGHTS` if a limit is given and all
        policies are given by name.
    target_error, budget : float, optional
        Recommend only what is wrong at most so often, or costs at most so much a round on average,
        in the unit of the cascade's ``costs``: of `Cascade.from_prices`, in the currency.
    executor, jobs, address
        Where tenants or weights are replayed (see `make_executor`). Every worker reads the log
        itself; the numbers are the same.
    progress : callable
        Called as ``progress(stage, done, of)``.
    chunk_rows : int
        Rounds in memory at a time; makes no difference to any number.

    Raises
    ------
    InvalidLogError
        If rows cannot be read, or if the first arm failed in all of them; ``out`` is not written.
    InvalidParameterError, UnknownPolicyError, PersistenceError
        If a policy or a parameter cannot be used with this log.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "log.csv")
    >>> rows = "0.1,yes,yes,yes\n0.9,no,yes,yes\n" * 500
    >>> _ = path.write_text("context.x,output.quick,output.slow,label\n" + rows)
    >>> log = Log(path)
    >>> found = replay(log, Cascade(costs=[0.01, 0.2], names=log.arms), ["uss-pd:sigma=0.05"])
    >>> found.policies[0].loss.value < found.fixed[1].loss.value, found.arms[found.best_fixed]
    (True, 'slow')
    >>> folder.cleanup()
    """
    if target_error is not None and not log.has_labels:
        raise InvalidParameterError(
            f"a target for the error needs labels in {log.path.name}: name their column if it is "
            "not 'label', add columns right.<arm>, or give a budget instead"
        )
    real("target_error", target_error or 0, least=0, most=1)
    real("budget", budget or 0, least=0)
    limited = target_error is not None or budget is not None
    tried = weights or (WEIGHTS if limited and all(map(is_name, policies)) else [1.0])
    weights = sorted({real("weights", weight, above=0) for weight in tried})
    cascades = [weighted(cascade, weight) for weight in weights]
    play_share = partial(
        play,
        cascade=cascade,
        cascades=cascades,
        policies=policies,
        labels=labels,
        answers=answers,
        seed=seed,
        chunk_rows=chunk_rows,
    )
    found: dict[str, dict[int, Tally]] = {}
    if by is None and len(weights) == 1:
        found[""] = play_share([0], log, progress)
    else:
        with make_executor(executor, jobs, address) as workers:
            n = 1 if by else min(workers.workers(), len(weights))  # tasks that share the weights
            work = [partial(play_share, range(k, len(weights), n)) for k in range(n)]
            for tenant, tallies in map_partitions(workers, log, by, work, "replaying", progress):
                found.setdefault(tenant, {}).update(tallies)
    grid: dict[float, Replay] = {}
    for k, weight in enumerate(weights):
        tenants = {tenant: found[tenant][k] for tenant in sorted(found)}
        grid[weight] = tenants[""].result() if by is None else merged(log, by, tenants)
    result = choose(grid, target_error, budget)
    if out is not None:
        files = {"replay.json": result.to_json()}
        if picture := png(result):
            files["replay.png"] = picture
        write_files(Path(out), files)
    return result


def play(
    share: Sequence[int],
    log: Log,
    progress: Progress,
    *,
    cascade: Cascade,
    cascades: Sequence[Cascade],
    policies: Sequence[PolicyLike],
    labels: float,
    answers: bool,
    seed: int,
    chunk_rows: int,
) -> dict[int, Tally]:
    """Replay a log with a share of the cascades, in one pass after the one that checks it.

    Policies decide by these; the results are at the costs of ``cascade``.
    """
    chosen = {k: candidates(policies, log, cascades[k], seed, labels) for k in share}
    summary = summarise(log, progress)
    players = {k: [one.prepared(summary, answers) for one in some] for k, some in chosen.items()}
    tallies: dict[int, Tally] = {}
    done = 0
    for chunk in log.chunks(chunk_rows):
        for k, some in players.items():
            stops = [one.run(chunk.rounds, chunk.first) for one in some]
            if k not in tallies:
                tallies[k] = Tally(log, cascade, [one.name for one in some], seed)
            tallies[k].add(chunk, stops)
        done += chunk.n
        progress("replaying", done, summary.rows)
    for k, tally in tallies.items():
        tally.add_labels([one.policy for one in players[k]])
    return tallies


def weighted(cascade: Cascade, weight: float) -> Cascade:
    """Return a cascade with its costs multiplied."""
    if weight == 1:
        return cascade
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostUnitWarning)  # that of the costs as given is enough
        return Cascade(cascade.costs, cascade.names, cascade.tradeoff * weight)


class LogSummary(NamedTuple):
    """How many rounds a log has, and the range of each coordinate of its contexts."""

    rows: int
    low: Floats
    high: Floats


class Candidate(NamedTuple):
    """A policy that decides the rounds of a log, and the name that the user gave it."""

    name: str
    policy: Policy
    log: Log
    given: dict[str, Any] | None = None  # parameters of one that was given by name

    def prepared(self, summary: LogSummary, answers: bool) -> "Candidate":
        """Return it with a policy for the contexts of the log."""
        if self.given is None:
            return self
        name, cascade = self.policy.name, self.policy.cascade
        sees = what_is_seen(name, self.log, summary, answers)
        policy = make(name, cascade, **sees, **self.given)
        return self._replace(policy=policy)

    def run(self, rounds: RecordedRounds, first: int) -> Ints:
        """Decide rounds in order, and learn from them; ``first`` is the number of the first."""
        features = self.policy.features
        if not self.policy.asks_for_labels:
            rounds = msgspec.structs.replace(rounds, right=None, labelled=None)
        if features is not None and features.context_dim > rounds.contexts.shape[1]:
            contexts = np.insert(rounds.contexts, 0, 1.0, axis=1)  # see `what_is_seen`
            rounds = msgspec.structs.replace(rounds, contexts=contexts)
        try:
            return self.policy.run_recorded(rounds)
        except InvalidContextError:
            if features is not None and features.stages is None:
                for row, context in enumerate(rounds.contexts, first):
                    try:
                        features.row(context)
                    except InvalidInputError as error:
                        raise InvalidContextError(
                            f"{self.log.path.name}, {describe_row(row)}, for the policy "
                            f"{self.name!r}: {error}"
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
            f"{log.path.name} has no labels to answer with; name their column if it is not "
            "'label', or add columns right.<arm>"
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
    known_from = [-1] * log.n_initial + arms  # after which arm each coordinate is known
    rows = 0
    for chunk in log.chunks(progress=progress):
        for c, arm in enumerate(known_from):
            known = chunk.rounds.contexts[chunk.rounds.answered > arm, c]
            low[c] = min(low[c], known.min(initial=np.inf))
            high[c] = max(high[c], known.max(initial=-np.inf))
        rows += chunk.n
    never = low > high  # a coordinate that no row has
    return LogSummary(rows, np.where(never, 0.0, low), np.where(never, 0.0, high))


def what_is_seen(policy: str, log: Log, summary: LogSummary, answers: bool) -> dict[str, Any]:
    """Return the parameters that say what a policy sees of the contexts of a log.

    What arms reveal, if they do or if ``answers``: then which of them agree, too. Else a policy has
    its own default features, if these scale themselves; for others, each coordinate is scaled to
    [−1, 1] over the log, so that no row is outside, after a constant.
    """
    low, high = summary.low, summary.high
    if log.sees is not None or answers:
        reveals = [len(names) for names in log.layout.revealed]
        return {"reveals": reveals, "context_dim": log.n_initial}
    if policy in SCALE_THEMSELVES:
        return {"context_dim": max(len(low), 1)}
    if not len(low):
        return {"features": Identity(), "context_dim": 1}
    scaled = Scaled.fit(np.stack([low, high]), Polynomial(degree=1))
    return {"features": scaled, "context_dim": len(low)}


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
        parameters[key] = parse_number(value)
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
            f"no policy is called {text!r}, and there is no such file; "
            f"{suggestion(text, POLICIES)}, or give the path of a saved policy"
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
    if log.sees is not None and features.stages is None:
        raise InvalidParameterError(
            f"{name} sees the complete context from the start, but in {log.path.name} arms reveal "
            "parts of it (columns revealed.…)"
        )
