"""Totals over tenants, and the recommendation over weights of the costs."""

import math
from collections.abc import Mapping

import msgspec

from stopwise.checks import ENOUGH
from stopwise.logs.log import Log
from stopwise.logs.recommendation import Kind, Option, recommend
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.logs.replay.tally import Tally
from stopwise.reporting.wording import number, percent_interval, plural

SHOWN = 3  # tenants where a policy pays most, and least, that are named


def merged(log: Log, by: str, tallies: Mapping[str, Tally]) -> Replay:
    """Add the counts of all tenants, and name those where the best policy pays most, and least."""
    total = sum(tallies.values(), start=next(iter(tallies.values())).empty(log)).result()
    answered = {name: one for name, one in tallies.items() if one.answered}
    tenants = {name: one.result(total.judged_by) for name, one in answered.items()}
    best, saved = total.policies[0].name, list[tuple[float, str]]()
    against = len(total.arms) - 1 if total.best_fixed is None else total.best_fixed
    for name, one in tenants.items():
        more = next(line.over_fixed for line in one.policies if line.name == best)
        if more is not None:
            less = -more[against].value
            words = f"{name or 'none'} ({number(less)}, {plural(one.rounds, 'round')})"
            saved.append((-less, words))
    saved.sort()
    ends = saved[:SHOWN], saved[SHOWN:][::-1][:SHOWN]
    most, least = (", ".join(words for _, words in some) for some in ends)
    notes = f"{plural(len(tallies), 'value')} of {by}, each with policies of its own."
    if saved:
        notes += (
            f" How much less {total.judged_by} a round {best} has than always "
            f"{total.arms[against]}: most with {most}{f'; least with {least}' if least else ''}."
        )
    return msgspec.structs.replace(total, tenants=tenants, notes=(*total.notes, notes))


def choose(
    grid: Mapping[float, Replay], target_error: float | None, budget: float | None
) -> Replay:
    """Return the replay with the weight of the recommended policy, else that nearest to 1."""
    nearest = min(grid, key=lambda weight: abs(math.log(weight)))
    found, notes = grid[nearest], list[str]()
    options = [
        _option(one, "policy", w, replay) for w, replay in grid.items() for one in replay.policies
    ]
    policies = [one for one in options if one is not None]
    depths = [one for line in found.fixed if (one := _option(line, "fixed depth", 1.0, found))]
    labelled = found.judged_by == "total loss"
    if target_error is not None and not labelled:
        words = f"{plural(found.labelled, 'label')}, and --target-error takes {ENOUGH}"
        notes.append(f"Warning: the target is not used: the log has {words}.")
        target_error = None
    recommendation = None
    if found.exact and len(depths) == len(found.fixed) and len(policies) == len(options):
        recommendation = recommend(
            depths,
            policies,
            loss=found.judged_by,
            budget=budget,
            target_error=target_error,
            labelled=found.fixed[-1].labelled if labelled else 0,
        )
    best = nearest
    if recommendation is not None and recommendation.kind == "policy":
        best, name = recommendation.weight, recommendation.name
        k = list(grid).index(best)
        beside = list(grid)[max(k - 1, 0) : k + 2]
        points = "; ".join(_point(grid[weight], weight, name) for weight in beside)
        notes += [f"{name}, of {len(grid)} weights: {points}."] if len(grid) > 1 else []
    return msgspec.structs.replace(
        grid[best],
        weight=best,
        grid={} if list(grid) == [1.0] else grid,
        recommendation=recommendation,
        notes=(*notes, *grid[best].notes),
    )


def _option(one: CandidateResult, kind: Kind, weight: float, found: Replay) -> Option | None:
    loss = one.value(found.judged_by)
    if one.cost is None or loss is None or (kind == "policy" and one.over_fixed is None):
        return None
    error = one.error if found.judged_by == "total loss" else None
    return Option(kind, one.name, one.cost.value, error, loss, one.over_fixed or (), weight)


def _point(found: Replay, weight: float, name: str) -> str:
    one = next(line for line in found.policies if line.name == name)
    words = f"weight {weight:g}"
    words += f" costs {number(one.cost.value)} a round" if one.cost else ""
    missed = ("wrong", one.error)
    if one.error is None:
        missed = (f"disagreeing with {found.arms[-1]}", one.disagreement)
    what, share = missed
    words += f", {what} in {percent_interval(share)}" if share else ""
    return words
