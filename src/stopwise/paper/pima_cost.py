"""Figure: total cost on the PIMA Indian Diabetes data."""

from stopwise.paper import instances
from stopwise.paper.total_cost import total_cost_exhibit

EXHIBIT = total_cost_exhibit("pima-cost", "PIMA Indian Diabetes", "Figure 1c", instances.pima)
