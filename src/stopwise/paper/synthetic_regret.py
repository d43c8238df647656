"""Figure: regret of USS-PD on the four synthetic instances."""

from functools import partial
from itertools import pairwise

from stopwise.experiments.summary import What, mean_interval, paired_difference
from stopwise.paper import choices, instances
from stopwise.paper.drawing import curve_grid, instance_panels
from stopwise.paper.evidence import ClaimEvidence, cells_of
from stopwise.paper.fifths import LAST, SECOND, fifths_table, final_table, flattens
from stopwise.paper.section import Claim, Exhibit, all_of, verdict
from stopwise.reporting.parts import Picture
from stopwise.reporting.wording import format_value as fmt

FIRST, *DOMINANT = choices.SYNTHETIC_COSTS


def _claims(evidence: ClaimEvidence, setting: str) -> list[Claim]:
    linear = partial(_linear, evidence, setting)
    why = (
        "Weak dominance holds here, but disagreement is not logistic in features of degree two: "
        "the model errs for good on some contexts. The supervised learner's regret goes on in the "
        "same way."
    )
    return [
        linear(
            "regret",
            "regret grows linearly",
            why="Its regret is mostly that of learning, which falls. Contexts without weak "
            "dominance are 16 of 5,000, and even the clairvoyant rule loses little on them.",
        ),
        linear(
            "undominated",
            "the part from contexts without weak dominance grows linearly",
            why="USS-PD pays less there than the clairvoyant rule: its logistic model of degree "
            "two does not see how often arms 4 and 5 disagree on those few contexts.",
        ),
        _falling(evidence, setting),
        *(
            flattens(evidence, setting, k, "regret is sub-linear", "Theorem 2, on Figure 1a", why)
            for k in DOMINANT
        ),
    ]


def _linear(evidence: ClaimEvidence, setting: str, what: What, text: str, why: str) -> Claim:
    early, late = (evidence.added(setting, FIRST, "USS-PD", what, p) for p in (SECOND, LAST))
    goes_on = paired_difference(late, [0.5 * e for e in early])
    true = mean_interval(evidence.added(setting, FIRST, "clairvoyant", what, LAST))
    return Claim(
        f"Instance 1: {text}",
        all_of([verdict(mean_interval(late)), verdict(goes_on)]),
        f"second fifth {fmt(mean_interval(early))}, last fifth {fmt(mean_interval(late))}; the "
        f"last minus half of the second: {fmt(goes_on)}; clairvoyant, last fifth {fmt(true)}",
        "in the last fifth of the rounds it is above zero, and more than half of that in the "
        "second",
        why,
    )


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
        Picture(
            "synthetic-everybody",
            "The same beside the other policies: what contexts buy",
            "Cumulative regret of all policies, a column for each instance and a row for each "
            "setting.",
            partial(curve_grid, evidence, "regret", "regret"),
        ),
    ],
    claims=_claims,
)
