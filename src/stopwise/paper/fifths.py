"""Values at the end of a run and by fifths of it: how fast regret grows."""

from collections.abc import Callable

import numpy as np

from stopwise.experiments.summary import Interval, What, mean_interval
from stopwise.paper.evidence import ClaimEvidence
from stopwise.paper.section import FAILED, HELD, UNDECIDED, Claim
from stopwise.paper.settings import NAMES
from stopwise.reporting.parts import Table
from stopwise.reporting.wording import format_value as fmt

FIFTHS = tuple((k / 5, (k + 1) / 5) for k in range(5))
SECOND, LAST = FIFTHS[1], FIFTHS[4]
NEAR_LINE = 0.75  # heuristic: half-way from √t to a line


def final_table(
    evidence: ClaimEvidence,
    name: str,
    title: str,
    value: Callable[[str, str, str], Interval] | None = None,
    note: str = "",
) -> Table:
    """Return a value (by default, regret at the end) of every policy on every instance."""
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


def fifths_table(evidence: ClaimEvidence, name: str) -> Table:
    """Return what each fifth of the rounds added to the regret of USS-PD."""
    return Table(
        name,
        "What each fifth of the rounds added to the regret of USS-PD, and the exponent",
        ("setting", "instance", "first", "second", "third", "fourth", "last", "exponent"),
        tuple(
            (
                *(setting, instance),
                *(mean_interval(evidence.added(setting, instance, part=fifth)) for fifth in FIFTHS),
                exponent(evidence, setting, instance),
            )
            for setting in NAMES
            for instance in evidence.instances()
        ),
    )


def exponent(
    evidence: ClaimEvidence, setting: str, instance: str, what: What = "regret"
) -> Interval:
    """Return b of tᵇ, as which USS-PD's regret grows: 1 for a line, ½ for √t, 0 for a logarithm.

    b − 1 is the slope of ln(what a fifth adds, mean over runs) against ln(its middle), over the
    last four: what the first rounds lost is not taken for a curve that flattens. The interval is
    Student's over the jackknife's pseudo-values, n·b − (n − 1)·(b without run i).
    """
    later = FIFTHS[1:]
    added = np.array([evidence.added(setting, instance, "USS-PD", what, f) for f in later])
    n = added.shape[1]
    x = np.log([sum(fifth) for fifth in later])
    x -= x.mean()
    total = added.sum(axis=1, keepdims=True)
    means = np.concatenate([total / n, (total - added) / max(n - 1, 1)], axis=1)
    every, *without = 1.0 + x @ np.log(np.maximum(means, 1e-6)) / (x @ x)  # ln 0 does not exist
    return mean_interval([n * every - (n - 1) * b for b in without])


def growth(
    evidence: ClaimEvidence,
    setting: str,
    instance: str,
    text: str,
    why: str = "",
    *,
    linear: bool = False,
    what: What = "regret",
) -> Claim:
    """Judge whether USS-PD's regret in a setting and instance is sub-linear, or is linear."""
    late = mean_interval(evidence.added(setting, instance, "USS-PD", what, LAST))
    b = exponent(evidence, setting, instance, what)
    below, line = b.high < 1, b.high >= 1 and b.low > NEAR_LINE
    held, failed = (line and late.low > 0, below) if linear else (below, line)
    return Claim(
        f"{instance.capitalize()}: {text}",
        HELD if held else FAILED if failed else UNDECIDED,
        f"exponent {fmt(b)}; the last fifth adds {fmt(late)}",
        "regret grows as tᵇ: sub-linear if the 95 % interval of b lies below 1, linear if it lies "
        f"above {NEAR_LINE} and reaches 1",
        why,
    )
