"""The sections of the report: their text, their tables, and which figures they show."""

from typing import NamedTuple

from stopwise.intervals import Interval
from stopwise.logs.diagnosis.figures import POLICY, draw_frontier, draw_reliability
from stopwise.logs.diagnosis.findings import Audit, Diagnosis
from stopwise.logs.diagnosis.verdict import SHARED, UNVERIFIED
from stopwise.logs.units import describe_unit
from stopwise.reporting.elements import Picture, Table
from stopwise.reporting.wording import (
    NOTHING,
    PERCENT,
    Value,
    code,
    number,
    percent,
    percent_and_ends,
    percent_interval,
)

CHANGES = 12  # in the table of changes
PAIRS = 6  # panels in the picture of reliability: the worst
HEADS = ("what", "cost a round", "saved, %", "differs from the last arm, %", "stops here, %")


class Panel(NamedTuple):
    """A table, and the picture of it where there is one; whether that is too wide for a phone."""

    table: Table
    picture: Picture | None = None
    wide: bool = False


class ReportSection(NamedTuple):
    """A section of the page."""

    name: str
    title: str
    text: str
    panels: tuple[Panel, ...] = ()


class Number(NamedTuple):
    """A main number of the report: its label, the number, and its explanation."""

    label: str
    number: str
    words: str


def sections(diagnosis: Diagnosis) -> tuple[ReportSection, ...]:
    """Return the sections of the page, in order."""
    labels = ReportSection("labels", "What cannot be verified without labels", UNVERIFIED)
    if diagnosis.audit is not None:
        labels = _with_labels(diagnosis, diagnosis.audit)
    return (
        _saving(diagnosis),
        *_tenants(diagnosis),
        _frontier(diagnosis),
        _disagreement(diagnosis),
        _answers(diagnosis),
        _reliability(diagnosis),
        _over_time(diagnosis),
        labels,
    )


def main_numbers(diagnosis: Diagnosis) -> tuple[Number, Number]:
    """Return the saving and the share of changed answers."""
    changed, last = diagnosis.saving.disagreement, code(diagnosis.arms[-1].name)
    share, ends = percent_and_ends(changed)
    ends = f" (95 %: {ends}{PERCENT})" if ends else ""
    each, words = _saved(diagnosis)
    saved = 1000 * each
    reach = f" (95 %: {number(saved.low)} to {number(saved.high)})"
    unit = "in wrong answers" if diagnosis.error_cost == 1 else "at your prices"
    return (
        Number(
            "Saved in 1,000 rounds",
            number(saved.value),
            f"{unit}{reach if saved.low < saved.high else ''}: {words}",
        ),
        Number(
            "Answers that would change",
            share,
            f"of rounds end with another answer than {last} would give{ends}; not all of these "
            "are errors",
        ),
    )


def _saved(diagnosis: Diagnosis) -> tuple[Interval, str]:
    """Return what the rule saves a round, beside the best fixed depth that is known, and on what.

    With labels that is cost and errors together. Without, it is cost: beside always the first arm,
    if no deeper one can be worth its cost on all rows, else beside always the last.
    """
    saving, audit = diagnosis.saving, diagnosis.audit
    if audit is not None:
        best = diagnosis.arms[audit.best_fixed]
        spent = audit.rule_loss.value - diagnosis.error_cost * audit.rule_error.value
        alone = number(1000 * (best.total - spent))
        return -audit.lost, (
            f"cost and wrong answers together, against always {code(best.name)}, the best fixed "
            f"depth by the labels; in cost alone {alone}"
        )
    last = diagnosis.arms[-1]
    if diagnosis.plan.second is None:
        first = diagnosis.arms[diagnosis.plan.first]
        less = saving.per_round - (last.total - first.total)
        return less, f"cost, against always {code(first.name)}, the best fixed depth"
    share = percent(saving.share.value)
    return saving.per_round, f"cost, {share} of what always {code(last.name)} costs"


