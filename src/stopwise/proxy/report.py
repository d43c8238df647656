"""What switching a cascade on would save, and what would change: from its rounds in shadow."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stopwise.checks import Floats
from stopwise.errors import InvalidParameterError
from stopwise.logs.log import Log
from stopwise.policies.contextual import Contextual
from stopwise.policies.playing import rule_stops
from stopwise.policies.staged import recorded_rows
from stopwise.proxy.config import Cascade, Config
from stopwise.records import Rounds
from stopwise.reporting.intervals import Z90, Estimate, around, wilson
from stopwise.service.recovery import recover_state
from stopwise.service.tools import reading
from stopwise.service.tools.exporting import export_rounds

LEAST = 30  # rounds


class Report(msgspec.Struct, frozen=True):
    """What switching on would mean: the policy as it is now, on the requests seen in shadow."""

    cascade: str
    rounds: int
    now: float  # what a request costs: the stage that answers
    saving: Estimate | None = None  # for each request, in the money of the prices
    changed: Estimate | None = None  # share of the answers
    stops: dict[str, float] = {}  # share of the requests that would end at each stage
    changes: Sequence[tuple[Any, Any, int]] = ()  # now, then, how often; the most frequent
    failed: int = 0  # rounds in which a stage failed, which do not count

    def lines(self) -> list[str]:
        """Return it in words."""
        failed = f"  In {self.failed} more a stage failed; the proxy's log says why."
        if self.saving is None or self.changed is None:
            words = f"{self.rounds} rounds in shadow; an estimate needs {LEAST}."
            return [f"{self.cascade}: {words}", *([failed] if self.failed else [])]
        share = [one / self.now if self.now else 0.0 for one in self.saving]
        depths = ", ".join(f"{name} {part:.0%}" for name, part in self.stops.items())
        return [
            f"{self.cascade}: {self.rounds} rounds in shadow.",
            *([failed] if self.failed else []),
            f"  Switching on would save {self.saving.value:.4g} of {self.now:.4g} a request:",
            f"  {share[0]:.0%} (90 % interval: {share[1]:.0%} to {share[2]:.0%}).",
            f"  It would change {self.changed.value:.1%} of the answers",
            f"  (90 % interval: {self.changed.low:.1%} to {self.changed.high:.1%}).",
            f"  Requests would end at: {depths}.",
            *(f"  {n} times {then!r} instead of {now!r}" for now, then, n in self.changes),
        ]


def mean_saving(saved: Floats, stops: NDArray[np.int64]) -> Estimate:
    """Return what a request saves on average; ``saved`` is what it saves if it ends at each stage.

    The spread is that with one more request at each end, lest requests that all end alike seem
    certain.
    """
    each = saved[stops]
    spread = float(np.append(each, saved[[0, -1]]).std(ddof=1))
    value, low, high = around(float(each.mean()), spread / math.sqrt(len(each)), Z90)
    return Estimate(value, max(low, float(saved.min())), min(high, float(saved.max())))


def estimate(cascade: Cascade, policy: Contextual, log: Log) -> Report:
    """Estimate what switching on would mean from a log of rounds.

    In shadow one stage is paid for each request; switched on, all stages up to where the rule
    stops. Rounds in which a stage failed do not count.
    """
    own = np.array([cascade.expected(arm) for arm in range(len(cascade.stage))])
    found, answer = list[tuple[int, Any, Any]](), cascade.answer_arm
    for chunk in log.chunks():
        complete = chunk.rounds.reach == len(own) - 1
        contexts, differ = chunk.rounds.contexts[complete], chunk.rounds.differ[complete]
        rounds = Rounds(contexts, differ, chunk.rounds.reach[complete], ~complete[complete])
        rows = recorded_rows(policy.features, rounds)
        stops = cast(list[int], rule_stops(policy, rows).tolist())
        for codes, stop in zip(chunk.codes[complete].tolist(), stops, strict=True):
            found.append((stop, *(chunk.meaning(codes[arm]) for arm in (answer, stop))))
    stops = np.array([one[0] for one in found], dtype=np.int64)
    changes = Counter(one[1:] for one in found if one[1] != one[2])
    if len(stops) < LEAST:
        return Report(cascade.name, len(stops), float(own[answer]))
    return Report(
        cascade.name,
        len(stops),
        float(own[answer]),
        mean_saving(own[answer] - np.cumsum(own), stops),
        wilson(changes.total(), len(stops), Z90),
        {one.name: float((stops == arm).mean()) for arm, one in enumerate(cascade.stage)},
        [(*answers, count) for answers, count in changes.most_common(10)],
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
        async with reading.existing(where) as store:
            state = await recover_state(store)
            if name not in state.cascades:  # it was not served yet
                found.append(Report(name, 0, now))
                continue
            exported = await export_rounds(
                store, file, name, "plain", reading.no_progress, complete_only=True
            )
        made = Report(name, 0, now)
        if exported.counts["complete"]:
            policy = cast(Contextual, state.cascades[name].policy)
            made = estimate(cascade, policy, Log(file))
        found.append(replace(made, failed=exported.counts["failed"]))
    (out / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    return found
