"""Replay a log: every policy decides its rounds in order, beside every fixed depth."""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from stopwise.cascade import Cascade
from stopwise.checks import real
from stopwise.errors import InvalidParameterError
from stopwise.executors import make_executor
from stopwise.logs.log import Log
from stopwise.logs.parts import spread
from stopwise.logs.replay.candidates import (
    Candidate,
    PolicyLike,
    candidates,
    is_name,
    summarise,
)
from stopwise.logs.replay.grid import WEIGHTS, choose, merged, weighted
from stopwise.logs.replay.picture import png
from stopwise.logs.replay.results import Replay
from stopwise.logs.replay.tally import Tally
from stopwise.policies.base import CHUNK
from stopwise.progress import Progress, no_progress
from stopwise.reporting.files import write_files

CANDIDATES = ("uss-laplace", "uss-anchor", "uss-pd")


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
        Whether policies given by name see what the arms have said so far (`Answers`).
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
            "not 'label', or give a budget instead"
        )
    real("target_error", target_error or 0, least=0, most=1)
    real("budget", budget or 0, least=0)
    limited = target_error is not None or budget is not None
    tried = weights or (WEIGHTS if limited and all(map(is_name, policies)) else [1.0])
    weights = sorted({real("weights", weight, above=0) for weight in tried})
    cascades = [weighted(cascade, weight) for weight in weights]
    given = policies, labels, answers, seed
    found: dict[str, dict[int, Tally]] = {}
    if by is None and len(weights) == 1:
        found[""] = play(range(1), cascade, cascades, *given, chunk_rows, log, progress)
    else:
        with make_executor(executor, jobs, address) as workers:
            n = 1 if by else min(workers.workers(), len(weights))  # tasks that share the weights
            shares = (range(k, len(weights), n) for k in range(n))
            work = [partial(play, share, cascade, cascades, *given, chunk_rows) for share in shares]
            for tenant, tallies in spread(workers, log, by, work, "replaying", progress):
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
    cascade: Cascade,
    cascades: Sequence[Cascade],
    policies: Sequence[PolicyLike],
    labels: float,
    answers: bool,
    seed: int,
    chunk_rows: int,
    log: Log,
    progress: Progress,
) -> dict[int, Tally]:
    """Replay a log with a share of the cascades, in one pass after the one that checks it.

    Policies decide by these; the results are at the costs of ``cascade``.
    """
    chosen = {k: candidates(policies, log, cascades[k], seed, labels) for k in share}
    found, runs = summarise(log, progress), dict[int, tuple[Tally, list[Candidate]]]()
    for k, some in chosen.items():
        names = [one.name for one in some]
        played = [one.prepared(found, answers) for one in some]
        runs[k] = Tally(log, cascade, names, seed, found.answers), played
    done = 0
    for chunk in log.chunks(chunk_rows):
        for tally, played in runs.values():
            tally.add(chunk, [one.run(chunk.rounds, chunk.first) for one in played])
        done += chunk.n
        progress("replaying", done, found.rows)
    for tally, played in runs.values():
        tally.ask(played)
    return {k: tally for k, (tally, _) in runs.items()}
