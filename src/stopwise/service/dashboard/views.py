"""Plain values that the pages show, read from the state; reading changes nothing."""

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

RECENT = 12  # rounds on the page of a cascade
MOST_EVIDENCE = 15  # comparisons of one round
SILENT = 20  # rounds after which missing outputs are reported as a problem
BARS = 60  # periods in a chart
FEW_ARMS = 5  # up to here, arms where nothing stopped are in the legends too


class Period(msgspec.Struct, frozen=True):
    """How many rounds stopped at each arm in a period."""

    begin: float
    end: float
    stops: list[int]
    changes: int = 0  # of disagreement that were noticed

    @property
    def rounds(self) -> int:
        """Rounds that stopped."""
        return sum(self.stops)


class Proxied(msgspec.Struct, frozen=True):
    """A cascade behind a proxy.

    Attributes
    ----------
    in_shadow : bool
        Whether one stage answers every request.
    answered_by : str
        That stage.
    revealed : tuple of str
        Names of the numbers that an answer adds to the context.
    least_rounds : int
        Rounds in shadow from which on it is estimated what switching on would save.
    report : callable
        Returns the newest estimate; None before the first.
    """

    in_shadow: bool
    answered_by: str
    revealed: tuple[str, ...]
    least_rounds: int
    report: Callable[[], Any]


class Pair(msgspec.Struct, frozen=True):
    """Two arms, the cost of going on from the first to the second, and how often they disagreed."""

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
    """Return the mean cost of rounds by where they stopped; None if there is none."""
    total = sum(n * cost for n, cost in zip(stops, cumulative, strict=True))
    return total / sum(stops) if any(stops) else None


def summary(cascade: ServedCascade, proxied: Proxied | None = None) -> Values:
    """Return a cascade as a row of the overview."""
    ledger, arms, counts = cascade.ledger, cascade.arms.names, cascade.counts
    # A round that stopped because a stage failed saved nothing: it is counted apart.
    stops, ended_early = _decided(counts.stops_total, counts.early_total), sum(counts.early_total)
    cumulative = tuple(map(float, cascade.arms.cumulative))
    cost, deepest, decided = mean_cost(stops, cumulative), cumulative[-1], sum(stops)
    exploring = bool(exploration(cascade))
    saving = None if cost is None or not deepest else round(1 - cost / deepest, 9)
    every = enumerate(n / (decided or 1) for n in stops)
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
        "shares": [(arm, share) for arm, share in every if share or len(arms) <= FEW_ARMS],
        "cumulative": cumulative,
        "cost": cost,
        "deepest": deepest,
        "saving": 0.0 if exploring and saving else saving,
        "ended_early": ended_early,
    }


def _decided(stops: Sequence[int], early: Sequence[int]) -> tuple[int, ...]:
    """Return the rounds that stopped at each arm, without those in which a stage failed."""
    return tuple(n - failed for n, failed in zip(stops, early, strict=True))


def detail(cascade: ServedCascade, proxied: Proxied | None = None) -> Values:
    """Return the page of a cascade."""
    arms, counts = cascade.arms, cascade.counts
    seen = zip(arms.pairs(), counts.seen_total, counts.differed_total, strict=True)
    pairs = [Pair(i, j, float(arms.gaps[i, j]), n, differed) for (i, j), n, differed in seen]
    names, size = context_names(cascade.spec), context_size(cascade.spec)
    context = dict.fromkeys(names, 0.5) if names else [0.5] * size
    reached = cascade.recent[-1].stop + 1 if cascade.recent else arms.n_arms
    report: Values = {"outputs": dict.fromkeys(arms.names[:reached], "OUTPUT")}
    if cascade.staged:  # stages reveal the rest of the context
        report["outputs"], report["revealed"] = {arms.names[0]: "OUTPUT"}, []
    return {
        **summary(cascade, proxied),
        "costs": tuple(map(float, arms.costs * arms.tradeoff)),
        "periods": periods(counts, BARS),
        "pairs": pairs,
        "recent": [recent_round(one) for one in reversed(list(cascade.recent)[-RECENT:])],
        "facts": facts(cascade),
        "context": context,
        "report": report,
        "wanted": len(cascade.ledger.answerable_labels()),
    }


def context_columns(cascade: ServedCascade, proxied: Proxied | None = None) -> list[str]:
    """Return the names of all numbers of a context, in order: those at first, then the revealed."""
    first = context_size(cascade.spec)
    columns = list(context_names(cascade.spec) or (f"x{k}" for k in range(first)))
    for arm, count in enumerate(cascade.policy.reveals or ()):
        named = proxied.revealed if proxied is not None and len(proxied.revealed) == count else None
        names = named or [f"revealed {k + 1}" for k in range(count)]
        columns += [f"{cascade.arms.names[arm]}: {name}" for name in names]
    return columns


def labels_page(name: str, found: WantedLabels, names: Sequence[str]) -> Values:
    """Return the page on which a person gives labels: each case, and the answers to choose from."""
    cases: list[Values] = []
    for one in found.rounds:
        said: dict[tuple[str, str], list[str]] = {}  # an answer, as JSON and as text: who gave it
        for arm, output in one.outputs.items():
            form = msgspec.json.encode(output).decode()
            said.setdefault((form, output if isinstance(output, str) else form), []).append(arm)
        numbers = list(zip(names, one.context, strict=False))  # a round may end before the last arm
        cases.append({"id": one.id, "time": one.time, "numbers": numbers, "said": said})
    return {"name": name, "wanted": found.wanted, "cases": cases}


