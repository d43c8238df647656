"""Figures: total cost on PIMA and on Heart, beside fixed depths and random."""

from collections.abc import Callable
from functools import partial

from stopwise.reporting.elements import Picture
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.spec import EnvironmentSpec, PolicySpec
from stopwise.research.paper import choices, instances
from stopwise.research.paper.drawing import curve_grid
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.fifths import final_table
from stopwise.research.paper.section import FAILED, Claim, Exhibit, verdict

# `I_t=1`, the cheapest arm alone, is not in the paper.
BASELINES = {f"I_t={k + 1}": PolicySpec("fixed-depth", {"depth": k}) for k in range(3)}
BASELINES["random"] = PolicySpec("random-depth")
CLAIMED = ("I_t=3", "I_t=2", "random")
TEXT = (
    "Total cost is Σ (γ_I(x) + C_I): errors and what the arms cost. Few contexts are weakly "
    "dominant here, so the test goes too deep even with the true probabilities: where the "
    "*clairvoyant* rule loses to a baseline, the loss is the rule's and not the learner's. A "
    "learner that stops earlier by mistake can then gain by it. `I_t=1` is not in the paper; since "
    "the first arm is nearly always the best one (table 2), it beats everything else."
)


def _exhibit(
    name: str, data: str, where: str, instance: Callable[[tuple[float, ...]], EnvironmentSpec]
) -> Exhibit:
    return Exhibit(
        name,
        f"Total cost on {data}",
        where,
        TEXT,
        cells=lambda: cells_of({k: instance(c) for k, c in choices.REAL_COSTS.items()}, BASELINES),
        tables=lambda evidence: [
            final_table(
                evidence,
                f"{name}-final",
                f"Total cost for each round on {data}",
                evidence.cost_per_round,
                note="Policies that take no setting are listed under both.",
            )
        ],
        pictures=lambda evidence: [
            Picture(
                f"{name}-curves",
                f"Cumulative total cost on {data}",
                "Cumulative total cost of all policies and baselines, a column for each instance "
                "and a row for each setting.",
                partial(curve_grid, evidence, "total_cost", "total cost"),
            ),
        ],
        claims=lambda evidence, setting: [
            _beats(evidence, setting, k, baseline)
            for k in choices.REAL_COSTS
            for baseline in CLAIMED
        ],
    )


def _beats(evidence: ClaimEvidence, setting: str, instance: str, baseline: str) -> Claim:
    lead = evidence.lead(setting, instance, "USS-PD", baseline, "total_cost")
    ours, true, theirs = (
        evidence.cost_per_round(setting, instance, p) for p in ("USS-PD", "clairvoyant", baseline)
    )
    found = verdict(lead)
    lost, learning = ours.value - theirs.value, ours.value - true.value
    why = (
        f"Of the {lost:.3f} lost, {learning:.3f} is learning (USS-PD less the clairvoyant rule) "
        f"and {lost - learning:.3f} the rule itself (clairvoyant less {baseline}; negative where "
        "the rule wins)."
    )
    return Claim(
        f"{instance.capitalize()}: USS-PD costs less than {baseline}",
        found,
        f"a round costs {fmt(ours)} against {fmt(theirs)}, less by "
        f"{fmt(lead / choices.ROUNDS)}; the clairvoyant rule costs {fmt(true)}",
        why=why if found == FAILED else "",
    )


PIMA = _exhibit("pima-cost", "PIMA Indian Diabetes", "Figure 1c", instances.pima)
HEART = _exhibit("heart-cost", "Heart Disease", "Figure 2b (supplement)", instances.heart)
