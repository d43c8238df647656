"""Every table and figure of the paper, in its order."""

from stopwise.paper import (
    heart_cost,
    margin_regret,
    pima_cost,
    realizable,
    supervised,
    synthetic_regret,
    table1,
    table2,
)
from stopwise.paper.exhibit import Exhibit

EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit
    for exhibit in (
        table1.EXHIBIT,
        table2.EXHIBIT,
        synthetic_regret.EXHIBIT,
        supervised.EXHIBIT,
        pima_cost.EXHIBIT,
        margin_regret.EXHIBIT,
        heart_cost.EXHIBIT,
        realizable.FOUR,
        realizable.FIVE,
    )
}
