"""The report on shadow mode: what switching a cascade on would save, and what would change.

It estimates what new requests would show if the policy trained on these rounds were switched on
now. Rounds are decided by policies that have not learned from them (`cross_fit`).
"""

import math
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace

from stopwise.arrays import Bools, Floats
from stopwise.errors import InvalidParameterError
from stopwise.files import write_file
from stopwise.intervals import Z90, Interval, normal_interval, widened_wilson
from stopwise.logs.chunk import Chunk
from stopwise.logs.log import Log
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.progress import no_progress
from stopwise.proxy.config import Cascade, Config
from stopwise.proxy.cross_fitting import FOLDS, CrossFit, cross_fit
from stopwise.records import RecordedRounds
from stopwise.service.domain.messages import CascadeSpec
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.stores.opening import open_existing_store
from stopwise.service.tools.export import export_rounds

# Simulated intervals hold from 100 rounds on (benchmarks/intervals.py); with fewer, a policy
# trained on four fifths of them differs too much from the one trained on all.
MIN_ROUNDS = 100
MAX_ROUNDS = 100_000  # the newest: bounds time and memory of a report
# Heuristic, by simulation: with all of the variance between policies, intervals of the saving are
# too wide. Other than changed answers, savings in the folds do not depend on who disagreed there.
SAVING_REFIT = 0.5


class Report(msgspec.Struct, frozen=True):
    """What switching on would mean for new requests, estimated from those seen in shadow."""

    cascade: str
    rounds: int
    now: float  # what a request costs: the stage that answers
    saving: Interval | None = None  # for each request, in the money of the prices
    changed: Interval | None = None  # share of the answers
    stops: dict[str, float] = {}  # share of the requests that would end at each stage
    changes: Sequence[tuple[Any, Any, int]] = ()  # now, then, how often; the most frequent
    failed: int = 0  # rounds in which a stage failed, which do not count

    def lines(self) -> list[str]:
        """Return it in words."""
        failed = f"  In {self.failed} more a stage failed; the proxy's log says why."
        if self.saving is None or self.changed is None:
            words = f"{self.rounds} rounds in shadow; an estimate needs {MIN_ROUNDS}."
            return [f"{self.cascade}: {words}", *([failed] if self.failed else [])]
        share = self.saving / self.now if self.now else Interval(0.0, 0.0, 0.0)
        depths = ", ".join(f"{name} {part:.0%}" for name, part in self.stops.items())
        return [
            f"{self.cascade}: {self.rounds} rounds in shadow.",
            *([failed] if self.failed else []),
            f"  Switching on would save {self.saving.value:.4g} of {self.now:.4g} a request:",
            f"  {share.value:.0%} (90 % interval: {share.low:.0%} to {share.high:.0%}).",
            f"  It would change {self.changed.value:.1%} of the answers",
            f"  (90 % interval: {self.changed.low:.1%} to {self.changed.high:.1%}).",
            f"  Requests would end at: {depths}.",
            *(f"  {n} times {then!r} instead of {now!r}" for now, then, n in self.changes),
        ]


def changed_share(changed: Floats, of_policies: float) -> Interval:
    """Return the share of changed answers, with Wilson's interval, widened for the policies.

    ``changed`` (n,) is between 0 and 1 for each round, ``of_policies`` the variance s² of the share
    between policies. The policy in use is taken for one more such draw: it is off their mean with
    the variance (1 + 1/m)·s², for m policies.
    """
    reach = Z90 * math.sqrt((1 + 1 / FOLDS) * of_policies)
    return widened_wilson(float(changed.mean()), len(changed), reach, Z90)


def mean_saving(each: Floats, of_policies: float, least: float, most: float) -> Interval:
    """Return what a request saves on average, between ``least`` and ``most``.

    ``each`` (n,) is what each round saves, ``of_policies`` the variance s² of their mean between
    policies. Half of the variance that changed answers get for the policies adds to that of the
    rounds. The latter counts one more round at each end, so that identical rounds do not give a
    zero-width interval.
    """
    of_rounds = float(np.append(each, [least, most]).var(ddof=1)) / len(each)
    error = math.sqrt(of_rounds + SAVING_REFIT * (1 + 1 / FOLDS) * of_policies)
    mean = float(np.clip(each.mean(), least, most))  # rounding may put it outside
    return normal_interval(mean, error, Z90).clipped(least, most)


