"""The sections of the report: for each, words, pictures, and the numbers in them."""

from typing import NamedTuple

from stopwise.logs.diagnosis import figures, words
from stopwise.logs.diagnosis.findings import Diagnosis, Estimate
from stopwise.logs.diagnosis.words import cell, percent, tabled
from stopwise.reporting.parts import Picture, Table, Value
from stopwise.reporting.text import NOTHING

UNIT = (
    "All costs are in units of one wrong answer: a cost of 0.1 a round is worth paying if it "
    "spares one error in ten rounds."
)
RULE = (
    "The rule stops at the first arm beyond which every step costs more than the two arms "
    "disagree. As a deeper arm can mend an answer only by disagreeing with it, going on would not "
    "pay. No label is needed for that, only that the log tells how often arms disagree."
)
INDEPENDENCE = (
    "*Assumption.* How often arms agree tells how often each is right if, given the truth, they "
    "err independently of one another, and if they are right more often than not. Arms that learnt "
    "from the same data, or copy each other, share mistakes: they look better than they are, and a "
    "better arm that does not share them looks worse. The intervals hold only if the assumption "
    "does."
)


class Exhibit(NamedTuple):
    """A picture, what it shows as a table, and whether it is too wide for a phone."""

    picture: Picture
    table: Table
    wide: bool = False


class Part(NamedTuple):
    """A section of the page: words, pictures, and a table where there is none to draw."""

    name: str
    title: str
    text: str
    exhibits: tuple[Exhibit, ...] = ()
    after: Table | None = None


def parts(diagnosis: Diagnosis) -> tuple[Part, ...]:
    """Return the sections of the page, in order."""
    return (
        _stops(diagnosis),
        _saving(diagnosis),
        _frontier(diagnosis),
        _disagreement(diagnosis),
        _reliability(diagnosis),
        _margins(diagnosis),
        _accuracy(diagnosis),
        _audit(diagnosis),
    )


def _stops(diagnosis: Diagnosis) -> Part:
    said = words.stops(diagnosis)
    rows = tuple(
        (
            tabled(diagnosis.arms[stop.arm].name),
            diagnosis.arms[stop.arm].cost,
            diagnosis.arms[stop.arm].total,
            diagnosis.arms[stop.arm].answered,
            cell(stop.share, diagnosis.used, 100),
        )
        for stop in diagnosis.stops
    )
    return Part(
        "stops",
        "Where it would stop",
        f"{RULE}\n\n{UNIT}",
        (
            Exhibit(
                Picture("stops", said, f"Bars. {said}", lambda: figures.stops(diagnosis)),
                Table(
                    "stops",
                    "Arms, and where the rule would stop",
                    ("arm", "own cost", "cost of stopping here", "rows answered", "stops, %"),
                    rows,
                ),
            ),
        ),
    )


def _saving(diagnosis: Diagnosis) -> Part:
    said = words.saving(diagnosis)
    saved = diagnosis.saving
    last = diagnosis.arms[-1].total
    rows: tuple[tuple[Value, ...], ...] = (
        (
            "the rule",
            last - saved.per_round.value,
            cell(saved.per_round, diagnosis.used),
            cell(saved.share, diagnosis.used, 100),
        ),
        *(
            (
                f"always {tabled(one.name)}",
                one.total,
                last - one.total,
                100 * (1 - one.total / last) if last else 0.0,
            )
            for one in diagnosis.arms
        ),
    )
    return Part(
        "saving",
        "What it would save",
        "The saving is against always running every arm. It counts costs only: what the changed "
        "answers are worth is further down.",
        (
            Exhibit(
                Picture("costs", said, f"Bars. {said}", lambda: figures.costs(diagnosis)),
                Table(
                    "costs",
                    "Cost of a round, and what is saved against the last arm",
                    ("what", "cost a round", "saved a round", "saved, %"),
                    rows,
                ),
            ),
        ),
    )


