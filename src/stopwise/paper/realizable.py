"""Figures: pseudo-regret in the realizable setting, with four and with five arms."""

from functools import partial

from stopwise.paper import choices, instances
from stopwise.paper.drawing import instance_panels
from stopwise.paper.evidence import cells_of
from stopwise.paper.fifths import fifths_table, final_table, growth
from stopwise.paper.section import Exhibit
from stopwise.paper.settings import SETTING_FREE
from stopwise.reporting.parts import Picture

WORDS = {4: "four", 5: "five"}
# The paper's plots show USS-PD alone, 500 times. Policies that cost little are repeated as often.
MANY = ("USS-PD", *SETTING_FREE)


def _exhibit(n_arms: int, where: str) -> Exhibit:
    name = f"realizable-{n_arms}"

    return Exhibit(
        name,
        f"Realizable setting with {WORDS[n_arms]} classifiers",
        where,
        "Disagreement of arms that exist is exactly logistic and weak dominance holds everywhere, "
        "as the theorem requires. There are no error rates, so the curve is the paper's upper "
        "bound on regret, Σ |C_I − C_i*| + p_i*I. The *clairvoyant* rule is optimal by definition.",
        cells=lambda: cells_of(
            {
                f"case {c}": instances.realizable(n_arms, c, xi)
                for c, xi in choices.REALIZABLE_MARGINS.items()
            }
        ),
        many=MANY,
        tables=lambda evidence: [
            final_table(
                evidence, f"{name}-final", f"Pseudo-regret after {choices.ROUNDS:,} rounds"
            ),
            fifths_table(evidence, f"{name}-fifths"),
        ],
        pictures=lambda evidence: [
            Picture(
                f"{name}-regret",
                f"Pseudo-regret of USS-PD, {WORDS[n_arms]} classifiers",
                "Cumulative pseudo-regret, a curve for each case and a panel for each setting.",
                partial(instance_panels, evidence, "pseudo-regret"),
            ),
        ],
        claims=lambda evidence, setting: [
            growth(evidence, setting, case, "the pseudo-regret is sub-linear")
            for case in evidence.instances()
        ],
    )


FOUR = _exhibit(4, "Figure 3a (supplement)")
FIVE = _exhibit(5, "Figure 3b (supplement)")
