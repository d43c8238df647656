"""Tenants merged, costs multiplied by weights, and the weight that reaches a target."""

import math
import warnings
from collections.abc import Mapping

import msgspec

from stopwise.cascade import Cascade
from stopwise.errors import CostUnitWarning
from stopwise.logs.log import Log
from stopwise.logs.replay.results import Replay
from stopwise.logs.replay.tally import Tally
from stopwise.reporting.wording import number, percent, percent_interval, plural

WEIGHTS = tuple(round(2.0 ** (k / 2), 3) for k in range(-6, 7))  # 1/8 to 8: tried for a target
SHOWN = 3  # tenants where a policy pays most, and least, that are named


def weighted(cascade: Cascade, weight: float) -> Cascade:
    """Return a cascade with its costs multiplied."""
    if weight == 1:
        return cascade
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostUnitWarning)  # that of the costs as given is enough
        return Cascade(cascade.costs, cascade.names, cascade.tradeoff * weight)


def merged(log: Log, by: str, tallies: Mapping[str, Tally]) -> Replay:
    """Add the counts of all tenants, and name those where the best policy pays most, and least."""
    total = sum(tallies.values(), start=next(iter(tallies.values())).empty(log)).result()
    answered = {name: one for name, one in tallies.items() if one.answered}
    tenants = {name: one.result(total.judged_by) for name, one in answered.items()}
    best, saved = total.policies[0].name, list[tuple[float, str]]()
    for name, one in tenants.items():
        more = next(line.over_fixed for line in one.policies if line.name == best)
        if more is not None:
            words = f"{name or 'none'} ({number(-more[-1].value)}, {plural(one.rounds, 'round')})"
            saved.append((more[-1].value, words))
    saved.sort()
    ends = saved[:SHOWN], saved[SHOWN:][::-1][:SHOWN]
    most, least = (", ".join(words for _, words in some) for some in ends)
    notes = f"{plural(len(tallies), 'value')} of {by}, each with policies of its own."
    if saved:
        notes += (
            f" {best} has less {total.judged_by} than always {total.arms[-1]!r}, most with {most}"
            f"{f'; least with {least}' if least else ''}."
        )
    return msgspec.structs.replace(total, tenants=tenants, notes=(*total.notes, notes))


def choose(grid: Mapping[float, Replay], error: float | None, budget: float | None) -> Replay:
    """Return the cheapest replay that reaches an error, or the least wrong within a budget.

    If none does, or neither is given, that with the weight nearest to 1.
    """
    points: list[tuple[float, float, float, str]] = []
    for weight, found in grid.items():
        for one in found.policies:
            missed = one.error or (one.disagreement if error is None else None)
            if one.exact and one.cost and missed:
                cost, wrong = one.cost.value / weight, missed.value
                if error is not None and wrong <= error:
                    points.append((cost, wrong, weight, one.name))
                if budget is not None and cost <= budget:
                    points.append((wrong, cost, weight, one.name))
    weights, best = list(grid), min(grid, key=lambda weight: abs(math.log(weight)))
    goal = "" if budget is None else f"costs at most {number(budget)} a round"
    goal = goal if error is None else f"is wrong in at most {percent(error)}"
    notes = [f"Of {len(grid)} weights with each policy, none {goal}."] if goal else []
    name = grid[best].policies[0].name
    if points:
        *_, best, name = min(points)
        notes = [f"Of what {goal}, the best is {name} with weight {best:g}."]
        weights = weights[max(weights.index(best) - 1, 0) : weights.index(best) + 2]
    notes += [f"{name}: {'; '.join(_point(grid[weight], weight, name) for weight in weights)}."]
    notes += [f"Costs are multiplied by {best:g}."] if best != 1 else []
    return msgspec.structs.replace(
        grid[best], weight=best, grid=grid, notes=(*notes, *grid[best].notes)
    )


def _point(found: Replay, weight: float, name: str) -> str:
    one = next(line for line in found.policies if line.name == name)
    words = f"weight {weight:g}"
    words += f" costs {number(one.cost.value / weight)} unweighted" if one.cost else ""
    for what, share in (("wrong", one.error), ("unlike the last arm", one.disagreement)):
        words += f", {what} {percent_interval(*share)}" if share else ""
    return words