def _frontier(diagnosis: Diagnosis) -> Part:
    title = "If costs weighed more, or less"
    if not diagnosis.frontier:
        return Part("frontier", title, "The log has too few full rounds to move the weight.")
    said = words.frontier(diagnosis)
    labelled = any(p.error is not None for p in diagnosis.frontier)
    heads = ("what", "cost a round", "differs from the last arm, %")
    heads += ("wrong, %",) if labelled else ()
    rows: list[tuple[Value, ...]] = []
    for point in diagnosis.frontier:
        weight = "costs as given" if point.weight == 1.0 else f"costs × {point.weight:.3g}"
        rows.append((weight, point.cost, cell(point.disagreement, diagnosis.used, 100)))
        if labelled:
            error = point.error
            rows[-1] += (cell(error, diagnosis.labelled, 100) if error else NOTHING,)
    for point in diagnosis.fixed:
        name = f"always {tabled(diagnosis.arms[point.arm].name)}"
        rows.append((name, point.cost, cell(point.disagreement, diagnosis.used, 100)))
        if labelled:
            error = point.error
            rows[-1] += (cell(error, diagnosis.labelled, 100) if error else NOTHING,)
    return Part(
        "frontier",
        title,
        "How much an error should cost is a judgement. The curve is the rule with all costs "
        "multiplied by a weight: to the right errors weigh more and it goes deeper, to the left "
        "costs do. The star is where the costs given put it; the squares are fixed depths. Lower "
        "and farther left is better.",
        (
            Exhibit(
                Picture(
                    "frontier",
                    said,
                    f"A curve of cost against disagreement with the last arm. {said}",
                    lambda: figures.frontier(diagnosis),
                ),
                Table("frontier", "The curve and the fixed depths", heads, tuple(rows)),
            ),
        ),
    )


def _disagreement(diagnosis: Diagnosis) -> Part:
    said = words.disagreement(diagnosis)
    names = [tabled(one.name) for one in diagnosis.arms]
    exhibits = [
        Exhibit(
            Picture(
                "pairs",
                said,
                f"Tiles, one for each pair of arms. {said}",
                lambda: figures.pairs(diagnosis),
            ),
            Table(
                "pairs",
                "How often two arms disagree",
                ("from", "to", "rows", "disagree, %", "cost of the step"),
                tuple(
                    (
                        names[p.first],
                        names[p.second],
                        p.rows,
                        cell(p.rate, p.rows, 100),
                        p.gap,
                    )
                    for p in diagnosis.pairs
                ),
            ),
            len(diagnosis.arms) > 5,
        )
    ]
    if diagnosis.groups:
        found = words.groups(diagnosis)
        exhibits.append(
            Exhibit(
                Picture(
                    "groups",
                    found,
                    f"Tiles, a row for each group of rounds. {found}",
                    lambda: figures.groups(diagnosis),
                ),
                Table(
                    "groups",
                    "How often two arms disagree, %, by group of rounds",
                    (
                        "column",
                        "group",
                        "rows",
                        *(f"{names[p.first]} – {names[p.second]}" for p in diagnosis.pairs),
                    ),
                    tuple(
                        (
                            tabled(group.coordinate),
                            tabled(group.group),
                            group.rows,
                            *(cell(rate, group.rows, 100) for rate in group.rates),
                        )
                        for group in diagnosis.groups
                    ),
                ),
                len(diagnosis.pairs) > figures.NARROW_PAIRS - 1,
            )
        )
    return Part(
        "disagreement",
        "Who disagrees with whom, and where",
        "Each tile says how often two arms disagree, and what the step from the one to the other "
        "costs. Disagreement is all that the label-free rule sees: it bounds what a deeper arm "
        "could mend.",
        tuple(exhibits),
    )


def _reliability(diagnosis: Diagnosis) -> Part:
    said = words.reliability(diagnosis)
    title = "Whether the predictions can be trusted"
    if not diagnosis.reliability:
        return Part("reliability", title, said)
    names = [tabled(one.name) for one in diagnosis.arms]
    left = len(diagnosis.reliability) - figures.PAIRS
    note = f" The {figures.PAIRS} worst pairs are drawn." if left > 0 else ""
    return Part(
        "reliability",
        title,
        "The rule acts on how often arms are *predicted* to disagree in a context. Each prediction "
        "is checked on rounds that it was not fitted on.",
        (
            Exhibit(
                Picture(
                    "reliability",
                    said + note,
                    f"Predicted against observed disagreement, a panel for each pair. {said}",
                    lambda: figures.reliability(diagnosis),
                ),
                Table(
                    "reliability",
                    "Predicted and observed disagreement",
                    ("pair", "rows", "predicted, %", "observed, %"),
                    tuple(
                        (
                            f"{names[pair.first]} – {names[pair.second]}",
                            one.rows,
                            100 * one.predicted,
                            cell(one.observed, one.rows, 100),
                        )
                        for pair in diagnosis.reliability
                        for one in pair.bins
                    ),
                ),
                len(diagnosis.reliability) > figures.NARROW_PAIRS,
            ),
        ),
    )


