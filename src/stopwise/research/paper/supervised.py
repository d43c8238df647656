"""Figure: USS-PD beside the same rule with labels, on synthetic instance 3."""

from functools import partial

from stopwise.intervals import mean_interval
from stopwise.reporting.elements import Picture
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.summary import paired_difference
from stopwise.research.paper import choices, instances
from stopwise.research.paper.drawing import curve_grid
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.fifths import LAST, SECOND, final_table
from stopwise.research.paper.section import Claim, Exhibit, verdict

INSTANCE = "instance 3"


def _claims(evidence: ClaimEvidence, setting: str) -> list[Claim]:
    lead = evidence.lead(setting, INSTANCE, "supervised", "USS-PD")
    early, late = (_gap(evidence, setting, part) for part in (SECOND, LAST))
    closed, left = paired_difference(early, late), mean_interval(late)
    still = "still above zero" if left.low > 0 else "no longer clearly above zero"
    return [
        Claim(
            "With labels the regret is lower than without",
            verdict(lead),
            f"supervised {fmt(evidence.mean(setting, INSTANCE, 'supervised'))}, USS-PD "
            f"{fmt(evidence.mean(setting, INSTANCE))}; lower by {fmt(lead)}",
        ),
        Claim(
            "Without labels one comes close to it: the gap in regret for each round closes",
            verdict(closed),
            f"gap for each round {fmt(mean_interval(early))} in the second fifth, {fmt(left)} in "
            f"the last, {still}; smaller by {fmt(closed)}",
            "it is smaller in the last fifth of the rounds than in the second",
        ),
    ]


def _gap(evidence: ClaimEvidence, setting: str, part: tuple[float, float]) -> list[float]:
    """Return how much more regret USS-PD had in a round of a fifth, by seed."""
    without, with_labels = (
        evidence.added(setting, INSTANCE, policy, part=part) for policy in ("USS-PD", "supervised")
    )
    return [(a - b) / (0.2 * choices.ROUNDS) for a, b in zip(without, with_labels, strict=True)]


EXHIBIT = Exhibit(
    "supervised",
    "With and without labels on synthetic instance 3",
    "Figure 1b",
    "After each round the supervised learner sees which of the arms it ran were right, and tests "
    "with differences of error rates in place of disagreement. Labels help; the claim is that "
    "without them one comes close in the end.",
    cells=lambda: cells_of(
        {INSTANCE: instances.synthetic(choices.SYNTHETIC_COSTS[INSTANCE])}, supervised=True
    ),
    tables=lambda evidence: [
        final_table(evidence, "supervised-final", f"Regret after {choices.ROUNDS:,} rounds")
    ],
    pictures=lambda evidence: [
        Picture(
            "supervised-regret",
            f"Regret on {INSTANCE}, with and without labels",
            "Cumulative regret of the supervised learner, USS-PD and the others; a row for each "
            "setting.",
            partial(curve_grid, evidence, "regret", "regret"),
        ),
    ],
    claims=_claims,
)
