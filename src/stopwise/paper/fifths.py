"""Regret by fifths of a run: whether it flattens."""

from stopwise.experiments.summary import Interval, mean_interval, paired_difference
from stopwise.paper.evidence import Evidence
from stopwise.paper.section import Claim, verdict
from stopwise.paper.settings import SETTINGS
from stopwise.reporting.parts import Table
from stopwise.reporting.text import shown

SECOND = (0.2, 0.4)
LAST = (0.8, 1.0)


def fifths_table(evidence: Evidence, name: str, policy: str = "USS-PD") -> Table:
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


def flattens(
    evidence: Evidence, setting: str, instance: str, claim: str, where: str, why: str = ""
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
        f"second fifth {shown(mean_interval(early))}, last fifth {shown(mean_interval(late))}; "
        f"half the one less the other {shown(flatter)}",
        why=why,
    )