def intervals(own: Floats, answer: int, differs: Bools, fit: CrossFit) -> tuple[Interval, Interval]:
    """Return what a request saves, and the share of changed answers, both with 90 % intervals.

    ``own`` are the costs of the stages; ``differs`` (n, K) is whether each stage's answer differs
    from that of the stage ``answer``.
    """
    saved, rows = own[answer] - np.cumsum(own), np.arange(len(differs))
    saved_by_policy = saved[fit.by_policy].mean(axis=2)
    each = saved[fit.stops].mean(axis=0)
    saving = mean_saving(each, _spread(saved_by_policy), float(saved.min()), float(saved.max()))
    changed_by_policy = differs[rows, fit.by_policy].mean(axis=2)
    changed = differs[rows, fit.stops].mean(axis=0)
    return saving, changed_share(changed, _spread(changed_by_policy))


def _spread(by_policy: Floats) -> float:
    """Return the variance between policies whose folds are of the same repeat."""
    return float(by_policy.var(axis=1, ddof=1).mean())


def estimate(cascade: Cascade, spec: CascadeSpec, policy: PairwisePolicy, log: Log) -> Report:
    """Estimate what switching on would mean from a log of rounds.

    In shadow one stage is paid for each request; switched on, all stages up to where the rule
    stops. Rounds in which a stage failed are learned from, as the policy did, but do not count.
    """
    own = np.array([cascade.expected(arm) for arm in range(len(cascade.stage))])
    answer, n_arms = cascade.answer_arm, len(own)
    chunks, n = deque[Chunk](), 0
    for chunk in log.chunks():
        chunks.append(chunk)
        n += int((chunk.rounds.answered == n_arms).sum())
        while sum(one.n for one in chunks) - chunks[0].n >= MAX_ROUNDS:
            chunks.popleft()
    if n < MIN_ROUNDS:
        return Report(cascade.name, n, float(own[answer]))
    fit = cross_fit(spec, policy, _joined(chunks))
    complete = [chunk.codes[chunk.rounds.answered == n_arms] for chunk in chunks]
    codes = np.concatenate(complete)
    differs = codes != codes[:, [answer]]
    saving, changed = intervals(own, answer, differs, fit)
    changes, done = Counter[tuple[Any, Any]](), 0
    for chunk, some in zip(chunks, complete, strict=True):
        stops = fit.stops[0, done : done + len(some)]
        done += len(some)
        pairs = np.column_stack([some[:, answer], some[np.arange(len(some)), stops]])
        for now, then in pairs[pairs[:, 0] != pairs[:, 1]].tolist():
            changes[chunk.answer(now), chunk.answer(then)] += 1
    return Report(
        cascade.name,
        n,
        float(own[answer]),
        saving,
        changed,
        {one.name: float((fit.stops == arm).mean()) for arm, one in enumerate(cascade.stage)},
        [(*answers, count) for answers, count in changes.most_common(10)],
    )


def _joined(chunks: Sequence[Chunk]) -> RecordedRounds:
    """Return the rounds of chunks as one record."""
    parts = [chunk.rounds for chunk in chunks]
    right = [one.right for one in parts if one.right is not None]
    labelled = [one.labelled for one in parts if one.labelled is not None]
    return RecordedRounds(
        contexts=np.concatenate([one.contexts for one in parts]),
        differ=np.concatenate([one.differ for one in parts]),
        answered=np.concatenate([one.answered for one in parts]),
        failed=np.concatenate([one.failed for one in parts]),
        right=np.concatenate(right) if right else None,
        labelled=np.concatenate(labelled) if labelled else None,
    )


async def report(config: Config, out: Path) -> list[Report]:
    """Export the rounds of every cascade to a folder, and estimate; also write the estimates."""
    found: list[Report] = []
    out.mkdir(parents=True, exist_ok=True)
    where = config.settings.store
    if "://" not in where and not Path(where).exists():
        raise InvalidParameterError(
            f"there is no {where} yet: start the proxy first, stopwise proxy {config.file}"
        )
    for name, cascade in config.cascades.items():
        file, now = out / f"{name}-rounds.jsonl", cascade.expected(cascade.answer_arm)
        async with open_existing_store(where) as store:
            state = await recover_state(store, follows=[name])
            if name not in state.cascades:  # it was not served yet
                found.append(Report(name, 0, now))
                continue
            exported = await export_rounds(
                store, file, name, "plain", no_progress, complete_only=True
            )
        made = Report(name, 0, now)
        if exported.counts["complete"]:
            served = state.cascades[name]
            made = estimate(cascade, served.spec, cast(PairwisePolicy, served.policy), Log(file))
        found.append(replace(made, failed=exported.counts["failed"]))
    write_file(out / "report.json", msgspec.json.format(msgspec.json.encode(found)))
    return found
