"""The page of one cascade."""

from collections.abc import Iterable, Sequence
from html import escape

from stopwise.logs.diagnosis.words import amount, percent, percent_between, short
from stopwise.reporting.html import lines
from stopwise.service.dashboard import drawing, words
from stopwise.service.dashboard.html import (
    NOTHING,
    Files,
    command,
    live_page,
    mood,
    section,
    shares_in_words,
    status,
    tile,
    used,
    when,
)
from stopwise.service.dashboard.values import (
    Compared,
    Glance,
    Made,
    Pair,
    Running,
    Stretch,
    Visitor,
    Whole,
    merged,
)

BARS = 60  # stretches of time in a picture
SMALL_BARS = 24  # in the pictures of pairs: fewer, so that each has enough rounds to say something
MOST_PAIRS = 10  # beyond, only neighbours are drawn, and the other pairs folded away
ROWS = 24  # stretches in a table of numbers: the last ones


def cascade(
    files: Files,
    visitor: Visitor,
    running: Running,
    whole: Whole,
    *,
    unconfirmed: bool = False,
) -> str:
    """Return the page of one cascade.

    Parameters
    ----------
    files, visitor, running
        What every page needs.
    whole : Whole
        The cascade.
    unconfirmed : bool, optional
        Say that it was not retired, because its name was not typed.
    """
    glance = whole.glance
    decided = glance.stopped > 0
    return live_page(
        files,
        visitor,
        running,
        glance.name,
        '<nav class="crumbs" aria-label="Where you are"><a href="/">Cascades</a> '
        f'<span aria-hidden="true">/</span> <span aria-current="page">{escape(glance.name)}</span>'
        "</nav>",
        '<div class="title" id="title" data-part>',
        f"<h1>{escape(glance.name)}</h1>",
        f"<p>{status(glance)} {mood(glance.health)}</p>",
        f'<p class="soft">{escape(glance.health.sentence)}</p>',
        "</div>",
        _arms(whole),
        _tiles(whole, running.now) if decided else _no_decision(whole),
        f'<div class="two">{_depths(whole)}{_costs(whole)}</div>' if decided else "",
        _disagreements(whole) if decided else "",
        f'<div class="side">{_recent(whole, running.now)}{_estimator(whole)}</div>'
        if decided
        else _estimator(whole),
        _retiring(whole, visitor, unconfirmed),
    )


def _arms(whole: Whole) -> str:
    glance = whole.glance
    n = len(glance.arms)
    return lines(
        '<ol class="chain" aria-label="The arms in order, and what stopping at each costs">',
        *(
            f"<li>{drawing.swatch(k, n)}<b>{escape(short(name))}</b> "
            f'<span class="soft">{amount(cost)}{_in_all(k, total)}</span></li>'
            for k, (name, cost, total) in enumerate(
                zip(glance.arms, whole.costs, glance.cumulative, strict=True)
            )
        ),
        "</ol>",
    )


def _in_all(k: int, total: float) -> str:
    return f", in all {amount(total)}" if k else ""


def _no_decision(whole: Whole) -> str:
    if not whole.glance.active:
        text = "<p>It was retired before it decided anything.</p>"
        return f'<section class="blank" id="blank" data-part>{text}</section>'
    return lines(
        '<section class="blank" id="blank" data-part>',
        "<h2>No decision yet</h2>",
        "<p>Ask how deep to go for a case. The first ones go to the last arm, so that there is "
        "something to learn from.</p>",
        command(whole.try_this),
        "<p>The answer names the arm to stop at. Run the arms up to it, then tell what they said. "
        "ID is the one that was answered, and … what each arm said:</p>",
        command(whole.tell_this),
        "</section>",
    )


def _tiles(whole: Whole, now: float) -> str:
    one = whole.glance
    n = len(one.arms)
    keys = "".join(
        f"<li>{drawing.swatch(arm, n)}<span>{escape(short(one.arms[arm]))}</span>"
        f"<b>{percent(one.stops[arm] / one.stopped)}</b></li>"
        for arm in used(one)
    )
    saving = one.saving
    return lines(
        '<div class="tiles odd" id="tiles" data-part>',
        tile(
            "Decisions",
            words.count(one.decisions),
            f"last {when(one.last, now)}, {_learned(one)}",
        ),
        tile(
            "Cost per decision",
            amount(one.cost or 0.0),
            f"always the last arm: {amount(one.deepest)}",
        ),
        tile(
            "Saved",
            percent(max(saving, 0.0)) if saving is not None else NOTHING,
            _saved(one),
        ),
        '<section class="tile"><h2>Where decisions stop</h2>',
        drawing.share_bar(one.stops, shares_in_words(one)),
        f'<ul class="key">{keys}</ul></section>',
        "</div>",
        _unheard(whole),
    )


