"""Figures 1c and 2b: total cost on PIMA and Heart, compared with fixed and random depths."""

from collections.abc import Callable
from functools import partial

from stopwise.reporting.elements import Picture
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.spec import EnvironmentSpec, PolicySpec
from stopwise.research.paper import choices, instances
from stopwise.research.paper.curve_summaries import final_table
from stopwise.research.paper.drawing import curve_grid
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.section import FAILED, Claim, Exhibit, verdict

# `I_t=1`, which always stops at the cheapest arm, is not in the paper.
BASELINES = {f"I_t={k + 1}": PolicySpec("fixed-depth", {"depth": k}) for k in range(3)}
BASELINES["random"] = PolicySpec("random-depth")
CLAIMED = ("I_t=3", "I_t=2", "random")
TEXT = (
    "The total cost is Σ (γ_I(x) + C_I), the cost of errors plus that of arms. Few contexts are "
    "weakly dominant here, so the test goes too deep even with the true probabilities: where the "
    "*clairvoyant* rule loses to a baseline, the loss is due to the rule and not to learning. A "
    "learner that wrongly stops early can even do better than this rule. `I_t=1` is not in the "
    "paper; since the first arm is nearly always the best (table 2), it beats everything else."
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
                f"Total cost per round on {data}",
                evidence.cost_per_round,
                note="Policies that do not depend on the setting are listed under both.",
            )
        ],
        pictures=lambda evidence: [
            Picture(
                f"{name}-curves",
                f"Cumulative total cost on {data}",
                "Cumulative total cost of all policies and baselines, one column per instance and "
                "one row per setting.",
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
    ours = evidence.cost_per_round(setting, instance, "USS-PD")
    clairvoyant = evidence.cost_per_round(setting, instance, "clairvoyant")
    theirs = evidence.cost_per_round(setting, instance, baseline)
    outcome = verdict(lead)
    loss = ours.value - theirs.value
    learning = ours.value - clairvoyant.value
    why = (
        f"Of the loss of {loss:.3f}, {learning:.3f} is due to learning (USS-PD minus clairvoyant) "
        f"and {loss - learning:.3f} to the rule itself (clairvoyant minus {baseline}; negative if "
        "the rule wins)."
    )
    return Claim(
        f"{instance.capitalize()}: USS-PD costs less than {baseline}",
        outcome,
        f"a round costs {fmt(ours)}, compared with {fmt(theirs)}, a difference of "
        f"{fmt(lead / choices.ROUNDS)}; the clairvoyant rule costs {fmt(clairvoyant)}",
        why=why if outcome == FAILED else "",
    )


PIMA = _exhibit("pima-cost", "PIMA Indian Diabetes", "Figure 1c", instances.pima)
HEART = _exhibit("heart-cost", "Heart Disease", "Figure 2b (supplement)", instances.heart)
