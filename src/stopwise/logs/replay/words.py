"""The conclusions of a replay, in sentences."""

from stopwise.cascade import costs_doubt
from stopwise.checks import ENOUGH
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.reporting.wording import number, percent, plural

CLOSE = 5e-5  # shares nearer to 0 than this read as 0


def sentences(found: Replay) -> list[str]:
    """Return warnings, the best policy, then what the numbers rest on."""
    best = found.policies[0]
    words = list(found.notes)
    if doubt := costs_doubt(found.arms, found.costs):
        words.append(f"Warning: {doubt}; amounts of money need --error-cost.")
    if found.exact:
        words += [_saving(best, found), *_against_best(best, found), *_recommended(found)]
        words.append(
            "Costs are in units of one wrong answer and count the rounds that went deeper to "
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
                "A label that the log does not have counts as the worst that it could say, as it "
                "may be missing for a reason: rounds go deeper than with all labels."
            )
    if found.labelled and found.judged_by == "cost + disagreement":
        words.append(
            f"The log has {plural(found.labelled, 'label')}, too few to compare losses (that "
            f"takes {ENOUGH}): lines are compared by cost + disagreement."
        )
    if found.exact and not found.labelled:
        words.append(
            "Without labels nobody knows who was right: disagreeing with the deepest arm is not "
            "an error, but errors cannot grow by more."
        )
    return words


def _saving(one: CandidateResult, found: Replay) -> str:
    """Word what a policy would have cost beside always going to the deepest arm."""
    deepest = found.fixed[-1]
    if one.cost is None or deepest.cost is None:
        return f"{plural(found.rounds, 'round')}: too few to conclude anything about {one.name}."
    words = f"{one.name} would have cost {number(one.cost.value)} a round"
    full = deepest.cost.value
    if full > 0:
        share = 1 - one.cost.value / full
        more = f"{percent(abs(share))} {'less than' if share > 0 else 'more than'}"
        words += f", {'as much as' if abs(share) < CLOSE else more} always going to "
        words += repr(deepest.name)
    if one.disagreement is not None:
        words += f", disagreeing with it in {percent(one.disagreement.value)}"
        if one.compared < one.rounds:
            words += f" (known for {one.compared:,} of {plural(one.rounds, 'round')} only)"
    if one.error is not None and deepest.error is not None:
        words += (
            f" and wrong in {percent(one.error.value)} of "
            f"{plural(one.labelled, 'labelled round')} ({deepest.name!r} is wrong in "
            f"{percent(deepest.error.value)})"
        )
    return f"{words}."


def _against_best(one: CandidateResult, found: Replay) -> list[str]:
    mine = one.value(found.judged_by)
    if found.best_fixed is None or one.over_fixed is None or mine is None:
        return []
    best, more = found.fixed[found.best_fixed], one.over_fixed[found.best_fixed]
    n, which = one.compared, "round"
    if found.judged_by == "total loss":
        n, which = one.labelled, "labelled round"
    what = f"Its {found.judged_by}, {number(mine.value)} a round in {plural(n, which)},"
    other = f"that of the best fixed depth in hindsight, always {best.name!r}"
    if more.low <= 0 <= more.high:
        between = f"between {number(more.low)} and {number(more.high)}"
        return [f"{what} cannot be distinguished from {other}: the difference is {between}."]
    near, far = sorted((abs(more.low), abs(more.high)))
    by = f"{number(abs(more.value))} ({number(near)} to {number(far)})"
    return [f"{what} is {by} {'lower' if more.value < 0 else 'higher'} than {other}."]


def _recommended(found: Replay) -> list[str]:
    """Recommend one of several policies, with the reason."""
    best, by = found.policies[0], found.judged_by
    least = best.value(by)
    if len(found.policies) < 2 or least is None:
        return []
    chosen, why = best, f"of these policies the one with the least {by}"
    if by == "total loss":
        return [f"Recommended: {best.name}, {why} ({plural(best.labelled, 'labelled round')})."]
    for one in found.policies:
        mine, over = one.value(by), one.over_fixed  # it may have learned too little for that
        safe = mine and mine.low <= least.high and not (over and over[-1].low > 0)
        if safe and one.name.partition(":")[0] == "uss-anchor":
            chosen, why = one, "whichever arms are right: once it has learned it loses no more than"
            why += f" always {found.arms[-1]!r}"
    return [f"Recommended: {chosen.name}, {why}; without labels nobody knows more."]


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
        f"The log ends early in {found.truncated:,} of {plural(found.rounds, 'round')}. The "
        "numbers cover only rounds that can be evaluated: they are no totals, each line covers "
        "other rounds than the next, and no line can be said to beat another. To compare, use a "
        "log in which every arm ran every time, if only for a week."
    )
