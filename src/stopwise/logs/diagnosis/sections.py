"""The sections of the report: texts, tables and figures."""

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
    percent_and_limits,
    percent_interval,
)

MAX_CHANGES = 12  # rows in the table of changes: the largest
MAX_PAIRS = 6  # panels in the reliability figure: the worst
SAVING_COLUMNS = (
    "option",
    "cost per round",
    "saved, %",
    "differs from the last arm, %",
    "stops here, %",
)


class Panel(NamedTuple):
    """A table with an optional figure; ``wide`` if the figure is too wide for a phone."""

    table: Table
    picture: Picture | None = None
    wide: bool = False


class ReportSection(NamedTuple):
    """A section of the page."""

    name: str
    title: str
    text: str
    panels: tuple[Panel, ...] = ()


class KeyNumber(NamedTuple):
    """A headline number of the report, with its label and explanation."""

    label: str
    number: str
    explanation: str


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


def main_numbers(diagnosis: Diagnosis) -> tuple[KeyNumber, KeyNumber]:
    """Return the saving and the share of changed answers."""
    changed, last = diagnosis.saving.disagreement, code(diagnosis.arms[-1].name)
    share, limits = percent_and_limits(changed)
    limits = f" (95 %: {limits}{PERCENT})" if limits else ""
    per_round, comparison = _saved(diagnosis)
    saved = 1000 * per_round
    interval = f" (95 %: {number(saved.low)} to {number(saved.high)})"
    unit = "in units of one wrong answer" if diagnosis.error_cost == 1 else "at your prices"
    return (
        KeyNumber(
            "Saving per 1,000 rounds",
            number(saved.value),
            f"{unit}{interval if saved.low < saved.high else ''}: {comparison}",
        ),
        KeyNumber(
            "Answers that would change",
            share,
            f"of rounds would end with a different answer than {last} gives{limits}; not all of "
            "these are errors",
        ),
    )


def _saved(diagnosis: Diagnosis) -> tuple[Interval, str]:
    """Return the saving of the rule per round, and the comparison as text.

    With labels, the saving counts costs and errors and is relative to the best fixed depth. Without
    labels, it counts only costs and is relative to always running the last arm or, if no deeper arm
    can be worth its cost on all rows, to always stopping at the first.
    """
    saving, audit = diagnosis.saving, diagnosis.audit
    if audit is not None:
        best = diagnosis.arms[audit.best_fixed]
        spent = audit.rule_loss.value - diagnosis.error_cost * audit.rule_error.value
        cost_saving = number(1000 * (best.total - spent))
        return -audit.lost, (
            "counting costs and wrong answers, compared with always "
            f"{code(best.name)}, the best fixed depth according to the labels; {cost_saving} "
            "counting costs alone"
        )
    last = diagnosis.arms[-1]
    if diagnosis.plan.second is None:
        first = diagnosis.arms[diagnosis.plan.first]
        less = saving.per_round - (last.total - first.total)
        return less, (
            f"counting costs, compared with always {code(first.name)}, the best fixed depth"
        )
    share = percent(saving.share.value)
    return saving.per_round, f"{share} of the cost of always {code(last.name)}"


