"""Figures: pseudo-regret in the realizable setting, with four and with five arms."""

from functools import partial

from stopwise.paper import choices, instances
from stopwise.paper.drawing import curve_grid, instance_panels
from stopwise.paper.evidence import Cell, ClaimEvidence, cells_of
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fifths import fifths_table, final_table, flattens
from stopwise.paper.section import Section
from stopwise.paper.settings import SETTING_FREE, SETTINGS
from stopwise.reporting.parts import Picture

NAMES = tuple(setting.name for setting in SETTINGS)
WORDS = {4: "four", 5: "five"}
# The paper's plots show USS-PD alone, 500 times. What costs next to nothing is repeated as often.
MANY = ("USS-PD", *SETTING_FREE)


def _exhibit(n_arms: int, where: str) -> Exhibit:
    name = f"realizable-{n_arms}"
    title = f"Realizable setting with {WORDS[n_arms]} classifiers"

    def cells() -> list[Cell]:
        cases = zip(choices.REALIZABLE_CASES, choices.REALIZABLE_MARGINS, strict=True)
        return cells_of({f"case {c}": instances.realizable(n_arms, c, xi) for c, xi in cases})

    def build(evidence: ClaimEvidence) -> Section:
        return Section(
            name,
            title,
            where,
            "Disagreement probabilities are exactly logistic and weak dominance holds everywhere, "
            "as the theorem asks. Arms have no error rates here, so the curve is the paper's "
            "upper bound on regret, Σ |C_I − C_i*| + p_i*I. The *clairvoyant* rule is optimal by "
            "definition.",
            tables=(
                final_table(evidence, f"{name}-final", "Pseudo-regret"),
                fifths_table(evidence, f"{name}-fifths"),
            ),
            pictures=(
                Picture(
                    f"{name}-regret",
                    f"Pseudo-regret of USS-PD, {WORDS[n_arms]} classifiers",
                    "Cumulative pseudo-regret, a curve for each case and a panel for each setting.",
                    partial(instance_panels, evidence, NAMES, "regret", "pseudo-regret"),
                ),
                Picture(
                    f"{name}-everybody",
                    "The same beside the other policies; logarithmic above 100",
                    "Cumulative pseudo-regret of all policies, a column for each case and a row "
                    "for each setting.",
                    partial(curve_grid, evidence, NAMES, "regret", "pseudo-regret", scale="symlog"),
                ),
            ),
            claims=tuple(
                flattens(
                    evidence,
                    setting,
                    case,
                    f"{case.capitalize()}: the pseudo-regret flattens",
                    where,
                )
                for setting in NAMES
                for case in evidence.instances()
            ),
        )

    return Exhibit(name, title, where, build, cells=cells, many=MANY)


FOUR = _exhibit(4, "Figure 3a (supplement)")
FIVE = _exhibit(5, "Figure 3b (supplement)")
