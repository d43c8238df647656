"""The report as Markdown, with the figures beside it."""

import re
from collections.abc import Iterable

from stopwise.paper.provenance import facts
from stopwise.paper.report import (
    ABOUT,
    REPEAT,
    SIGNS,
    Judged,
    Report,
    judged,
    settings_of,
    tally,
)
from stopwise.paper.report_text import criterion, headline
from stopwise.paper.section import HELD, Choice, Claim, Section, Verdict
from stopwise.reporting.parts import Picture, Table
from stopwise.reporting.text import NOTHING, Span, numeric_columns, paragraphs, shown, spans

SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")
# What would begin a heading, a list or a quotation at the head of a paragraph.
OPENING = re.compile(r"^(\d+(?=[.)])|(?=[-+#=]))")


def markdown(report: Report) -> str:
    """Return the report as Markdown; figures are links to ``figures/*.svg``."""
    blocks = [
        f"# {inline(report.title)}",
        inline(ABOUT),
        f"**Scale** {inline(report.scale)}",
        *_glance(report),
        *(block for section in report.sections for block in _section(section)),
        *_choices(report.choices),
        *_settings(report.settings),
        "## Where the numbers come from",
        _pipe_table(("", ""), facts(report.provenance)),
        "### How to repeat it",
        f"```\n{report.command}\n```",
        inline(REPEAT),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def inline(text: str) -> str:
    r"""Set code and emphasis, and escape everything else that Markdown would take for markup.

    Examples
    --------
    >>> print(inline("`I_t` is *not* I_t | x"))
    `I_t` is *not* I\_t \| x
    """
    return "".join(_span(span) for span in spans(text))


def block(text: str) -> str:
    r"""Set a text with its paragraphs.

    Examples
    --------
    >>> print(block("# no heading"))
    \# no heading
    """
    parts = (inline(paragraph) for paragraph in paragraphs(text))
    return "\n\n".join(OPENING.sub(r"\1\\", part) for part in parts)


def badge(verdict: Verdict) -> str:
    """Return a verdict as a word with a sign."""
    return f"{SIGNS[verdict]} {verdict}"


# --- the parts, from top to bottom ----------------------------------------------------------------


def _glance(report: Report) -> Iterable[str]:
    settings = settings_of(report)
    yield "## Verdicts at a glance"
    yield ", ".join(f"{count} {verdict}" for verdict, count in tally(report).items()) + "."
    rows = [
        (inline(section.title), inline(headline(one.text)), *_glance_cells(one, settings))
        for section in report.sections
        for one in judged(section)
    ]
    if rows:
        heads = (*map(inline, settings),) or ("verdict",)
        yield _pipe_table(("", "Claim", *heads), rows, ready=True)


def _glance_cells(one: Judged, settings: list[str]) -> tuple[str, ...]:
    free = one.under("")
    found = [one.under(setting) or free for setting in settings or [""]]
    return tuple(" / ".join(badge(c.verdict) for c in claims) or NOTHING for claims in found)


def _section(section: Section) -> Iterable[str]:
    yield f"## {inline(section.title)}"
    yield inline(section.where)
    yield block(section.text)
    for picture in section.pictures:
        yield _picture(picture)
    for table in section.tables:
        yield from _table(table)
    if section.claims:
        yield "### Claims"
    for one in judged(section):
        yield f"**{inline(headline(one.text))}**" + (f" · {inline(one.where)}" if one.where else "")
        yield inline(criterion(one.text))
        yield "\n".join(_finding(claim) for claim in one.verdicts)


def _picture(picture: Picture) -> str:
    alt = inline(" ".join(picture.alt.split()))
    return f"![{alt}](figures/{picture.name}.svg)\n\n{block(picture.title)}"


def _table(table: Table) -> Iterable[str]:
    yield f"**{inline(table.title)}**"
    words = [
        tuple(inline(v) if isinstance(v, str) else shown(v) for v in row) for row in table.rows
    ]
    numeric = numeric_columns(table)
    yield _pipe_table(tuple(map(inline, table.columns)), words, numeric, ready=True)
    if table.note:
        yield block(table.note)
    yield f"Every digit is in `numbers/{table.name}.csv`."


def _finding(claim: Claim) -> str:
    setting = f", {inline(claim.setting)}" if claim.setting else ""
    why = f" Why: {inline(claim.why)}" if claim.why and claim.verdict != HELD else ""
    return f"- **{badge(claim.verdict)}**{setting}: {inline(claim.numbers)}{why}"


def _choices(choices: tuple[Choice, ...]) -> Iterable[str]:
    if choices:
        yield "## What the paper leaves open"
        rows = [(c.question, c.chosen, c.why) for c in choices]
        yield _pipe_table(("Question", "Chosen", "Why"), rows)


def _settings(settings: tuple[tuple[str, str], ...]) -> Iterable[str]:
    if settings:
        yield "## Settings"
        yield _pipe_table(("Setting", "What it is"), settings)


# --- the smallest pieces --------------------------------------------------------------------------


def _pipe_table(
    heads: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    numeric: Iterable[bool] = (),
    *,
    ready: bool = False,
) -> str:
    """Set a table; ``ready`` says that the cells are set already."""
    rules = ["--:" if number else "---" for number in numeric] or ["---"] * len(heads)
    lines = [heads, rules, *(row if ready else map(inline, row) for row in rows)]
    return "\n".join(f"| {' | '.join(' '.join(c.split()) for c in cells)} |" for cells in lines)


def _span(span: Span) -> str:
    match span.kind:
        case "code":
            return f"`{span.text}`".replace("|", r"\|")
        case "emphasis":
            return f"*{SPECIAL.sub(_escaped, span.text)}*"
        case "text":
            return SPECIAL.sub(_escaped, span.text)


def _escaped(match: re.Match[str]) -> str:
    return "\\" + match[0]
