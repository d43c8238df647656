"""The page of all cascades."""

from collections.abc import Sequence
from html import escape

from stopwise.logs.diagnosis.words import amount, percent, short
from stopwise.reporting.html import lines
from stopwise.service.dashboard import drawing, words
from stopwise.service.dashboard.html import (
    NOTHING,
    Files,
    command,
    exactly,
    live_page,
    mood,
    shares_in_words,
    starting,
    status,
    tile,
    when,
)
from stopwise.service.dashboard.values import Glance, Running, Sums, Visitor


def overview(
    files: Files,
    visitor: Visitor,
    running: Running,
    glances: Sequence[Glance],
    *,
    create: str,
    sums: Sums,
    page: int = 1,
    pages: int = 1,
) -> str:
    """Return the page of all cascades.

    Parameters
    ----------
    files, visitor, running
        What every page needs.
    glances : sequence of Glance
        The cascades of this page.
    create : str
        The command that makes a cascade, for those who have none.
    sums : Sums
        Over the cascades of all pages.
    page, pages : int, optional
        Which page this is, of how many.
    """
    if running.recovering:
        return starting(files, visitor, running)
    if not sums.cascades:
        return live_page(files, visitor, running, "Cascades", _no_cascade(create))
    retired = sums.cascades - sums.active
    return live_page(
        files,
        visitor,
        running,
        "Cascades",
        "<h1>Cascades</h1>",
        '<div class="tiles" id="sums" data-part>',
        tile(
            "Active cascades",
            words.count(sums.active),
            f"{words.count(retired)} retired" if retired else "none retired",
        ),
        tile("Decisions", words.count(sums.decisions), "of all cascades"),
        tile("Waiting for outputs", words.count(sums.open), "decisions not yet learned from"),
        tile("Last event", when(running.last, running.now), exactly(running.last)),
        "</div>",
        _table_of(glances, running.now),
        _turning(page, pages),
    )


def _no_cascade(create: str) -> str:
    return lines(
        '<section class="blank" id="blank" data-part>',
        "<h1>No cascade yet</h1>",
        "<p>A cascade is a row of arms (tests, models, people to ask), each with a cost. "
        "Stopwise learns, without labels, how far down the row each case needs to go. "
        "Make one:</p>",
        command(create),
        "<p>The context is what is known before the first arm; bound says how large its numbers "
        "may be. It appears here at once.</p>",
        "</section>",
    )


def _table_of(glances: Sequence[Glance], now: float) -> str:
    return lines(
        '<div class="panel" id="cascades" data-part>',
        '<table class="glances"><caption class="unseen">Cascades, the active ones first</caption>',
        '<thead><tr><th scope="col">Cascade</th><th scope="col">Learner</th>'
        '<th scope="col" class="number">Decisions</th><th scope="col">Where they stop</th>'
        '<th scope="col" class="number">Cost per decision</th>'
        '<th scope="col" class="number">Open</th></tr></thead>',
        "<tbody>",
        *(_row(one, now) for one in glances),
        "</tbody></table></div>",
        '<p class="note">Cost per decision is what the arms that ran cost; the saving is against '
        "always going to the last arm, and does not count errors.</p>",
    )


def _row(one: Glance, now: float) -> str:
    if one.stopped:
        stops = drawing.share_bar(one.stops, shares_in_words(one)) + _short_key(one)
    else:
        stops = '<span class="soft">no decision yet</span>'
    since = when(one.last, now) if one.last is not None else f"made {when(one.created, now)}"
    return lines(
        "<tr>" if one.active else '<tr class="retired">',
        f'<th scope="row"><a href="/cascades/{escape(one.name)}">{escape(one.name)}</a>'
        f"{'' if one.active else f' {status(one)}'}"
        f'<span class="below soft">{since}</span></th>',
        f'<td data-label="Learner">{mood(one.health)}</td>',
        f'<td class="number" data-label="Decisions">{words.count(one.decisions)}</td>',
        f'<td class="stops" data-label="Where they stop">{stops}</td>',
        f'<td class="number" data-label="Cost per decision">{_cost_cell(one)}</td>',
        f'<td class="number" data-label="Open">{words.count(one.open)}</td>',
        "</tr>",
    )


def _cost_cell(one: Glance) -> str:
    if one.cost is None:
        return NOTHING
    return (
        f"<b>{amount(one.cost)}</b> <span class=soft>of {amount(one.deepest)}</span>"
        f'<span class="below">{_saving(one)}</span>'
    )


def _saving(one: Glance) -> str:
    saving = one.saving
    if saving is None:
        return '<span class="soft">nothing costs anything</span>'
    if one.ended_early:
        return f'<span class="soft">{words.count(one.ended_early)} ended early</span>'
    if saving < 0.0005:
        return f'<span class="soft">nothing saved{" yet" if one.active else ""}</span>'
    return f'<span class="saves">{percent(saving)} saved</span>'


def _short_key(one: Glance) -> str:
    """Return the shares that matter, in a line."""
    parts = [
        f'<span class="pair">{drawing.swatch(arm, len(one.arms))}'
        f"{escape(short(name, 18))} {percent(n / one.stopped)}</span>"
        for arm, (name, n) in enumerate(zip(one.arms, one.stops, strict=True))
        if n
    ]
    rest = f'<span class="soft">and {len(parts) - 5} more</span>' if len(parts) > 6 else ""
    return f'<span class="keys">{"".join(parts[:5] if rest else parts)}{rest}</span>'


def _turning(page: int, pages: int) -> str:
    if pages < 2:
        return ""
    back = f'<a href="/?page={page - 1}" rel="prev">Previous</a>' if page > 1 else ""
    on = f'<a href="/?page={page + 1}" rel="next">Next</a>' if page < pages else ""
    return (
        f'<nav class="turning" aria-label="Pages">{back}<span>Page {page} of {pages}</span>{on}'
        "</nav>"
    )
