"""How the report of a diagnosis words what was found, for a person who decides."""

import math
from itertools import pairwise
from typing import NamedTuple

from stopwise.experiments.summary import Interval
from stopwise.logs.diagnosis.findings import (
    Answer,
    Diagnosis,
    Estimate,
    FrontierPoint,
    GroupDisagreement,
    WorseArm,
)
from stopwise.logs.diagnosis.intervals import chi_square_limit
from stopwise.reporting.parts import Value

LONGEST = 40  # letters of a name in a sentence
LONGEST_IN_TABLE = 80
PERCENT = "\u00a0%"
MUCH_UNSEEN = 0.10  # a share of rows, as the verdict counts them
THIN = 0.02  # a margin below this is thin, as `Margins` counts them

HEADLINES: dict[Answer, str] = {
    "learnable": "This cascade can learn where to stop, without labels",
    "probably": "This cascade can probably learn where to stop, without labels",
    "not from disagreement alone": "Disagreement alone cannot teach this cascade where to stop",
}
# Answers are told apart by words and signs; colour only helps.
SIGNS: dict[Answer, str] = {"learnable": "✓", "probably": "?", "not from disagreement alone": "✗"}


class Number(NamedTuple):
    """One of the numbers that matter: its label, itself, and what to know about it."""

    label: str
    number: str
    words: str


# --- numbers --------------------------------------------------------------------------------------


def percent(share: float) -> str:
    r"""Word a share; no line breaks before the sign.

    Examples
    --------
    >>> percent(0.4912), percent(0.0612), percent(0.00041), percent(0.9971), percent(0.0)
    ('49\xa0%', '6.1\xa0%', '0.04\xa0%', '99.7\xa0%', '0\xa0%')
    """
    value = abs(100.0 * share)
    sign = "−" if share < 0 else ""
    if value == 0.0 or 9.95 <= value < 99 or value >= 99.95:
        return f"{sign}{value:.0f}{PERCENT}"
    return f"{sign}{value:.{1 if value >= 0.1 else 2}f}{PERCENT}"


def amount(value: float) -> str:
    """Word a cost: three digits, or all before the point.

    Examples
    --------
    >>> amount(0.24712), amount(247.12), amount(12345.6), amount(-0.005), amount(0.0)
    ('0.247', '247', '12,346', '−0.005', '0')
    """
    if value == 0.0:
        return "0"
    decimals = min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    text = f"{abs(value):,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").removesuffix(".")
    return f"−{text}" if value < 0 else text


def between(estimate: Estimate, scale: float = 1.0) -> str:
    """Word the interval of a cost; nothing where it is exact.

    Examples
    --------
    >>> between(Estimate(0.25, 0.24, 0.26), 1000), between(Estimate(1, 1, 1))
    ('240 to 260', '')
    """
    if estimate.low == estimate.high:
        return ""
    return f"{amount(estimate.low * scale)} to {amount(estimate.high * scale)}"


def percent_between(estimate: Estimate) -> str:
    r"""Word a share with its interval.

    Examples
    --------
    >>> percent_between(Estimate(0.061, 0.058, 0.064))
    '6.1\xa0% (5.8 to 6.4)'
    """
    if estimate.low == estimate.high:
        return percent(estimate.value)
    reach = 50 * (estimate.high - estimate.low)  # in percentage points
    decimals = 0 if reach >= 2 else 1 if reach >= 0.1 else 2
    value, low, high = (
        f"{100 * end + 0.0:.{decimals}f}".replace("-", "−")
        for end in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value}{PERCENT} ({low} to {high})"


def cell(estimate: Estimate, rows: int, scale: float = 1.0) -> Value:
    """Return an estimate as a value for a table; `scale` 100 makes a share a percentage."""
    if estimate.low == estimate.high:
        return estimate.value * scale
    ends = (estimate.value, estimate.low, estimate.high)
    mean, low, high = (end * scale for end in ends)
    return Interval(mean, low, high, rows)


# --- names ----------------------------------------------------------------------------------------


