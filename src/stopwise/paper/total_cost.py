"""Total cost on a real data set beside fixed depths and random: what PIMA and Heart share."""

from collections.abc import Callable
from functools import partial

from stopwise.experiments.spec import EnvironmentSpec, PolicySpec
from stopwise.experiments.summary import Interval
from stopwise.paper import choices
from stopwise.paper.drawing import bar_grid, curve_grid
from stopwise.paper.evidence import Cell, ClaimEvidence, cells_of, scaled
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.section import FAILED, Claim, Section, verdict
from stopwise.paper.settings import SETTINGS
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import format_value as fmt

NAMES = tuple(setting.name for setting in SETTINGS)
BASELINES = {
    "I_t=3": PolicySpec("fixed-depth", {"depth": 2}),
    "I_t=2": PolicySpec("fixed-depth", {"depth": 1}),
    "random": PolicySpec("random-depth"),
}
# Not in the paper: the cheapest arm alone.
FIRST = {"I_t=1": PolicySpec("fixed-depth", {"depth": 0})}
ORDER = (
    *("USS-PD", "USS-PD-λI", "Thompson", "USS-UCB", "USS-TS", "clairvoyant"),
    *("I_t=1", "I_t=2", "I_t=3", "random"),
)


def total_cost_exhibit(
    name: str, data: str, where: str, instance: Callable[[tuple[float, ...]], EnvironmentSpec]
) -> Exhibit:
    """Return the exhibit for a data set.

    Parameters
    ----------
    name, data, where : str
        What to call it, the data set, and the place in the paper.
    instance : callable
        From costs to the environment.
    """

    def cells() -> list[Cell]:
        family = {k: instance(costs) for k, costs in choices.REAL_COSTS.items()}
        return cells_of(family, {**BASELINES, **FIRST})

    def build(evidence: ClaimEvidence) -> Section:
        return Section(
            name,
            title,
            where,
            "Total cost is Σ (γ_I(x) + C_I): errors and what the arms cost. Few contexts are "
            "weakly dominant here, so the test goes too deep even with the true probabilities: "
            "where the *clairvoyant* rule loses to a baseline, the loss is the rule's and not the "
            "learner's. A learner that stops earlier by mistake can then gain by it. `I_t=1` is "
            "not in the paper; since the first arm is nearly always the best one (table 2), it "
            "beats everything else.",
            tables=(_table(evidence, name, data),),
            pictures=(
                Picture(
                    f"{name}-curves",
                    f"Cumulative total cost on {data}",
                    "Cumulative total cost of all policies and baselines, a column for each "
                    "instance and a row for each setting.",
                    partial(curve_grid, evidence, NAMES, "total_cost", "total cost"),
                ),
                Picture(
                    f"{name}-bars",
                    f"Total cost for each round on {data}; less is better",
                    "Bars of the mean total cost of a round, a column for each instance and a row "
                    "for each setting.",
                    partial(
                        bar_grid, evidence, NAMES, "total_cost", "total cost for each round", ORDER
                    ),
                ),
            ),
            claims=tuple(
                _beats(evidence, setting, k, baseline, where)
                for setting in NAMES
                for k in choices.REAL_COSTS
                for baseline in BASELINES
            ),
        )

    title = f"Total cost on {data}"
    return Exhibit(name, title, where, build, cells=cells)


def _beats(
    evidence: ClaimEvidence, setting: str, instance: str, baseline: str, where: str
) -> Claim:
    per_round = partial(evidence.per_round, setting, instance, what="total_cost")
    lead = evidence.lead(setting, instance, "USS-PD", baseline, "total_cost")
    ours, told, theirs = (per_round(policy=p) for p in ("USS-PD", "clairvoyant", baseline))
    found = verdict(lead)
    why = ""
    if found == FAILED:
        lost, learning = ours.mean - theirs.mean, ours.mean - told.mean
        why = (
            f"Of the {lost:.3f} lost, {learning:.3f} is learning (USS-PD less the clairvoyant "
            f"rule) and {lost - learning:.3f} the rule itself (clairvoyant less {baseline}; "
            "negative where the rule wins)."
        )
    return Claim(
        f"{instance.capitalize()}: USS-PD costs less than {baseline}",
        where,
        setting,
        found,
        f"a round costs {fmt(ours)} against {fmt(theirs)}, less by "
        f"{fmt(scaled(lead, 1 / choices.ROUNDS))}; the clairvoyant rule costs {fmt(told)}",
        why=why,
    )


def _table(evidence: ClaimEvidence, name: str, data: str) -> Table:
    rows: list[tuple[str | Interval, ...]] = []
    for setting in NAMES:
        for policy in ORDER:
            costs = (
                evidence.per_round(setting, k, policy, "total_cost") for k in choices.REAL_COSTS
            )
            rows.append((setting, policy, *costs))
    return Table(
        f"{name}-final",
        f"Total cost for each round on {data}",
        ("setting", "policy", *choices.REAL_COSTS),
        tuple(rows),
        note="Policies that take no setting stand in both.",
    )
