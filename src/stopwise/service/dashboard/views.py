"""Values for the page templates, read from the state without side effects."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.intervals import Interval, wilson
from stopwise.policies.baselines import FixedDepth, RandomDepth
from stopwise.policies.pairwise import PairwisePolicy
from stopwise.reporting.wording import percent, plural, short
from stopwise.service.domain.cascade import RecentDecision, ServedCascade
from stopwise.service.domain.counts import Counts
from stopwise.service.domain.ledger import UNMATCHED_LIMIT
from stopwise.service.domain.messages import WantedLabels
from stopwise.service.domain.spec import context_names, context_size

Values: TypeAlias = dict[str, Any]

RECENT = 12  # recent rounds on the page of a cascade
MAX_EVIDENCE = 15  # comparisons shown for a round
SILENT = 20  # rounds after which missing outputs are reported as a problem
BARS = 60  # periods in a chart
FEW_ARMS = 5  # with more arms, legends omit those at which no round stopped


class Period(msgspec.Struct, frozen=True):
    """Counts of rounds in a period, by the arm at which they stopped."""

    begin: float
    end: float
    stops: list[int]
    changes: int = 0  # of disagreement

    @property
    def rounds(self) -> int:
        """The number of rounds that stopped."""
        return sum(self.stops)


class Proxied(msgspec.Struct, frozen=True):
    """A cascade behind a proxy.

    Attributes
    ----------
    in_shadow : bool
        Whether the cascade is in shadow mode.
    answered_by : str
        The stage that answers every request in shadow mode.
    revealed : tuple of str
        Names of the numbers that an answer adds to the context.
    least_rounds : int
        How many rounds in shadow mode an estimate of the saving requires.
    report : callable
        Returns the latest estimate of the saving; None before the first estimate.
    """

    in_shadow: bool
    answered_by: str
    revealed: tuple[str, ...]
    least_rounds: int
    report: Callable[[], Any]


class Pair(msgspec.Struct, frozen=True):
    """Two arms, the extra cost of the second, and how often they disagreed."""

    first: int
    second: int
    gap: float
    seen: int
    differed: int

    @property
    def share(self) -> Interval:
        """The share of disagreements, with its 95 % interval."""
        return wilson(self.differed, self.seen)


def mean_cost(stops: Sequence[int], cumulative: Sequence[float]) -> float | None:
    """Return the mean cost of a round, given how many stopped at each arm; None without rounds."""
    total = sum(n * cost for n, cost in zip(stops, cumulative, strict=True))
    return total / sum(stops) if any(stops) else None


def summary(cascade: ServedCascade, proxied: Proxied | None = None) -> Values:
    """Return the values for a cascade's row in the overview."""
    ledger = cascade.ledger
    arms = cascade.arms.names
    counts = cascade.counts
    # Rounds ended early by a failed stage are not savings, so they are counted separately.
    stops = _decided(counts.stops_total, counts.early_total)
    ended_early = sum(counts.early_total)
    cumulative = tuple(map(float, cascade.arms.cumulative))
    cost = mean_cost(stops, cumulative)
    deepest = cumulative[-1]
    decided = sum(stops)
    exploring = bool(exploration(cascade))
    saving = None if cost is None or not deepest else round(1 - cost / deepest, 9)
    shares = [(arm, n / (decided or 1)) for arm, n in enumerate(stops)]
    in_shadow = proxied is not None and proxied.in_shadow
    return {
        "proxied": proxied,
        "in_shadow": in_shadow,
        "estimate": proxied.report() if proxied is not None and in_shadow else None,
        "name": cascade.spec.name,
        "active": cascade.status == "active",
        "created": cascade.created,
        "last": cascade.recent[-1].time if cascade.recent else None,
        "health": shadow_health(cascade, proxied) if in_shadow else health(cascade),
        "exploring": exploring,
        "arms": arms,
        "rounds": len(ledger),
        "open": len(ledger.open),
        "learned": ledger.learned,
        "stopped": decided + ended_early,
        "stops": stops,
        "shares": [(arm, share) for arm, share in shares if share or len(arms) <= FEW_ARMS],
        "cumulative": cumulative,
        "cost": cost,
        "deepest": deepest,
        "saving": 0.0 if exploring and saving else saving,
        "ended_early": ended_early,
    }


