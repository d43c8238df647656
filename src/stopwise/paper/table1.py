"""Table 1: costs and weak dominance fractions of the synthetic instances."""

from stopwise.paper import choices, instances
from stopwise.paper.evidence import ClaimEvidence
from stopwise.paper.exhibit import Exhibit
from stopwise.paper.fractions import fraction_claim, fraction_table, fractions
from stopwise.paper.section import Section

WHERE = "Table 1 (supplement)"


def _build(_: ClaimEvidence) -> Section:
    synthetic = {k: instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()}
    found = fractions(synthetic, choices.SYNTHETIC_FRACTIONS)
    return Section(
        EXHIBIT.name,
        EXHIBIT.title,
        WHERE,
        "Five logistic classifiers of different regularisation on one synthetic data set. A "
        "context is weakly dominant if, at its best arm, every deeper arm costs more than the two "
        "disagree.",
        tables=(fraction_table("table1", "Synthetic instances", found),),
        claims=(fraction_claim(found, 0.002, "the four synthetic instances", WHERE),),
    )


EXHIBIT = Exhibit("table1", "Costs and weak dominance on synthetic data", WHERE, _build)