def _margins(diagnosis: Diagnosis) -> Part:
    said = words.margins(diagnosis)
    title = "How clear the decisions are"
    if not diagnosis.margins:
        return Part("margins", title, said)
    return Part(
        "margins",
        title,
        "Where the rule stops, going on costs more than it could mend; by how much is the margin. "
        "A thin margin may turn with a little more data, and costs little either way.",
        (
            Exhibit(
                Picture(
                    "margins",
                    said,
                    f"The spread of the margin, for each arm. {said}",
                    lambda: figures.margins(diagnosis),
                ),
                Table(
                    "margins",
                    "The margin where the rule stops",
                    ("arm", "stops", "5 %", "25 %", "median", "75 %", "95 %", "thin, %"),
                    tuple(
                        (
                            tabled(diagnosis.arms[m.arm].name),
                            m.rows,
                            *(round(q, 4) for q in m.quantiles),
                            100 * m.share_thin,
                        )
                        for m in diagnosis.margins
                    ),
                ),
            ),
        ),
    )


def _accuracy(diagnosis: Diagnosis) -> Part:
    title = "How often each arm is right, from agreement alone"
    found = diagnosis.agreement
    if found is None:
        return Part(
            "accuracy",
            title,
            "Agreement says nothing here: it takes three or more arms that answered the same "
            "rounds to tell which of them is the odd one out.",
        )
    said = words.accuracy(diagnosis)
    audit = diagnosis.audit
    heads = ("arm", "own cost", "right, from agreement, %")
    if audit is not None:
        heads += ("right, by the labels, %",)
    elif found.losses:
        heads += ("cost and estimated error",)
    rows: list[tuple[Value, ...]] = []
    for one in found.accuracies:
        who = diagnosis.arms[one.arm]
        rows.append((tabled(who.name), who.cost, cell(one.accuracy, diagnosis.full_depth, 100)))
        if audit is not None:
            wrong = audit.errors[one.arm]
            right = Estimate(1 - wrong.value, 1 - wrong.high, 1 - wrong.low)
            rows[-1] += (cell(right, audit.rows, 100),)
        elif found.losses:
            rows[-1] += (found.losses[one.arm],)
    verdict = "Not contradicted" if found.check.passed else "Check failed"
    check = f"*{verdict}.* " if found.check.checked else "*Not checked.* "
    return Part(
        "accuracy",
        title,
        f"{INDEPENDENCE}\n\n{check}{found.check.words}",
        (
            Exhibit(
                Picture(
                    "accuracy",
                    said,
                    f"A point for each arm. {said}",
                    lambda: figures.accuracy(diagnosis),
                ),
                Table("accuracy", "How often each arm is right", heads, tuple(rows)),
            ),
        ),
    )


def _audit(diagnosis: Diagnosis) -> Part:
    audit = diagnosis.audit
    if audit is None:
        plan = Table(
            "plan",
            "What an audit would settle",
            ("labelled rows, at random", "reach", "what it would settle"),
            tuple((one.rows, f"± {percent(one.half_width)}", one.words) for one in diagnosis.plan),
        )
        return Part(
            "audit",
            "What cannot be verified without labels",
            words.dominance(diagnosis),
            after=plan if diagnosis.plan else None,
        )
    said = words.loss(diagnosis)
    names = [tabled(one.name) for one in diagnosis.arms]
    mends = (
        "A step is worth taking only if the answers it mends outnumber those it spoils by more "
        "than it costs. Where a deeper arm spoils more than it mends, answers get worse there."
    )
    fixed: tuple[tuple[Value, ...], ...] = tuple(
        (
            f"always {names[point.arm]}",
            point.cost,
            cell(audit.errors[point.arm], audit.rows, 100),
            cell(point.loss, audit.rows) if point.loss is not None else NOTHING,
        )
        for point in diagnosis.fixed
    )
    paid = diagnosis.arms[-1].total - diagnosis.saving.per_round.value
    return Part(
        "audit",
        "What the labels say",
        words.dominance(diagnosis),
        (
            Exhibit(
                Picture("losses", said, f"Bars. {said}", lambda: figures.losses(diagnosis)),
                Table(
                    "losses",
                    "Cost and errors together",
                    ("what", "cost a round", "wrong, %", "loss a round"),
                    (
                        ("the rule", paid, NOTHING, cell(audit.rule_loss, audit.rows)),
                        *fixed,
                    ),
                ),
            ),
            Exhibit(
                Picture(
                    "repairs",
                    mends,
                    f"Bars for each pair of arms: answers mended and answers spoilt. {mends}",
                    lambda: figures.repairs(diagnosis),
                ),
                Table(
                    "repairs",
                    "What going from one arm on to another does to the answer",
                    ("from", "to", "rows", "mends, %", "spoils, %"),
                    tuple(
                        (
                            names[p.first],
                            names[p.second],
                            p.rows,
                            cell(p.repair, p.rows, 100),
                            cell(p.harm, p.rows, 100),
                        )
                        for p in audit.pairs
                    ),
                ),
            ),
        ),
    )
