"""A report as one HTML file: pictures inside, no script, nothing fetched."""

from base64 import b64encode
from collections.abc import Iterable
from html import escape

from stopwise.reporting.drawing import Drawn
from stopwise.reporting.pages import style as shared_style
from stopwise.reporting.parts import Picture, Table, Value
from stopwise.reporting.text import Span, hint, numeric_columns, paragraphs, shown, spans


def page(title: str, skip: tuple[str, str], *body: str, style: str = "") -> str:
    """Return a whole page.

    Parameters
    ----------
    title : str
        For the window.
    skip : tuple of (anchor, words)
        A link for those who read by ear, to what they came for.
    *body : str
        The parts of the page, as HTML.
    style : str, optional
        Rules beyond those of the house.
    """
    anchor, words = skip
    return lines(
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        '<link rel="icon" href="data:,">',  # else a browser goes looking for one
        f"<style>{shared_style()}{style}</style>",
        "</head>",
        "<body>",
        f'<a class="skip" href="#{anchor}">{words}</a>',
        *body,
        "</body>",
        "</html>\n",
    )


def contents(links: Iterable[tuple[str, str]]) -> str:
    """Return the table of contents, of anchors and titles."""
    items = (f'<li><a href="#{escape(a)}">{inline(title)}</a></li>' for a, title in links)
    return lines('<nav aria-label="Contents">', "<h2>Contents</h2>", "<ol>", *items, "</ol></nav>")


def figure(picture: Picture, drawn: Drawn, plate: str = "plate") -> str:
    """Return a picture on its plate, with its caption."""
    source = f"data:image/svg+xml;base64,{b64encode(drawn.svg).decode()}"
    return lines(
        "<figure>",
        f'<div class="{plate}" tabindex="0"><img src="{source}" alt="{escape(picture.alt)}"></div>',
        f"<figcaption>{inline(picture.title)}</figcaption>",
        "</figure>",
    )


def table(table: Table, after: str = "") -> str:
    """Return a table in a box of its own, which scrolls where the screen is narrow.

    ``after`` is HTML to put below it.
    """
    numeric = numeric_columns(table)
    heads = (
        f'<th scope="col"{_numeric(number)}>{inline(column)}</th>'
        for column, number in zip(table.columns, numeric, strict=True)
    )
    caption = f"{table.name}-caption"
    note = f'<p class="note">{inline(table.note)}</p>' if table.note else ""
    return lines(
        '<div class="table">',
        # focusable, so that it can be scrolled from the keyboard
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{caption}">',
        "<table>",
        f'<caption id="{caption}">{inline(table.title)}</caption>',
        f"<thead><tr>{''.join(heads)}</tr></thead>",
        "<tbody>",
        *(_table_row(row, numeric) for row in table.rows),
        "</tbody></table></div>",
        f"{note}{after}",
        "</div>",
    )


def pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names with what is to be said of them."""
    items = (f"<div><dt>{inline(name)}</dt><dd>{text(words)}</dd></div>" for name, words in pairs)
    return lines("<dl>", *items, "</dl>")


def text(text: str) -> str:
    """Return a text as paragraphs."""
    return lines(*(f"<p>{inline(paragraph)}</p>" for paragraph in paragraphs(text)))


def inline(text: str) -> str:
    """Set code and emphasis, and escape everything.

    Examples
    --------
    >>> inline("`a < b` is *not* <b>")
    '<code>a &lt; b</code> is <em>not</em> &lt;b&gt;'
    """
    return "".join(_span(span) for span in spans(text))


def lines(*parts: str) -> str:
    """Put parts one below the other; empty ones leave no trace."""
    return "\n".join(part for part in parts if part)


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


def _span(span: Span) -> str:
    text = escape(span.text)
    match span.kind:
        case "code":
            return f"<code>{text}</code>"
        case "emphasis":
            return f"<em>{text}</em>"
        case "text":
            return text
