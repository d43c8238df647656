"""Figure: regret against ξ, the strength of contextual weak dominance."""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise

from stopwise.experiments.runs import built
from stopwise.experiments.spec import EnvironmentSpec
from stopwise.experiments.summary import mean_interval, paired_difference
from stopwise.paper import choices, instances
from stopwise.paper.drawing import LOOKS, points
from stopwise.paper.evidence import Cell, ClaimEvidence, cells_of
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fractions import contexts_of
from stopwise.paper.section import FAILED, Claim, Section, all_of, verdict
from stopwise.paper.settings import SETTINGS
from stopwise.reporting.drawing import Figure, from_zero, legend_below, panels, styled
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import Value, format_value
from stopwise.theory.dominance import arm_margins

WHERE = "Figure 2a (supplement)"
NAMES = tuple(setting.name for setting in SETTINGS)
SYNTHETIC = {
    f"synthetic, c₅ = {last:g}": instances.synthetic((0.01, 0.02, 0.032, 0.05, last))
    for last in choices.SWEPT_LAST_COSTS
}
REALIZABLE = {
    f"realizable, ξ ≥ {margin:g}": instances.realizable(4, 2, margin)
    for margin in choices.SWEPT_MARGINS
}
FAMILIES: dict[str, Mapping[str, EnvironmentSpec]] = {
    "synthetic": SYNTHETIC,
    "realizable": REALIZABLE,
}

# Why regret might rise with ξ all the same.
WHY = {
    "synthetic": "A more expensive last arm makes every forced round more expensive. Where "
    "little is explored beyond them, they are most of the regret.",
    "realizable": "",
}


def _cells() -> list[Cell]:
    return cells_of({**SYNTHETIC, **REALIZABLE})


def strength(environment: EnvironmentSpec) -> float:
    """Return the ξ an instance is drawn at: ξ₅ on synthetic data, the margin in the realizable.

    ξ_h = min over contexts with i* < h of C_h − C_i* − p_i*h (the paper's theorem on regret).
    """
    if environment.name == "realizable":
        return float(environment.parameters["margin"])
    batch = contexts_of(environment)
    cascade = built(environment).cascade
    return float(arm_margins(cascade, batch.disagreement, batch.optimal)[-1])


def _build(evidence: ClaimEvidence) -> Section:
    rows: list[tuple[Value, ...]] = []
    for setting in NAMES:
        for family in FAMILIES.values():
            rows += [
                (setting, name, strength(environment), evidence.mean(setting, name, "USS-PD"))
                for name, environment in family.items()
            ]
    return Section(
        EXHIBIT.name,
        EXHIBIT.title,
        WHERE,
        "The further weak dominance is from failing, the sooner the test can be sure. On "
        "synthetic data ξ is varied by the cost of the last arm (with the lowest, weak dominance "
        "fails); in the realizable setting, by leaving out contexts in which the test is decided "
        "by less than a margin.",
        tables=(
            Table(
                "margin-regret",
                f"Regret of USS-PD after {choices.ROUNDS:,} rounds (realizable: its upper bound)",
                ("setting", "instance", "ξ", "regret"),
                tuple(rows),
            ),
        ),
        pictures=(
            Picture(
                "margin-regret",
                "Regret against ξ",
                "Regret at the end against the margin of weak dominance, a row for each setting, "
                "synthetic data on the left and the realizable setting on the right.",
                partial(_figure, evidence),
            ),
        ),
        claims=tuple(_falls(evidence, s, family) for s in NAMES for family in FAMILIES),
    )


def _falls(evidence: ClaimEvidence, setting: str, family: str) -> Claim:
    ends = [evidence.added(setting, name, "USS-PD") for name in FAMILIES[family]]
    steps = [paired_difference(a, b) for a, b in pairwise(ends)]
    whole = paired_difference(ends[0], ends[-1])
    ups = [step for step in steps if verdict(step) == FAILED]
    return Claim(
        f"Regret falls as ξ grows: {family} (criterion: it is lower at the largest ξ than at the "
        "smallest, and no step is significantly up)",
        WHERE,
        setting,
        all_of([verdict(whole), *(verdict(step) for step in ups)]),
        "regret "
        + ", ".join(format_value(mean_interval(end)) for end in ends)
        + f"; lower at the largest ξ by {format_value(whole)}",
        why=WHY[family],
    )


@styled
def _figure(evidence: ClaimEvidence) -> Figure:
    figure = panels(len(NAMES), len(FAMILIES), width=4.2, height=2.8)
    for axes, (setting, family) in zip(
        figure.axes, [(s, f) for s in NAMES for f in FAMILIES], strict=True
    ):
        members = FAMILIES[family]
        x = [strength(environment) for environment in members.values()]
        for policy in evidence.policies(setting, next(iter(members))):
            values = [evidence.mean(setting, name, policy) for name in members]
            points(axes, x, values, policy, LOOKS[policy])
        axes.set_title(f"{family} · {setting}")
        axes.set_xlabel("ξ₅" if family == "synthetic" else "ξ")
        axes.set_ylabel("regret" if family == "synthetic" else "pseudo-regret")
        from_zero(axes)
    legend_below(figure)
    return figure


EXHIBIT = Exhibit("margin-regret", "Regret against ξ", WHERE, _build, cells=_cells)