def _decided(stops: Sequence[int], early: Sequence[int]) -> tuple[int, ...]:
    """Return how many rounds the policy stopped at each arm, without failed rounds."""
    return tuple(n - failed for n, failed in zip(stops, early, strict=True))


def detail(cascade: ServedCascade, proxied: Proxied | None = None) -> Values:
    """Return the values for the page of a cascade."""
    arms, counts = cascade.arms, cascade.counts
    seen = zip(arms.pairs(), counts.seen_total, counts.differed_total, strict=True)
    pairs = [Pair(i, j, float(arms.gaps[i, j]), n, differed) for (i, j), n, differed in seen]
    names, size = context_names(cascade.spec), context_size(cascade.spec)
    context = dict.fromkeys(names, 0.5) if names else [0.5] * size
    reached = cascade.recent[-1].stop + 1 if cascade.recent else arms.n_arms
    report: Values = {"outputs": dict.fromkeys(arms.names[:reached], "OUTPUT")}
    if cascade.staged:  # stages reveal part of the context
        report["outputs"], report["revealed"] = {arms.names[0]: "OUTPUT"}, []
    return {
        **summary(cascade, proxied),
        "costs": tuple(map(float, arms.costs * arms.tradeoff)),
        "periods": periods(counts, BARS),
        "pairs": pairs,
        "recent": [recent_round(recent) for recent in reversed(list(cascade.recent)[-RECENT:])],
        "facts": facts(cascade),
        "context": context,
        "report": report,
        "wanted": len(cascade.ledger.answerable_labels()),
    }


def context_columns(cascade: ServedCascade, proxied: Proxied | None = None) -> list[str]:
    """Return the names of all numbers of a context, in order: initial ones, then revealed ones."""
    first = context_size(cascade.spec)
    columns = list(context_names(cascade.spec) or (f"x{k}" for k in range(first)))
    for arm, count in enumerate(cascade.policy.reveals or ()):
        names: Sequence[str] = [f"revealed {k + 1}" for k in range(count)]
        if proxied is not None and len(proxied.revealed) == count:
            names = proxied.revealed
        columns += [f"{cascade.arms.names[arm]}: {name}" for name in names]
    return columns


def labels_page(name: str, requests: WantedLabels, names: Sequence[str]) -> Values:
    """Return the values for the label page: each round with the answers to choose from."""
    cases: list[Values] = []
    for request in requests.rounds:
        answers: dict[tuple[str, str], list[str]] = {}  # (JSON, text) → arms with this answer
        for arm, output in request.outputs.items():
            encoded = msgspec.json.encode(output).decode()
            text = output if isinstance(output, str) else encoded
            answers.setdefault((encoded, text), []).append(arm)
        # A round that ended before the last arm has fewer numbers than names.
        numbers = list(zip(names, request.context, strict=False))
        cases.append(
            {"id": request.id, "time": request.time, "numbers": numbers, "answers": answers}
        )
    return {"name": name, "wanted": requests.wanted, "cases": cases}


def unmatched(cascade: ServedCascade) -> int:
    """Return how many of the latest labels, in a row, match no arm; 0 below `UNMATCHED_LIMIT`."""
    count = cascade.counts.unmatched_labels
    return count if count >= UNMATCHED_LIMIT else 0


def recent_round(recent: RecentDecision) -> Values:
    """Return the values for a recent round, with its closest comparisons (`MAX_EVIDENCE`)."""
    comparisons = recent.evidence()
    closest = sorted(comparisons, key=lambda e: (e.first != recent.stop, e.gap - e.repair))
    evidence = sorted(closest[:MAX_EVIDENCE], key=lambda e: (e.first, e.second))
    return {
        "id": recent.id,
        "time": recent.time,
        "stop": recent.stop,
        "cost": recent.cost,
        "reason": recent.explanation(),
        "evidence": evidence,
        "omitted": len(comparisons) - len(evidence),
    }


def health(cascade: ServedCascade) -> tuple[str, str, str]:
    """Return the health of a cascade as a CSS class, a word and a sentence."""
    policy, rounds, learned = cascade.policy, len(cascade.ledger), cascade.ledger.learned
    if isinstance(policy, FixedDepth | RandomDepth):
        return "quiet", "fixed rule", f"The policy {policy.name} does not learn."
    if cascade.status != "active":
        return "quiet", "inactive", "Retired: accepts outputs of open rounds, but no new rounds."
    if not rounds:
        return "quiet", "new", "No round has been opened yet."
    if not learned and rounds >= SILENT:
        return "warn", "no outputs", f"{rounds:,} rounds without outputs; the policy cannot learn."
    if rounds >= 5 * SILENT and 2 * learned < rounds:
        return "warn", "few outputs", f"Only {learned:,} of {rounds:,} rounds have outputs."
    if left := exploration(cascade):
        return "quiet", "exploring", f"Every round runs all arms {left}."
    return "good", "learning", "The policy decides from the outputs reported so far."