def plain(name: str) -> str:
    r"""Return a name with nothing in it that is not seen.

    Examples
    --------
    >>> plain("a\nb\x00")
    'a b'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def short(name: str, longest: int = LONGEST) -> str:
    """Return a name cut to fit.

    Examples
    --------
    >>> short("a-very-long-name-indeed", 12)
    'a-very-long…'
    """
    name = plain(name)
    return name if len(name) <= longest else name[: longest - 1].rstrip() + "…"


def called(name: str, longest: int = LONGEST) -> str:
    """Return a name as it stands in a sentence.

    Examples
    --------
    >>> called("glucose")
    '`glucose`'
    """
    return f"`{short(name, longest).replace('`', chr(39)) or '?'}`"


def tabled(name: str) -> str:
    """Return a name as it stands in a table.

    Examples
    --------
    >>> tabled("*glucose*")
    '`*glucose*`'
    """
    return called(name, LONGEST_IN_TABLE)


def arm(diagnosis: Diagnosis, which: int) -> str:
    """Return an arm as it stands in a sentence."""
    return called(diagnosis.arms[which].name)


def listed(words: list[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# --- what matters most ----------------------------------------------------------------------------


def reason(diagnosis: Diagnosis) -> str:
    """Return why the verdict is what it is, without the warnings, which have their own place."""
    said = diagnosis.verdict.reason
    for one in boxed(diagnosis):
        said = said.replace(one.words, "")
    return " ".join(said.split()) or diagnosis.verdict.reason


def numbers_that_matter(diagnosis: Diagnosis) -> tuple[Number, Number]:
    """Return the saving and the disagreement; the third, where it stops, is a bar."""
    saving = diagnosis.saving
    last = arm(diagnosis, -1)
    reach = between(saving.per_round, 1000)
    only = ""
    if diagnosis.unseen > MUCH_UNSEEN:
        only = (
            f"; of the other {percent(1 - diagnosis.unseen)} of rows only, as the rest are of "
            "kinds that never went there"
        )
    return (
        Number(
            "Saved in 1,000 rounds",
            amount(1000 * saving.per_round.value),
            f"in units of one wrong answer{f' (95 %: {reach})' if reach else ''}: "
            f"{percent(saving.share.value)} of what always running {last} costs{only}",
        ),
        Number(
            "Answers that would change",
            percent_between(saving.disagreement).partition(" (")[0],
            f"of rounds end with another answer than {last} would give"
            f"{_interval(saving.disagreement)}; not all of these are errors",
        ),
    )


def _interval(estimate: Estimate) -> str:
    ends = percent_between(estimate).partition(" (")[2]
    return f" (95 %: {ends.removesuffix(')')}{PERCENT})" if ends else ""


def stops(diagnosis: Diagnosis) -> str:
    """Say where the rule would stop."""
    at = [stop for stop in diagnosis.stops if stop.share.value > 0]
    parts = [f"at {arm(diagnosis, stop.arm)} in {percent(stop.share.value)}" for stop in at]
    never = [arm(diagnosis, stop.arm) for stop in diagnosis.stops if stop.share.value <= 0]
    rest = f", and never at {listed(never)}" if never else ""
    return f"The rule would stop {listed(parts)} of the rounds{rest}."


def saving(diagnosis: Diagnosis) -> str:
    """Say what the rule would save."""
    found = diagnosis.saving
    last = diagnosis.arms[-1]
    rule = last.total - found.per_round.value
    if found.per_round.low <= 0:
        return (
            f"No saving can be shown: a round would cost {amount(rule)} instead of the "
            f"{amount(last.total)} of always running {called(last.name)}."
        )
    return (
        f"A round would cost {amount(rule)} on average instead of {amount(last.total)}: "
        f"{percent_between(found.share)} less than always running {called(last.name)}."
    )


def frontier(diagnosis: Diagnosis) -> str:
    """Say how the rule compares with each fixed depth at that depth's own cost."""
    differs = _compared(
        diagnosis,
        [(p.cost, p.disagreement) for p in diagnosis.frontier],
        [p.disagreement for p in diagnosis.fixed],
    )
    said = "Compared at the same cost, the rule agrees with the last arm about as often as a fixed "
    said += "depth: "
    if not groups_vary(diagnosis):
        said += "the context says little about where the arms disagree."
    elif diagnosis.degree == 1:
        said += "disagreement varies with the context, but a straight-line model sees little of "
        said += "it; try --degree 2."
    else:
        said += "disagreement varies with the context, but the models see little of it."
    if differs:
        said = f"Compared at the same cost, the rule differs from the last arm {listed(differs)}."
    if all(p.error is not None for p in (*diagnosis.frontier, *diagnosis.fixed)):
        wrong = _compared(
            diagnosis,
            [(p.cost, p.error) for p in diagnosis.frontier if p.error is not None],
            [p.error for p in diagnosis.fixed if p.error is not None],
        )
        said += f" By the labels it is wrong {listed(wrong)}." if wrong else ""
    return said


