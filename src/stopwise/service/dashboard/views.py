"""Plain values that the pages show, read from the state; reading changes nothing."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from stopwise.logs.diagnosis.findings import Estimate
from stopwise.logs.diagnosis.intervals import wilson
from stopwise.logs.diagnosis.words import short
from stopwise.policies.contextual import Contextual
from stopwise.policies.noncontextual import PairCounts
from stopwise.service.learner import Learner, Recent
from stopwise.service.ledger import Tally
from stopwise.service.spec import context_names, context_size

Values: TypeAlias = dict[str, Any]

RECENT = 12  # rounds on the page of a cascade
MOST_EVIDENCE = 15  # comparisons of one round
SILENT = 20  # rounds after which missing outputs are reported as a problem
BARS, SMALL_BARS = 60, 24  # periods in a chart, and in the small ones
MOST_PAIRS = 10  # with more pairs, only those of neighbouring arms have charts
FEW_ARMS = 5  # up to here, arms where nothing stopped are in the legends too


class Period(msgspec.Struct, frozen=True):
    """Counts in a period: stops at each arm; rounds that ran both arms of a pair, and differed."""

    begin: float
    end: float
    stops: list[int]
    seen: list[int]
    differed: list[int]

    @property
    def rounds(self) -> int:
        """Rounds that stopped."""
        return sum(self.stops)


class Pair(msgspec.Struct, frozen=True):
    """Two arms, the cost of going on from the first to the second, and how often they differed."""

    number: int
    first: int
    second: int
    gap: float
    seen: int
    differed: int

    @property
    def share(self) -> Estimate:
        """The share of disagreements, with its 95 % interval."""
        return wilson(self.differed, self.seen)


def mean_cost(stops: Sequence[int], cumulative: Sequence[float]) -> float | None:
    """Return the mean cost of rounds by where they stopped; None if there is none."""
    total = sum(n * cost for n, cost in zip(stops, cumulative, strict=True))
    return total / sum(stops) if any(stops) else None


def summary(learner: Learner) -> Values:
    """Return a cascade as a row of the overview."""
    ledger, arms, stops = learner.ledger, learner.cascade.names, tuple(learner.tally.stops_total)
    cumulative = tuple(map(float, learner.cascade.cumulative))
    cost, deepest, stopped = mean_cost(stops, cumulative), cumulative[-1], sum(stops)
    # While exploring, a round that stopped before the last arm failed there: it saved nothing.
    exploring = bool(exploration(learner))
    saving = None if cost is None or not deepest else round(1 - cost / deepest, 9)
    every = enumerate(n / (stopped or 1) for n in stops)
    return {
        "name": learner.spec.name,
        "active": learner.status == "active",
        "created": learner.created,
        "last": learner.recent[-1].time if learner.recent else None,
        "health": health(learner),
        "exploring": exploring,
        "arms": arms,
        "rounds": len(ledger),
        "open": len(ledger.open),
        "learned": ledger.learned,
        "stopped": stopped,
        "stops": stops,
        "shares": [(arm, share) for arm, share in every if share or len(arms) <= FEW_ARMS],
        "cumulative": cumulative,
        "cost": cost,
        "deepest": deepest,
        "saving": 0.0 if exploring and saving else saving,
        "ended_early": stopped - stops[-1] if exploring else 0,
    }


def detail(learner: Learner) -> Values:
    """Return the page of a cascade."""
    cascade, tally = learner.cascade, learner.tally
    pairs = [
        Pair(k, i, j, float(cascade.gaps[i, j]), tally.seen_total[k], tally.differed_total[k])
        for k, (i, j) in enumerate(cascade.pairs())
    ]
    neighbours = [pair for pair in pairs if pair.second == pair.first + 1]
    arms, names, size = cascade.names, context_names(learner.spec), context_size(learner.spec)
    context = dict.fromkeys(names, 0.5) if names else [0.5] * size
    reached = learner.recent[-1].stop + 1 if learner.recent else len(arms)
    report: Values = {"outputs": dict.fromkeys(arms[:reached], "OUTPUT")}
    if learner.staged:  # stages reveal the rest of the context
        context, report["outputs"], report["revealed"] = [0.5], {arms[0]: "OUTPUT"}, []
    return {
        **summary(learner),
        "costs": tuple(map(float, cascade.costs * cascade.tradeoff)),
        "periods": periods(tally, BARS),
        "small_periods": periods(tally, SMALL_BARS),
        "pairs": pairs,
        "charted": pairs if len(pairs) <= MOST_PAIRS else neighbours,
        "recent": [recent_round(one) for one in reversed(list(learner.recent)[-RECENT:])],
        "facts": facts(learner),
        "context": context,
        "report": report,
    }


def recent_round(recent: Recent) -> Values:
    """Return a recent round; of many comparisons, only those that decided."""
    every = recent.evidence()
    closest = sorted(every, key=lambda e: (e.first != recent.stop, e.gap - e.repair))
    evidence = sorted(closest[:MOST_EVIDENCE], key=lambda e: (e.first, e.second))
    return {
        "id": recent.id,
        "time": recent.time,
        "stop": recent.stop,
        "cost": recent.cost,
        "reason": recent.words(),
        "evidence": evidence,
        "left_out": len(every) - len(evidence),
    }


def health(learner: Learner) -> tuple[str, str, str]:
    """Return the health of a learner: a class of the style sheet, a word and a sentence."""
    policy, rounds, learned = learner.policy, len(learner.ledger), learner.ledger.learned
    if not isinstance(policy, Contextual | PairCounts):
        return "quiet", "fixed rule", f"The policy {policy.name} does not learn."
    if learner.status != "active":
        return "quiet", "inactive", "No new rounds are opened; outputs may still be reported."
    if not rounds:
        return "quiet", "new", "No round has been opened yet."
    if not learned and rounds >= SILENT:
        return "warn", "no outputs", f"{rounds:,} rounds without outputs: nothing can be learned."
    if rounds >= 5 * SILENT and 2 * learned < rounds:
        return "warn", "few outputs", f"Only {learned:,} of {rounds:,} rounds have outputs."
    if left := exploration(learner):
        return "quiet", "exploring", f"Every round goes to the last arm: {left}."
    return "good", "learning", "Stops are decided from the outputs reported so far."


def exploration(learner: Learner) -> str:
    """Return what forced exploration still waits for; "" once it is over."""
    policy = learner.policy
    if not isinstance(policy, Contextual):
        return ""
    forced = policy.forced_rounds
    if isinstance(forced, int):
        left = forced - policy.rounds
        return f"{counted(left, 'more round')} to learn from" if left > 0 else ""
    # "auto" ends by itself: from then on, decisions have evidence
    stop = learner.recent[-1].stop if learner.recent else None
    over = stop not in {None, learner.cascade.n_arms - 1}
    over = over or any(one.evidence() for one in reversed(learner.recent))
    return "" if over else "until every pair has been seen in every direction"


def facts(learner: Learner) -> list[tuple[str, str, str]]:
    """Return what is known about the estimator: names, values and their meaning."""
    policy, ledger, rounds = learner.policy, learner.ledger, learner.policy.rounds
    expired = len(ledger) - ledger.learned - len(ledger.open)
    contextual = isinstance(policy, Contextual)
    features = counted(policy.features.n_features, "feature") if contextual else "no context"
    counts = f"of {len(ledger):,}; {len(ledger.open):,} are open, {expired:,} expired"
    found = [
        ("Policy", policy.name, f"with {features}"),
        ("Learned from", counted(rounds, "round"), counts),
        ("Audited", counted(len(ledger.labels), "round"), "with a reported label"),
    ]
    if contextual:
        effort, names = policy.effort, learner.cascade.names
        least, i, j = min((policy.observations(i, j), i, j) for i, j in learner.cascade.pairs())
        condition = policy.condition(i, j)
        passes, pair = effort["passes"], f"{short(names[i])} → {short(names[j])}"
        per_round = f"passes over the history, {passes / max(rounds, 1):.3g} a round; they read "
        even = "of its table V: 1 if contexts vary evenly; if it is large, more rounds are needed"
        found += [
            ("Refits", f"{passes:,}", per_round + counted(effort["rows_visited"], "row")),
            ("Memory", f"{policy.nbytes / 1000:,.3g} kB", "of learned state"),
            ("Least seen pair", pair, f"in {counted(least, 'round')}"),
            ("Condition", f"{condition:,.3g}" if math.isfinite(condition) else "singular", even),
        ]
    text = "that this machine would have decided differently from the one that did"
    return [*found, ("Divergence", counted(learner.divergences, "round"), text)]


def counted(n: int, noun: str) -> str:
    """Return a number of things."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def periods(tally: Tally, most: int) -> list[Period]:
    """Return the counts of a tally in at most ``most`` periods of equal length."""
    if not tally.stops:
        return []
    each = -(-len(tally.stops) // most)
    groups = range(0, len(tally.stops), each)
    tables = (tally.stops, tally.seen, tally.differed)
    sums = [np.add.reduceat(np.array(table), groups, axis=0).tolist() for table in tables]
    begins = [tally.start + k * tally.width for k in groups]
    return [
        Period(begin, begin + each * tally.width, *rows)
        for begin, *rows in zip(begins, *sums, strict=True)
    ]
