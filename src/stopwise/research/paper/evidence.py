"""The runs behind an exhibit: their specs, and statistics of their traces."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stopwise.intervals import Interval, mean_interval
from stopwise.research.experiments.runs import Trace
from stopwise.research.experiments.spec import EnvironmentSpec, ExperimentSpec, PolicySpec
from stopwise.research.experiments.summary import Measure, paired_difference
from stopwise.research.paper import choices
from stopwise.research.paper.settings import SETTINGS

BOTH = ""  # `setting` of policies that do not depend on the setting


class Cell(NamedTuple):
    """One curve in one panel: a policy on an instance, under a setting."""

    setting: str
    instance: str
    policy: str
    spec: ExperimentSpec


class ClaimEvidence:
    """The traces of an exhibit's cells, by setting, instance and policy.

    ``traces`` maps the key of each cell's spec to its runs.
    """

    def __init__(self, cells: Iterable[Cell], traces: Mapping[str, Sequence[Trace]]) -> None:
        self.cells = tuple(cells)
        self._traces = {cell[:3]: tuple(traces[cell.spec.key]) for cell in self.cells}

    def traces(self, setting: str, instance: str, policy: str) -> Sequence[Trace]:
        """Return the runs of a cell, in the order of their seeds."""
        shared = (BOTH, instance, policy)
        return self._traces.get((setting, instance, policy)) or self._traces[shared]

    def policies(self, setting: str, instance: str) -> list[str]:
        """Return the policies that ran on an instance, in the same order for every setting."""
        order = list(dict.fromkeys(cell.policy for cell in self.cells))
        keys = {cell[:3] for cell in self.cells}
        return [p for p in order if {(setting, instance, p), (BOTH, instance, p)} & keys]

    def instances(self) -> list[str]:
        """Return the instances, in the order of the cells."""
        return list(dict.fromkeys(cell.instance for cell in self.cells))

    def added(
        self,
        setting: str,
        instance: str,
        policy: str = "USS-PD",
        measure: Measure = "regret",
        part: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        """Return the increase of each run's curve over a part of the rounds.

        ``part`` contains its start and end as shares of the rounds: (0.8, 1) is the last fifth.

        Values are in the order of the seeds, so the values of two cells are paired.
        """
        values: list[float] = []
        for trace in self.traces(setting, instance, policy):
            curve = np.concatenate([[0.0], getattr(trace, measure)])
            start, stop = (round(share * (len(curve) - 1)) for share in part)
            values.append(float(curve[stop] - curve[start]))
        return values

    def mean(
        self, setting: str, instance: str, policy: str = "USS-PD", measure: Measure = "regret"
    ) -> Interval:
        """Return the mean over runs of the final value."""
        return mean_interval(self.added(setting, instance, policy, measure))

    def cost_per_round(self, setting: str, instance: str, policy: str) -> Interval:
        """Return the total cost per round, averaged over runs."""
        rounds = int(self.traces(setting, instance, policy)[0].rounds[-1])
        return self.mean(setting, instance, policy, "total_cost") / rounds

    def lead(
        self, setting: str, instance: str, policy: str, other: str, measure: Measure = "regret"
    ) -> Interval:
        """Return by how much a policy's final value is below another policy's, paired by seed."""
        return paired_difference(
            self.added(setting, instance, other, measure),
            self.added(setting, instance, policy, measure),
        )


def cells_of(
    instances: Mapping[str, EnvironmentSpec],
    extra: Mapping[str, PolicySpec] | None = None,
    *,
    supervised: bool = False,
) -> list[Cell]:
    """Return a cell for every policy on every instance under every setting.

    Policies without features, and all ``extra`` policies, do not depend on the setting and have
    one cell per instance. ``supervised`` adds the `Supervised` comparator, which sees labels.
    """
    cells: dict[tuple[str, str, str], Cell] = {}
    for instance, environment in instances.items():
        policies = [
            (setting.name if policy.features is not None else BOTH, label, policy)
            for setting in SETTINGS
            for label, policy in setting.policies(environment, supervised=supervised).items()
        ]
        policies += [(BOTH, label, policy) for label, policy in (extra or {}).items()]
        for setting, label, policy in policies:
            spec = ExperimentSpec(environment, policy, choices.ROUNDS)
            cells[setting, instance, label] = Cell(setting, instance, label, spec)
    return list(cells.values())
