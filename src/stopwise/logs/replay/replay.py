"""Replay a log: policies decide its rounds in order."""

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
from stopwise.logs.replay.combine import choose_weight, merge_tenants
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
WEIGHTS = tuple(
    round(2.0 ** (k / 2), 3) for k in range(-6, 7)
)  # 1/8 to 8: tried if there is a limit
SELF_SCALING = ("uss-laplace", "uss-anchor", "thompson")  # their default features scale contexts
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
    r"""Replay policies on the rounds of a log.

    Every policy decides the rounds in order, sees the outputs of the arms up to its stop, and
    learns from them. A round in which the policy goes deeper than the log cannot be evaluated or
    learned from; such rounds are counted as ``beyond``.

    Parameters
    ----------
    log : Log
        The rounds.
    cascade : Cascade
        The arms of the log and their costs.
    policies : sequence of str, path or Policy
        Policies by name, such as ``"uss-laplace"`` or ``"thompson:scale=0.5"``, created for the
        contexts of the log; paths of saved policies; or policies, which are copied. Saved and
        copied policies continue from their state.
    out : path, optional
        Folder for ``replay.json`` and, with matplotlib, ``replay.png``.
    labels : int or float
        Maximum number of labels that each policy given by name may request or, if below 1, the
        share of disagreements to label (see `USSLaplace`). A request is answered if the log has
        the label.
    answers : bool
        Whether policies given by name see which arms have agreed so far.
    seed : int
        Seed of policies given by name that draw random numbers.
    by : str, optional
        Column that identifies tenants. Each tenant is replayed with separate policies; totals are
        sums over tenants.
    weights : sequence of float
        Factors by which to multiply the costs when creating policies; each factor is replayed
        separately. Results use the costs of ``cascade``. Default: 1, or `WEIGHTS` if
        ``target_error`` or ``budget`` is set and all policies are given by name.
    target_error, budget : float, optional
        Recommend only options with at most this error rate, or with at most this mean cost per
        round, in the unit of the cascade's costs (for `Cascade.from_prices`, in the currency).
    executor, jobs, address
        Where tenants or weights are replayed (see `make_executor`). Every worker reads the log
        itself; the results are the same.
    progress : callable
        Called as ``progress(stage, done, of)``.
    chunk_rows : int
        Rounds in memory at a time; does not affect the results.

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
    >>> result = replay(log, Cascade(costs=[0.01, 0.2], names=log.arms), ["uss-pd:sigma=0.05"])
    >>> result.policies[0].loss.value < result.fixed[1].loss.value, log.arms[result.best_fixed]
    (True, 'slow')
    >>> folder.cleanup()
    """
    if target_error is not None and not log.has_labels:
        raise InvalidParameterError(
            f"target_error requires labels, but {log.path.name} has none: name the label column if "
            "it is not 'label', add columns right.<arm>, or use budget instead"
        )
    real("target_error", target_error or 0, least=0, most=1)
    real("budget", budget or 0, least=0)
    limited = target_error is not None or budget is not None
    requested = weights or (WEIGHTS if limited and all(map(is_name, policies)) else [1.0])
    weights = sorted({real("weights", weight, above=0) for weight in requested})
    cascades = [scale_costs(cascade, weight) for weight in weights]
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
    tallies: dict[str, dict[int, Tally]] = {}
    if by is None and len(weights) == 1:
        tallies[""] = play_share([0], log, progress)
    else:
        with make_executor(executor, jobs, address) as workers:
            n = 1 if by else min(workers.workers(), len(weights))  # tasks, which share the weights
            work = [partial(play_share, range(k, len(weights), n)) for k in range(n)]
            for tenant, part in map_partitions(workers, log, by, work, "replaying", progress):
                tallies.setdefault(tenant, {}).update(part)
    grid: dict[float, Replay] = {}
    for k, weight in enumerate(weights):
        tenants = {tenant: tallies[tenant][k] for tenant in sorted(tallies)}
        grid[weight] = tenants[""].result() if by is None else merge_tenants(log, by, tenants)
    result = choose_weight(grid, target_error, budget)
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
    """Check a log in one pass and replay it in a second, with each of some ``cascades``.

    ``share`` holds the indices of the cascades to use. Policies decide with these cascades; results
    use the costs of ``cascade``.
    """
    chosen = {k: candidates(policies, log, cascades[k], seed, labels) for k in share}
    summary = summarise(log, progress)
    players = {
        k: [candidate.prepared(summary, answers) for candidate in group]
        for k, group in chosen.items()
    }
    tallies: dict[int, Tally] = {}
    done = 0
    for chunk in log.chunks(chunk_rows):
        for k, group in players.items():
            stops = [candidate.run(chunk.rounds, chunk.first) for candidate in group]
            if k not in tallies:
                tallies[k] = Tally(log, cascade, [candidate.name for candidate in group], seed)
            tallies[k].add(chunk, stops)
        done += chunk.n
        progress("replaying", done, summary.rows)
    for k, tally in tallies.items():
        tally.add_labels([candidate.policy for candidate in players[k]])
    return tallies


