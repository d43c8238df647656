"""HTML pages: templates, the style sheet, and inline markup.

A report is one self-contained file: inline pictures, no scripts, no network requests. Its template
extends ``templates/page.html`` and uses the macros of ``templates/macros.html``.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from stopwise.errors import MissingPackageError
from stopwise.reporting import wording

FOLDER = Path(__file__).parent
# `code` and *emphasis*; an asterisk between letters or digits, as in 2*3*4, is literal.
INLINE = re.compile(r"`(?P<code>[^`]+)`|(?<![\w*])\*(?=\S)(?P<em>[^*]+)(?<=\S)\*(?![\w*])")
FILTERS = (
    wording.count,
    wording.plural,
    wording.number,
    wording.percent,
    wording.percent_interval,
    wording.format_value,
    wording.plain,
    wording.short,
    wording.join_list,
)


@lru_cache(maxsize=1)
def style() -> str:
    """Return the style sheet of all pages."""
    return (FOLDER / "style.css").read_text("utf-8")


@lru_cache(maxsize=8)
def environment(folder: Path) -> Any:
    """Return the Jinja environment for the templates in a folder and the shared templates.

    Values are escaped. Filters: the functions of `stopwise.reporting.wording`, and ``inline``,
    ``paragraphs`` and ``data_url``. Raises `MissingPackageError` without jinja2.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingPackageError.of("writing a page", "jinja2", "logs") from error
    templates: Any = Environment(  # Any: its types are incomplete
        loader=FileSystemLoader([folder, FOLDER / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update({function.__name__: function for function in FILTERS})

    def marked(function: Callable[[str], str]) -> Callable[[str], str]:
        return lambda text: Markup(function(text))

    templates.filters.update(inline=marked(inline), paragraphs=marked(paragraphs))
    templates.filters["data_url"] = data_url
    templates.globals.update(NOTHING=wording.NOTHING, style=Markup(style()))
    return templates


def render(folder: Path, template: str, **values: Any) -> str:
    """Render a template in a folder; it may extend those in ``reporting/templates``."""
    return environment(folder).get_template(template).render(values)


def inline(text: str) -> str:
    """Return a text as escaped HTML, with code and emphasis marked up.

    Examples
    --------
    >>> inline("`a < b` is *not* <b>, nor 2*3*4")
    '<code>a &lt; b</code> is <em>not</em> &lt;b&gt;, nor 2*3*4'
    """
    parts: list[str] = []
    end = 0
    for match in INLINE.finditer(text):
        tag = match.lastgroup
        parts += [escape(text[end : match.start()]), f"<{tag}>{escape(match[tag or 0])}</{tag}>"]
        end = match.end()
    return "".join([*parts, escape(text[end:])]).replace(" ± ", "\u00a0±\u00a0")  # no line breaks


def paragraphs(text: str) -> str:
    r"""Return a text as HTML; blank lines in the text separate its paragraphs.

    Examples
    --------
    >>> paragraphs("One\nline.\n\nAnother. ")
    '<p>One line.</p>\n<p>Another.</p>'
    """
    parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "\n".join(f"<p>{inline(part)}</p>" for part in parts if part)


def data_url(svg: bytes) -> str:
    """Return an SVG picture as a data URL."""
    return f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
