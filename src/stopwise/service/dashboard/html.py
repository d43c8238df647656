"""What every page is made of: its frame, and pieces that several have. All names are escaped."""

from html import escape

from stopwise.logs.diagnosis.words import percent, short
from stopwise.reporting.html import lines
from stopwise.service.dashboard import words
from stopwise.service.dashboard.values import Glance, Health, Running, Visitor

NOTHING = "–"
MANY_ARMS = 5
NO_KEYS = "Without keys nobody changes anything on these pages; the API does."
LOOKING = "This key may only look here; an admin's key may also retire cascades."
LAG = "How long ago this process last knew that it had the whole log; other replicas write to it."
MOODS = {"good": ("held", "●"), "quiet": ("calm", "○"), "warn": ("open", "▲")}


class Files:
    """Where the style, the script and the icon are, by addresses that change when they do."""

    def __init__(self, style: str, script: str, icon: str) -> None:
        self.style = style
        self.script = script
        self.icon = icon


# --- the frame ------------------------------------------------------------------------------------


def live_page(files: Files, visitor: Visitor, running: Running, title: str, *body: str) -> str:
    """Return a page that is refreshed while it is looked at: those of its parts that say so."""
    return _frame(
        files,
        title,
        '<button type="button" id="pause" class="plain" hidden>Pause<span class="wide"> updates'
        "</span></button>" + _visitor(visitor),
        lines(_banner(running), *body, _foot(running)),
        script=True,
    )


def starting(files: Files, visitor: Visitor, running: Running) -> str:
    """Return the page of a service that does not know its cascades yet."""
    return live_page(
        files,
        visitor,
        running,
        "Starting",
        '<p class="soft" id="starting" data-part>The cascades appear once the log has been read.'
        "</p>",
    )


def sign_in(files: Files, *, after: str = "/", problem: str = "") -> str:
    """Return the page that asks for a key; nothing typed into it before is repeated."""
    wrong = f'<p class="problem" role="alert" id="problem">{escape(problem)}</p>' if problem else ""
    described = ' aria-describedby="problem" aria-invalid="true"' if problem else ""
    return _frame(
        files,
        "Sign in",
        "",
        lines(
            '<div class="box">',
            "<h1>Sign in</h1>",
            "<p>Any API key of this service may look. Only an admin's key may change anything.</p>",
            wrong,
            '<form method="post" action="/signin">',
            f'<input type="hidden" name="after" value="{escape(after)}">',
            # for password managers, which keep a password with a name
            '<input name="name" autocomplete="username" value="Stopwise" hidden>',
            '<label for="key">API key</label>',
            '<input id="key" name="key" type="password" autocomplete="current-password" '
            f'autocapitalize="off" spellcheck="false" required autofocus{described}>',
            '<button type="submit" class="primary">Sign in</button>',
            "</form>",
            '<p class="soft">A key is made with <code>stopwise keys add</code>. Your browser does '
            "not keep it, only a session that ends by itself.</p>",
            "</div>",
        ),
    )


def notice(files: Files, title: str, text: str) -> str:
    """Return a page that says one thing: what was not found, or not allowed."""
    return _frame(
        files,
        title,
        "",
        lines(
            '<div class="box">',
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(text)}</p>",
            '<p><a href="/">All cascades</a></p>',
            "</div>",
        ),
    )


def _frame(files: Files, title: str, right: str, body: str, *, script: bool = False) -> str:
    source = f'<script src="{files.script}" defer></script>' if script else ""
    return lines(
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)} · Stopwise</title>",
        f'<link rel="icon" href="{files.icon}" type="image/svg+xml">',
        f'<link rel="stylesheet" href="{files.style}">',
        source,
        "</head>",
        "<body>",
        '<a class="skip" href="#main">Skip to the content</a>',
        '<header class="bar"><div class="inside">',
        f'<a class="mark" href="/"><img src="{files.icon}" alt="" width="26" height="26">'
        "Stopwise</a>",
        f'<div class="right">{right}</div>',
        "</div></header>",
        f'<main id="main" class="inside">{body}</main>',
        "</body>",
        "</html>\n",
    )


