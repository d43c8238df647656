"""Figure 2a: regret against ξ, the margin of contextual weak dominance."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

from stopwise.intervals import mean_interval
from stopwise.reporting.drawing import Figure, legend_below, panels, start_at_zero
from stopwise.reporting.elements import Picture, Table
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.spec import EnvironmentSpec
from stopwise.research.experiments.summary import paired_difference
from stopwise.research.paper import choices, instances
from stopwise.research.paper.drawing import LOOKS, points
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.section import FAILED, Claim, Exhibit, verdict
from stopwise.research.paper.settings import NAMES
from stopwise.research.paper.tables import margins_of

FAMILIES: dict[str, Mapping[str, EnvironmentSpec]] = {
    "synthetic": {
        f"synthetic, c₅ = {last:g}": instances.synthetic((0.01, 0.02, 0.032, 0.05, last))
        for last in choices.SWEPT_LAST_COSTS
    },
    "realizable": {
        f"realizable, ξ ≥ {margin:g}": instances.realizable(4, 2, margin)
        for margin in choices.SWEPT_MARGINS
    },
}
# Possible reasons for regret that rises with ξ.
WHY = {
    "synthetic": "A more expensive last arm makes every forced round more expensive. With little "
    "exploration after the forced rounds, the forced rounds cause most of the regret."
}
SYMBOLS = {"synthetic": "ξ₅", "realizable": "ξ"}
LABELS = {"synthetic": "ξ₅, margin of the fifth arm", "realizable": "ξ, margin of all arms"}


def plotted_margin(environment: EnvironmentSpec) -> float:
    """Return an instance's x coordinate: ξ₅ if synthetic, the lower bound on ξ if realizable.

    ξ_h is the minimum of C_h − C_i* − p_i*h over contexts with i* < h (the paper's theorem on
    regret), and ξ is the minimum of all ξ_h.
    """
    if environment.name == "realizable":
        return float(environment.parameters["margin"])
    return margins_of(environment)[1]


def _tables(evidence: ClaimEvidence) -> list[Table]:
    rounds = f"after {choices.ROUNDS:,} rounds"
    synthetic = [
        (setting, name, *reversed(margins_of(environment)), evidence.mean(setting, name))
        for setting in NAMES
        for name, environment in FAMILIES["synthetic"].items()
    ]
    realizable = [
        (
            setting,
            name,
            plotted_margin(environment),
            evidence.mean(setting, name),
            evidence.mean(setting, name, measure="signed"),
        )
        for setting in NAMES
        for name, environment in FAMILIES["realizable"].items()
    ]
    return [
        Table(
            "margin-regret-synthetic",
            f"Synthetic data: regret of USS-PD {rounds}",
            ("setting", "instance", "ξ₅", "ξ", "regret"),
            tuple(synthetic),
            "ξ₅, the x axis of the figure, is the minimum margin of weak dominance of the fifth "
            "arm; ξ, the minimum over all arms, is the value in table 1.",
        ),
        Table(
            "margin-regret-realizable",
            f"Realizable setting: pseudo-regret of USS-PD {rounds}",
            ("setting", "instance", "minimum ξ", "pseudo-regret", "signed pseudo-regret"),
            tuple(realizable),
        ),
    ]


def _falls(evidence: ClaimEvidence, setting: str, family: str) -> Claim:
    finals = [evidence.added(setting, name) for name in FAMILIES[family]]
    overall = paired_difference(finals[0], finals[-1])
    steps = [verdict(paired_difference(a, b)) for a, b in pairwise(finals)]
    regrets = ", ".join(fmt(mean_interval(final)) for final in finals)
    return Claim(
        f"Regret falls as {SYMBOLS[family]} grows: {family}",
        FAILED if FAILED in steps else verdict(overall),
        f"regret {regrets}; decrease from the smallest to the largest {SYMBOLS[family]} "
        f"{fmt(overall)}",
        "regret is lower at the largest margin than at the smallest, and no step is a significant "
        "increase",
        WHY.get(family, ""),
    )


def _figure(evidence: ClaimEvidence) -> Figure:
    figure = panels(len(NAMES), len(FAMILIES), width=4.2, height=2.8)
    for axes, (setting, family) in zip(
        figure.axes, [(s, f) for s in NAMES for f in FAMILIES], strict=True
    ):
        members = FAMILIES[family]
        x = [plotted_margin(environment) for environment in members.values()]
        for policy in evidence.policies(setting, next(iter(members))):
            values = [evidence.mean(setting, name, policy) for name in members]
            points(axes, x, values, policy, LOOKS[policy])
        axes.set_title(f"{family} · {setting}")
        axes.set_xlabel(LABELS[family])
        axes.set_ylabel("regret" if family == "synthetic" else "pseudo-regret")
        start_at_zero(axes)
    legend_below(figure)
    return figure


EXHIBIT = Exhibit(
    "margin-regret",
    "Regret against ξ",
    "Figure 2a (supplement)",
    "The larger the margin of weak dominance, the fewer rounds the test needs. On synthetic data "
    "ξ₅, the margin of the fifth arm, varies with that arm's cost (at the lowest cost, weak "
    "dominance fails), while ξ, the margin over all arms, is set by the cheap arms and hardly "
    "changes. In the realizable setting ξ itself varies: contexts in which an arm passes or fails "
    "the test by less than a margin are rejected.",
    cells=lambda: [cell for family in FAMILIES.values() for cell in cells_of(family)],
    tables=_tables,
    pictures=lambda evidence: [
        Picture(
            "margin-regret",
            "Regret against ξ",
            "Final regret against the margin of weak dominance, one row per setting, with "
            "synthetic data on the left and the realizable setting on the right.",
            partial(_figure, evidence),
        )
    ],
    claims=lambda evidence, setting: [_falls(evidence, setting, family) for family in FAMILIES],
)