def _saving(diagnosis: Diagnosis) -> ReportSection:
    last, saved = diagnosis.arms[-1], diagnosis.saving
    spent = last.total - saved.per_round.value
    rows: list[tuple[Value, ...]] = [
        (POLICY, spent, _percent(saved.share.value), _percent(saved.disagreement.value), NOTHING)
    ]
    if diagnosis.full_depth < diagnosis.rows:
        rows.append(("as it ran", diagnosis.logged_cost, NOTHING, NOTHING, NOTHING))
    for arm in diagnosis.arms:
        less = 1 - arm.total / last.total if last.total else 0.0
        shares = (less, arm.disagreement.value, arm.stops.value)
        rows.append((f"always {_tabled(arm.name)}", arm.total, *map(_percent, shares)))
    if saved.per_round.low > 0:
        less = percent_interval(saved.share)
        found = (
            f"A round would cost {number(spent)} on average, {less} less than the "
            f"{number(last.total)} of always {code(last.name)}."
        )
    elif last.stops.value == 1:
        found = f"No saving: it always runs {code(last.name)}."
    else:
        found = (
            f"No saving can be shown: a round costs {number(spent)}, and with always "
            f"{code(last.name)} {number(last.total)}."
        )
    example = "a cost of 0.1 a round is worth paying if it prevents one error in ten rounds"
    if diagnosis.error_cost != 1:
        tenth = number(diagnosis.error_cost / 10)
        example = f"{tenth} a round is worth paying if it prevents one error in ten rounds"
    table = Table("saving", "Cost of a round, and where rounds would stop", HEADS, tuple(rows))
    return ReportSection(
        "saving",
        "Where it would stop, and what that saves",
        f"{found}\n\n{POLICY} stops at the first arm beyond which every step costs more than the "
        "two arms disagree. A deeper arm can correct an answer only by disagreeing with it, so "
        "continuing would not pay. That needs no label.\n\nAll costs are "
        f"{describe_unit(diagnosis.error_cost)}: {example}.",
        (Panel(table),),
    )


def _answers(diagnosis: Diagnosis) -> ReportSection:
    """List the distinct answers of each arm, and flag those of one arm only."""
    found = diagnosis.answers
    names = [_tabled(one.name) for one in diagnosis.arms]
    most = ", ".join(f"{name} {n:,}" for name, n in zip(names, found.distinct, strict=True))
    if not found.listed:
        text = f"There are too many different answers to list: {most} or more."
        return ReportSection("answers", "What the arms answer", text)
    labels = any(one.labels for one in found.listed)
    rows: list[tuple[Value, ...]] = []
    for one in found.listed:
        flag = f"only {_tabled(one.only)}" if one.only is not None else ""
        if not any(one.arms):
            flag = "only labels"
        row = (_tabled(str(one.answer)), *one.arms)
        rows.append((*row, *([one.labels] if labels else []), flag or NOTHING))
    if any(found.unlisted):
        more = ["all others", *found.unlisted, *([NOTHING] if labels else []), NOTHING]
        rows.append(tuple(more))
    heads = ("answer", *names, *(["labels"] if labels else []), "used by")
    table = Table("answers", "How often each arm gives each answer", heads, tuple(rows))
    return ReportSection(
        "answers",
        "What the arms answer",
        f"Different answers: {most}. Answers are compared by equality, so a misspelled one is a "
        "disagreement with every other arm. Check those that one arm alone uses.",
        (Panel(table),),
    )


def _tenants(diagnosis: Diagnosis) -> list[ReportSection]:
    if diagnosis.by is None:
        return []
    heads = ("value", "rows", "verdict", "saved in 1,000 rounds", "differs from the last arm, %")
    rows: list[tuple[Value, ...]] = []
    for one in diagnosis.tenants:
        saved: tuple[Value, ...] = (NOTHING, NOTHING)
        if one.saving is not None:
            saved = _cell(1000 * one.saving.per_round), _cell(100 * one.saving.disagreement)
        rows.append((one.name or "none", one.rows, one.answer or "too few rows", *saved))
    title = f"By {diagnosis.by}, with models of its own for each"
    text = "Each value is diagnosed alone: where it pays most comes first, where least last."
    return [
        ReportSection("tenants", title, text, (Panel(Table("tenants", title, heads, (*rows,))),))
    ]


