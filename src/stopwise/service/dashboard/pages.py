"""The pages of the dashboard: handlers, sessions of those who signed in, and static files."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from stopwise.reporting import pages
from stopwise.service.dashboard import drawing, views
from stopwise.service.http.request import Request, Response
from stopwise.service.keys import Key, Keys
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service
from stopwise.service.settings import Settings

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
Routes: TypeAlias = list[tuple[str, str, Handler]]  # method, pattern of the path, handler

# Nothing is loaded from another host, nothing is inline, and nobody frames a page.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS = (
    ("content-security-policy", POLICY),
    ("referrer-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
)
HTML = "text/html; charset=utf-8"
MAX_FORM = 4_096  # bytes: a key
PER_PAGE = 100  # cascades
SESSION_SECONDS = 12 * 3_600  # a working day
MAX_SESSIONS = 20  # of one key; beyond, its oldest end
OWN_PAGES = re.compile(r"/(cascades/[a-z0-9][a-z0-9_-]{0,63})?\Z")
INVALID_KEY = "This is not a valid key of this service: it is mistyped, expired or revoked."
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="7" fill="#0a456e"/><path d="M6 6h6v7H6z" fill="#d6e9f6"/>
<path d="M13 6h6v13h-6z" fill="#8fc1e3"/><path d="M20 6h6v20h-6z" fill="#3f8cc0"/></svg>"""
HERE = Path(__file__).parent
SHADE = ".depth-{} {{ fill: color-mix(in srgb, var(--deep) {:.1f}%, var(--shallow)); }}\n"
SHADES = (SHADE.format(k, 100 * k / (drawing.SHADES - 1)) for k in range(drawing.SHADES))
CSS = pages.style() + (HERE / "static/dashboard.css").read_text("utf-8") + "".join(SHADES)
FILES = {
    "dashboard.css": ("text/css", CSS.encode()),
    "dashboard.js": ("text/javascript", (HERE / "static/dashboard.js").read_bytes()),
    "icon.svg": ("image/svg+xml", ICON.encode()),
}
VERSION = sha256(b"".join(content for _, content in FILES.values())).hexdigest()[:12]
TEMPLATES = pages.environment(HERE / "templates")
TEMPLATES.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
TEMPLATES.globals.update(draw=drawing, mean_cost=views.mean_cost, version=VERSION)


def render(template: str, **values: Any) -> str:
    """Return a page; one without a service has no user, no status and no updates."""
    return TEMPLATES.get_template(template).render({"service": None, **values})


class Session:
    """A browser that has signed in; its repr shows no secret."""

    def __init__(self, header: str, ends: float, key_id: str) -> None:
        self.header, self.ends, self.key_id = header, ends, key_id


