"""The conclusions of a replay as sentences."""

import numpy as np

from stopwise.cascade import cost_unit_warning
from stopwise.checks import ENOUGH
from stopwise.logs.recommendation import Kind
from stopwise.logs.replay.results import CandidateResult, Replay
from stopwise.logs.units import describe_unit
from stopwise.reporting.wording import number, percent, plural

NEGLIGIBLE = 5e-5  # shares closer to 0 are written as "as much as"


def sentences(replay: Replay) -> list[str]:
    """Return warnings, the recommendation, and the assumptions behind the numbers."""
    lines = list(replay.notes)
    if warning := cost_unit_warning(replay.arms, np.array(replay.costs) / replay.error_cost):
        lines.append(f"Warning: {warning}; to use amounts of money, add --error-cost.")
    if replay.exact:
        lines += _recommended(replay)
        lines.append(
            f"Costs are {describe_unit(replay.error_cost)}. They include rounds that went deeper "
            'only to learn; "stopwise diagnose" excludes these.'
        )
    else:
        lines += [_beyond(row, replay) for row in replay.policies]
        lines.append(_no_comparison(replay))
    if replay.unanswered:
        rounds = plural(replay.unanswered, "round")
        lines.append(f"The first arm failed in {rounds}, which are not counted.")
    if replay.asked:
        received = replay.answered
        counts = ", ".join(
            f"{name} {n:,} ({received[name]:,} received)" for name, n in replay.asked.items()
        )
        others = ", ".join(row.name for row in replay.policies if row.name not in replay.asked)
        counts += f"; none by {others}" if others else ""
        lines.append(f"Labels requested: {counts}; the cost of labels is not counted.")
        if any(received[name] < n for name, n in replay.asked.items()):
            lines.append(
                "A requested label that the log does not have counts as the worst case, because "
                "labels may not be missing at random. Rounds therefore go deeper than with all "
                "labels."
            )
    if replay.labelled and replay.judged_by == "cost + disagreement":
        lines.append(
            f"The log has {plural(replay.labelled, 'label')}, too few to compare losses (at least "
            f"{ENOUGH} are needed): options are compared by cost + disagreement."
        )
    if replay.exact and not replay.labelled:
        lines.append(
            "Without labels it is unknown which arm was right: disagreeing with the deepest arm is "
            'not an error, but bounds the increase in errors. "stopwise diagnose" says how many '
            "labels are needed, and --label-rows writes the rows to label to a file."
        )
    return lines


def _recommended(replay: Replay) -> list[str]:
    """Return the recommendation and the outcome of the recommended option."""
    chosen = replay.recommendation
    if chosen is None:
        return [f"{plural(replay.rounds, 'round')}: too few for a conclusion."]
    rows = replay.policies if chosen.kind == "policy" else replay.fixed
    row = next(row for row in rows if row.name == chosen.name)
    lines = [chosen.sentence, _outcome(row, chosen.kind, replay)]
    if chosen.weight != 1:
        weight = f"{chosen.weight:g}"
        lines.append(
            f"Weight {weight}: create the policy with every cost multiplied by {weight}, or with "
            f"Cascade(costs, tradeoff={chosen.weight / replay.error_cost:g}). All amounts here are "
            "at your own costs."
        )
    return lines


def _outcome(row: CandidateResult, kind: Kind, replay: Replay) -> str:
    """Return the outcome of an option, compared with always running the deepest arm."""
    deepest = replay.fixed[-1]
    assert row.cost is not None  # only options with a cost are recommended
    assert deepest.cost is not None
    name = row.name if kind == "policy" else f"Always {row.name}"
    text = f"{name} would have cost {number(row.cost.value)} per round"
    full = deepest.cost.value
    if full > 0 and row is not deepest:
        share = 1 - row.cost.value / full
        more = f"{percent(abs(share))} {'less than' if share > 0 else 'more than'}"
        text += f", {'as much as' if abs(share) < NEGLIGIBLE else more} always {deepest.name}"
    if row.disagreement is not None and row is not deepest:
        text += f", disagreeing with it in {percent(row.disagreement.value)}"
        if row.compared < row.rounds:
            text += f" (known for only {row.compared:,} of {plural(row.rounds, 'round')})"
    if row.error is not None and deepest.error is not None:
        labelled = plural(row.labelled, "labelled round")
        text += f" and wrong in {percent(row.error.value)} of {labelled}"
        if row is not deepest:
            text += f" (always {deepest.name} is wrong in {percent(deepest.error.value)})"
    return f"{text}."


def _beyond(row: CandidateResult, replay: Replay) -> str:
    if row.beyond:
        return (
            f"{row.name} went deeper than the log in {row.beyond:,} of "
            f"{plural(replay.rounds, 'round')} ({percent(row.beyond / replay.rounds)})."
        )
    exact = "its numbers are exact"
    if row.compared < row.rounds:
        exact = (
            f"its cost is exact; its disagreement is known for only {row.compared:,} of "
            f"{plural(row.rounds, 'round')}"
        )
    return f"{row.name} never went deeper than the log: {exact}."


def _no_comparison(replay: Replay) -> str:
    return (
        f"No recommendation: the log ends early in {replay.truncated:,} of "
        f"{plural(replay.rounds, 'round')}. The numbers are not totals: each row of the table "
        "covers only the rounds that can be evaluated for it, so rows cannot be compared. For a "
        "comparison, log a period, such as a week, in which every arm always runs."
    )
