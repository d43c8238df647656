"""Totals over tenants, and the choice among weights of the costs."""

import math
from collections.abc import Mapping

import msgspec

from stopwise.checks import ENOUGH
from stopwise.logs.log import Log
from stopwise.logs.recommendation import Kind, Option, recommend
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.logs.replay.tally import Tally
from stopwise.reporting.wording import number, percent_interval, plural

MAX_NAMED = 3  # tenants named with the largest, and with the smallest, saving


def merge_tenants(log: Log, by: str, tallies: Mapping[str, Tally]) -> Replay:
    """Add up all tenants, and note for which tenants the best policy saves most and least."""
    total = sum(tallies.values(), start=next(iter(tallies.values())).empty(log)).result()
    answered = {name: tally for name, tally in tallies.items() if tally.answered}
    tenants = {name: tally.result(total.judged_by) for name, tally in answered.items()}
    best = total.policies[0].name
    savings: list[tuple[float, str]] = []
    against = len(total.arms) - 1 if total.best_fixed is None else total.best_fixed
    for name, tenant in tenants.items():
        over_fixed = next(row.over_fixed for row in tenant.policies if row.name == best)
        if over_fixed is not None:
            saving = -over_fixed[against].value
            text = f"{name or 'none'} ({number(saving)}, {plural(tenant.rounds, 'round')})"
            savings.append((-saving, text))
    savings.sort()
    largest = ", ".join(text for _, text in savings[:MAX_NAMED])
    smallest = ", ".join(text for _, text in savings[MAX_NAMED:][::-1][:MAX_NAMED])
    note = f"{plural(len(tallies), 'value')} of {by}, each with separate policies."
    if savings:
        note += (
            f" Reduction of the {total.judged_by} per round by {best}, compared with always "
            f"{total.arms[against]}: largest for {largest}"
            f"{f'; smallest for {smallest}' if smallest else ''}."
        )
    return msgspec.structs.replace(total, tenants=tenants, notes=(*total.notes, note))


def choose_weight(
    grid: Mapping[float, Replay], target_error: float | None, budget: float | None
) -> Replay:
    """Return the replay for the weight of the recommended policy, else for the weight nearest 1."""
    nearest = min(grid, key=lambda weight: abs(math.log(weight)))
    default = grid[nearest]
    notes: list[str] = []
    options = [
        _option(row, "policy", weight, replay)
        for weight, replay in grid.items()
        for row in replay.policies
    ]
    policies = [option for option in options if option is not None]
    fixed = [_option(row, "fixed depth", 1.0, default) for row in default.fixed]
    depths = [option for option in fixed if option is not None]
    labelled = default.judged_by == "total loss"
    if target_error is not None and not labelled:
        few = f"{plural(default.labelled, 'label')}, and --target-error needs at least {ENOUGH}"
        notes.append(f"Warning: the target is ignored: the log has {few}.")
        target_error = None
    recommendation = None
    if default.exact and len(depths) == len(default.fixed) and len(policies) == len(options):
        recommendation = recommend(
            depths,
            policies,
            loss=default.judged_by,
            budget=budget,
            target_error=target_error,
            labelled=default.fixed[-1].labelled if labelled else 0,
        )
    best = nearest
    if recommendation is not None and recommendation.kind == "policy":
        best = recommendation.weight
        name = recommendation.name
        k = list(grid).index(best)
        neighbours = list(grid)[max(k - 1, 0) : k + 2]
        points = "; ".join(_point(grid[weight], weight, name) for weight in neighbours)
        if len(grid) > 1:
            notes.append(f"{name} near the recommended weight (of {len(grid)}): {points}.")
    return msgspec.structs.replace(
        grid[best],
        weight=best,
        grid={} if list(grid) == [1.0] else grid,
        recommendation=recommendation,
        notes=(*notes, *grid[best].notes),
    )


def _option(row: CandidateResult, kind: Kind, weight: float, replay: Replay) -> Option | None:
    loss = row.value(replay.judged_by)
    if row.cost is None or loss is None or (kind == "policy" and row.over_fixed is None):
        return None
    error = row.error if replay.judged_by == "total loss" else None
    return Option(kind, row.name, row.cost.value, error, loss, row.over_fixed or (), weight)


def _point(replay: Replay, weight: float, name: str) -> str:
    row = next(row for row in replay.policies if row.name == name)
    text = f"weight {weight:g}"
    if row.cost:
        text += f" costs {number(row.cost.value)} per round"
    if row.error is not None:
        text += f", wrong in {percent_interval(row.error)}"
    elif row.disagreement is not None:
        text += f", disagreeing with {replay.arms[-1]} in {percent_interval(row.disagreement)}"
    return text
