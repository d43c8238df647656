"""Figures: pseudo-regret in the realizable setting, with four and with five arms."""

from functools import partial

from stopwise.experiments.summary import Interval, mean_interval, paired_difference
from stopwise.paper import choices, instances
from stopwise.paper.drawing import curve_grid, instance_panels
from stopwise.paper.evidence import Cell, Evidence, cells_of
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fifths import LAST, SECOND, fifths_table
from stopwise.paper.report_text import shown
from stopwise.paper.section import Claim, Picture, Section, Table, verdict
from stopwise.paper.settings import SETTING_FREE, SETTINGS

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

    def build(evidence: Evidence) -> Section:
        return Section(
            name,
            title,
            where,
            "Disagreement probabilities are exactly logistic and weak dominance holds everywhere, "
            "as the theorem asks. Arms have no error rates here, so the curve is the paper's "
            "upper bound on regret, Σ |C_I − C_i*| + p_i*I. The *clairvoyant* rule is optimal by "
            "definition.",
            tables=(_final_table(evidence, name), fifths_table(evidence, f"{name}-fifths")),
            pictures=(
                Picture(
                    f"{name}-regret",
                    f"Pseudo-regret of USS-PD, {WORDS[n_arms]} classifiers",
                    "Cumulative pseudo-regret, a curve for each case and a panel for each setting.",
                    partial(instance_panels, evidence, NAMES, "regret", "pseudo-regret"),
                ),
                Picture(
                    f"{name}-everybody",
                    "The same beside the other policies",
                    "Cumulative pseudo-regret of all policies, a column for each case and a row "
                    "for each setting.",
                    partial(curve_grid, evidence, NAMES, "regret", "pseudo-regret"),
                ),
            ),
            claims=tuple(
                _flattens(evidence, setting, case, n_arms, where)
                for setting in NAMES
                for case in evidence.instances()
            ),
        )

    return Exhibit(name, title, where, build, cells=cells, many=MANY)


def _flattens(evidence: Evidence, setting: str, case: str, n_arms: int, where: str) -> Claim:
    early = evidence.added(setting, case, "USS-PD", part=SECOND)
    late = evidence.added(setting, case, "USS-PD", part=LAST)
    flatter = paired_difference([0.5 * e for e in early], late)
    return Claim(
        f"With {WORDS[n_arms]} classifiers the pseudo-regret is logarithmic: {case} (criterion: "
        "the last fifth of the rounds adds less than half of what the second fifth adds)",
        where,
        setting,
        verdict(flatter),
        f"second fifth {shown(mean_interval(early))}, last fifth {shown(mean_interval(late))}",
    )


def _final_table(evidence: Evidence, name: str) -> Table:
    cases = evidence.instances()
    rows: list[tuple[str | Interval, ...]] = []
    for setting in NAMES:
        rows += [
            (setting, policy, *(evidence.mean(setting, case, policy) for case in cases))
            for policy in evidence.policies(setting, cases[0])
        ]
    return Table(
        f"{name}-final",
        f"Pseudo-regret after {choices.ROUNDS:,} rounds",
        ("setting", "policy", *cases),
        tuple(rows),
    )


FOUR = _exhibit(4, "Figure 3a (supplement)")
FIVE = _exhibit(5, "Figure 3b (supplement)")
