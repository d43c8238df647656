"""The pages of the dashboard: access, content and static files."""

import asyncio
import binascii
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from stopwise.reporting import pages
from stopwise.service.dashboard import drawing, views
from stopwise.service.domain import messages as m
from stopwise.service.domain.cascade import ServedCascade
from stopwise.service.domain.errors import RequestError, UnknownCascade
from stopwise.service.http.app import App
from stopwise.service.http.errors import Forbidden, Unauthorized, UnknownPath, phrase
from stopwise.service.http.keys import Key, Keys, Scope
from stopwise.service.http.request import OK, Request, Response, read_json
from stopwise.service.labels import report_label, requested_labels

Values: TypeAlias = dict[str, Any]
Page: TypeAlias = tuple[str, Values]  # a template and its values
View: TypeAlias = Callable[[Request], Awaitable[Page]]

# No resources from other hosts, no inline scripts or styles, no framing.
CSP = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = (
    ("content-security-policy", CSP),
    ("referrer-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
BASIC_AUTH = (
    "www-authenticate",
    'Basic realm="Stopwise: an API key as the password", charset="UTF-8"',
)
MAX_SHOWN = 100  # cascades in the overview
ROUTE = "dashboard"  # the name of all pages in metrics
LABEL = msgspec.json.Decoder(m.LabelReport)
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="7" fill="#0a456e"/><path d="M6 6h6v7H6z" fill="#d6e9f6"/>
<path d="M13 6h6v13h-6z" fill="#8fc1e3"/><path d="M20 6h6v20h-6z" fill="#3f8cc0"/></svg>"""
HERE = Path(__file__).parent
SHADE = ".depth-{} {{ fill: color-mix(in srgb, var(--deep) {:.1f}%, var(--shallow)); }}\n"
SHADE_RULES = (SHADE.format(k, 100 * k / (drawing.SHADES - 1)) for k in range(drawing.SHADES))
CSS = pages.style() + (HERE / "static/dashboard.css").read_text("utf-8") + "".join(SHADE_RULES)
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
    """Return the HTML of a page; without ``service``, the page has no status and no updates."""
    defaults = {"service": None, "text": "", "unmatched": 0, "failed": ()}
    return TEMPLATES.get_template(template).render({**defaults, **values})


class Pages:
    """The pages of an application; a proxy adds its cascades to ``proxied``."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._service = app.service
        self._keys = app.access.keys
        self._tls = app.service.settings.tls_cert is not None
        self.proxied: Mapping[str, views.Proxied] = {}
        self.add("/", self.overview)
        self.add("/cascades/{name}", self.cascade)
        self.add("/cascades/{name}/labels", self.labels)
        app.add("POST", "/cascades/{name}/labels/{id}", self.report_label, ROUTE)
        app.add("GET", "/static/{file}", static_file, ROUTE)

    def add(self, path: str, page: View) -> None:
        """Serve a page at a path."""
        self._app.add("GET", path, partial(self.answer, page), ROUTE)

    async def answer(self, page: View, request: Request) -> Response:
        """Respond with a page, or with a page that explains the error."""
        headers, status = HEADERS, OK
        try:
            request.key = None if self._keys is None else identify(self._keys, request)
            template, values = await self._service.load_and_retry(lambda: self._page(page, request))
            values |= {"service": self._service, "now": time.time(), "key": request.key}
            values["base"] = self._base(request)
        except RequestError as error:
            template, status = "base.html", self._app.statuses[error.code]
            text = f"{error.message[:1].upper()}{error.message[1:].rstrip('.')}."
            values = {"title": phrase(status), "text": text}
            headers = (*HEADERS, BASIC_AUTH) if isinstance(error, Unauthorized) else HEADERS
        # The values are copies, so another thread may render them.
        text = await asyncio.to_thread(render, template, **values)
        return Response(status, text.encode(), "text/html; charset=utf-8", headers)

    async def _page(self, page: View, request: Request) -> Page:
        await self._service.readable()
        return await page(request)

    async def overview(self, request: Request) -> Page:
        """Show all cascades."""
        state = self._service.state
        visible = [name for name in state.cascades if _visible(request, name)]
        cascades = [state.cascade(name) for name in visible if name not in state.failed]
        cascades.sort(key=lambda cascade: (cascade.status != "active", cascade.spec.name))
        return "overview.html", {
            "title": "Cascades",
            "rows": [
                views.summary(cascade, self.proxied.get(cascade.spec.name))
                for cascade in cascades[:MAX_SHOWN]
            ],
            "total": len(cascades),
            "failed": [name for name in visible if name in state.failed],
            "active": sum(cascade.status == "active" for cascade in cascades),
            "rounds": sum(len(cascade.ledger) for cascade in cascades),
            "open": sum(len(cascade.ledger.open) for cascade in cascades),
        }

    async def cascade(self, request: Request) -> Page:
        """Show one cascade."""
        name = request.params["name"]
        if self._service.recovering and name not in self._service.state.cascades:
            return "base.html", {"title": "Starting"}
        cascade = self.allowed_cascade(request)
        return "cascade.html", {
            "title": name,
            "unmatched": views.unmatched(cascade),
            "c": views.detail(cascade, self.proxied.get(name)),
        }

    async def labels(self, request: Request) -> Page:
        """Show the rounds whose labels the policy requests, with the answers to choose from."""
        cascade = self.allowed_cascade(request, "observe")
        name = cascade.spec.name
        names = views.context_columns(cascade, self.proxied.get(name))
        requests = await requested_labels(self._service, name)
        return "labels.html", {
            "title": f"Labels of {name}",
            "unmatched": views.unmatched(cascade),
            "c": views.labels_page(name, requests, names),
        }

    async def report_label(self, request: Request) -> Response:
        """Store the label that a user chose on the label page."""
        # Browsers add the password to requests from any site, but send JSON only from this one.
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Forbidden("labels are accepted only from the pages of this service")
        request.check_media_type()
        if self._keys is not None:
            request.key = identify(self._keys, request)
        cascade = await self._service.look_up(lambda: self.allowed_cascade(request, "observe"))
        label = read_json(LABEL, await request.body())
        answer = await report_label(self._service, cascade.spec.name, request.params["id"], label)
        return Response(OK, msgspec.json.encode(answer))

    def allowed_cascade(self, request: Request, scope: Scope | None = None) -> ServedCascade:
        """Return the cascade of a request; raise if the request's key may not access it."""
        name = request.params["name"]
        if scope is not None and request.key is not None and not request.key.allows(scope):
            raise Forbidden(f"this page shows outputs and requires a key with the scope {scope!r}")
        if not _visible(request, name):
            raise UnknownCascade(name)
        return self._service.state.cascade(name)

    def _base(self, request: Request) -> str:
        """Return the URL of the service as seen by the browser."""
        https = self._tls or request.headers.get("x-forwarded-proto") == "https"
        return f"{'https' if https else 'http'}://{request.headers.get('host', '127.0.0.1')}"


def identify(keys: Keys, request: Request) -> Key:
    """Return the API key that a browser sends as the HTTP Basic password."""
    scheme, _, coded = request.headers.get("authorization", "").partition(" ")
    try:
        password = b64decode(coded, validate=True).decode().partition(":")[2].strip()
    except (binascii.Error, UnicodeDecodeError):
        password = ""
    if scheme.lower() != "basic" or not password:
        raise Unauthorized("enter an API key as the password; the user name is ignored")
    return keys.identify(f"Bearer {password}")


async def static_file(request: Request) -> Response:
    """Return the style sheet, the script or the icon."""
    name = request.params["file"]
    if name not in FILES:
        raise UnknownPath("unknown file")
    current = request.query == f"v={VERSION}"
    cache = "public, max-age=31536000, immutable" if current else "no-cache"
    headers = (("cache-control", cache), ("content-security-policy", CSP))
    return Response(OK, FILES[name][1], FILES[name][0], headers)


def _visible(request: Request, name: str) -> bool:
    """Return whether the key of a request may access a cascade."""
    return request.key is None or not request.key.cascades or name in request.key.cascades