def _saving(diagnosis: Diagnosis) -> ReportSection:
    last, saved = diagnosis.arms[-1], diagnosis.saving
    spent = last.total - saved.per_round.value
    rows: list[tuple[Value, ...]] = [
        (POLICY, spent, _percent(saved.share.value), _percent(saved.disagreement.value), NOTHING)
    ]
    if diagnosis.full_depth < diagnosis.rows:
        rows.append(("as logged", diagnosis.logged_cost, NOTHING, NOTHING, NOTHING))
    for arm in diagnosis.arms:
        less = 1 - arm.total / last.total if last.total else 0.0
        shares = (less, arm.disagreement.value, arm.stops.value)
        rows.append((f"always {_cell_name(arm.name)}", arm.total, *map(_percent, shares)))
    if saved.per_round.low > 0:
        less = percent_interval(saved.share)
        summary = (
            f"A round would cost {number(spent)} on average, {less} less than the "
            f"{number(last.total)} of always {code(last.name)}."
        )
    elif last.stops.value == 1:
        summary = f"No saving: {POLICY} always runs {code(last.name)}."
    else:
        summary = (
            f"No significant saving: a round costs {number(spent)} on average, compared with "
            f"{number(last.total)} for always {code(last.name)}."
        )
    example = "a cost of 0.1 per round is worth paying if it prevents one error in ten rounds"
    if diagnosis.error_cost != 1:
        tenth = number(diagnosis.error_cost / 10)
        example = f"{tenth} per round is worth paying if it prevents one error in ten rounds"
    table = Table(
        "saving", "Cost of a round, and where rounds would stop", SAVING_COLUMNS, tuple(rows)
    )
    return ReportSection(
        "saving",
        f"Where {POLICY} would stop, and the savings",
        f"{summary}\n\n{POLICY} stops at an arm if reaching any deeper arm costs more than the "
        "probability that the two disagree. A deeper arm can correct an answer only by disagreeing "
        "with it, so continuing would not pay. This needs no labels.\n\nAll costs are "
        f"{describe_unit(diagnosis.error_cost)}: {example}.",
        (Panel(table),),
    )


def _answers(diagnosis: Diagnosis) -> ReportSection:
    """List the distinct answers of each arm, and flag those that only one arm gives."""
    answers = diagnosis.answers
    names = [_cell_name(arm.name) for arm in diagnosis.arms]
    distinct = zip(names, answers.distinct, strict=True)
    counts = ", ".join(f"{name} {n:,}" for name, n in distinct)
    if not answers.listed:
        text = f"Too many distinct answers to list: at least {counts}."
        return ReportSection("answers", "Answers of each arm", text)
    labels = any(answer.labels for answer in answers.listed)
    rows: list[tuple[Value, ...]] = []
    for answer in answers.listed:
        flag = f"only {_cell_name(answer.only)}" if answer.only is not None else ""
        if not any(answer.arms):
            flag = "only labels"
        row: list[Value] = [_cell_name(str(answer.answer)), *answer.arms]
        if labels:
            row.append(answer.labels)
        rows.append((*row, flag or NOTHING))
    if any(answers.unlisted):
        row = ["all others", *answers.unlisted]
        if labels:
            row.append(NOTHING)
        rows.append((*row, NOTHING))
    heads = ("answer", *names, *(["labels"] if labels else []), "used by")
    table = Table("answers", "How often each arm gives each answer", heads, tuple(rows))
    return ReportSection(
        "answers",
        "Answers of each arm",
        f"Distinct answers: {counts}. Answers are compared by equality, so a misspelled answer "
        "disagrees with every other arm. Check those that only one arm gives.",
        (Panel(table),),
    )


def _tenants(diagnosis: Diagnosis) -> list[ReportSection]:
    if diagnosis.by is None:
        return []
    heads = ("value", "rows", "verdict", "saving per 1,000 rounds", "differs from the last arm, %")
    rows: list[tuple[Value, ...]] = []
    for tenant in diagnosis.tenants:
        saved: tuple[Value, ...] = (NOTHING, NOTHING)
        if tenant.saving is not None:
            saved = _cell(1000 * tenant.saving.per_round), _cell(100 * tenant.saving.disagreement)
        rows.append((tenant.name or "none", tenant.rows, tenant.answer or "too few rows", *saved))
    title = f"By {diagnosis.by}, with separate models for each value"
    text = "Each value is diagnosed separately. The largest savings come first."
    return [
        ReportSection("tenants", title, text, (Panel(Table("tenants", title, heads, (*rows,))),))
    ]


