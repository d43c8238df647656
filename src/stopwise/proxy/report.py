"""Shadow report: how much switching a cascade on would save, and how many answers would change.

The estimates hold for new requests, because each round is decided by policies trained without it
(`cross_fit`).
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
from stopwise.proxy.config import CascadeConfig, Config
from stopwise.proxy.cross_fitting import FOLDS, CrossFit, cross_fit
from stopwise.records import RecordedRounds
from stopwise.service.domain.messages import CascadeSpec
from stopwise.service.persistence.recovery import recover_state
from stopwise.service.persistence.stores.opening import open_existing_store
from stopwise.service.tools.export import export_rounds

# In simulations, intervals have the stated coverage from 100 rounds on (benchmarks/intervals.py).
# With fewer, a policy trained on four fifths of the rounds differs too much from the final one.
MIN_ROUNDS = 100
MAX_ROUNDS = 100_000  # the newest, to bound the time and memory of a report
# Weight of the variance between policies in the saving (heuristic, chosen by simulation): with
# weight 1 its intervals are too wide, because unlike changed answers, the savings in a fold do not
# depend on which stages disagreed there.
SAVING_REFIT = 0.5


class Report(msgspec.Struct, frozen=True):
    """Estimated effect of switching a cascade on, for the same kind of requests."""

    cascade: str
    rounds: int
    now: float  # current cost per request: one call to the stage that answers in shadow mode
    saving: Interval | None = None  # per request, in the currency of the prices
    changed: Interval | None = None  # share of answers
    stops: dict[str, float] = {}  # by stage: share of requests that would stop there
    changes: Sequence[tuple[Any, Any, int]] = ()  # most frequent (old answer, new answer, count)
    failed: int = 0  # rounds in which a stage failed, excluded from the estimates

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        lines = [f"{self.cascade}: {self.rounds} rounds in shadow mode."]
        if self.failed:
            lines.append(
                f"  Excluded: {self.failed} more in which a stage failed (see the proxy's log)."
            )
        if self.saving is None or self.changed is None:
            lines.append(f"  Estimates need {MIN_ROUNDS} rounds.")
            return lines
        share = self.saving / self.now if self.now else Interval(0.0, 0.0, 0.0)
        stops = ", ".join(f"{name} {_percent(part)}" for name, part in self.stops.items())
        lines += [
            f"  Switching on would save {self.saving.value:.4g} of {self.now:.4g} per request:",
            f"  {_percent(share.value)} {_interval(share, 0)}.",
            f"  It would change {_percent(self.changed.value, 1)} of the answers",
            f"  {_interval(self.changed, 1)}.",
            f"  Requests would end at: {stops}.",
        ]
        lines += [f"  {count} × {new!r} instead of {old!r}" for old, new, count in self.changes]
        return lines


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _interval(share: Interval, digits: int) -> str:
    return f"(90 % interval: {_percent(share.low, digits)} to {_percent(share.high, digits)})"


def changed_share(changed: Floats, policy_variance: float) -> Interval:
    """Return the share of changed answers with a Wilson interval, widened by the policy variance.

    ``changed`` (n,) contains one value in [0, 1] per round. ``policy_variance`` is s², the variance
    of the share between policies. The policy in use counts as one more draw, so the difference
    between its share and the mean share of m policies has variance (1 + 1/m)·s².
    """
    half_width = Z90 * math.sqrt((1 + 1 / FOLDS) * policy_variance)
    return widened_wilson(float(changed.mean()), len(changed), half_width, Z90)


def mean_saving(
    savings: Floats, policy_variance: float, minimum: float, maximum: float
) -> Interval:
    """Return the mean saving per request with its interval, between ``minimum`` and ``maximum``.

    ``savings`` (n,) contains the saving in each round. ``policy_variance`` is s², the variance of
    the mean saving between policies; `SAVING_REFIT` is its weight. The variance between rounds is
    computed with two extra rounds, one at ``minimum`` and one at ``maximum``, so that identical
    rounds do not give a zero-width interval.
    """
    mean_variance = float(np.append(savings, [minimum, maximum]).var(ddof=1)) / len(savings)
    error = math.sqrt(mean_variance + SAVING_REFIT * (1 + 1 / FOLDS) * policy_variance)
    mean = float(np.clip(savings.mean(), minimum, maximum))  # may be outside by rounding
    return normal_interval(mean, error, Z90).clipped(minimum, maximum)


def intervals(
    costs: Floats, answer: int, differs: Bools, fit: CrossFit
) -> tuple[Interval, Interval]:
    """Return the saving per request and the share of changed answers, with 90 % intervals.

    ``costs`` (K,) contains the cost of each stage; ``answer`` is the stage that answers in shadow
    mode; ``differs`` (n, K) is whether each stage's answer differs from the answer of that stage.
    """
    saved, rows = costs[answer] - np.cumsum(costs), np.arange(len(differs))
    saved_by_policy = saved[fit.by_policy].mean(axis=2)
    savings = saved[fit.stops].mean(axis=0)
    variance = _policy_variance(saved_by_policy)
    saving = mean_saving(savings, variance, float(saved.min()), float(saved.max()))
    changed_by_policy = differs[rows, fit.by_policy].mean(axis=2)
    changed = differs[rows, fit.stops].mean(axis=0)
    return saving, changed_share(changed, _policy_variance(changed_by_policy))


def _policy_variance(by_policy: Floats) -> float:
    """Return the variance between the policies within a repeat, averaged over the repeats."""
    return float(by_policy.var(axis=1, ddof=1).mean())


def estimate(cascade: CascadeConfig, spec: CascadeSpec, policy: PairwisePolicy, log: Log) -> Report:
    """Estimate the effect of switching a cascade on from its log of shadow rounds.

    In shadow mode, a request pays for one stage; once the cascade is on, a request pays for every
    stage up to the stop. Policies also learn from rounds in which a stage failed, but the estimates
    exclude these rounds. Fewer than `MIN_ROUNDS` complete rounds give no estimates.
    """
    costs = np.array([cascade.expected(arm) for arm in range(len(cascade.stage))])
    answer, n_arms = cascade.answer_arm, len(costs)
    now = float(costs[answer])
    chunks, n = deque[Chunk](), 0
    for chunk in log.chunks():
        chunks.append(chunk)
        n += int((chunk.rounds.answered == n_arms).sum())
        while sum(chunk.n for chunk in chunks) - chunks[0].n >= MAX_ROUNDS:
            chunks.popleft()
    if n < MIN_ROUNDS:
        return Report(cascade.name, n, now)
    fit = cross_fit(spec, policy, _concatenated(chunks))
    codes_by_chunk = [chunk.codes[chunk.rounds.answered == n_arms] for chunk in chunks]
    codes = np.concatenate(codes_by_chunk)
    saving, changed = intervals(costs, answer, codes != codes[:, [answer]], fit)
    changes, start = Counter[tuple[Any, Any]](), 0
    for chunk, chunk_codes in zip(chunks, codes_by_chunk, strict=True):
        rows = np.arange(len(chunk_codes))
        chosen = chunk_codes[rows, fit.stops[0, start + rows]]
        start += len(rows)
        pairs = np.column_stack([chunk_codes[:, answer], chosen])
        for old, new in pairs[pairs[:, 0] != pairs[:, 1]].tolist():
            changes[chunk.answer(old), chunk.answer(new)] += 1
    stops = {
        stage.name: float((fit.stops == arm).mean()) for arm, stage in enumerate(cascade.stage)
    }
    most_frequent = [(*answers, count) for answers, count in changes.most_common(10)]
    return Report(cascade.name, n, now, saving, changed, stops, most_frequent)


def _concatenated(chunks: Sequence[Chunk]) -> RecordedRounds:
    """Concatenate the rounds of several chunks."""
    records = [chunk.rounds for chunk in chunks]
    right = [record.right for record in records if record.right is not None]
    labelled = [record.labelled for record in records if record.labelled is not None]
    return RecordedRounds(
        contexts=np.concatenate([record.contexts for record in records]),
        differ=np.concatenate([record.differ for record in records]),
        answered=np.concatenate([record.answered for record in records]),
        failed=np.concatenate([record.failed for record in records]),
        right=np.concatenate(right) if right else None,
        labelled=np.concatenate(labelled) if labelled else None,
    )


async def make_reports(config: Config, out: Path) -> list[Report]:
    """Export every cascade's rounds to a folder, write the reports there, and return them."""
    reports: list[Report] = []
    out.mkdir(parents=True, exist_ok=True)
    url = config.settings.store
    if "://" not in url and not Path(url).exists():
        raise InvalidParameterError(
            f"the store {url} does not exist; start the proxy first: stopwise proxy {config.file}"
        )
    for name, cascade in config.cascades.items():
        file = out / f"{name}-rounds.jsonl"
        report = Report(name, 0, cascade.expected(cascade.answer_arm))
        async with open_existing_store(url) as store:
            state = await recover_state(store, follows=[name])
            if name not in state.cascades:  # the proxy has not yet served this cascade
                reports.append(report)
                continue
            exported = await export_rounds(
                store, file, name, "plain", no_progress, complete_only=True
            )
        if exported.counts["complete"]:
            served = state.cascades[name]
            report = estimate(cascade, served.spec, cast(PairwisePolicy, served.policy), Log(file))
        reports.append(replace(report, failed=exported.counts["failed"]))
    write_file(out / "report.json", msgspec.json.format(msgspec.json.encode(reports)))
    return reports
