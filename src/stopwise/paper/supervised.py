"""Figure: USS-PD beside the same rule with labels, on synthetic instance 3."""

from functools import partial

import numpy as np

from stopwise.experiments.summary import mean_interval, paired_difference
from stopwise.paper import choices, instances
from stopwise.paper.drawing import LOOKS, curve_grid
from stopwise.paper.evidence import Cell, ClaimEvidence, cell, cells_of
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fifths import LAST, SECOND
from stopwise.paper.section import Claim, Section, verdict
from stopwise.paper.settings import SETTINGS
from stopwise.reporting.drawing import Figure, legend_below, panels, styled
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import format_value as fmt

WHERE = "Figure 1b"
INSTANCE = "instance 3"
NAMES = tuple(setting.name for setting in SETTINGS)


def _cells() -> list[Cell]:
    environment = instances.synthetic(choices.SYNTHETIC_COSTS[INSTANCE])
    told = [
        cell(s.name, INSTANCE, "supervised", environment, s.supervised(environment))
        for s in SETTINGS
    ]
    return told + cells_of({INSTANCE: environment})


def _build(evidence: ClaimEvidence) -> Section:
    rows = [
        (setting, policy, evidence.mean(setting, INSTANCE, policy))
        for setting in NAMES
        for policy in evidence.policies(setting, INSTANCE)
    ]
    return Section(
        EXHIBIT.name,
        EXHIBIT.title,
        WHERE,
        "The supervised learner is told after each round which of the arms it ran were right, and "
        "tests with differences of error rates in place of disagreement. Labels help; the claim is "
        "that without them one comes close in the end.",
        tables=(
            Table(
                "supervised-final",
                f"Regret after {choices.ROUNDS:,} rounds on {INSTANCE}",
                ("setting", "policy", "regret"),
                tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                "supervised-regret",
                f"Regret on {INSTANCE}, with and without labels",
                "Cumulative regret of the supervised learner, USS-PD and the others; a row for "
                "each setting.",
                partial(curve_grid, evidence, NAMES, "regret", "regret"),
            ),
            Picture(
                "supervised-gap",
                "Regret for each round so far: USS-PD less supervised",
                "The difference of average regret between USS-PD and the supervised learner.",
                partial(_gap_figure, evidence),
            ),
        ),
        claims=tuple(c for s in NAMES for c in (_below(evidence, s), _closing(evidence, s))),
    )


def _below(evidence: ClaimEvidence, setting: str) -> Claim:
    lead = evidence.lead(setting, INSTANCE, "supervised", "USS-PD")
    return Claim(
        "With labels the regret is lower than without",
        WHERE,
        setting,
        verdict(lead),
        f"supervised {fmt(evidence.mean(setting, INSTANCE, 'supervised'))}, USS-PD "
        f"{fmt(evidence.mean(setting, INSTANCE, 'USS-PD'))}; lower by {fmt(lead)}",
    )


def _closing(evidence: ClaimEvidence, setting: str) -> Claim:
    def gap(part: tuple[float, float]) -> list[float]:
        lost, told = (
            evidence.added(setting, INSTANCE, policy, part=part)
            for policy in ("USS-PD", "supervised")
        )
        return [(a - b) / (0.2 * choices.ROUNDS) for a, b in zip(lost, told, strict=True)]

    early, late = gap(SECOND), gap(LAST)
    closed = paired_difference(early, late)
    left = mean_interval(late)
    still = "still above zero" if left.low > 0 else "no longer clearly above zero"
    return Claim(
        "Without labels one comes close to it: the gap in regret for each round closes (criterion: "
        "it is smaller in the last fifth of the rounds than in the second)",
        WHERE,
        setting,
        verdict(closed),
        f"gap for each round {fmt(mean_interval(early))} in the second fifth, {fmt(left)} in "
        f"the last, {still}; smaller by {fmt(closed)}",
    )


@styled
def _gap_figure(evidence: ClaimEvidence) -> Figure:
    figure = panels(1, 1, width=5.5, height=3.0)
    axes = figure.axes[0]
    for setting, style in zip(NAMES, ("-", "--"), strict=True):
        curves = [
            [trace.regret / trace.rounds for trace in evidence.traces(setting, INSTANCE, policy)]
            for policy in ("USS-PD", "supervised")
        ]
        gap = np.mean(np.array(curves[0]) - np.array(curves[1]), axis=0)
        rounds = evidence.traces(setting, INSTANCE, "USS-PD")[0].rounds
        axes.plot(rounds, gap, style, color=LOOKS["USS-PD"]["color"], label=setting)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.set_xlabel("rounds")
    axes.set_ylabel("regret for each round so far:\nUSS-PD less supervised")
    legend_below(figure)
    return figure


EXHIBIT = Exhibit(
    "supervised", "With and without labels on synthetic instance 3", WHERE, _build, cells=_cells
)
