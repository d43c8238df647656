"""Figure: total cost on the Heart Disease data."""

from stopwise.paper import instances
from stopwise.paper.total_cost import total_cost_exhibit

EXHIBIT = total_cost_exhibit(
    "heart-cost", "Heart Disease", "Figure 2b (supplement)", instances.heart
)
