"""Regret by fifths of a run: whether it flattens."""

from stopwise.experiments.summary import Interval, mean_interval
from stopwise.paper.evidence import Evidence
from stopwise.paper.section import Table
from stopwise.paper.settings import SETTINGS

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