def _compared(
    diagnosis: Diagnosis, moving: list[tuple[float, Estimate]], fixed: list[Estimate]
) -> list[str]:
    """Word the fixed depths, the last apart, from which the rule at their cost clearly differs."""
    curve = [(cost, estimate.value) for cost, estimate in moving]
    words: list[str] = []
    for point, there in zip(diagnosis.fixed[:-1], fixed[:-1], strict=True):
        here = at_cost(curve, point.cost)
        if here is not None and not there.low <= here <= there.high:
            words.append(
                f"in {percent(here)} of rounds (always stopping at {arm(diagnosis, point.arm)}: "
                f"{percent(there.value)})"
            )
    return words


def at_cost(curve: list[tuple[float, float]], cost: float) -> float | None:
    """Return the height of a curve of (cost, height) at a cost; None outside it.

    Examples
    --------
    >>> at_cost([(0.0, 0.5), (1.0, 0.25)], 0.5), at_cost([(0.0, 0.5)], 0.5)
    (0.375, None)
    """
    for (left, before), (right, after) in pairwise(sorted(curve)):
        if left <= cost <= right:
            share = (cost - left) / (right - left) if right > left else 0.0
            return before + share * (after - before)
    return None


def present(frontier: tuple[FrontierPoint, ...]) -> FrontierPoint | None:
    """Return the point at the costs as they are; None where there is no frontier."""
    return min(frontier, key=lambda p: abs(math.log(p.weight)), default=None)


def disagreement(diagnosis: Diagnosis) -> str:
    """Say which pairs differ more than the step between them costs."""
    dear = [p for p in diagnosis.pairs if p.gap > p.rate.value]
    if not dear:
        return (
            "Every pair disagrees more often than the step between them costs: on average there "
            "is no reason to stop early, and only the context can show one."
        )
    parts = [f"{arm(diagnosis, p.first)} to {arm(diagnosis, p.second)}" for p in dear[:4]]
    more = f" and {len(dear) - 4} more" if len(dear) > 4 else ""
    return (
        "Outlined: every step that costs more than it could mend on average, as the two arms "
        f"disagree more rarely than it costs; {listed(parts)}{more}."
    )


def groups(diagnosis: Diagnosis) -> str:
    """Say where in the context disagreement varies most."""
    spread = widest(diagnosis)
    if spread is None:
        return "The log has no context to group by."
    pair, low, high = spread
    found = diagnosis.pairs[pair]
    return (
        f"Disagreement varies most between {arm(diagnosis, found.first)} and "
        f"{arm(diagnosis, found.second)}: from {percent(low.rates[pair].value)} where "
        f"{called(low.coordinate)} is {plain(low.group)} to {percent(high.rates[pair].value)} "
        f"where it is {plain(high.group)}. A part of the context whose groups look alike does not "
        "help to decide."
    )


def groups_vary(diagnosis: Diagnosis) -> bool:
    """Tell whether some pair disagrees more in one group of rows than another, beyond chance."""
    every = [g for g in by_coordinate(diagnosis.groups).values() if len(g) > 1]
    tests = len(every) * len(diagnosis.pairs)
    for members in every:
        rows = sum(g.rows for g in members)
        for pair in range(len(diagnosis.pairs)):
            middle = sum(g.rows * g.rates[pair].value for g in members) / rows
            spread = sum(g.rows * (g.rates[pair].value - middle) ** 2 for g in members)
            limit = chi_square_limit(len(members) - 1, 0.001 / tests)
            if spread > limit * middle * (1 - middle):
                return True
    return False


def boxed(diagnosis: Diagnosis) -> list[WorseArm]:
    """Return the arms that get a warning of their own; others are a remark."""
    found = diagnosis.agreement
    return [w for w in found.worse if w.drives or w.confirmed] if found is not None else []


def only_hinted(diagnosis: Diagnosis) -> bool:
    """Tell whether the answer rests on agreement alone."""
    return diagnosis.audit is None and bool(boxed(diagnosis))


