"""The report as one HTML file: pictures inside, no script, nothing fetched."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape

from stopwise.paper.provenance import facts
from stopwise.paper.report import (
    ABOUT,
    REPEAT,
    SIGNS,
    Drawn,
    Judged,
    Report,
    judged,
    settings_of,
    tally,
)
from stopwise.paper.report_style import STYLE
from stopwise.paper.report_text import (
    NOTHING,
    Span,
    criterion,
    headline,
    hint,
    numeric_columns,
    paragraphs,
    shown,
    spans,
)
from stopwise.paper.section import (
    FAILED,
    HELD,
    Choice,
    Claim,
    Picture,
    Section,
    Table,
    Value,
    Verdict,
)

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
    return _lines(
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(report.title)}</title>",
        '<link rel="icon" href="data:,">',  # else a browser goes looking for one
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        '<a class="skip" href="#glance">Skip to the verdicts</a>',
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
        "</body>",
        "</html>\n",
    )


def inline(text: str) -> str:
    """Set code and emphasis, and escape everything.

    Examples
    --------
    >>> inline("`a < b` is *not* <b>")
    '<code>a &lt; b</code> is <em>not</em> &lt;b&gt;'
    """
    return "".join(_span(span) for span in spans(text))


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
    return _lines(
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
    items = (f'<li><a href="#{escape(a)}">{inline(title)}</a></li>' for a, title in links)
    return _lines('<nav aria-label="Contents">', "<h2>Contents</h2>", "<ol>", *items, "</ol></nav>")


def _glance(report: Report) -> str:
    settings = settings_of(report)
    counts = tally(report)
    total = sum(counts.values())
    tiles = (
        f'<li><strong class="count">{count}</strong> {badge(verdict)}</li>'
        for verdict, count in counts.items()
    )
    heads = "".join(f'<th role="columnheader" scope="col">{inline(s)}</th>' for s in settings)
    return _lines(
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
    return _lines(
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
    return _lines(
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
    return _lines(
        f'<section id="{name}" class="exhibit" aria-labelledby="{name}-title">',
        f'<p class="where">{inline(section.where)}</p>',
        f'<h2 id="{name}-title">{inline(section.title)}</h2>',
        _text(section.text),
        *(_picture(picture, drawn[picture.name]) for picture in section.pictures),
        *(_table(table) for table in section.tables),
        *(["<h3>Claims</h3>"] if section.claims else []),
        *(_claim(one) for one in judged(section)),
        "</section>",
    )


def _picture(picture: Picture, files: Drawn) -> str:
    source = f"data:image/svg+xml;base64,{b64encode(files.svg).decode()}"
    return _lines(
        "<figure>",
        f'<div class="plate" tabindex="0"><img src="{source}" alt="{escape(picture.alt)}"></div>',
        f"<figcaption>{inline(picture.title)}</figcaption>",
        "</figure>",
    )


def _table(table: Table) -> str:
    numeric = numeric_columns(table)
    heads = (
        f'<th scope="col"{_numeric(number)}>{inline(column)}</th>'
        for column, number in zip(table.columns, numeric, strict=True)
    )
    caption = f"{table.name}-caption"
    note = f'<p class="note">{inline(table.note)}</p>' if table.note else ""
    return _lines(
        '<div class="table">',
        # focusable, so that it can be scrolled from the keyboard
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{caption}">',
        "<table>",
        f'<caption id="{caption}">{inline(table.title)}</caption>',
        f"<thead><tr>{''.join(heads)}</tr></thead>",
        "<tbody>",
        *(_table_row(row, numeric) for row in table.rows),
        "</tbody></table></div>",
        f'{note}<p class="note">Every digit is in <code>numbers/{table.name}.csv</code>.</p>',
        "</div>",
    )


def _table_row(row: tuple[Value, ...], numeric: list[bool]) -> str:
    cells: list[str] = []
    for k, (value, number) in enumerate(zip(row, numeric, strict=True)):
        title = f' title="{escape(tip)}"' if (tip := hint(value)) else ""
        words = inline(value) if isinstance(value, str) else escape(shown(value))
        if k == 0 and not number:
            cells.append(f'<th scope="row">{words}</th>')
        else:
            cells.append(f"<td{_numeric(number)}{title}>{words}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _numeric(yes: bool) -> str:
    return ' class="number"' if yes else ""


def _claim(one: Judged) -> str:
    return _lines(
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
    return _lines(
        '<div class="finding">',
        f'<p class="verdict">{badge(claim.verdict)} {setting}</p>',
        f'<div class="measured"><p>{inline(claim.numbers)}</p>{why}</div>',
        "</div>",
    )


def _choices(choices: tuple[Choice, ...]) -> str:
    if not choices:
        return ""
    return _lines(
        '<section id="choices" aria-labelledby="choices-title">',
        '<h2 id="choices-title">What the paper leaves open</h2>',
        "<p>Where the paper does not say, something had to be chosen. What, and why:</p>",
        *(
            _lines(
                '<article class="choice">',
                f"<h3>{inline(choice.question)}</h3>",
                f'<p class="chosen">{inline(choice.chosen)}</p>',
                _text(choice.why),
                "</article>",
            )
            for choice in choices
        ),
        "</section>",
    )


def _settings(settings: tuple[tuple[str, str], ...]) -> str:
    if not settings:
        return ""
    return _lines(
        '<section id="settings" aria-labelledby="settings-title">',
        '<h2 id="settings-title">Settings</h2>',
        "<p>The settings under which claims were tested; each is the same for every claim.</p>",
        _pairs(settings),
        "</section>",
    )


def _provenance(report: Report) -> str:
    return _lines(
        '<section id="provenance" aria-labelledby="provenance-title">',
        '<h2 id="provenance-title">Where the numbers come from</h2>',
        _pairs(facts(report.provenance)),
        "<h3>How to repeat it</h3>",
        f"<pre><code>{escape(report.command)}</code></pre>",
        f"<p>{inline(REPEAT)}</p>",
        "</section>",
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    items = (f"<div><dt>{inline(name)}</dt><dd>{_text(text)}</dd></div>" for name, text in pairs)
    return _lines("<dl>", *items, "</dl>")


# --- the smallest pieces --------------------------------------------------------------------------


def _span(span: Span) -> str:
    text = escape(span.text)
    match span.kind:
        case "code":
            return f"<code>{text}</code>"
        case "emphasis":
            return f"<em>{text}</em>"
        case "text":
            return text


def _text(text: str) -> str:
    return _lines(*(f"<p>{inline(paragraph)}</p>" for paragraph in paragraphs(text)))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
