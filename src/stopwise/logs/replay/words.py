"""What to take from a replay, in sentences."""

from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.logs.replay.totals import ENOUGH

CLOSE = 5e-5  # costs nearer than this read the same


def sentences(found: Replay) -> list[str]:
    """Return what to take from it: warnings, the best policy, then what the numbers rest on."""
    best = found.policies[0]
    said = list(found.notes)
    if found.exact:
        said += [saving(best, found), *_against_best(best, found)]
    else:
        said += [*_beyond(found), _only_known(found)]
    said += [
        f"{one.name} decides as the log says in every round: it repeats the run that wrote it."
        for one in found.policies
        if one.as_played is not None and one.as_played.value == 1.0 and _varied(one)
    ]
    if found.unanswered:
        said.append(
            f"In {counted(found.unanswered, 'round')} the first arm failed; they count for nobody."
        )
    if found.audited:
        said.append(
            f"The right answers of {found.audited:,} rounds were told to the policies that can "
            "use them; what such labels cost is not counted."
        )
    if found.labelled and found.judged_by == "cost + disagreement":
        said.append(
            f"The log has {counted(found.labelled, 'label')}, too few to compare losses (that "
            f"takes {ENOUGH}): lines are compared by cost + disagreement."
        )
    if found.exact and not found.labelled:
        said.append(
            "Without labels nobody knows who was right: disagreeing with the deepest arm is not "
            "an error, but errors cannot grow by more."
        )
    return said


def saving(one: CandidateResult, found: Replay) -> str:
    """Say what a policy would have cost beside always going all the way."""
    deepest = found.fixed[-1]
    if one.cost is None or deepest.cost is None:
        return f"{counted(found.rounds, 'round')}: too few to say anything of {one.name}."
    words = f"{one.name} would have cost {number(one.cost.value)} a round"
    full = deepest.cost.value
    if full > 0:
        share = 1 - one.cost.value / full
        if abs(share) < CLOSE:
            words += f", as much as always going to {deepest.name!r}"
        else:
            more = "less" if share > 0 else "more"
            words += f", {percent(abs(share))} {more} than always going to {deepest.name!r}"
    if one.disagreement is not None:
        words += f", disagreeing with it in {percent(one.disagreement.value)}"
        if one.compared < one.rounds:
            words += f" (known for {one.compared:,} of {counted(one.rounds, 'round')} only)"
    if one.error is not None and deepest.error is not None:
        words += (
            f" and wrong in {percent(one.error.value)} of "
            f"{counted(one.labelled, 'labelled round')} ({deepest.name!r} is wrong in "
            f"{percent(deepest.error.value)})"
        )
    return f"{words}."


def _varied(one: CandidateResult) -> bool:
    """Say whether it is more than a depth that is always the same."""
    return max(share.value for share in one.depths) < 1.0


def _against_best(one: CandidateResult, found: Replay) -> list[str]:
    if found.best_fixed is None or one.over_fixed is None:
        return []
    best, more = found.fixed[found.best_fixed], one.over_fixed[found.best_fixed]
    mine = one.value(found.judged_by)
    if mine is None:
        return []
    n, which = one.compared, "round"
    if found.judged_by == "total loss":
        n, which = one.labelled, "labelled round"
    what = f"Its {found.judged_by}, {number(mine.value)} a round in {counted(n, which)},"
    whom = f"that of the best fixed depth in hindsight, always {best.name!r}"
    if more.low <= 0 <= more.high:
        between = f"between {number(more.low)} and {number(more.high)}"
        return [f"{what} cannot be told apart from {whom}: the difference is {between}."]
    word = "lower" if more.value < 0 else "higher"
    near, far = sorted((abs(more.low), abs(more.high)))
    return [
        f"{what} is {number(abs(more.value))} ({number(near)} to {number(far)}) {word} than {whom}."
    ]


def _beyond(found: Replay) -> list[str]:
    said: list[str] = []
    for one in found.policies:
        if one.beyond:
            said.append(
                f"{one.name} decided deeper than the log knows in {one.beyond:,} of "
                f"{counted(found.rounds, 'round')} ({percent(one.beyond / found.rounds)})."
            )
            continue
        exact = (
            "its numbers are exact"
            if one.compared == one.rounds
            else f"its cost is exact; its disagreement is known for {one.compared:,} of "
            f"{counted(one.rounds, 'round')} only"
        )
        said.append(f"{one.name} never decided deeper than the log knows: {exact}.")
    return said


def _only_known(found: Replay) -> str:
    return (
        f"The log ends early in {found.truncated:,} of {counted(found.rounds, 'round')}. Numbers "
        "are of the rounds that can be evaluated only: they are no totals, those of one line are "
        "of other rounds than those of the next, and no line can be said to beat another. A log "
        "in which every arm ran every time, if only for a week, would tell."
    )


def percent(share: float) -> str:
    """Write a share as a person would say it.

    Examples
    --------
    >>> percent(0.0213), percent(0.41), percent(0), percent(0.00002)
    ('2.1 %', '41 %', '0 %', '0.002 %')
    """
    value = 100 * share
    if value == 0 or value >= 99.95:
        return f"{value:.0f} %"
    if value >= 9.95:
        return f"{value:.1f}".removesuffix(".0") + " %"
    return f"{value:.1f} %" if value >= 0.095 else f"{value:.1g} %"


def number(value: float) -> str:
    """Write a cost with three digits, never as 1e-05.

    Examples
    --------
    >>> number(0.21349), number(12.345), number(1234.5), number(0)
    ('0.213', '12.3', '1,234', '0')
    """
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.0001 else f"{value:.6f}".rstrip("0").rstrip(".")


def counted(count: int, noun: str) -> str:
    """Count things.

    Examples
    --------
    >>> counted(1, "round"), counted(1200, "round")
    ('1 round', '1,200 rounds')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
