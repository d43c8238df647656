"""The report as one HTML file: pictures inside, no script, nothing fetched."""

from collections.abc import Mapping
from html import escape

from stopwise.paper.provenance import facts
from stopwise.paper.report import ABOUT, REPEAT, SIGNS, Judged, Report, judged, settings_of, tally
from stopwise.paper.report_text import criterion, headline
from stopwise.paper.section import FAILED, HELD, Choice, Claim, Section, Verdict
from stopwise.reporting.drawing import Drawn
from stopwise.reporting.html import contents, figure, inline, lines, page, pairs, text
from stopwise.reporting.html import table as set_table
from stopwise.reporting.parts import Table
from stopwise.reporting.text import NOTHING

CLASSES: dict[Verdict, str] = {HELD: "held", FAILED: "failed"}


def html(report: Report, drawn: Mapping[str, Drawn]) -> str:
    """Return the report as a page.

    Parameters
    ----------
    report : Report
        What to say.
    drawn : mapping
        Its pictures by name.
    """
    return page(
        report.title,
        ("glance", "Skip to the verdicts"),
        _header(report),
        '<div class="page">',
        _contents(report),
        "<main>",
        _glance(report),
        *(_section(section, drawn) for section in report.sections),
        _choices(report.choices),
        _settings(report.settings),
        _provenance(report),
        "</main>",
        "</div>",
    )


def badge(verdict: Verdict) -> str:
    """Return a verdict as a word with a sign.

    Examples
    --------
    >>> badge("held")
    '<span class="badge held"><span aria-hidden="true">✓</span> held</span>'
    """
    sign = f'<span aria-hidden="true">{SIGNS[verdict]}</span>'
    return f'<span class="badge {CLASSES.get(verdict, "open")}">{sign} {verdict}</span>'


# --- the parts, from top to bottom ----------------------------------------------------------------


def _header(report: Report) -> str:
    return lines(
        "<header>",
        f"<h1>{inline(report.title)}</h1>",
        f'<p class="lede">{inline(ABOUT)}</p>',
        f'<p class="scale"><strong>Scale</strong> {inline(report.scale)}</p>',
        "</header>",
    )


def _contents(report: Report) -> str:
    ends = [
        ("choices", "What the paper leaves open", bool(report.choices)),
        ("settings", "Settings", bool(report.settings)),
        ("provenance", "Where the numbers come from", True),
    ]
    links = [
        ("glance", "Verdicts at a glance"),
        *((section.name, section.title) for section in report.sections),
        *((anchor, title) for anchor, title, there in ends if there),
    ]
    return contents(links)


def _glance(report: Report) -> str:
    settings = settings_of(report)
    counts = tally(report)
    total = sum(counts.values())
    tiles = (
        f'<li><strong class="count">{count}</strong> {badge(verdict)}</li>'
        for verdict, count in counts.items()
    )
    heads = "".join(f'<th role="columnheader" scope="col">{inline(s)}</th>' for s in settings)
    return lines(
        '<section id="glance" aria-labelledby="glance-title">',
        '<h2 id="glance-title">Verdicts at a glance</h2>',
        f"<p>{_counted(total, 'verdict')}:</p>",
        '<ul class="tally">',
        *tiles,
        "</ul>",
        # roles spelt out: on a narrow screen rows become cards, and would cease to be a table
        '<table class="glance" role="table" aria-label="Verdicts by claim and setting">',
        '<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Claim</th>'
        f"{heads or _column_head('Verdict')}</tr></thead>",
        *(_glance_group(section, settings) for section in report.sections if section.claims),
        "</table>",
        "</section>",
    )


def _column_head(text: str) -> str:
    return f'<th role="columnheader" scope="col">{text}</th>'


def _glance_group(section: Section, settings: list[str]) -> str:
    width = max(1, len(settings))
    return lines(
        '<tbody role="rowgroup">',
        '<tr class="group" role="row">'
        f'<th role="rowheader" scope="rowgroup" colspan="{width + 1}">'
        f'<a href="#{section.name}">{inline(section.title)}</a></th></tr>',
        *(_glance_row(one, settings) for one in judged(section)),
        "</tbody>",
    )


