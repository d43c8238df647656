"""What the pages show of a running service, read off its state. Nothing here changes a bit."""

import json
import math
import time
from collections.abc import Collection, Iterable
from typing import Any

from stopwise.logs.diagnosis.words import short
from stopwise.policies.base import Policy
from stopwise.policies.contextual import Contextual
from stopwise.policies.noncontextual import PairCounts
from stopwise.records import PairEvidence
from stopwise.service.dashboard import words
from stopwise.service.dashboard.values import (
    Compared,
    Fact,
    Glance,
    Health,
    Made,
    Pair,
    Running,
    Stretch,
    Sums,
    Whole,
)
from stopwise.service.learner import Learner, Recent
from stopwise.service.service import Service
from stopwise.service.spec import context_names, context_size
from stopwise.service.tally import Tally

SHOWN = 12  # recent decisions
MOST_COMPARED = 15  # comparisons of one decision
UNHEARD = 20  # decisions after which it is odd that no outputs were told


def running(service: Service, now: float | None = None) -> Running:
    """Return how the service is."""
    state = service.state
    return Running(
        now=time.time() if now is None else now,
        position=state.position,
        last=state.time or None,
        lag=service.lag,
        waiting=service.waiting,
        trouble=service.trouble,
        recovering=service.recovering,
    )


def last_time(learner: Learner) -> float | None:
    """Return when a cascade last decided."""
    return learner.recent[-1].time if learner.recent else None


def ordered(learners: Iterable[Learner]) -> list[Learner]:
    """Put the active ones first, each kind by name: rows stay where they are while one looks."""
    return sorted(learners, key=lambda one: (one.status != "active", one.spec.name))


def sums(learners: Collection[Learner]) -> Sums:
    """Return all cascades together."""
    return Sums(
        cascades=len(learners),
        active=sum(one.status == "active" for one in learners),
        decisions=sum(len(one.ledger) for one in learners),
        open=sum(len(one.ledger.open) for one in learners),
    )


def glance(learner: Learner) -> Glance:
    """Return a cascade in one line."""
    ledger = learner.ledger
    return Glance(
        name=learner.spec.name,
        status=learner.status,
        created=learner.created,
        arms=learner.cascade.names,
        cumulative=tuple(float(c) for c in learner.cascade.cumulative),
        decisions=len(ledger),
        open=len(ledger.open),
        learned=ledger.learned,
        audited=len(ledger.labels),
        stops=tuple(learner.tally.stops_total),
        health=health(learner),
        last=last_time(learner),
        exploring=bool(exploration(learner)),
    )


def whole(learner: Learner, base: str, *, with_key: bool = False) -> Whole:
    """Return everything there is to show of a cascade.

    Parameters
    ----------
    learner : Learner
        The cascade.
    base : str
        Where the service is: "http://127.0.0.1:8350".
    with_key : bool, optional
        Whether those who ask need a key.
    """
    cascade = learner.cascade
    tally = learner.tally
    latest = list(learner.recent)[-SHOWN:]
    return Whole(
        glance=glance(learner),
        costs=tuple(float(c) for c in cascade.costs * cascade.tradeoff),
        stretches=stretches(tally),
        pairs=tuple(
            Pair(k, i, j, float(cascade.gaps[i, j]), seen, differed)
            for k, ((i, j), seen, differed) in enumerate(
                zip(cascade.pairs(), tally.seen_total, tally.differed_total, strict=True)
            )
        ),
        recent=tuple(made(one) for one in reversed(latest)),
        facts=facts(learner),
        try_this=_ask(learner, base, with_key),
        tell_this=_tell(learner, base, with_key),
    )


def stretches(tally: Tally) -> tuple[Stretch, ...]:
    """Return a tally as stretches of time."""
    return tuple(
        Stretch(
            tally.start + k * tally.width,
            tally.start + (k + 1) * tally.width,
            tuple(stops),
            tuple(seen),
            tuple(differed),
        )
        for k, (stops, seen, differed) in enumerate(
            zip(tally.stops, tally.seen, tally.differed, strict=True)
        )
    )