def shadow_health(cascade: ServedCascade, proxied: Proxied | None) -> tuple[str, str, str]:
    """Return the health of a cascade in shadow mode."""
    level, word, sentence = health(cascade)
    answered_by = "" if proxied is None else short(proxied.answered_by)
    shadow = f"Shadow mode: {answered_by} answers every request."
    if word in {"exploring", "learning"}:  # their sentences describe the mode "on"
        sentence = "Other stages run in the background to estimate what switching on would save."
    return level, word, f"{shadow} {sentence}"


def exploration(cascade: ServedCascade) -> str:
    """Return until when exploration is forced, as a phrase; "" if forced exploration has ended."""
    policy = cascade.policy
    if not isinstance(policy, PairwisePolicy):
        return ""
    if isinstance(forced := policy.options.forced_rounds, int):
        left = forced - policy.rounds
        if left <= 0:
            return ""
        return f"until the policy has learned from {plural(left, 'more round')}"
    # "auto" has ended when decisions have evidence.
    stop = cascade.recent[-1].stop if cascade.recent else None
    ended = stop not in {None, cascade.arms.n_arms - 1}
    if ended or any(recent.evidence() for recent in reversed(cascade.recent)):
        return ""
    return "until every pair of arms has been observed in every direction of its features"


def facts(cascade: ServedCascade) -> list[tuple[str, str, str]]:
    """Return facts about the estimator, each as a name, a value and an explanation."""
    policy, ledger = cascade.policy, cascade.ledger
    expired = len(ledger) - ledger.learned - len(ledger.open)
    features = policy.features
    seen_features = "no context" if features is None else plural(features.n_features, "feature")
    counts = f"of {len(ledger):,}; {len(ledger.open):,} open, {expired:,} expired"
    rows = [
        ("Policy", policy.name, f"with {seen_features}"),
        ("Learned", plural(ledger.learned, "round"), counts),
        ("Labelled", plural(len(ledger.labels), "round"), _labels_asked(cascade)),
    ]
    if features is not None:
        seen, arms = min(zip(cascade.counts.seen_total, cascade.arms.pairs(), strict=True))
        pair = " → ".join(short(cascade.arms.names[arm]) for arm in arms)
        rows.append(("Least-observed pair", pair, f"in {plural(seen, 'round')}"))
    for _, (row, arms, before, after, _) in cascade.counts.changes[-1:]:
        pair = " → ".join(short(cascade.arms.names[arm]) for arm in arms)
        text = f"{pair}: {percent(before)} to {percent(after)}, near round {row:,}"
        rows.append(("Disagreement", plural(cascade.counts.changes_total, "change"), text))
    divergence = "that this replica would have decided differently"
    rows.append(("Divergence", plural(cascade.divergences, "round"), divergence))
    return rows


def _labels_asked(cascade: ServedCascade) -> str:
    """Return a text with the numbers of requested, waiting and missing labels."""
    counts = cascade.label_counts
    waiting = len(cascade.ledger.answerable_labels())
    text = f"{counts.requested:,} requested, {waiting:,} of them waiting"
    return (
        f"{text}, {counts.missing:,} missing (the worst case is assumed)"
        if counts.missing
        else text
    )


def periods(counts: Counts, most: int) -> list[Period]:
    """Return the stops of all rounds in at most ``most`` periods of equal length."""
    if not counts.stops:
        return []
    length = -(-len(counts.stops) // most)
    groups = range(0, len(counts.stops), length)
    decided = np.array(counts.stops) - np.array(counts.early)
    sums = np.add.reduceat(decided, groups, axis=0).tolist()
    times = [time for time, _ in counts.changes]
    edges = [counts.start + k * counts.width for k in (*groups, groups[-1] + length)]
    changes = np.histogram(np.clip(times, edges[0], edges[-1]), edges)[0].tolist()
    return list(map(Period, edges, edges[1:], sums, changes))