def _frontier(diagnosis: Diagnosis) -> ReportSection:
    """Cost against disagreement, and error where labels show it, as the weight of costs moves."""
    points = [
        ("costs as given" if p.weight == 1.0 else f"costs × {p.weight:.3g}", p.cost, p)
        for p in diagnosis.frontier
    ]
    points += [(f"always {_tabled(arm.name)}", arm.total, arm) for arm in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for name, cost, point in points:
        rows.append((name, cost, _cell(100 * point.disagreement)))
        if point.error is not None:
            rows[-1] += (_cell(100 * point.error),)
    heads = ("what", *HEADS[1:4:2], "wrong, %")[: len(rows[0])]
    found = f"{POLICY} at other weights of the costs, beside the fixed depths."
    alt = f"A curve of cost against disagreement with the last arm. {found}"
    picture = Picture("frontier", found, alt, lambda: draw_frontier(diagnosis))
    return ReportSection(
        "frontier",
        "If costs weighed more, or less",
        f"How much an error costs is a judgement. The curve is {POLICY} with all costs multiplied "
        "by a weight: towards the right errors weigh more, and it goes deeper. The star is where "
        "the given costs put it; the squares are fixed depths. Lower and farther left is better.",
        (Panel(Table("frontier", "The curve and the fixed depths", heads, tuple(rows)), picture),),
    )


def _disagreement(diagnosis: Diagnosis) -> ReportSection:
    """Who disagrees with whom."""
    names = [_tabled(one.name) for one in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for p in diagnosis.pairs:
        pays = "yes" if p.rate.value >= p.gap / diagnosis.error_cost else "no"
        rate = _cell(100 * p.rate)
        rows.append((names[p.first], names[p.second], p.rows, rate, p.gap, pays))
    heads = ("from", "to", "rows", "disagree, %", "cost of the step", "could pay on average")
    table = Table("pairs", "How often two arms disagree", heads, tuple(rows))
    text = (
        "Disagreement limits what a deeper arm could correct, and it is all that the label-free "
        "rule uses. A step that costs more than the two arms disagree cannot pay on average."
    )
    return ReportSection("disagreement", "Who disagrees with whom", text, (Panel(table),))


def _reliability(diagnosis: Diagnosis) -> ReportSection:
    """Predicted against observed disagreement."""
    names = [_tabled(one.name) for one in diagnosis.arms]
    ordered = sorted(diagnosis.pairs, key=lambda p: -p.reliability.calibration_error)
    first, second = (code(diagnosis.arms[k].name) for k in (ordered[0].first, ordered[0].second))
    found = (
        "Each point is a group of rows with about the same predicted disagreement; on the "
        f"diagonal, as many disagreed as predicted. The pair farthest from it is {first} and "
        f"{second}, by {100 * ordered[0].reliability.calibration_error:.1f} percentage points on "
        "average."
    )
    if len(ordered) > PAIRS:
        found += f" The {PAIRS} worst pairs are drawn."
    rows: list[tuple[Value, ...]] = []
    for pair in diagnosis.pairs:
        name = f"{names[pair.first]} – {names[pair.second]}"
        rows += [
            (name, b.rows, 100 * b.predicted, _cell(100 * b.observed))
            for b in pair.reliability.bins
        ]
    heads = ("pair", "rows", "predicted, %", "observed, %")
    table = Table("reliability", "Predicted and observed disagreement", heads, tuple(rows))
    alt = f"Predicted against observed disagreement, a panel for each pair. {found}"
    shown = sorted(ordered[:PAIRS], key=diagnosis.pairs.index)
    picture = Picture("reliability", found, alt, lambda: draw_reliability(diagnosis, shown))
    return ReportSection(
        "reliability",
        "Whether the predictions can be trusted",
        f"{POLICY} acts on how often arms are *predicted* to disagree in a context. Each "
        "prediction is checked on rounds that it was not fitted on.",
        (Panel(table, picture, wide=len(ordered) > 4),),
    )


def _over_time(diagnosis: Diagnosis) -> ReportSection:
    """When disagreement changed, and the half-life that fits the log."""
    found, names = diagnosis.over_time, [_tabled(one.name) for one in diagnosis.arms]
    largest = sorted(found.changes, key=lambda c: -abs(c.after - c.before))[:CHANGES]
    rows: list[tuple[Value, ...]] = [
        (names[i], names[j], row + 1, _percent(before), _percent(after))
        for row, (i, j), before, after, _ in sorted(largest)
    ]
    many = f"{len(rows)} of {len(found.changes)} changes of disagreement, the largest"
    heads = ("from", "to", "row", "disagree before, %", "after, %")
    table = Table("changes", many, heads, tuple(rows))
    text = "Yes: see the table." if rows else "No change was found."
    best = "without forgetting anything: give the policy no `half_life`"
    if found.half_life is not None:
        best = f"with a half-life of {found.half_life:,} rounds: `half_life={found.half_life}`"
    return ReportSection(
        "over-time",
        "Has it changed over time?",
        f"{text} Rows are counted from 1 and compared in such contexts as came after. What arms "
        f"would do next was predicted best {best}. That needs no label.",
        (Panel(table),) if rows else (),
    )


def _with_labels(diagnosis: Diagnosis, audit: Audit) -> ReportSection:
    best, lost = code(diagnosis.arms[audit.best_fixed].name), audit.lost
    if lost.low > 0:
        found = f"loses {number(lost.value)} a round against always {best}"
    elif lost.high < 0:
        found = f"gains {number(-lost.value)} a round over always {best}"
    else:
        found = f"does as well as always {best}, as far as these rows show"
    found = (
        f"Cost and errors together, {POLICY} {found} (95 % interval of the difference "
        f"{number(lost.low)} to {number(lost.high)}); {best} is the best fixed depth in hindsight."
    )
    names = [_tabled(one.name) for one in diagnosis.arms]
    spent = audit.rule_loss.value - diagnosis.error_cost * audit.rule_error.value
    losses = [(POLICY, spent, audit.rule_error, audit.rule_loss)]
    losses += [(f"always {_tabled(a.name)}", a.total, a.error, a.loss) for a in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for name, cost, error, loss in losses:
        assert error is not None  # by the labels of the audit
        assert loss is not None
        rows.append((name, cost, _cell(100 * error), _cell(loss)))
    heads = ("what", "cost a round", "wrong, %", "loss a round")
    table = Table("losses", "Cost and errors together", heads, tuple(rows))
    rows = []
    for p in diagnosis.pairs:
        gain = _cell(100 * p.gain) if p.gain is not None else NOTHING
        gap = p.gap / diagnosis.error_cost
        needed = 100 * gap / p.rate.value if p.rate.value else NOTHING
        rows.append((names[p.first], names[p.second], gain, needed))
    gains = Table(
        "gains",
        "What continuing does to the answer, where the two arms disagree",
        ("from", "to", "corrected less spoiled, %", "needed to pay, %"),
        tuple(rows),
        note="Needed is what the step costs, divided by how often the two disagree.",
    )
    return ReportSection(
        "labels",
        "What the labels show",
        f"{audit.rows:,} labelled rows have every output. They decide the verdict. {found} "
        f"{SHARED if audit.differing else ''}",
        (Panel(table), Panel(gains)),
    )


def _tabled(name: str) -> str:
    return code(name, 80)


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _cell(estimate: Interval) -> Value:
    """Return an estimate for a table: only its value if it is certain."""
    return estimate.value if estimate.low == estimate.high else estimate