def widest(
    diagnosis: Diagnosis,
) -> tuple[int, GroupDisagreement, GroupDisagreement] | None:
    """Return the pair and the two groups of one coordinate that lie farthest apart."""
    best: tuple[int, GroupDisagreement, GroupDisagreement] | None = None
    largest = -1.0
    for members in by_coordinate(diagnosis.groups).values():
        for pair in range(len(diagnosis.pairs)):
            ordered = sorted(members, key=lambda g: g.rates[pair].value)
            gap = ordered[-1].rates[pair].value - ordered[0].rates[pair].value
            if gap > largest:
                best, largest = (pair, ordered[0], ordered[-1]), gap
    return best


def by_coordinate(
    groups: tuple[GroupDisagreement, ...],
) -> dict[str, list[GroupDisagreement]]:
    """Bring together the groups of each coordinate."""
    found: dict[str, list[GroupDisagreement]] = {}
    for group in groups:
        found.setdefault(group.coordinate, []).append(group)
    return found


def reliability(diagnosis: Diagnosis) -> str:
    """Say how well the fitted disagreement means what it says."""
    if not diagnosis.reliability:
        return "No pair has enough rows to judge the fitted disagreement."
    worst = max(diagnosis.reliability, key=lambda r: r.calibration_error)
    return (
        "Each point is a group of rows with about the same predicted disagreement; on the "
        "diagonal, as many disagreed as were predicted to. The pair farthest from it is "
        f"{arm(diagnosis, worst.first)} and {arm(diagnosis, worst.second)}, by "
        f"{100 * worst.calibration_error:.1f} percentage points on average."
    )


def margins(diagnosis: Diagnosis) -> str:
    """Say how clear the decisions to stop are."""
    if not diagnosis.margins:
        return "The rule never stops before the last arm, so there are no margins to show."
    parts = [
        f"{percent(m.share_thin)} of the stops at {arm(diagnosis, m.arm)}"
        for m in diagnosis.margins
    ]
    return (
        "The farther right of zero, the clearer the case for stopping. Within "
        f"{THIN} of the other decision are {listed(parts)}."
    )


def accuracy(diagnosis: Diagnosis) -> str:
    """Say who looks best from agreement alone."""
    found = diagnosis.agreement
    if found is None:
        return ""
    best = max(found.accuracies, key=lambda a: a.accuracy.value)
    least = min(found.accuracies, key=lambda a: a.accuracy.value)
    return (
        f"{arm(diagnosis, best.arm)} looks most often right, in "
        f"{percent_between(best.accuracy)} of rounds, and {arm(diagnosis, least.arm)} least, in "
        f"{percent_between(least.accuracy)}. The intervals hold only if the assumption does."
    )


def loss(diagnosis: Diagnosis) -> str:
    """Say what the label-free rule loses against the best fixed depth, by the labels."""
    audit = diagnosis.audit
    if audit is None:
        return ""
    best = arm(diagnosis, audit.best_fixed)
    ends = f"{amount(audit.lost.low)} to {amount(audit.lost.high)}"
    if audit.lost.low > 0:
        said = f"loses {amount(audit.lost.value)} a round against always stopping at {best}"
    elif audit.lost.high < 0:
        said = f"gains {amount(-audit.lost.value)} a round over always stopping at {best}"
        ends = f"{amount(-audit.lost.high)} to {amount(-audit.lost.low)}"
    else:
        said = f"does as well as always stopping at {best}, as far as these rows can tell"
        return (
            f"Cost and errors together, the label-free rule {said}: the difference is between "
            f"{amount(audit.lost.low)} and {amount(audit.lost.high)} a round."
        )
    return (
        f"Cost and errors together, the label-free rule {said} (95 %: {ends}), the best fixed "
        "depth in hindsight."
    )


def dominance(diagnosis: Diagnosis) -> str:
    """Say on what share of rounds the label-free rule rests on firm ground."""
    audit = diagnosis.audit
    if audit is None:
        return (
            "*Weak dominance*, on which the label-free rule rests, says that beyond the best arm "
            "every step costs more than the arms disagree. Without a single right answer it "
            "cannot be verified: where it fails, the rule goes deeper than it need."
        )
    return (
        "*Weak dominance*, on which the label-free rule rests, says that beyond the best arm every "
        f"step costs more than the arms disagree. By {audit.rows:,} labelled rows it holds in "
        f"{percent_between(audit.weakly_dominant)} of the rounds. Where it fails, the rule goes "
        "deeper than it need."
    )