def _saved(one: Glance) -> str:
    if not one.exploring:
        return "of the cost of always going to the last arm; errors not counted"
    early = f"; {words.count(one.ended_early)} ended early" if one.ended_early else ""
    return f"every decision {'goes' if one.active else 'went'} to the last arm to explore{early}"


def _learned(one: Glance) -> str:
    return f"{words.count(one.learned)} learned from, {words.count(one.open)} open"


def _unheard(whole: Whole) -> str:
    """Say how outputs are told, where none ever were."""
    if whole.glance.learned or not whole.glance.active:
        return '<div id="unheard" data-part></div>'
    return lines(
        '<section class="blank" id="unheard" data-part>',
        "<h2>No outputs yet</h2>",
        "<p>Decisions are being made, but nothing is learned until you tell what the arms said. "
        "ID is the one that was answered with the decision, and … what each arm said:</p>",
        command(whole.tell_this),
        "</section>",
    )


def _depths(whole: Whole) -> str:
    arms = whole.glance.arms
    shown = merged(whole.stretches, BARS)
    rows = [
        (
            words.stretch(s.begin, s.end),
            words.count(s.decisions),
            *(percent(n / s.decisions) for n in s.stops),
        )
        for s in shown
        if s.decisions
    ]
    return section(
        "depth",
        "How deep decisions go",
        lines(
            f"<figure>{drawing.depths_over_time(shown, arms)}",
            _legend(whole.glance),
            f"<figcaption>Each bar is {_each(shown)}: the shares that stopped at each arm, and "
            "below it how many decisions there were.</figcaption></figure>",
            _numbers("depth-table", "Depth over time", ("time", "decisions", *arms), rows),
        ),
    )


def _costs(whole: Whole) -> str:
    one = whole.glance
    shown = merged(whole.stretches, BARS)
    rows = [
        (
            words.stretch(s.begin, s.end),
            words.count(s.decisions),
            amount(cost),
            percent(1 - cost / one.deepest) if one.deepest and not one.exploring else NOTHING,
        )
        for s in shown
        if (cost := s.cost(one.cumulative)) is not None
    ]
    return section(
        "cost",
        "What a decision costs",
        lines(
            f"<figure>{drawing.cost_over_time(shown, one.cumulative, saved=not one.exploring)}",
            '<p class="legend"><span><svg class="swatch" aria-hidden="true">'
            '<line class="line" x1="0" x2="100%" y1="50%" y2="50%"/></svg>mean cost of a '
            'decision</span><span><svg class="swatch" aria-hidden="true">'
            '<line class="limit" x1="0" x2="100%" y1="50%" y2="50%"/></svg>always the last arm'
            '</span><span><svg class="swatch" aria-hidden="true"><rect class="saved" width="100%" '
            'height="100%"/></svg>saved</span></p>',
            f"<figcaption>The mean over {_each(shown)}. Costs are those of the arms that ran; "
            "errors are not counted.</figcaption></figure>",
            _numbers("cost-table", "Cost over time", ("time", "decisions", "cost", "saved"), rows),
        ),
    )