def _visitor(visitor: Visitor) -> str:
    if not visitor.name:
        return f'<span class="soft who" title="{NO_KEYS}">read-only</span>'
    scope, title = ("", "") if visitor.may_act else (", read-only", f' title="{LOOKING}"')
    return (
        f'<span class="soft who"{title}>{escape(short(visitor.name))}{scope}</span>'
        '<form method="post" action="/signout" class="inline">'
        f'<input type="hidden" name="token" value="{escape(visitor.token)}">'
        '<button type="submit" class="plain">Sign out</button></form>'
    )


def _banner(running: Running) -> str:
    if running.trouble:
        kind, title = "", "Nothing can be written now"
        text = f"{running.trouble}. Requests are refused until that is mended; nothing is lost."
    elif running.recovering:
        kind, title, text = "amber", "Starting", f"{running.recovering}."
    else:
        return '<div id="banner" data-part></div>'
    return (
        '<div id="banner" data-part>'
        f'<aside class="warning {kind}" role="status"><h2><span aria-hidden="true">⚠</span> {title}'
        f"</h2><p>{escape(text)}</p></aside></div>"
    )


def _foot(running: Running) -> str:
    return lines(
        '<footer class="foot">',
        '<p id="state" data-part>',
        f"Log position <b>{words.count(running.position)}</b> · last event "
        f"<b>{when(running.last, running.now)}</b> · "
        f'<span title="{LAG}">at most <b>{words.lasting(running.lag)}</b> behind the log</span> · '
        f"<b>{words.count(running.waiting)}</b> waiting to be written · as of "
        f"{timed(running.now, words.moment(running.now))}",
        "</p>",
        '<p id="live" role="status">Reload to see what is new.</p>',
        "</footer>",
    )


# --- pieces ---------------------------------------------------------------------------------------


def section(name: str, title: str, body: str) -> str:
    """Return a section that is refreshed."""
    return lines(
        f'<section id="{name}" class="part" aria-labelledby="{name}-title" data-part>',
        f'<h2 id="{name}-title">{title}</h2>',
        body,
        "</section>",
    )


def tile(label: str, number: str, text: str) -> str:
    """Return a number that matters, with its label and what to know about it."""
    return (
        f'<section class="tile"><h2>{label}</h2><p class="large">{number}</p>'
        f'<p class="soft">{text}</p></section>'
    )


def command(text: str) -> str:
    """Return something to type."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def status(one: Glance) -> str:
    """Return the badge of what a cascade does."""
    kind = "held" if one.active else "calm"
    return f'<span class="badge {kind}">{escape(one.status)}</span>'


def mood(health: Health) -> str:
    """Return the badge of how a learner is; told by word and sign, as well as by colour."""
    kind, sign = MOODS[health.mood]
    return (
        f'<span class="badge {kind}" title="{escape(health.sentence)}">'
        f'<span aria-hidden="true">{sign}</span> {escape(health.word)}</span>'
    )


def used(one: Glance) -> list[int]:
    """Return the arms to speak of: all, or where they are many, those at which anything stopped."""
    every = range(len(one.arms))
    return [arm for arm in every if one.stops[arm] or len(every) <= MANY_ARMS]


def shares_in_words(one: Glance) -> str:
    """Return where decisions stop, for those who do not see the bar."""
    shares = ", ".join(
        f"{short(name)} {percent(n / one.stopped)}"
        for name, n in zip(one.arms, one.stops, strict=True)
        if n
    )
    return f"Where decisions stop: {shares}"


def when(time: float | None, now: float) -> str:
    """Return how long ago something was."""
    return NOTHING if time is None else timed(time, words.ago(now - time))


def exactly(time: float | None) -> str:
    """Return when something was."""
    return "nothing decided yet" if time is None else words.moment(time)


def timed(time: float, text: str) -> str:
    """Return words for a time, with the time itself."""
    return (
        f'<time datetime="{words.machine(time)}" title="{words.moment(time)}">{escape(text)}</time>'
    )