def scale_costs(cascade: Cascade, weight: float) -> Cascade:
    """Return a cascade with its costs multiplied by a weight."""
    if weight == 1:
        return cascade
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostUnitWarning)  # the user's costs were already checked
        return Cascade(cascade.costs, cascade.names, cascade.tradeoff * weight)


class LogSummary(NamedTuple):
    """The number of rounds of a log, and the range of each context coordinate."""

    rows: int
    low: Floats
    high: Floats


class Candidate(NamedTuple):
    """A policy to replay, under the name that the user typed."""

    name: str
    policy: Policy
    log: Log
    options: dict[str, Any] | None = None  # parameters, of a policy given by name

    def prepared(self, summary: LogSummary, answers: bool) -> "Candidate":
        """Return the candidate; a policy given by name is created for the contexts of the log."""
        if self.options is None:
            return self
        name, cascade = self.policy.name, self.policy.cascade
        view = context_options(name, self.log, summary, answers)
        policy = make(name, cascade, **view, **self.options)
        return self._replace(policy=policy)

    def run(self, rounds: RecordedRounds, first: int) -> Ints:
        """Decide rounds in order and learn from them; ``first`` is the index of the first row."""
        features = self.policy.features
        if not self.policy.asks_for_labels:
            rounds = msgspec.structs.replace(rounds, right=None, labelled=None)
        if features is not None and features.context_dim > rounds.contexts.shape[1]:
            contexts = np.insert(rounds.contexts, 0, 1.0, axis=1)  # see `context_options`
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
    policies: Sequence[PolicyLike], log: Log, cascade: Cascade, seed: int, labels: float
) -> list[Candidate]:
    """Return the policies to replay; before reading the log, raise if one does not fit it."""
    if cascade.names != log.arms:
        raise InvalidParameterError(
            f"{log.path.name} has the arms {', '.join(log.arms)}, but the cascade has "
            f"{', '.join(cascade.names)}; create it with Cascade(costs, names=log.arms)"
        )
    if real("labels", labels, least=0) and not log.has_labels:
        raise InvalidParameterError(
            f"labels={labels:g} requires labels, but {log.path.name} has none: name the label "
            "column if it is not 'label', or add columns right.<arm>"
        )
    chosen: dict[str, Candidate] = {}
    for policy in policies:
        candidate = _candidate(policy, log, cascade, checked_seed(seed), labels)
        name = candidate.name
        numbered = (f"{name} {n}" if n > 1 else name for n in range(1, len(chosen) + 2))
        name = next(unused for unused in numbered if unused not in chosen)
        chosen[name] = candidate._replace(name=name)
    if labels and not any(candidate.policy.asks_for_labels for candidate in chosen.values()):
        raise InvalidParameterError(
            f"labels={labels:g} requires a policy that requests labels, got {', '.join(chosen)}; "
            "add 'uss-laplace', or omit labels"
        )
    return list(chosen.values())


def summarise(log: Log, progress: Progress = no_progress) -> LogSummary:
    """Read and check a log from end to end; raise `InvalidLogError` if a row is invalid."""
    low, high = np.full(len(log.context), np.inf), np.full(len(log.context), -np.inf)
    arms = [arm for arm, names in enumerate(log.layout.revealed) for _ in names]
    revealed_by = [-1] * log.n_initial + arms  # the arm that reveals each coordinate
    rows = 0
    for chunk in log.chunks(progress=progress):
        for c, arm in enumerate(revealed_by):
            values = chunk.rounds.contexts[chunk.rounds.answered > arm, c]
            low[c] = min(low[c], values.min(initial=np.inf))
            high[c] = max(high[c], values.max(initial=-np.inf))
        rows += chunk.n
    missing = low > high  # coordinates without a value in any row
    return LogSummary(rows, np.where(missing, 0.0, low), np.where(missing, 0.0, high))