def _disagreements(whole: Whole) -> str:
    pairs, arms = whole.pairs, whole.glance.arms
    if not any(pair.seen for pair in pairs):
        return section(
            "disagreement",
            "How often arms disagree",
            '<p class="soft">Nothing seen yet: two arms are compared once outputs of both have '
            "been told.</p>",
        )
    drawn = pairs if len(pairs) <= MOST_PAIRS else [p for p in pairs if p.second == p.first + 1]
    shown = merged(whole.stretches, SMALL_BARS)
    top = drawing.share_top(pairs)
    over_time = drawing.share_top(drawn, shown)
    return section(
        "disagreement",
        "How often arms disagree",
        lines(
            "<p>Two arms that never disagree cannot repair each other's errors: going on is worth "
            "it only where they disagree more often than it costs. A pair is seen only in rounds "
            "that went as deep as its second arm: these are shares of those rounds, which are the "
            "harder ones, and not of all.</p>",
            _pairs_table(drawn, arms, top),
            '<p class="legend"><span><svg class="swatch" aria-hidden="true">'
            '<line class="whisker" x1="0" x2="100%" y1="50%" y2="50%"/>'
            '<circle class="dot" cx="50%" cy="50%" r="4"/></svg>observed share and its 95 % '
            'interval</span><span><svg class="swatch upright" aria-hidden="true">'
            '<line class="limit" x1="50%" x2="50%" y1="0" y2="100%"/></svg>what going on costs'
            "</span></p>",
            _other_pairs([pair for pair in pairs if pair not in drawn], arms, top),
            "<h3>Over time</h3>",
            '<div class="multiples">',
            *(_small(pair, arms, shown, over_time) for pair in drawn),
            "</div>",
            '<p class="note">Line: observed share. Band: its 95 % interval. Dashes: what going on '
            f"costs. Each step is {_each(shown)}.</p>",
        ),
    )


def _pairs_table(pairs: Sequence[Pair], arms: Sequence[str], top: float) -> str:
    return lines(
        '<div class="panel">',
        '<table class="pairs"><caption class="unseen">Disagreement of pairs of arms</caption>',
        '<thead><tr><th scope="col">Pair</th><th scope="col" class="number">Disagreed</th>'
        f'<th scope="col" class="scale">0 <span>{percent(top)}</span></th>'
        '<th scope="col" class="number">Going on costs</th>'
        '<th scope="col" class="number">Seen in</th></tr></thead><tbody>',
        *(_pair_row(pair, arms, top) for pair in pairs),
        "</tbody></table></div>",
    )


def _other_pairs(pairs: Sequence[Pair], arms: Sequence[str], top: float) -> str:
    if not pairs:
        return ""
    return lines(
        '<details id="other-pairs"><summary id="other-pairs-open">The other '
        f"{words.counted(len(pairs), 'pair')}</summary>",
        _pairs_table(pairs, arms, top),
        "</details>",
    )


def _pair_row(pair: Pair, arms: Sequence[str], top: float) -> str:
    share = percent_between(pair.share) if pair.seen else NOTHING
    return (
        f'<tr><th scope="row">{_arrow(pair.first, pair.second, arms)}</th>'
        f'<td class="number share" data-label="Disagreed">{share}</td>'
        f'<td class="scale">{drawing.interval(pair, top)}</td>'
        f'<td class="number" data-label="Going on costs">{amount(pair.gap)}</td>'
        f'<td class="number" data-label="Seen in">{words.counted(pair.seen, "round")}</td></tr>'
    )


def _small(pair: Pair, arms: Sequence[str], shown: Sequence[Stretch], top: float) -> str:
    name = _arrow(pair.first, pair.second, arms)
    return (
        f"<figure><figcaption>{name}</figcaption>"
        f"{drawing.disagreement_over_time(pair, shown, top)}</figure>"
    )


def _recent(whole: Whole, now: float) -> str:
    arms = whole.glance.arms
    if not whole.recent:
        return ""
    return section(
        "recent",
        "Recent decisions",
        lines(
            '<ol class="recent">',
            *(_made(one, arms, now) for one in whole.recent),
            "</ol>",
        ),
    )


def _made(one: Made, arms: Sequence[str], now: float) -> str:
    more = ""
    if one.compared:
        left = (
            f'<p class="note">{words.counted(one.left_out, "comparison")} more left out.</p>'
            if one.left_out
            else ""
        )
        more = lines(
            f'<details id="why-{escape(one.id)}"><summary id="ask-{escape(one.id)}">'
            f'The evidence<span class="unseen"> for decision {escape(one.id)}</span></summary>',
            '<table class="evidence"><caption class="unseen">What was compared</caption>'
            '<thead><tr><th scope="col">Going on</th>'
            '<th scope="col" class="number">costs</th>'
            '<th scope="col" class="number">could repair at most</th>'
            '<th scope="col" class="number">estimate</th>'
            '<th scope="col">so it is</th></tr></thead><tbody>',
            *(_compared(c, arms) for c in one.compared),
            f"</tbody></table>{left}</details>",
        )
    return lines(
        f'<li id="decision-{escape(one.id)}">',
        f'<p class="head">{drawing.swatch(one.stop, len(arms))}<b>{escape(short(arms[one.stop]))}'
        f'</b><span class="soft">cost {amount(one.cost)}</span></p>',
        f'<p class="when soft">{when(one.time, now)}<code class="id">{escape(one.id)}</code></p>',
        f'<p class="because">{escape(one.words)}</p>',
        more,
        "</li>",
    )


