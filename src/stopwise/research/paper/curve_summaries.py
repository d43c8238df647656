"""Summaries of cumulative curves: final values, increments per fifth, and growth claims."""

from collections.abc import Callable

import numpy as np

from stopwise.intervals import Interval, mean_interval
from stopwise.reporting.elements import Table
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.summary import Measure
from stopwise.research.paper.evidence import ClaimEvidence
from stopwise.research.paper.growth import LARGE, SMALL, Growth, fit_growth
from stopwise.research.paper.section import FAILED, HELD, UNDECIDED, Claim
from stopwise.research.paper.settings import NAMES

FIFTHS = tuple((k / 5, (k + 1) / 5) for k in range(5))
SECOND, LAST = FIFTHS[1], FIFTHS[4]
CRITERION = (
    "A·log t + c·t with A, c ≥ 0 is fitted to the last four fifths of the rounds. The linear part "
    "is the share of c·t in the fitted increase over the last fifth, with a 95 % bootstrap "
    "interval over runs. Growth is logarithmic if the interval contains 0 and lies below "
    f"{SMALL:.0%}, linear if it contains 100 % and lies above {LARGE:.0%}, and otherwise undecided "
    "at this horizon"
)


def final_table(
    evidence: ClaimEvidence,
    name: str,
    title: str,
    value: Callable[[str, str, str], Interval] | None = None,
    note: str = "",
) -> Table:
    """Return a table of one value (by default, the final regret) per policy and instance."""
    instances = evidence.instances()
    value = value or evidence.mean
    return Table(
        name,
        title,
        ("setting", "policy", *instances),
        tuple(
            (setting, policy, *(value(setting, k, policy) for k in instances))
            for setting in NAMES
            for policy in evidence.policies(setting, instances[0])
        ),
        note,
    )


def fifths_table(
    evidence: ClaimEvidence, name: str, measure: Measure = "regret", title: str = "regret"
) -> Table:
    """Return a table of the increase in USS-PD's regret over each fifth of the rounds.

    Its last column is the linear part of the increase over the last fifth.
    """
    rows: list[tuple[str | Interval, ...]] = []
    for setting in NAMES:
        for instance in evidence.instances():
            increments = [
                mean_interval(evidence.added(setting, instance, "USS-PD", measure, fifth))
                for fifth in FIFTHS
            ]
            linear_part = _linear_part(fit(evidence, setting, instance, measure))
            rows.append((setting, instance, *increments, linear_part))
    return Table(
        name,
        f"Increase in the {title} of USS-PD over each fifth of the rounds",
        ("setting", "instance", "first", "second", "third", "fourth", "last", "linear part"),
        tuple(rows),
        "The last column is the linear share of the increase over the last fifth, from a fit of "
        "A·log t + c·t to the last four fifths, with its 95 % bootstrap interval over runs.",
    )


def fit(
    evidence: ClaimEvidence, setting: str, instance: str, measure: Measure = "regret"
) -> Growth | None:
    """Fit the growth of USS-PD's regret; return None if there are too few runs."""
    traces = evidence.traces(setting, instance, "USS-PD")
    curves = np.array([getattr(trace, measure) for trace in traces], dtype=np.float64)
    return fit_growth(traces[0].rounds.astype(np.float64), curves)


def growth_claim(
    evidence: ClaimEvidence,
    setting: str,
    instance: str,
    text: str,
    why: str = "",
    *,
    linear: bool = False,
    measure: Measure = "regret",
) -> Claim:
    """Test whether USS-PD's regret on an instance is sub-linear or, with ``linear``, linear."""
    last_fifth = evidence.added(setting, instance, "USS-PD", measure, LAST)
    growth = fit(evidence, setting, instance, measure)
    if growth is None:
        shape = "undecided"
        numbers = f"{len(last_fifth)} runs are too few to fit the growth of the curve"
    else:
        shape = growth.shape
        horizon = " at this horizon" if shape == "undecided" else ""
        numbers = (
            f"{shape}{horizon}: linear part {_linear_part(growth)} of the increase over the last "
            f"fifth, {fmt(mean_interval(last_fifth))}"
        )
    if shape == "undecided":
        verdict = UNDECIDED
    else:
        verdict = HELD if (shape == "linear") == linear else FAILED
    return Claim(f"{instance.capitalize()}: {text}", verdict, numbers, CRITERION, why)


def _linear_part(growth: Growth | None) -> str:
    if growth is None:
        return "too few runs"
    share = growth.share
    return f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})"
