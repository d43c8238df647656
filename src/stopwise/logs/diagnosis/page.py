"""The report of a diagnosis as a page: the verdict first, then what it rests on."""

from collections.abc import Mapping
from html import escape

from stopwise.logs.diagnosis import figures, words
from stopwise.logs.diagnosis.findings import Answer, Diagnosis
from stopwise.logs.diagnosis.sections import Exhibit, Part, parts
from stopwise.logs.diagnosis.style import STYLE
from stopwise.logs.diagnosis.words import arm, called, percent, plain
from stopwise.reporting.drawing import Drawn
from stopwise.reporting.html import contents, figure, inline, lines, page, pairs, table, text

CLASSES: dict[Answer, str] = {
    "learnable": "held",
    "probably": "open",
    "not from disagreement alone": "failed",
}


def html(diagnosis: Diagnosis, drawn: Mapping[str, Drawn], version: str, command: str) -> str:
    """Return the whole page.

    Parameters
    ----------
    diagnosis : Diagnosis
        What was found.
    drawn : mapping
        The pictures of all parts, by name.
    version : str
        Of Stopwise.
    command : str
        What to type to get the same numbers again; empty where it was no command.
    """
    sections = parts(diagnosis)
    links = [
        *((part.name, part.title) for part in sections),
        ("how", "How it was computed"),
    ]
    return page(
        f"Diagnosis of {plain(diagnosis.log)}",
        ("verdict", "Skip to the verdict"),
        _header(diagnosis),
        '<div class="page">',
        contents(links),
        "<main>",
        *(_section(part, drawn) for part in sections),
        _how(diagnosis, version, command),
        "</main>",
        "</div>",
        style=STYLE,
    )


# --- the verdict ----------------------------------------------------------------------------------


def _header(diagnosis: Diagnosis) -> str:
    verdict = diagnosis.verdict
    answer = verdict.answer
    sign = f'<span aria-hidden="true">{words.SIGNS[answer]}</span>'
    boxed = [one.words for one in words.boxed(diagnosis)]
    kind = "open" if words.only_hinted(diagnosis) else CLASSES[answer]
    points = "".join(f"<li>{_said(p)}</li>" for p in verdict.points if p not in boxed)
    return lines(
        '<header id="verdict">',
        f'<p class="scale"><strong>{escape(plain(diagnosis.log))}</strong> '
        f"{diagnosis.rows:,} rounds, {len(diagnosis.arms)} arms</p>",
        f"<h1>{words.HEADLINES[answer]}</h1>",
        f'<p class="said"><span class="badge {kind}">{sign} {answer}</span></p>',
        f'<p class="lede">{_said(words.reason(diagnosis))}</p>',
        _numbers(diagnosis),
        _warnings(diagnosis),
        f'<h2 class="also">What else to know</h2><ul class="points">{points}</ul>'
        if points
        else "",
        "</header>",
    )


def _numbers(diagnosis: Diagnosis) -> str:
    saving, changed = words.numbers_that_matter(diagnosis)
    colours = figures.depth_colours(len(diagnosis.arms))
    shares = [(diagnosis.arms[s.arm].name, s.share.value) for s in diagnosis.stops]
    bar = "".join(
        f'<span style="flex:{share:.4f};background:{colour}"></span>'
        for (_, share), colour in zip(shares, colours, strict=True)
    )
    key = "".join(
        f'<li><i style="background:{colour}"></i>{escape(words.short(name))} '
        f"<b>{percent(share)}</b></li>"
        for (name, share), colour in zip(shares, colours, strict=True)
    )
    return lines(
        '<div class="numbers">',
        _card(saving),
        '<section class="number-card">',
        "<h2>Where it would stop</h2>",
        f'<div class="shares" aria-hidden="true">{bar}</div>',
        f'<ul class="key">{key}</ul>',
        "</section>",
        _card(changed),
        "</div>",
    )


def _card(number: words.Number) -> str:
    return lines(
        '<section class="number-card">',
        f"<h2>{number.label}</h2>",
        f'<p class="large">{number.number}</p>',
        f"<p>{inline(number.words)}</p>",
        "</section>",
    )


def _warnings(diagnosis: Diagnosis) -> str:
    boxes: list[str] = []
    for one in words.boxed(diagnosis):
        looks = (
            "is worse: labels confirm it" if one.confirmed else "looks worse, by agreement alone"
        )
        costs = (
            f"Cost of a round without {inline(arm(diagnosis, one.worse))}: "
            f"{_change(one.cost_now, one.cost_without)} · with the estimated errors counted: "
            f"{_change(one.loss_now, one.loss_without)}"
        )
        # what labels do not confirm has two readings, and is amber
        boxes.append(
            lines(
                f'<aside class="warning{"" if one.confirmed else " amber"}">',
                f'<h2><span aria-hidden="true">⚠</span> {inline(arm(diagnosis, one.worse))} costs '
                f"more than {inline(arm(diagnosis, one.better))} and {looks}</h2>",
                f"<p>{_said(one.words)}</p>",
                f"<p>{costs}</p>",
                '<p><a href="#accuracy">What this rests on</a></p>',
                "</aside>",
            )
        )
    return lines(*boxes)


def _change(now: float, then: float) -> str:
    return f"<strong>{words.amount(now)} → {words.amount(then)}</strong>"


def _how(diagnosis: Diagnosis, version: str, command: str) -> str:
    context = words.listed([called(name) for name in diagnosis.context]) or "none"
    facts = [
        ("Rows", f"{diagnosis.rows:,} in the log, {diagnosis.full_depth:,} with every output"),
        ("Fitted on", f"{diagnosis.used:,} rows"),
        ("Labels", f"{diagnosis.labelled:,} rows" if diagnosis.labelled else "none"),
        ("Context", context),
        ("Seed", str(diagnosis.seed)),
        ("Stopwise", version),
    ]
    return lines(
        '<section id="how" aria-labelledby="how-title">',
        '<h2 id="how-title">How it was computed</h2>',
        *(f"<p>{_said(note)}</p>" for note in diagnosis.notes),
        pairs(facts),
        f"<pre><code>{escape(command)}</code></pre>" if command else "",
        "<p>Every digit is in <code>diagnosis.json</code>, beside this page; the figures are in "
        "<code>figures</code>.</p>",
        "</section>",
    )


# --- setting a section ----------------------------------------------------------------------------


def _section(part: Part, drawn: Mapping[str, Drawn]) -> str:
    return lines(
        f'<section id="{part.name}" aria-labelledby="{part.name}-title">',
        f'<h2 id="{part.name}-title">{part.title}</h2>',
        text(part.text),
        *(_exhibit(exhibit, drawn[exhibit.picture.name]) for exhibit in part.exhibits),
        table(part.after) if part.after is not None else "",
        "</section>",
    )


def _exhibit(exhibit: Exhibit, drawn: Drawn) -> str:
    return lines(
        figure(exhibit.picture, drawn, "plate wide" if exhibit.wide else "plate fits"),
        "<details><summary>The numbers in this figure</summary>",
        table(exhibit.table),
        "</details>",
    )


def _said(found: str) -> str:
    """Set words that came with the numbers; no line breaks before a per cent sign."""
    return inline(plain(found).replace(" %", words.PERCENT))