def _compared(one: Compared, arms: Sequence[str]) -> str:
    estimate = percent(one.estimate) if one.estimate is not None else "never seen"
    verdict = "<b>may be worth it</b>" if one.worth_it else "not worth it"
    return (
        f'<tr><th scope="row">{_arrow(one.first, one.second, arms)}</th>'
        f'<td class="number" data-label="costs">{amount(one.gap)}</td>'
        f'<td class="number" data-label="could repair at most">{percent(one.at_most)}</td>'
        f'<td class="number" data-label="estimate">{estimate}</td>'
        f'<td data-label="so it is">{verdict}</td></tr>'
    )


def _estimator(whole: Whole) -> str:
    return section(
        "estimator",
        "Health of the estimator",
        lines(
            '<dl class="facts">',
            *(
                f"<div><dt>{escape(fact.name)}</dt><dd><b>{escape(fact.value)}</b>"
                f"{f' <span class=soft>{escape(fact.meaning)}</span>' if fact.meaning else ''}"
                "</dd></div>"
                for fact in whole.facts
            ),
            "</dl>",
        ),
    )


def _retiring(whole: Whole, visitor: Visitor, unconfirmed: bool) -> str:
    name = whole.glance.name
    if not visitor.may_act or not whole.glance.active:
        return ""
    wrong = (
        '<p class="problem" role="alert">Not retired: type its name to confirm.</p>'
        if unconfirmed
        else ""
    )
    return lines(
        '<section class="retiring" aria-labelledby="retire-title">',
        f'<details{" open" if unconfirmed else ""}><summary id="retire-title">Retire this cascade'
        "</summary>",
        "<p>It will decide no more, for good; outputs of decisions already made may still be told. "
        "Its history stays in the log, and its name is not used again.</p>",
        wrong,
        f'<form method="post" action="/cascades/{escape(name)}/retire">',
        f'<input type="hidden" name="token" value="{escape(visitor.token)}">',
        f'<label for="confirm">Type <b>{escape(name)}</b> to confirm</label>',
        '<input id="confirm" name="confirm" autocomplete="off" autocapitalize="off" '
        'spellcheck="false" required>',
        f'<button type="submit" class="danger">Retire {escape(name)}</button>',
        "</form></details></section>",
    )


def _legend(one: Glance) -> str:
    items = "".join(
        f"<span>{drawing.swatch(arm, len(one.arms))}{escape(short(one.arms[arm]))}</span>"
        for arm in used(one)
    )
    return f'<p class="legend">{items}</p>'


def _numbers(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the numbers of a picture as a table, folded."""
    last = rows[-ROWS:]
    heads = "".join(
        f'<th scope="col"{_right(k)}>{escape(short(column))}</th>'
        for k, column in enumerate(columns)
    )
    body = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in last)
    only = f", the last {len(last)}" if len(rows) > len(last) else ""
    return (
        f'<details id="{name}"><summary id="{name}-open">The numbers in this figure</summary>'
        f'<div class="scroll" role="region" tabindex="0" id="{name}-box" '
        f'aria-labelledby="{name}-caption"><table><caption id="{name}-caption">{title}{only}'
        f"</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _cells(row: Sequence[str]) -> Iterable[str]:
    for k, cell in enumerate(row):
        yield (
            f'<th scope="row">{escape(cell)}</th>'
            if k == 0
            else (f'<td class="number">{escape(cell)}</td>')
        )


def _right(k: int) -> str:
    return ' class="number"' if k else ""


def _arrow(first: int, second: int, arms: Sequence[str]) -> str:
    return (
        f'<span class="arm">{escape(short(arms[first], 24))}</span> '
        '<span aria-hidden="true">→</span><span class="unseen">to</span> '
        f'<span class="arm">{escape(short(arms[second], 24))}</span>'
    )


def _each(shown: Sequence[Stretch]) -> str:
    return words.lasting(shown[0].end - shown[0].begin) if shown else "a stretch of time"