class Sessions:
    """Sessions in memory, by the hash of a cookie; they end when their key is no longer valid."""

    def __init__(self, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._by_hash: dict[bytes, Session] = {}  # oldest first

    def begin(self, text: str) -> str:
        """Start a session with a key and return the cookie; a `Refusal` if it is not valid."""
        header = f"Bearer {text.strip().removeprefix('Bearer ').strip()}"
        key_id, now = self._keys.identify(header).id, self._clock()
        own = [digest for digest, one in self._by_hash.items() if one.key_id == key_id]
        over = [digest for digest, one in self._by_hash.items() if one.ends <= now]
        for digest in {*over, *own[: 1 - MAX_SESSIONS]}:
            del self._by_hash[digest]
        cookie = secrets.token_urlsafe(32)
        self._by_hash[_hash(cookie)] = Session(header, now + SESSION_SECONDS, key_id)
        return cookie

    def find(self, cookie: str) -> Key | None:
        """Return the key of a session as it is now; None if the session has ended."""
        session = self._by_hash.get(_hash(cookie))
        with suppress(Refusal):
            if session is not None and session.ends > self._clock():
                return self._keys.identify(session.header)
        self.end(cookie)
        return None

    def end(self, cookie: str) -> None:
        """End a session."""
        self._by_hash.pop(_hash(cookie), None)


def _hash(cookie: str) -> bytes:
    return sha256(cookie.encode("utf-8", "surrogatepass")).digest()


def dashboard(service: Service, settings: Settings, keys: Keys | None) -> Routes:
    """Return the routes; nothing can be changed here, and without keys everybody may look."""
    own = Pages(service, settings, keys)
    return [
        ("GET", "/", partial(_handled, own.overview)),
        ("GET", "/cascades/{name}", partial(_handled, own.cascade)),
        ("GET", "/signin", partial(_handled, own.sign_in_page)),
        ("POST", "/signin", partial(_handled, own.sign_in)),
        ("POST", "/signout", partial(_handled, own.sign_out)),
        ("GET", "/static/{file}", partial(_handled, own.file)),
    ]


async def _handled(handler: Handler, request: Request) -> Response:
    """Turn refusals into pages; who has not signed in is asked to."""
    try:
        return await handler(request)
    except Refusal as refusal:
        if refusal.status == 401:
            after = _own_page(request.path)
            return _redirect("/signin" if after == "/" else f"/signin?after={after}")
        text = f"{refusal.message[:1].upper()}{refusal.message[1:].rstrip('.')}."
        values = {"title": HTTPStatus(refusal.status).phrase, "text": text}
        return await _page("login.html", values, refusal.status)


class Pages:
    """The handlers of the dashboard."""

    def __init__(self, service: Service, settings: Settings, keys: Keys | None) -> None:
        self._service = service
        self._sessions = None if keys is None else Sessions(keys)
        self._tls = settings.tls_cert is not None
        self._cookie = f"stopwise_{settings.port}"  # of several services on one machine

    async def overview(self, request: Request) -> Response:
        """Show all cascades."""
        common = self._common(request)
        await self._service.readable()
        every = [o for o in self._service.state.order if _visible(request, o.spec.name)]
        every.sort(key=lambda one: (one.status != "active", one.spec.name))
        pages = max(1, -(-len(every) // PER_PAGE))
        number = dict(parse_qsl(request.query)).get("page", "")
        page = min(max(int(number), 1), pages) if re.fullmatch("[0-9]{1,8}", number) else 1
        values = {
            "title": "Cascades",
            "rows": [views.summary(one) for one in every[(page - 1) * PER_PAGE : page * PER_PAGE]],
            "total": len(every),
            "active": sum(one.status == "active" for one in every),
            "rounds": sum(len(one.ledger) for one in every),
            "open": sum(len(one.ledger.open) for one in every),
            "page": page,
            "pages": pages,
        }
        return await _page("overview.html", common | values)

    async def cascade(self, request: Request) -> Response:
        """Show one cascade."""
        common, name = self._common(request), request.params["name"]
        await self._service.readable()
        learner = self._service.state.cascades.get(name)
        if learner is None and self._service.recovering:
            return await _page("base.html", {**common, "title": "Starting"})
        if learner is None or not _visible(request, name):
            raise Refusal(404, "unknown_cascade", f"no cascade is called {name[:80]!r}")
        values = {"title": name, "c": views.detail(learner)}
        return await _page("cascade.html", common | values)

    async def sign_in_page(self, request: Request) -> Response:
        """Ask for a key, unless none is needed."""
        after = _own_page(dict(parse_qsl(request.query)).get("after", ""))
        if self._sessions is None or self._sessions.find(self._cookie_of(request)):
            return _redirect(after)
        return await _page("login.html", {"title": "Sign in", "after": after, "problem": ""})

    async def sign_in(self, request: Request) -> Response:
        """Start a session with the key of the form."""
        form = await _form(request)
        after = _own_page(form.get("after", ""))
        if self._sessions is None:
            return _redirect("/")
        try:
            cookie = self._sessions.begin(form.get("key", ""))
        except Refusal:
            values = {"title": "Sign in", "after": after, "problem": INVALID_KEY}
            return await _page("login.html", values, 401)
        self._sessions.end(self._cookie_of(request))
        return _redirect(after, self._set_cookie(request, cookie, SESSION_SECONDS))

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        await _form(request)
        if self._sessions is not None:
            self._sessions.end(self._cookie_of(request))
        return _redirect("/signin", self._set_cookie(request, "", 0))

    async def file(self, request: Request) -> Response:
        """Return the style sheet, the script or the icon."""
        name = request.params["file"]
        if name not in FILES:
            raise Refusal(404, "unknown_path", "there is no such file")
        current = request.query == f"v={VERSION}"
        cache = "public, max-age=31536000, immutable" if current else "no-cache"
        headers = (("cache-control", cache), ("content-security-policy", POLICY))
        return Response(200, FILES[name][1], FILES[name][0], headers)

    def _common(self, request: Request) -> dict[str, Any]:
        """Return what every page shows to who has signed in; the request gets the key."""
        base = self._base(request)
        if self._sessions is not None:
            request.key = self._sessions.find(self._cookie_of(request))
            if request.key is None:
                raise Refusal(401, "unauthorized", "sign in first")
        return {"service": self._service, "now": time.time(), "base": base, "key": request.key}

    def _cookie_of(self, request: Request) -> str:
        found = re.search(rf"(?:^|; *){self._cookie}=([^;]*)", request.headers.get("cookie", ""))
        return found[1] if found else ""

    def _set_cookie(self, request: Request, value: str, seconds: int) -> tuple[str, str]:
        secure = "; Secure" if self._base(request).startswith("https") else ""
        flags = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite=strict{secure}"
        return "set-cookie", f"{self._cookie}={value}; {flags}"

    def _base(self, request: Request) -> str:
        """Return the address of the service, as the browser sees it."""
        https = self._tls or request.headers.get("x-forwarded-proto") == "https"
        return f"{'https' if https else 'http'}://{request.headers.get('host', '127.0.0.1')}"


def _visible(request: Request, name: str) -> bool:
    """Return whether the key of a request may see a cascade."""
    return request.key is None or not request.key.cascades or name in request.key.cascades


def _own_page(address: str) -> str:
    """Return where signing in may lead."""
    return address if OWN_PAGES.match(address) else "/"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form, unless another site made the browser send it."""
    site, origin = (request.headers.get(name) for name in ("sec-fetch-site", "origin"))
    own = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if not (own if site is None else site in {"same-origin", "none"}):
        raise Refusal(403, "forbidden", "this form was sent by another site")
    body = await request.body(MAX_FORM)  # who sends it has shown no key yet
    return dict(parse_qsl(body.decode("ascii", "replace")))


async def _page(template: str, values: dict[str, Any], status: int = 200) -> Response:
    """Return a page; its values are plain, so that a thread can render it."""
    text = await asyncio.to_thread(render, template, **values)
    return Response(status, text.encode(), HTML, HEADERS)


def _redirect(address: str, *headers: tuple[str, str]) -> Response:
    return Response(303, b"", HTML, (*HEADERS, ("location", address), *headers))
