"""Figure 1a: regret of USS-PD on the four synthetic instances."""

from functools import partial
from itertools import pairwise

from stopwise.intervals import mean_interval
from stopwise.reporting.elements import Picture
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.summary import paired_difference
from stopwise.research.paper import choices, instances
from stopwise.research.paper.curve_summaries import fifths_table, final_table, growth_claim
from stopwise.research.paper.drawing import instance_panels
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.section import Claim, Exhibit, all_of, verdict

FIRST, *DOMINANT = choices.SYNTHETIC_COSTS


def _claims(evidence: ClaimEvidence, setting: str) -> list[Claim]:
    linear = partial(growth_claim, evidence, setting, FIRST, linear=True)
    why = (
        "Weak dominance holds, but disagreement is not logistic in features of degree two. In some "
        "contexts the model stays wrong, even with labels."
    )
    return [
        linear(
            "regret grows linearly",
            "Most of the regret is due to learning, and its growth slows down. Only 16 of 5,000 "
            "contexts lack weak dominance, and even the clairvoyant rule loses little in them.",
        ),
        linear(
            "the part from contexts without weak dominance grows linearly",
            "In these contexts USS-PD loses less than the clairvoyant rule: its logistic model of "
            "degree two underestimates how often arms 4 and 5 disagree there.",
            measure="undominated",
        ),
        _falling(evidence, setting),
        *(
            growth_claim(evidence, setting, k, "regret is sub-linear (Theorem 2)", why)
            for k in DOMINANT
        ),
    ]


def _falling(evidence: ClaimEvidence, setting: str) -> Claim:
    finals = [evidence.added(setting, k) for k in DOMINANT]
    steps = [paired_difference(a, b) for a, b in pairwise(finals)]
    regrets = ", ".join(fmt(mean_interval(final)) for final in finals)
    return Claim(
        "Regret falls from instance 2 to 3 and from 3 to 4",
        all_of([verdict(step) for step in steps]),
        f"regret {regrets}; decreases {', '.join(map(fmt, steps))}",
        "each step is a decrease, by a 95 % interval on differences paired by seed",
    )


EXHIBIT = Exhibit(
    "synthetic-regret",
    "Regret on the synthetic instances",
    "Figure 1a",
    "The instances differ in the cost of the last arm, whose answers are nearly random. In "
    "instance 1, a few contexts are not weakly dominant. In these, the test always goes to the "
    "last arm, even with the true probabilities (*clairvoyant*), and loses in every round.",
    cells=lambda: cells_of({k: instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()}),
    tables=lambda evidence: [
        final_table(evidence, "synthetic-final", f"Regret after {choices.ROUNDS:,} rounds"),
        fifths_table(evidence, "synthetic-fifths"),
    ],
    pictures=lambda evidence: [
        Picture(
            "synthetic-regret",
            "Regret of USS-PD on the four instances; vertical lines are 95 % confidence intervals",
            "Cumulative regret over 5,000 rounds, one curve per instance and one panel per "
            "setting.",
            partial(instance_panels, evidence, "regret"),
        ),
    ],
    claims=_claims,
)