def unmatched(cascade: ServedCascade) -> int:
    """Return how many of the latest labels matched no arm, if they are many, else 0."""
    count = cascade.counts.unmatched_labels
    return count if count >= UNMATCHED_LIMIT else 0


def recent_round(recent: RecentDecision) -> Values:
    """Return a recent round; of many comparisons, only those that decided."""
    every = recent.evidence()
    closest = sorted(every, key=lambda e: (e.first != recent.stop, e.gap - e.repair))
    evidence = sorted(closest[:MOST_EVIDENCE], key=lambda e: (e.first, e.second))
    found = {name: getattr(recent, name) for name in ("id", "time", "stop", "cost")}
    left_out = len(every) - len(evidence)
    return {**found, "reason": recent.explanation(), "evidence": evidence, "left_out": left_out}


def health(cascade: ServedCascade) -> tuple[str, str, str]:
    """Return the health of a cascade: a class of the style sheet, a word and a sentence."""
    policy, rounds, learned = cascade.policy, len(cascade.ledger), cascade.ledger.learned
    if isinstance(policy, FixedDepth | RandomDepth):
        return "quiet", "fixed rule", f"The policy {policy.name} does not learn."
    if cascade.status != "active":
        return "quiet", "inactive", "No new rounds are opened; outputs may still be reported."
    if not rounds:
        return "quiet", "new", "No round has been opened yet."
    if not learned and rounds >= SILENT:
        return "warn", "no outputs", f"{rounds:,} rounds without outputs: nothing can be learned."
    if rounds >= 5 * SILENT and 2 * learned < rounds:
        return "warn", "few outputs", f"Only {learned:,} of {rounds:,} rounds have outputs."
    if left := exploration(cascade):
        return "quiet", "exploring", f"Every round goes to the last arm: {left}."
    return "good", "learning", "Stops are decided from the outputs reported so far."


def shadow_health(cascade: ServedCascade, proxied: Proxied | None) -> tuple[str, str, str]:
    """Return the health of a cascade in shadow mode."""
    level, word, sentence = health(cascade)
    answered_by = "" if proxied is None else short(proxied.answered_by)
    shadow = f"Shadow mode: {answered_by} answers every request."
    if word in {"exploring", "learning"}:  # what these say is about a cascade that is switched on
        sentence = "Other stages run in the background, to learn what switching on would save."
    return level, word, f"{shadow} {sentence}"


def exploration(cascade: ServedCascade) -> str:
    """Return what forced exploration still waits for; "" once it is over."""
    policy = cascade.policy
    if not isinstance(policy, PairwisePolicy):
        return ""
    if isinstance(forced := policy.options.forced_rounds, int):
        left = forced - policy.rounds
        return f"{plural(left, 'more round')} to learn from" if left > 0 else ""
    # "auto" ends by itself: from then on, decisions have evidence
    stop = cascade.recent[-1].stop if cascade.recent else None
    over = stop not in {None, cascade.arms.n_arms - 1}
    over = over or any(one.evidence() for one in reversed(cascade.recent))
    return "" if over else "until every pair has been seen in every direction"


def facts(cascade: ServedCascade) -> list[tuple[str, str, str]]:
    """Return what is known about the estimator: names, values and their meaning."""
    policy, ledger = cascade.policy, cascade.ledger
    expired = len(ledger) - ledger.learned - len(ledger.open)
    features = policy.features
    seen_features = "no context" if features is None else plural(features.n_features, "feature")
    counts = f"of {len(ledger):,}; {len(ledger.open):,} are open, {expired:,} expired"
    found = [
        ("Policy", policy.name, f"with {seen_features}"),
        ("Learned from", plural(ledger.learned, "round"), counts),
        ("Labelled", plural(len(ledger.labels), "round"), _labels_asked(cascade)),
    ]
    if features is not None:
        seen, arms = min(zip(cascade.counts.seen_total, cascade.arms.pairs(), strict=True))
        pair = " → ".join(short(cascade.arms.names[arm]) for arm in arms)
        found.append(("Least seen pair", pair, f"in {plural(seen, 'round')}"))
    for _, (row, arms, before, after, _) in cascade.counts.changes[-1:]:
        pair = " → ".join(short(cascade.arms.names[arm]) for arm in arms)
        words = f"{pair}: {percent(before)} to {percent(after)}, at about round {row:,}"
        found.append(("Disagreement", plural(cascade.counts.changes_total, "change"), words))
    text = "that this machine would have decided differently from the one that did"
    return [*found, ("Divergence", plural(cascade.divergences, "round"), text)]


def _labels_asked(cascade: ServedCascade) -> str:
    """Return how many labels were asked for, and how many of them are missing."""
    asked, missing = cascade.label_counts.asked, cascade.label_counts.missing
    words = f"{asked:,} were asked for, {len(cascade.ledger.answerable_labels()):,} are wanted now"
    return f"{words}, {missing:,} count as missing (as the worst)" if missing else words


def periods(counts: Counts, most: int) -> list[Period]:
    """Return the stops of all rounds in at most ``most`` periods of equal length."""
    if not counts.stops:
        return []
    each = -(-len(counts.stops) // most)
    groups = range(0, len(counts.stops), each)
    decided = np.array(counts.stops) - np.array(counts.early)
    sums = np.add.reduceat(decided, groups, axis=0).tolist()
    times = [time for time, _ in counts.changes]
    edges = [counts.start + k * counts.width for k in (*groups, groups[-1] + each)]
    changes = np.histogram(np.clip(times, edges[0], edges[-1]), edges)[0].tolist()
    return list(map(Period, edges, edges[1:], sums, changes))
