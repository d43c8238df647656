"""Figures 3a and 3b: pseudo-regret in the realizable setting, with four and five arms."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from stopwise.reporting.elements import Picture, Table
from stopwise.research.experiments.summary import Measure
from stopwise.research.paper import choices, instances
from stopwise.research.paper.curve_summaries import fifths_table, final_table, growth_claim
from stopwise.research.paper.drawing import instance_panels
from stopwise.research.paper.evidence import ClaimEvidence, cells_of
from stopwise.research.paper.section import Claim, Exhibit
from stopwise.research.paper.settings import SETTING_FREE

NUMERALS = {4: "four", 5: "five"}
# The paper's plots show 500 repetitions of USS-PD only; the cheap policies get as many.
MANY = ("USS-PD", *SETTING_FREE)


class PseudoRegret(NamedTuple):
    """One of the paper's two definitions of pseudo-regret."""

    measure: Measure
    suffix: str  # of the names of tables and figures
    title: str
    formula: str


DEFINITIONS = (
    PseudoRegret(
        "regret", "", "pseudo-regret", "Σ |C_I − C_i*| + p_i*I, as in the paper's caption"
    ),
    PseudoRegret(
        "signed",
        "-signed",
        "signed pseudo-regret",
        "Σ [C_I − C_i* + p_i*I], as in the paper's text",
    ),
)


def _exhibit(n_arms: int, where: str) -> Exhibit:
    name = f"realizable-{n_arms}"
    arms = NUMERALS[n_arms]

    def tables(evidence: ClaimEvidence) -> Iterator[Table]:
        for form in DEFINITIONS:
            yield final_table(
                evidence,
                f"{name}-final{form.suffix}",
                f"{form.title.capitalize()} after {choices.ROUNDS:,} rounds: {form.formula}",
                partial(evidence.mean, measure=form.measure),
            )
            yield fifths_table(evidence, f"{name}-fifths{form.suffix}", form.measure, form.title)

    def pictures(evidence: ClaimEvidence) -> Iterator[Picture]:
        for form in DEFINITIONS:
            yield Picture(
                f"{name}-regret{form.suffix}",
                f"{form.title.capitalize()} of USS-PD, {arms} classifiers: {form.formula}",
                f"Cumulative {form.title}, one curve per case and one panel per setting.",
                partial(instance_panels, evidence, form.title, form.measure),
            )

    def claims(evidence: ClaimEvidence, setting: str) -> Iterator[Claim]:
        for form in DEFINITIONS:
            for case in evidence.instances():
                text = f"the {form.title} is sub-linear"
                yield growth_claim(evidence, setting, case, text, measure=form.measure)

    return Exhibit(
        name,
        f"Realizable setting with {arms} classifiers",
        where,
        "Disagreement is exactly logistic, arms with these disagreements exist, and weak dominance "
        "holds everywhere, as the theorem requires. There are no error rates. The paper gives two "
        "upper bounds on regret, one in the caption of the figure and one in the text. They differ "
        "if a policy stops before the optimal arm: the caption adds the saved cost, the text "
        "subtracts it. The second bound equals the regret if the label is the answer of the "
        "optimal arm. Both are zero for the *clairvoyant* rule.",
        cells=lambda: cells_of(
            {
                f"case {c}": instances.realizable(n_arms, c, xi)
                for c, xi in choices.REALIZABLE_MARGINS.items()
            }
        ),
        many=MANY,
        tables=lambda evidence: list(tables(evidence)),
        pictures=lambda evidence: list(pictures(evidence)),
        claims=lambda evidence, setting: list(claims(evidence, setting)),
    )


FOUR = _exhibit(4, "Figure 3a (supplement)")
FIVE = _exhibit(5, "Figure 3b (supplement)")
