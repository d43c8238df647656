"""Replay a log: every policy decides its rounds in order, beside every fixed depth."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from stopwise.cascade import Cascade
from stopwise.checks import ENOUGH, real
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.chunk import Bytes, Chunk
from stopwise.logs.labels import LabelCheck
from stopwise.logs.log import Log
from stopwise.logs.replay.candidates import Candidate, PolicyLike, candidates, prepare, summarise
from stopwise.logs.replay.picture import png
from stopwise.logs.replay.results import CandidateResult, Criterion, Replay, result_of, values_of
from stopwise.logs.replay.totals import Outcomes, ReplayTotals
from stopwise.policies.base import CHUNK, Policy
from stopwise.policies.contextual import Contextual
from stopwise.policies.randomness import checked_seed
from stopwise.records import Progress, no_progress
from stopwise.reporting.files import write_files

CANDIDATES = ("uss-laplace", "uss-anchor", "uss-pd")
SAME = 1e-12  # losses that differ by less are equal but for rounding


def replay(
    log: Log,
    cascade: Cascade,
    policies: Sequence[PolicyLike] = CANDIDATES,
    *,
    out: "str | PathLike[str] | None" = None,
    labels: float = 0,
    answers: bool = False,
    seed: int = 0,
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
    _check(log, cascade, labels)
    chosen = candidates(policies, log, cascade, checked_seed(seed), labels)
    takes = (
        p.asks_for_labels if isinstance(p, Policy) else "labels" in p[1] for p in chosen.values()
    )
    if labels and not any(takes):
        raise InvalidParameterError(
            f"{', '.join(chosen)} would not use labels: add 'uss-laplace', or ask for none"
        )
    found = summarise(log, progress)
    run = _Run(log, cascade, prepare(chosen, log, cascade, found, answers), seed)
    for chunk in log.chunks(chunk_rows):
        run.add(chunk)
        progress("replaying", run.rows, found.rows)
    result = run.result()
    if out is not None:
        files = {"replay.json": result.to_json()}
        if picture := png(result):
            files["replay.png"] = picture
        write_files(Path(out), files)
    return result


class _Run:
    """One pass over a log."""

    def __init__(self, log: Log, cascade: Cascade, chosen: Sequence[Candidate], seed: int) -> None:
        k = cascade.n_arms
        self._log, self._cascade, self._candidates = log, cascade, chosen
        self._seed = seed
        self._totals = [ReplayTotals(k, compare=True) for _ in chosen]
        self._fixed = [ReplayTotals(k, compare=False) for _ in range(k)]
        self._decisions: list[list[Bytes]] = [[] for _ in chosen]
        self.rows = self._labelled = self._failed = self._truncated = 0
        self._labels = LabelCheck()

    def add(self, chunk: Chunk) -> None:
        """Let every candidate decide these rounds."""
        rounds, known = chunk.rounds, Outcomes.of(chunk)
        for one, totals, decisions in zip(
            self._candidates, self._totals, self._decisions, strict=True
        ):
            stops = one.run(rounds, chunk.first)
            totals.add(known, stops)
            decisions.append(stops.astype(np.uint8))
        for depth, totals in enumerate(self._fixed):
            totals.add(known, np.full(chunk.n, depth))
        self.rows += chunk.n
        self._labelled += int((chunk.labels >= 0).sum())
        self._failed += int(rounds.failed.sum())
        self._truncated += int(((rounds.reach < self._cascade.n_arms - 1) & ~rounds.failed).sum())
        self._labels.add(chunk)

    def result(self) -> Replay:
        """Turn all counts into numbers."""
        log, unanswered = self._log, self._fixed[0].unanswered
        if unanswered == self.rows:
            raise InvalidLogError(
                f"{log.path.name}: the first arm, {log.arms[0]!r}, failed in every round, so there "
                "is no answer to evaluate"
            )
        unlike = self._labels.unlike()
        by: Criterion = "cost + disagreement"
        if self._fixed[0].labelled >= ENOUGH:
            by = "total loss"
        exact = not any(totals.beyond for totals in (*self._totals, *self._fixed))
        names = [one.name for one in self._candidates]
        policies = self._results(names, self._totals, by if exact else None)
        fixed = self._results(log.arms, self._fixed, None)
        if values := values_of(policies, by):
            policies = [policies[i] for i in sorted(range(len(values)), key=values.__getitem__)]
        played = [(one.name, one.policy) for one in self._candidates]
        asking = [(name, p) for name, p in played if isinstance(p, Contextual) and p.asked]
        best = None
        if values := values_of(fixed, by):  # the shallowest of equals
            best = next(i for i, value in enumerate(values) if value <= min(values) + SAME)
        return Replay(
            log=log.path.name,
            arms=log.arms,
            costs=tuple(self._cascade.cumulative.tolist()),
            rounds=self.rows,
            labelled=self._labelled,
            failed=self._failed,
            unanswered=unanswered,
            truncated=self._truncated,
            seed=self._seed,
            asked={name: policy.asked for name, policy in asking},
            answered={name: policy.labelled for name, policy in asking},
            judged_by=by,
            policies=tuple(policies),
            fixed=tuple(fixed),
            best_fixed=best,
            notes=() if unlike is None else (f"Warning: {unlike}.",),
            decisions=dict(zip(names, map(np.concatenate, self._decisions), strict=True)),
        )

    def _results(
        self, names: Sequence[str], totals: Sequence[ReplayTotals], compare: Criterion | None
    ) -> list[CandidateResult]:
        rounds = self.rows if self._log.layout.stop is not None or self._truncated else None
        return [
            result_of(name, one, self._cascade, recorded=rounds, compare=compare)
            for name, one in zip(names, totals, strict=True)
        ]


def _check(log: Log, cascade: Cascade, labels: float) -> None:
    if cascade.names != log.arms:
        raise InvalidParameterError(
            f"the arms of {log.path.name} are {', '.join(log.arms)}, those of the cascade "
            f"{', '.join(cascade.names)}; write Cascade(costs, names=log.arms)"
        )
    real("labels", labels, least=0)
    if labels and not log.has_labels:
        raise InvalidParameterError(
            f"{log.path.name} has no labels to answer with; name their column if it is not 'label'"
        )
