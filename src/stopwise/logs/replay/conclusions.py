"""The conclusions of a replay as sentences."""

import numpy as np

from stopwise.cascade import costs_doubt
from stopwise.checks import ENOUGH
from stopwise.logs.recommendation import Kind
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.logs.units import describe_unit
from stopwise.reporting.wording import number, percent, plural

CLOSE = 5e-5  # shares nearer to 0 than this read as 0


def sentences(found: Replay) -> list[str]:
    """Return warnings, the recommendation, then what the numbers rest on."""
    words = list(found.notes)
    if doubt := costs_doubt(found.arms, np.array(found.costs) / found.error_cost):
        words.append(f"Warning: {doubt}; amounts of money need --error-cost.")
    if found.exact:
        words += _recommended(found)
        words.append(
            f"Costs are {describe_unit(found.error_cost)} and count the rounds that went deeper to "
            'learn; "stopwise diagnose" leaves these out, so it shows a larger saving.'
        )
    else:
        words += [*(_beyond(one, found) for one in found.policies), _only_known(found)]
    if found.unanswered:
        words.append(
            f"In {plural(found.unanswered, 'round')} the first arm failed; they are not counted."
        )
    if found.asked:
        had = found.answered
        each = ", ".join(f"{name} {n:,} (got {had[name]:,})" for name, n in found.asked.items())
        others = ", ".join(one.name for one in found.policies if one.name not in found.asked)
        each += f"; none by {others}" if others else ""
        words.append(f"Labels asked for: {each}; what labels cost is not counted.")
        if any(had[name] < n for name, n in found.asked.items()):
            words.append(
                "Labels that the log does not have count as the worst case, because they may not "
                "be missing at random: rounds go deeper than with all labels."
            )
    if found.labelled and found.judged_by == "cost + disagreement":
        words.append(
            f"The log has {plural(found.labelled, 'label')}, too few to compare losses (that "
            f"takes {ENOUGH}): lines are compared by cost + disagreement."
        )
    if found.exact and not found.labelled:
        words.append(
            "Without labels it is unknown who was right: disagreeing with the deepest arm is not "
            'an error, but errors cannot grow by more. "stopwise diagnose" says how many labels '
            "are needed, and --label-rows writes them to a file."
        )
    return words


def _recommended(found: Replay) -> list[str]:
    """Recommend a policy or a fixed depth, and say what it would have done."""
    chosen = found.recommendation
    if chosen is None:
        return [f"{plural(found.rounds, 'round')}: too few to conclude anything."]
    lines = found.policies if chosen.kind == "policy" else found.fixed
    line = next(one for one in lines if one.name == chosen.name)
    words = [chosen.sentence, _outcome(line, chosen.kind, found)]
    if chosen.weight != 1:
        weight = f"{chosen.weight:g}"
        words.append(
            f"Weight {weight}: create the policy with every cost multiplied by {weight}, or with "
            f"Cascade(costs, tradeoff={chosen.weight / found.error_cost:g}). All amounts here are "
            "at your own costs."
        )
    return words


def _outcome(one: CandidateResult, kind: Kind, found: Replay) -> str:
    """Word what an option would have cost, beside always going to the deepest arm."""
    deepest = found.fixed[-1]
    assert one.cost is not None  # or it could not be recommended
    assert deepest.cost is not None
    name = one.name if kind == "policy" else f"Always {one.name}"
    words = f"{name} would have cost {number(one.cost.value)} a round"
    full = deepest.cost.value
    if full > 0 and one is not deepest:
        share = 1 - one.cost.value / full
        more = f"{percent(abs(share))} {'less than' if share > 0 else 'more than'}"
        words += f", {'as much as' if abs(share) < CLOSE else more} always {deepest.name}"
    if one.disagreement is not None and one is not deepest:
        words += f", disagreeing with it in {percent(one.disagreement.value)}"
        if one.compared < one.rounds:
            words += f" (known for {one.compared:,} of {plural(one.rounds, 'round')} only)"
    if one.error is not None and deepest.error is not None:
        words += (
            f" and wrong in {percent(one.error.value)} of {plural(one.labelled, 'labelled round')}"
        )
        if one is not deepest:
            words += f" (always {deepest.name} is wrong in {percent(deepest.error.value)})"
    return f"{words}."


def _beyond(one: CandidateResult, found: Replay) -> str:
    if one.beyond:
        return (
            f"{one.name} decided deeper than the log goes in {one.beyond:,} of "
            f"{plural(found.rounds, 'round')} ({percent(one.beyond / found.rounds)})."
        )
    exact = "its numbers are exact"
    if one.compared < one.rounds:
        exact = (
            f"its cost is exact; its disagreement is known for {one.compared:,} of "
            f"{plural(one.rounds, 'round')} only"
        )
    return f"{one.name} never decided deeper than the log goes: {exact}."


def _only_known(found: Replay) -> str:
    return (
        f"Nothing is recommended: the log ends early in {found.truncated:,} of "
        f"{plural(found.rounds, 'round')}. The "
        "numbers cover only rounds that can be evaluated: they are no totals, each line covers "
        "other rounds than the next, and no line can be said to beat another. To compare, use a "
        "log in which every arm ran every time, if only for a week."
    )