def context_options(policy: str, log: Log, summary: LogSummary, answers: bool) -> dict[str, Any]:
    """Return the parameters that define how a policy sees the contexts of a log.

    If arms reveal context, or with ``answers``, the policy sees what is revealed and which arms
    agree. Otherwise a policy whose default features scale contexts uses these features. Any other
    policy sees a constant, followed by each coordinate scaled to [−1, 1] over the log.
    """
    low, high = summary.low, summary.high
    if log.sees is not None or answers:
        reveals = [len(names) for names in log.layout.revealed]
        return {"reveals": reveals, "context_dim": log.n_initial}
    if policy in SELF_SCALING:
        return {"context_dim": max(len(low), 1)}
    if not len(low):
        return {"features": Identity(), "context_dim": 1}
    scaled = Scaled.fit(np.stack([low, high]), Polynomial(degree=1))
    return {"features": scaled, "context_dim": len(low)}


def parse_policy(text: str) -> tuple[str, dict[str, Any]] | None:
    """Parse ``NAME[:key=value,…]``; return None if NAME is not a policy."""
    name, colon, assignments = text.partition(":")
    if name not in POLICIES:
        return None
    allowed = _parameters_of(name)
    parameters: dict[str, Any] = {}
    for assignment in assignments.split(",") if colon else []:
        key, equals, value = map(str.strip, assignment.partition("="))
        if key not in allowed:
            raise InvalidParameterError(
                f"{text!r}: {name} has no parameter {key!r}; {suggestion(key, allowed)}"
            )
        if not equals or not value:
            raise InvalidParameterError(f"{text!r}: {key} has no value; write {key}=VALUE")
        parameters[key] = parse_number(value)
    return name, parameters


def is_name(policy: PolicyLike) -> bool:
    """Return whether a policy is given by name, so that it can be created with any costs."""
    return isinstance(policy, str) and policy.partition(":")[0] in POLICIES


def _parameters_of(name: str) -> list[str]:
    return [key for key in inspect.signature(POLICIES[name]).parameters if key not in FROM_LOG]


def _candidate(
    source: PolicyLike, log: Log, cascade: Cascade, seed: int, labels: float
) -> Candidate:
    if isinstance(source, Policy):
        _check_fits(source, source.name, log, cascade)
        return Candidate(source.name, copy.deepcopy(source), log)
    text = fspath(source)
    named = parse_policy(text) if isinstance(source, str) else None
    if named is not None:
        name, parameters = named
        for key, value in {"seed": seed, "labels": labels}.items():
            if key in _parameters_of(name):
                parameters.setdefault(key, value)
        # created here only to check the parameters before the log is read
        policy = make(name, cascade, features=Identity(), context_dim=1, **parameters)
        return Candidate(text, policy, log, parameters)
    if not Path(text).is_file():
        raise UnknownPolicyError(
            f"{text!r} is neither a policy nor the file of a saved policy; "
            f"{suggestion(text, POLICIES)}"
        )
    policy = load(text, cascade=cascade)
    _check_fits(policy, text, log, cascade)
    return Candidate(Path(text).name, policy, log)


def _check_fits(policy: Policy, name: str, log: Log, cascade: Cascade) -> None:
    if differences := policy.cascade.differences(cascade):
        raise InvalidParameterError(
            f"{name} was created for a different cascade (policy vs log): {'; '.join(differences)}"
        )
    if policy.encoding not in (None, log.encoding.to_spec()):
        raise InvalidParameterError(
            f"{name} was saved with an encoding that differs from that of {log.path.name}; open "
            "the log with Log(…, encoding=Encoding.from_spec(policy.encoding))"
        )
    features = policy.features
    if features is None:
        return
    if features.context_dim != len(log.context):
        raise InvalidParameterError(
            f"{name} takes contexts of {features.context_dim} numbers, but {log.path.name} has "
            f"{len(log.context)} ({', '.join(log.context) or 'none'}); select the columns that the "
            "policy was created for, in the same order"
        )
    if log.sees is not None and features.stages is None:
        raise InvalidParameterError(
            f"{name} sees the complete context from the start, but in {log.path.name} arms reveal "
            "parts of it (columns revealed.…); use a policy created with reveals="
        )
