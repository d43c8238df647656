"""Tables 1 and 2: the instances' costs and fractions of weakly dominant contexts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stopwise.reporting.elements import Table
from stopwise.research.environments.base import Batch
from stopwise.research.experiments.runs import build_environment, draw_batch
from stopwise.research.experiments.spec import EnvironmentSpec
from stopwise.research.paper import choices, instances
from stopwise.research.paper.section import FAILED, HELD, Claim, Exhibit
from stopwise.research.theory.dominance import arm_margins


class Family(NamedTuple):
    """The instances of a data set, the fractions printed in the paper, and the tolerance."""

    table: str
    title: str
    name: str
    instances: Mapping[str, EnvironmentSpec]
    printed: Sequence[float]
    tolerance: float


SYNTHETIC = Family(
    "table1",
    "Synthetic instances",
    "the four synthetic instances",
    {k: instances.synthetic(c) for k, c in choices.SYNTHETIC_COSTS.items()},
    choices.SYNTHETIC_FRACTIONS,
    0.002,
)
PIMA = Family(
    "table2-pima",
    "PIMA Indian Diabetes",
    "the three PIMA instances",
    {k: instances.pima(c) for k, c in choices.REAL_COSTS.items()},
    choices.PIMA_FRACTIONS,
    0.005,
)
HEART = Family(
    "table2-heart",
    "Heart Disease",
    "the three Heart instances",
    {k: instances.heart(c) for k, c in choices.REAL_COSTS.items()},
    choices.HEART_FRACTIONS,
    0.010,
)


def contexts_of(environment: EnvironmentSpec) -> Batch:
    """Return the 5,000 contexts of a run, with their ground truth."""
    return draw_batch(environment, choices.ROUNDS, seed=0)


def margins_of(environment: EnvironmentSpec) -> tuple[float, float]:
    """Return ξ, the minimum margin over all arms, and ξ_K, the margin for the last arm."""
    batch = contexts_of(environment)
    cascade = build_environment(environment).cascade
    margins = arm_margins(cascade, batch.disagreement, batch.optimal)
    return float(margins.min()), float(margins[-1])


def _fractions(family: Family) -> list[float]:
    return [float(contexts_of(e).dominant.mean()) for e in family.instances.values()]


def _table(family: Family) -> Table:
    fractions = zip(family.instances.items(), _fractions(family), family.printed, strict=True)
    arms = len(next(iter(family.instances.values())).costs)
    return Table(
        family.table,
        family.title,
        (
            "instance",
            *(f"arm {k}" for k in range(1, arms + 1)),
            "weakly dominant",
            "printed",
            "difference",
            "ξ",
            f"ξ{'₀₁₂₃₄₅'[arms]}",
        ),
        tuple(
            (name, *e.costs, ours, paper, ours - paper, *margins_of(e))
            for (name, e), ours, paper in fractions
        ),
        note="The columns are the cost of each arm, the fraction of weakly dominant contexts (as "
        "reproduced here and as printed in the paper), ξ and ξ_K. ξ is the minimum margin of weak "
        "dominance over all contexts and arms; it is negative if weak dominance fails anywhere. "
        "ξ_K is the margin of the last arm K: the minimum of C_K − C_i* − p_i*K over contexts with "
        "another optimal arm. ξ is the minimum of all ξ_h.",
    )


def _optimal_table() -> Table:
    rows = [
        (data, name, *(float((contexts_of(e).optimal == arm).mean()) for arm in range(3)))
        for data, family in (("PIMA", PIMA), ("Heart", HEART))
        for name, e in family.instances.items()
    ]
    return Table(
        "table2-optimal",
        "Fraction of contexts for which each arm is optimal",
        ("data", "instance", "arm 1", "arm 2", "arm 3"),
        tuple(rows),
    )


def _claim(family: Family) -> Claim:
    """Test whether every fraction differs from the printed one by at most the tolerance.

    The arms' regularisation was fitted to the printed fractions, so the claim is only that such a
    fit exists.
    """
    fractions = list(zip(_fractions(family), family.printed, strict=True))
    worst = max(abs(ours - paper) for ours, paper in fractions)
    return Claim(
        f"Arms can be trained so that the weak dominance fractions of {family.name} match the "
        f"printed ones to within {family.tolerance}",
        HELD if worst <= family.tolerance else FAILED,
        f"largest difference {worst:.4f}: "
        + ", ".join(f"{ours:.4f} (printed {paper:.4f})" for ours, paper in fractions),
    )


TABLE_1 = Exhibit(
    "table1",
    "Costs and weak dominance on synthetic data",
    "Table 1 (supplement)",
    "Five logistic classifiers with different regularisation on one synthetic data set. A context "
    "is weakly dominant if, for every arm deeper than its best arm, the extra cost exceeds the "
    "probability that the two arms disagree.",
    tables=lambda _: [_table(SYNTHETIC)],
    claims=lambda _, setting: [_claim(SYNTHETIC)],
    settings=("",),
)
TABLE_2 = Exhibit(
    "table2",
    "Costs and weak dominance on PIMA and Heart",
    "Table 2 (supplement)",
    "On both data sets few contexts are weakly dominant. In the other contexts, disagreement "
    "cannot reveal the best arm, so the paper compares total costs instead of regret. The last "
    "table shows why: the cheapest arm is nearly always the best, and it disagrees with the next "
    "arm more often than that arm's cost allows.",
    tables=lambda _: [_table(PIMA), _table(HEART), _optimal_table()],
    claims=lambda _, setting: [_claim(PIMA), _claim(HEART)],
    settings=("",),
)
