"""Table 2: costs and weak dominance fractions of the real instances."""

from stopwise.paper import choices, instances
from stopwise.paper.evidence import ClaimEvidence
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fractions import contexts_of, fraction_claim, fraction_table, fractions
from stopwise.paper.section import Section
from stopwise.reporting.parts import Table
from stopwise.reporting.wording import Value

WHERE = "Table 2 (supplement)"


def _build(_: ClaimEvidence) -> Section:
    pima = {k: instances.pima(c) for k, c in choices.REAL_COSTS.items()}
    heart = {k: instances.heart(c) for k, c in choices.REAL_COSTS.items()}
    on_pima = fractions(pima, choices.PIMA_FRACTIONS)
    on_heart = fractions(heart, choices.HEART_FRACTIONS)
    best: list[tuple[Value, ...]] = []
    for data, family in (("PIMA", pima), ("Heart", heart)):
        for name, environment in family.items():
            batch = contexts_of(environment)
            shares = [float((batch.optimal == arm).mean()) for arm in range(3)]
            best.append((data, name, *shares))
    return Section(
        EXHIBIT.name,
        EXHIBIT.title,
        WHERE,
        "On both data sets few contexts are weakly dominant, so that disagreement cannot tell the "
        "best arm there, and the paper compares total costs instead of regret. The last table "
        "shows why: the cheapest arm is nearly always the best one, and it disagrees with the "
        "next more often than that costs.",
        tables=(
            fraction_table("table2-pima", "PIMA Indian Diabetes", on_pima),
            fraction_table("table2-heart", "Heart Disease", on_heart),
            Table(
                "table2-optimal",
                "Fraction of contexts for which each arm is optimal",
                ("data", "instance", "Clf. 1", "Clf. 2", "Clf. 3"),
                tuple(best),
            ),
        ),
        claims=(
            fraction_claim(on_pima, 0.005, "the three PIMA instances", WHERE),
            fraction_claim(on_heart, 0.010, "the three Heart instances", WHERE),
        ),
    )


EXHIBIT = Exhibit("table2", "Costs and weak dominance on PIMA and Heart", WHERE, _build)