def _frontier(diagnosis: Diagnosis) -> ReportSection:
    """Plot cost against disagreement, and against error if there are labels, by cost weight."""
    points = [
        ("your costs" if p.weight == 1.0 else f"costs × {p.weight:.3g}", p.cost, p)
        for p in diagnosis.frontier
    ]
    points += [(f"always {_cell_name(arm.name)}", arm.total, arm) for arm in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for name, cost, point in points:
        rows.append((name, cost, _cell(100 * point.disagreement)))
        if point.error is not None:
            rows[-1] += (_cell(100 * point.error),)
    heads = ("option", "cost per round", "differs from the last arm, %", "wrong, %")[: len(rows[0])]
    title = f"{POLICY} with the costs multiplied by a weight, and the fixed depths."
    alt = f"A curve of cost against disagreement with the last arm. {title}"
    picture = Picture("frontier", title, alt, lambda: draw_frontier(diagnosis))
    return ReportSection(
        "frontier",
        "If costs were higher or lower",
        f"The cost of an error is a judgement. The curve is {POLICY} with all costs multiplied by "
        "a weight: farther to the right, errors weigh more and it goes deeper. The star marks your "
        "costs; the squares are fixed depths. Lower and farther left is better.",
        (Panel(Table("frontier", "The curve and the fixed depths", heads, tuple(rows)), picture),),
    )


def _disagreement(diagnosis: Diagnosis) -> ReportSection:
    """Tabulate how often each pair of arms disagrees."""
    names = [_cell_name(arm.name) for arm in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for p in diagnosis.pairs:
        pays = "yes" if p.rate.value >= p.gap / diagnosis.error_cost else "no"
        rate = _cell(100 * p.rate)
        rows.append((names[p.first], names[p.second], p.rows, rate, p.gap, pays))
    heads = ("from", "to", "rows", "disagree, %", "cost of the step", "could pay on average")
    table = Table("pairs", "How often two arms disagree", heads, tuple(rows))
    text = (
        "Disagreement bounds what a deeper arm can correct; the label-free rule uses nothing else. "
        "A step cannot pay on average if it costs more than the share of rows in which the two "
        "arms disagree."
    )
    return ReportSection("disagreement", "Which arms disagree", text, (Panel(table),))


def _reliability(diagnosis: Diagnosis) -> ReportSection:
    """Plot predicted against observed disagreement."""
    names = [_cell_name(arm.name) for arm in diagnosis.arms]
    ordered = sorted(diagnosis.pairs, key=lambda p: -p.reliability.calibration_error)
    first, second = (code(diagnosis.arms[k].name) for k in (ordered[0].first, ordered[0].second))
    title = (
        "Each point is a group of rows with about the same predicted disagreement. On the "
        f"diagonal, predictions are correct. The pair farthest from it is {first} and {second}, by "
        f"{100 * ordered[0].reliability.calibration_error:.1f} percentage points on average."
    )
    if len(ordered) > MAX_PAIRS:
        title += f" The {MAX_PAIRS} worst pairs are shown."
    rows: list[tuple[Value, ...]] = []
    for pair in diagnosis.pairs:
        name = f"{names[pair.first]} – {names[pair.second]}"
        rows += [
            (name, b.rows, 100 * b.predicted, _cell(100 * b.observed))
            for b in pair.reliability.bins
        ]
    heads = ("pair", "rows", "predicted, %", "observed, %")
    table = Table("reliability", "Predicted and observed disagreement", heads, tuple(rows))
    alt = f"Predicted against observed disagreement, a panel for each pair. {title}"
    shown = sorted(ordered[:MAX_PAIRS], key=diagnosis.pairs.index)
    picture = Picture("reliability", title, alt, lambda: draw_reliability(diagnosis, shown))
    return ReportSection(
        "reliability",
        "Whether the predictions can be trusted",
        f"{POLICY} decides by how often arms are *predicted* to disagree in a context. Each "
        "prediction is checked on rows that its model was not fitted on.",
        (Panel(table, picture, wide=len(ordered) > 4),),
    )


def _over_time(diagnosis: Diagnosis) -> ReportSection:
    """Tabulate changes in disagreement, and name the half-life that fits the log."""
    drift = diagnosis.over_time
    names = [_cell_name(arm.name) for arm in diagnosis.arms]
    largest = sorted(drift.changes, key=lambda c: -abs(c.after - c.before))[:MAX_CHANGES]
    rows: list[tuple[Value, ...]] = [
        (names[i], names[j], row + 1, _percent(before), _percent(after))
        for row, (i, j), before, after, _ in sorted(largest)
    ]
    title = f"The largest {len(rows)} of {len(drift.changes)} changes in disagreement"
    heads = ("from", "to", "row", "disagree before, %", "after, %")
    table = Table("changes", title, heads, tuple(rows))
    text = "No change was found."
    if rows:
        text = (
            "Rows are counted from 1. Disagreement before and after a change is compared in the "
            "same contexts."
        )
    best = "without forgetting (no `half_life`)"
    if drift.half_life is not None:
        best = f"with a half-life of {drift.half_life:,} rounds (`half_life={drift.half_life}`)"
    return ReportSection(
        "over-time",
        "Changes over time",
        f"{text} Future disagreement was predicted best {best}. This needs no labels.",
        (Panel(table),) if rows else (),
    )


def _with_labels(diagnosis: Diagnosis, audit: Audit) -> ReportSection:
    best, lost = code(diagnosis.arms[audit.best_fixed].name), audit.lost
    if lost.low > 0:
        outcome = f"loses {number(lost.value)} per round against always {best}"
    elif lost.high < 0:
        outcome = f"gains {number(-lost.value)} per round over always {best}"
    else:
        outcome = f"does as well as always {best} on these rows"
    summary = (
        f"Counting costs and errors, {POLICY} {outcome} (95 % interval of the difference "
        f"{number(lost.low)} to {number(lost.high)}); {best} is the best fixed depth in hindsight."
    )
    names = [_cell_name(arm.name) for arm in diagnosis.arms]
    spent = audit.rule_loss.value - diagnosis.error_cost * audit.rule_error.value
    losses = [(POLICY, spent, audit.rule_error, audit.rule_loss)]
    losses += [(f"always {_cell_name(a.name)}", a.total, a.error, a.loss) for a in diagnosis.arms]
    rows: list[tuple[Value, ...]] = []
    for name, cost, error, loss in losses:
        assert error is not None  # an audit implies labels
        assert loss is not None
        rows.append((name, cost, _cell(100 * error), _cell(loss)))
    heads = ("option", "cost per round", "wrong, %", "loss per round")
    table = Table("losses", "Cost and errors together", heads, tuple(rows))
    rows = []
    for p in diagnosis.pairs:
        gain = _cell(100 * p.gain) if p.gain is not None else NOTHING
        gap = p.gap / diagnosis.error_cost
        needed = 100 * gap / p.rate.value if p.rate.value else NOTHING
        rows.append((names[p.first], names[p.second], gain, needed))
    gains = Table(
        "gains",
        "Effect of continuing on the answer, where the two arms disagree",
        ("from", "to", "corrected minus spoiled, %", "needed to pay, %"),
        tuple(rows),
        note="What is needed to pay: the cost of the step, divided by the share of rows in which "
        "the two disagree.",
    )
    return ReportSection(
        "labels",
        "What the labels show",
        f"{audit.rows:,} labelled rows have every output, and decide the verdict. {summary} "
        f"{SHARED if audit.differing else ''}",
        (Panel(table), Panel(gains)),
    )


def _cell_name(name: str) -> str:
    return code(name, 80)


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _cell(estimate: Interval) -> Value:
    """Return an estimate for a table, without the interval if its width is zero."""
    return estimate.value if estimate.low == estimate.high else estimate