def made(recent: Recent) -> Made:
    """Return a recent decision with its evidence, at most the part of it that decided."""
    evidence = recent.evidence()
    chosen = _telling(evidence, recent.stop)
    return Made(
        id=recent.id,
        time=recent.time,
        stop=recent.stop,
        cost=recent.cost,
        words=recent.words(),
        compared=tuple(_compared(one) for one in chosen),
        left_out=len(evidence) - len(chosen),
    )


def _telling(evidence: tuple[PairEvidence, ...], stop: int) -> tuple[PairEvidence, ...]:
    """Return all comparisons; where they are many, of each arm passed by the strongest."""
    if len(evidence) <= MOST_COMPARED:
        return evidence
    strongest = [
        max(here, key=lambda e: e.repair - e.gap)
        for arm in range(stop)
        if (here := [e for e in evidence if e.first == arm])
    ]
    last = sorted((e for e in evidence if e.first == stop), key=lambda e: e.gap - e.repair)
    return (*strongest, *last)[:MOST_COMPARED]


def _compared(one: PairEvidence) -> Compared:
    known = one.disagreement == one.disagreement  # not NaN: the pair has been seen
    return Compared(
        first=one.first,
        second=one.second,
        gap=one.gap,
        estimate=one.disagreement if known else None,
        at_most=min(max(one.repair, 0.0), 1.0),
        worth_it=not one.gap_won,
    )


# --- health ---------------------------------------------------------------------------------------


def health(learner: Learner) -> Health:
    """Say how the learner of a cascade is."""
    ledger, policy = learner.ledger, learner.policy
    decisions, learned = len(ledger), ledger.learned
    if not isinstance(policy, Contextual | PairCounts):
        return Health("quiet", "fixed rule", f"The policy {policy.name} does not learn.")
    if learner.status != "active":
        return Health("quiet", "at rest", "It decides no more; late outputs may still be told.")
    if not decisions:
        return Health("quiet", "new", "It waits for its first decision.")
    if not learned and decisions >= UNHEARD:
        return Health(
            "warn",
            "hears nothing",
            f"{words.counted(decisions, 'decision')} and no outputs: nothing can be learned.",
        )
    if decisions >= 5 * UNHEARD and 2 * learned < decisions:
        return Health(
            "warn",
            "few outputs",
            f"Outputs were told for {words.count(learned)} of {words.count(decisions)} decisions.",
        )
    left = exploration(learner)
    if left:
        return Health("quiet", "exploring", f"Every decision goes to the last arm: {left}.")
    return Health("good", "learning", "Decisions rest on what was seen so far.")


def exploration(learner: Learner) -> str:
    """Say what forced exploration still waits for; nothing once it is over."""
    policy = learner.policy
    if not isinstance(policy, Contextual):
        return ""
    forced = policy.forced_rounds
    if isinstance(forced, int):
        left = forced - policy.rounds
        return f"{words.counted(left, 'round')} more to learn from" if left > 0 else ""
    # "auto" ends by itself; whether it has shows in late decisions, which then have evidence
    latest = learner.recent[-1] if learner.recent else None
    deep = latest is None or latest.stop == learner.cascade.n_arms - 1
    still = deep and not any(one.evidence() for one in reversed(learner.recent))
    return "until every pair has been seen in every direction" if still else ""


def facts(learner: Learner) -> tuple[Fact, ...]:
    """Return what is to be known about the learner."""
    policy, ledger = learner.policy, learner.ledger
    decisions = len(ledger)
    given_up = decisions - ledger.learned - len(ledger.open)
    found = [
        Fact("Policy", policy.name, _features(policy)),
        Fact(
            "Learned from",
            words.counted(policy.rounds, "round"),
            f"of {words.counted(decisions, 'decision')}; {words.count(len(ledger.open))} wait for "
            f"outputs, {words.count(given_up)} were given up",
        ),
        Fact("Audited", words.counted(len(ledger.labels), "round"), "whose right answer was told"),
    ]
    if isinstance(policy, Contextual):
        found += _of_estimates(learner, policy)
    found.append(
        Fact(
            "Divergence",
            words.counted(learner.divergences, "decision"),
            "that this machine would have taken otherwise than the one that took it",
        )
    )
    return tuple(found)


