"""What the labels show; without labels, what they would have to settle."""

from collections.abc import Sequence

from stopwise.logs.diagnosis.findings import Audit, Diagnosis, Estimate
from stopwise.logs.diagnosis.sections.panel import (
    BLUE,
    POLICY,
    WIDTH,
    Panel,
    ReportSection,
    label,
    reach,
    tabled,
)
from stopwise.logs.diagnosis.words import cell
from stopwise.reporting.drawing import Figure, legend_below, panels, styled
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.wording import Value, code, number, percent


def labels(diagnosis: Diagnosis) -> ReportSection:
    """Cost and errors together by the labels; or how many labels would be needed."""
    audit = diagnosis.audit
    return _without(diagnosis) if audit is None else _with(diagnosis, audit)


def _without(diagnosis: Diagnosis) -> ReportSection:
    plan, hint = diagnosis.plan, diagnosis.hint
    text = (
        f"{POLICY} rests on *weak dominance*: beyond the best arm every step costs more than the "
        "arms disagree. Without a single right answer it cannot be verified; where it fails, "
        f"{POLICY} goes deeper than it should."
    )
    found: list[Panel] = []
    if plan is not None:
        first, second = (code(diagnosis.arms[k].name) for k in (plan.first, plan.second))
        text += (
            f"\n\nThe open question is whether {second} is worth the {number(plan.gap)} that it "
            f"costs more than {first}. Labels on random rows answer it if they give the "
            "difference of the two error rates to within half of that."
        )
        rows = tuple(
            (n, f"± {percent(half)}", "yes" if half < plan.gap / 2 else "no")
            for n, half in zip(plan.rows, plan.half_width, strict=True)
        )
        columns = ("labels, on random rows", "difference of the error rates", "enough")
        found.append(Panel(Table("plan", "How many labels answer the question", columns, rows)))
    if hint is not None:
        text += (
            "\n\n*A hint.* If arms err independently of one another and most are right more often "
            "than not, their agreement shows how often each is right. Arms that share mistakes "
            "(models of one family, or trained on the same data) look better than they are, and "
            "a better arm that does not share them looks worse. Never drop an arm for this."
        )
        right = tuple(
            (tabled(arm.name), f"about {percent(accuracy)}")
            for arm, accuracy in zip(diagnosis.arms, hint.accuracies, strict=True)
        )
        title = "How often each arm seems right, if arms err independently"
        found.append(Panel(Table("hint", title, ("arm", "seems right"), right)))
    return ReportSection("labels", "What cannot be verified without labels", text, tuple(found))


def _with(diagnosis: Diagnosis, audit: Audit) -> ReportSection:
    names = [tabled(one.name) for one in diagnosis.arms]
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
    rows: list[tuple[Value, ...]] = []
    for name, cost, error, loss in _losses(diagnosis, audit, names):
        rows.append((name, cost, cell(error, audit.rows, 100), cell(loss, audit.rows)))
    heads = ("what", "cost a round", "wrong, %", "loss a round")
    losses = Table("losses", "Cost and errors together", heads, tuple(rows))
    rows = []
    for p in audit.pairs:
        repair, harm = (cell(rate, audit.rows, 100) for rate in (p.repair, p.harm))
        rows.append((names[p.first], names[p.second], repair, harm))
    repairs = Table(
        "repairs",
        "What continuing from one arm to another does to the answer",
        ("from", "to", "repairs a wrong answer, %", "spoils a right one, %"),
        tuple(rows),
        note="A step pays only if it repairs more answers than it spoils by more than it costs.",
    )
    picture = Picture("losses", found, f"Bars. {found}", lambda: _draw_losses(diagnosis, audit))
    return ReportSection(
        "labels",
        "What the labels show",
        f"{audit.rows:,} labelled rows have every output. They decide the verdict.",
        (Panel(losses, picture), Panel(repairs)),
    )


def _losses(
    diagnosis: Diagnosis, audit: Audit, names: Sequence[str]
) -> list[tuple[str, float, Estimate, Estimate]]:
    """Return name, cost, error and loss of Stopwise and of every fixed depth."""
    spent = audit.rule_loss.value - audit.rule_error.value
    fixed = zip(names, diagnosis.fixed, audit.errors, strict=True)
    return [
        (POLICY, spent, audit.rule_error, audit.rule_loss),
        *((f"always {n}", p.cost, e, p.loss) for n, p, e in fixed if p.loss is not None),
    ]


@styled
def _draw_losses(diagnosis: Diagnosis, audit: Audit) -> Figure:
    found = _losses(diagnosis, audit, [label(arm.name) for arm in diagnosis.arms])
    figure = panels(1, 1, WIDTH, 0.36 * len(found) + 0.5)
    (axes,) = figure.axes
    axes.set_axisbelow(True)
    for place, (_, cost, error, loss) in enumerate(found):
        first = place == 0  # one entry each in the legend
        axes.barh([place], [cost], color=BLUE, label="cost" if first else None)
        look = {"color": "#F0B27A", "hatch": "///", "label": "errors" if first else None}
        axes.barh([place], [error.value], left=[cost], **look)
        look = {"fmt": "none", "capsize": 2, "elinewidth": 1, "ecolor": "#333333"}
        axes.errorbar([loss.value], [place], xerr=reach([loss]), **look)
        beside = {"textcoords": "offset points", "va": "center"}
        axes.annotate(number(loss.value), (loss.high, place), (4, 0), **beside)
    axes.set_yticks(range(len(found)), [name for name, *_ in found])
    axes.invert_yaxis()
    axes.set_xlim(0, (max(loss.high for *_, loss in found) or 1.0) * 1.18)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("loss of a round, in wrong answers")
    legend_below(figure)
    return figure
