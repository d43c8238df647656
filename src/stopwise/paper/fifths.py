"""Regret at the end of a run and by fifths of it: whether it flattens."""

from stopwise.experiments.summary import Interval, mean_interval, paired_difference
from stopwise.paper import choices
from stopwise.paper.evidence import ClaimEvidence
from stopwise.paper.section import Claim, verdict
from stopwise.paper.settings import SETTINGS
from stopwise.reporting.parts import Table
from stopwise.reporting.wording import format_value as fmt

SECOND = (0.2, 0.4)
LAST = (0.8, 1.0)


def fifths_table(evidence: ClaimEvidence, name: str, policy: str = "USS-PD") -> Table:
    """Return what each fifth of the rounds added to a policy's regret."""
    rows: list[tuple[str | Interval, ...]] = []
    for setting in SETTINGS:
        for instance in evidence.instances():
            fifths = [
                mean_interval(
                    evidence.added(setting.name, instance, policy, part=(k / 5, (k + 1) / 5))
                )
                for k in range(5)
            ]
            rows.append((setting.name, instance, *fifths))
    return Table(
        name,
        f"What each fifth of the rounds added to the regret of {policy}",
        ("setting", "instance", "first", "second", "third", "fourth", "last"),
        tuple(rows),
    )


def final_table(evidence: ClaimEvidence, name: str, what: str = "Regret") -> Table:
    """Return the regret of every policy at the end, a column for each instance."""
    instances = evidence.instances()
    return Table(
        name,
        f"{what} after {choices.ROUNDS:,} rounds",
        ("setting", "policy", *instances),
        tuple(
            (s.name, policy, *(evidence.mean(s.name, k, policy) for k in instances))
            for s in SETTINGS
            for policy in evidence.policies(s.name, instances[0])
        ),
    )


def flattens(
    evidence: ClaimEvidence, setting: str, instance: str, claim: str, where: str, why: str = ""
) -> Claim:
    """Judge whether USS-PD's regret flattens: the last fifth adds less than half of the second.

    Of a logarithm it adds about a third, of a straight line as much.
    """
    early = evidence.added(setting, instance, "USS-PD", part=SECOND)
    late = evidence.added(setting, instance, "USS-PD", part=LAST)
    flatter = paired_difference([0.5 * e for e in early], late)
    return Claim(
        f"{claim} (criterion: the last fifth of the rounds adds less than half of what the second "
        "fifth adds)",
        where,
        setting,
        verdict(flatter),
        f"second fifth {fmt(mean_interval(early))}, last fifth {fmt(mean_interval(late))}; "
        f"half the one less the other {fmt(flatter)}",
        why=why,
    )