def _of_estimates(learner: Learner, policy: Contextual) -> list[Fact]:
    effort = policy.effort
    left = exploration(learner)
    each = effort["passes"] / max(policy.rounds, 1)
    cascade = learner.cascade
    seen = {(i, j): policy.observations(i, j) for i, j in cascade.pairs()}
    (i, j), least = min(seen.items(), key=lambda item: item[1])
    first, second = (short(cascade.names[arm]) for arm in (i, j))
    condition = policy.condition(i, j)
    return [
        Fact("Forced exploration", "on" if left else "over", left),
        Fact(
            "Refits",
            words.counted(effort["passes"], "pass", "passes"),
            f"over the history, {each:.3g} a round; they read {words.count(effort['rows_visited'])}"
            " rows",
        ),
        Fact("Rows kept", words.count(effort["rows_kept"]), "of history, for refits"),
        Fact("Memory", words.size(policy.nbytes), "of learned state"),
        Fact("Least seen pair", f"{first} → {second}", f"in {words.counted(least, 'round')}"),
        Fact(
            "Condition",
            f"{condition:,.3g}" if math.isfinite(condition) else "singular",
            "how unevenly that pair saw contexts vary (largest over smallest eigenvalue of V, its "
            "table of features): 1 is even; where it is large, estimates need more rounds",
        ),
    ]


def _features(policy: Policy) -> str:
    if not isinstance(policy, Contextual):
        return "looks at no context"
    return f"with {words.counted(policy.features.n_features, 'feature')}"


# --- what to type ---------------------------------------------------------------------------------


def create_command(base: str, *, with_key: bool = False) -> str:
    """Return the command that makes a cascade.

    Examples
    --------
    >>> print(create_command("http://127.0.0.1:8350"))
    curl http://127.0.0.1:8350/v1/cascades -H 'Content-Type: application/json' -d '{
      "name": "triage",
      "arms": [
        {"name": "history", "cost": 0.01},
        {"name": "glucose", "cost": 0.24},
        {"name": "insulin", "cost": 0.25}],
      "context": ["age", "bmi"],
      "features": {"kind": "polynomial", "degree": 1, "bound": 100}}'
    """
    body = (
        "{\n"
        '  "name": "triage",\n'
        '  "arms": [\n'
        '    {"name": "history", "cost": 0.01},\n'
        '    {"name": "glucose", "cost": 0.24},\n'
        '    {"name": "insulin", "cost": 0.25}],\n'
        '  "context": ["age", "bmi"],\n'
        '  "features": {"kind": "polynomial", "degree": 1, "bound": 100}}'
    )
    return _curl(f"{base}/v1/cascades", body, with_key)


def _ask(learner: Learner, base: str, with_key: bool) -> str:
    spec, policy = learner.spec, learner.policy
    names = context_names(spec)
    at = f"{base}/v1/cascades/{spec.name}"
    if isinstance(policy, Contextual) and policy.features.sees is not None:
        # stages add to the context; what is known before the first is for the caller to say
        return _curl(f"{at}/rounds", _json({"context": [0.5]}), with_key)
    context: Any = [0.5] * context_size(spec) if names is None else dict.fromkeys(names, 0.5)
    return _curl(f"{at}/decisions", _json({"context": context}), with_key)


def _tell(learner: Learner, base: str, with_key: bool) -> str:
    at = f"{base}/v1/cascades/{learner.spec.name}"
    if learner.staged:
        body = _json({"arm": 0, "output": "…", "revealed": []})
        return _curl(f"{at}/rounds/ID/steps", body, with_key)
    stop = learner.recent[-1].stop if learner.recent else learner.cascade.n_arms - 1
    outputs = dict.fromkeys(learner.cascade.names[: stop + 1], "…")
    return _curl(f"{at}/decisions/ID/outputs", _json({"outputs": outputs}), with_key)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _curl(address: str, body: str, with_key: bool) -> str:
    """Return a command for a shell; the key is named, never shown."""
    key = ' -H "Authorization: Bearer $STOPWISE_KEY"' if with_key else ""
    quoted = body.replace("'", "'\\''")
    return f"curl {address}{key} -H 'Content-Type: application/json' -d '{quoted}'"
