"""Figure: regret of USS-PD on the four synthetic instances."""

from functools import partial
from itertools import pairwise

from stopwise.intervals import mean_interval
from stopwise.reporting.elements import Picture
from stopwise.reporting.wording import format_value as fmt
from stopwise.research.experiments.summary import paired_difference
from stopwise.research.paper import choices, instances
from stopwise.research.paper.drawing import instance_panels
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.fifths import fifths_table, final_table, growth
from stopwise.research.paper.section import Claim, Exhibit, all_of, verdict

FIRST, *DOMINANT = choices.SYNTHETIC_COSTS


def _claims(evidence: ClaimEvidence, setting: str) -> list[Claim]:
    linear = partial(growth, evidence, setting, FIRST, linear=True)
    why = (
        "Weak dominance holds here, but disagreement is not logistic in features of degree two: "
        "the model errs for good on some contexts, with labels too."
    )
    return [
        linear(
            "regret grows linearly",
            "Its regret is mostly that of learning, which falls. Contexts without weak "
            "dominance are 16 of 5,000, and even the clairvoyant rule loses little on them.",
        ),
        linear(
            "the part from contexts without weak dominance grows linearly",
            "USS-PD pays less there than the clairvoyant rule: its logistic model of degree two "
            "does not see how often arms 4 and 5 disagree on those few contexts.",
            what="undominated",
        ),
        _falling(evidence, setting),
        *(growth(evidence, setting, k, "regret is sub-linear (Theorem 2)", why) for k in DOMINANT),
    ]


def _falling(evidence: ClaimEvidence, setting: str) -> Claim:
    ends = [evidence.added(setting, k) for k in DOMINANT]
    steps = [paired_difference(a, b) for a, b in pairwise(ends)]
    regrets = ", ".join(fmt(mean_interval(end)) for end in ends)
    return Claim(
        "Regret falls from instance 2 to 3 and from 3 to 4",
        all_of([verdict(step) for step in steps]),
        f"regret {regrets}; steps down {', '.join(map(fmt, steps))}",
        "each step is down, by a 95 % interval on differences paired by seed",
    )


EXHIBIT = Exhibit(
    "synthetic-regret",
    "Regret on the synthetic instances",
    "Figure 1a",
    "The instances differ in the cost of the last arm, whose answers are close to coin flips. In "
    "instance 1 a few contexts are not weakly dominant: there the test goes to the last arm for "
    "ever, even with the true probabilities (*clairvoyant*), and pays for it in every round.",
    cells=lambda: cells_of({k: instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()}),
    tables=lambda evidence: [
        final_table(evidence, "synthetic-final", f"Regret after {choices.ROUNDS:,} rounds"),
        fifths_table(evidence, "synthetic-fifths"),
    ],
    pictures=lambda evidence: [
        Picture(
            "synthetic-regret",
            "Regret of USS-PD on the four instances; vertical lines are 95 % confidence intervals",
            "Cumulative regret over 5,000 rounds, one curve for each instance, a panel for each "
            "setting.",
            partial(instance_panels, evidence, "regret"),
        ),
    ],
    claims=_claims,
)