def _glance_row(one: Judged, settings: list[str]) -> str:
    free = one.under("")
    cells = [_glance_cell(one.under(setting) or free, setting) for setting in settings]
    if len(free) == len(one.verdicts):  # no setting matters: one cell for all
        cells = [_glance_cell(free, "", span=max(1, len(settings)))]
    return lines(
        '<tr class="judged" role="row">',
        '<th role="rowheader" scope="row">'
        f'<a href="#{one.anchor}">{inline(headline(one.text))}</a></th>',
        *cells,
        "</tr>",
    )


def _glance_cell(claims: tuple[Claim, ...], setting: str, span: int = 1) -> str:
    badges = " ".join(badge(claim.verdict) for claim in claims)
    if span > 1:
        badges += ' <span class="setting">whatever the setting</span>'
    label = f' data-setting="{escape(setting)}"' if setting else ""
    wide = f' colspan="{span}"' if span > 1 else ""
    return f'<td role="cell"{label}{wide}>{badges or NOTHING}</td>'


def _section(section: Section, drawn: Mapping[str, Drawn]) -> str:
    name = section.name
    return lines(
        f'<section id="{name}" class="exhibit" aria-labelledby="{name}-title">',
        f'<p class="where">{inline(section.where)}</p>',
        f'<h2 id="{name}-title">{inline(section.title)}</h2>',
        text(section.text),
        *(figure(picture, drawn[picture.name]) for picture in section.pictures),
        *(_table(table) for table in section.tables),
        *(["<h3>Claims</h3>"] if section.claims else []),
        *(_claim(one) for one in judged(section)),
        "</section>",
    )


def _table(table: Table) -> str:
    name = f"numbers/{table.name}.csv"
    return set_table(table, f'<p class="note">Every digit is in <code>{name}</code>.</p>')


def _claim(one: Judged) -> str:
    return lines(
        f'<article class="claim" id="{one.anchor}">',
        f'<p class="says">{inline(headline(one.text))}</p>',
        f'<p class="criterion">{inline(test)}</p>' if (test := criterion(one.text)) else "",
        f'<p class="where">{inline(one.where)}</p>' if one.where else "",
        *(_finding(claim) for claim in one.verdicts),
        "</article>",
    )


def _finding(claim: Claim) -> str:
    setting = f'<span class="setting">{inline(claim.setting)}</span>' if claim.setting else ""
    why = (
        f'<p class="why"><strong>Why.</strong> {inline(claim.why)}</p>'
        if claim.why and claim.verdict != HELD
        else ""
    )
    return lines(
        '<div class="finding">',
        f'<p class="verdict">{badge(claim.verdict)} {setting}</p>',
        f'<div class="measured"><p>{inline(claim.numbers)}</p>{why}</div>',
        "</div>",
    )


def _choices(choices: tuple[Choice, ...]) -> str:
    if not choices:
        return ""
    return lines(
        '<section id="choices" aria-labelledby="choices-title">',
        '<h2 id="choices-title">What the paper leaves open</h2>',
        "<p>Where the paper does not say, something had to be chosen. What, and why:</p>",
        *(
            lines(
                '<article class="choice">',
                f"<h3>{inline(choice.question)}</h3>",
                f'<p class="chosen">{inline(choice.chosen)}</p>',
                text(choice.why),
                "</article>",
            )
            for choice in choices
        ),
        "</section>",
    )


def _settings(settings: tuple[tuple[str, str], ...]) -> str:
    if not settings:
        return ""
    return lines(
        '<section id="settings" aria-labelledby="settings-title">',
        '<h2 id="settings-title">Settings</h2>',
        "<p>The settings under which claims were tested; each is the same for every claim.</p>",
        pairs(settings),
        "</section>",
    )


def _provenance(report: Report) -> str:
    return lines(
        '<section id="provenance" aria-labelledby="provenance-title">',
        '<h2 id="provenance-title">Where the numbers come from</h2>',
        pairs(facts(report.provenance)),
        "<h3>How to repeat it</h3>",
        f"<pre><code>{escape(report.command)}</code></pre>",
        f"<p>{inline(REPEAT)}</p>",
        "</section>",
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
