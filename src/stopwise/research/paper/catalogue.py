"""All tables and figures of the paper, in its order."""

from stopwise.research.paper import margin_regret, realizable, supervised, synthetic_regret, tables
from stopwise.research.paper.section import Exhibit
from stopwise.research.paper.total_cost import HEART, PIMA

EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit
    for exhibit in (
        tables.TABLE_1,
        tables.TABLE_2,
        synthetic_regret.EXHIBIT,
        supervised.EXHIBIT,
        PIMA,
        margin_regret.EXHIBIT,
        HEART,
        realizable.FOUR,
        realizable.FIVE,
    )
}
