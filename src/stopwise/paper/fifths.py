"""Values at the end of a run and by fifths of it: whether regret flattens."""

from collections.abc import Callable

from stopwise.experiments.summary import Interval, mean_interval, paired_difference
from stopwise.paper.evidence import ClaimEvidence
from stopwise.paper.section import Claim, verdict
from stopwise.paper.settings import NAMES
from stopwise.reporting.parts import Table
from stopwise.reporting.wording import format_value as fmt

FIFTHS = tuple((k / 5, (k + 1) / 5) for k in range(5))
SECOND, LAST = FIFTHS[1], FIFTHS[4]


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
        "What each fifth of the rounds added to the regret of USS-PD",
        ("setting", "instance", "first", "second", "third", "fourth", "last"),
        tuple(
            (
                *(setting, instance),
                *(mean_interval(evidence.added(setting, instance, part=fifth)) for fifth in FIFTHS),
            )
            for setting in NAMES
            for instance in evidence.instances()
        ),
    )


def flattens(
    evidence: ClaimEvidence, setting: str, instance: str, text: str, where: str = "", why: str = ""
) -> Claim:
    """Judge whether USS-PD's regret flattens: the last fifth adds less than half of the second.

    Of a logarithm it adds about a third, of a straight line as much.
    """
    early, late = (evidence.added(setting, instance, part=part) for part in (SECOND, LAST))
    flatter = paired_difference([0.5 * e for e in early], late)
    return Claim(
        f"{instance.capitalize()}: {text}",
        verdict(flatter),
        f"second fifth {fmt(mean_interval(early))}, last fifth {fmt(mean_interval(late))}; "
        f"half of the second minus the last: {fmt(flatter)}",
        "the last fifth of the rounds adds less than half of what the second fifth adds",
        why=why,
        where=where,
    )
