"""Figure 1b: USS-PD and the same rule with labels on synthetic instance 3."""

from functools import partial

from stopwise.intervals import mean_interval
from stopwise.reporting.elements import Picture
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.summary import paired_difference
from stopwise.research.paper import choices, instances
from stopwise.research.paper.curve_summaries import LAST, SECOND, final_table
from stopwise.research.paper.drawing import curve_grid
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.section import Claim, Exhibit, verdict

INSTANCE = "instance 3"


def _claims(evidence: ClaimEvidence, setting: str) -> list[Claim]:
    lead = evidence.lead(setting, INSTANCE, "supervised", "USS-PD")
    early = _gap(evidence, setting, SECOND)
    late = _gap(evidence, setting, LAST)
    closed, remaining = paired_difference(early, late), mean_interval(late)
    sign = "still above zero" if remaining.low > 0 else "no longer clearly above zero"
    return [
        Claim(
            "Regret is lower with labels than without",
            verdict(lead),
            f"supervised {fmt(evidence.mean(setting, INSTANCE, 'supervised'))}, USS-PD "
            f"{fmt(evidence.mean(setting, INSTANCE))}; lower by {fmt(lead)}",
        ),
        Claim(
            "The gap in regret per round between learning without and with labels closes",
            verdict(closed),
            f"gap per round {fmt(mean_interval(early))} in the second fifth, {fmt(remaining)} in "
            f"the last, {sign}; smaller by {fmt(closed)}",
            "the gap is smaller in the last fifth of the rounds than in the second",
        ),
    ]


def _gap(evidence: ClaimEvidence, setting: str, part: tuple[float, float]) -> list[float]:
    """Return USS-PD's regret per round minus the supervised learner's, one value per seed.

    Only the rounds of ``part``, a fifth of all rounds, count.
    """
    without = evidence.added(setting, INSTANCE, "USS-PD", part=part)
    with_labels = evidence.added(setting, INSTANCE, "supervised", part=part)
    return [(a - b) / (0.2 * choices.ROUNDS) for a, b in zip(without, with_labels, strict=True)]


EXHIBIT = Exhibit(
    "supervised",
    "With and without labels on synthetic instance 3",
    "Figure 1b",
    "After each round, the supervised learner is told which of the arms that ran were right. Its "
    "test uses differences of error rates instead of disagreement. The paper claims that USS-PD "
    "comes close to the supervised learner without labels.",
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
            "Cumulative regret of the supervised learner, USS-PD and the other policies, one panel "
            "per setting.",
            partial(curve_grid, evidence, "regret", "regret"),
        ),
    ],
    claims=_claims,
)
