"""The dashboard over HTTP: who may see a page, who may act, and the routes."""

import asyncio
import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeAlias, cast
from urllib.parse import parse_qs

from litestar import Request, Response
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler

from stopwise.service.dashboard import cascade, html, overview, views
from stopwise.service.dashboard.assets import ASSETS
from stopwise.service.dashboard.sessions import LASTING, Session, Sessions
from stopwise.service.dashboard.values import Visitor
from stopwise.service.http.guard import Guard
from stopwise.service.keys import Key, Keys
from stopwise.service.refusals import Refusal
from stopwise.service.service import Service
from stopwise.service.settings import Settings

Asked: TypeAlias = Request[Any, Any, Any]
Page: TypeAlias = Response[Any]

# Nothing comes from elsewhere, nothing is written into the page, and nobody frames it.
POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
HTML = "text/html"  # in UTF-8, which Litestar adds
FORM = "application/x-www-form-urlencoded"
MOST_BODY = 4_096  # bytes of a form: a key and a token
PER_PAGE = 100  # cascades
# For the journal: where a scope has the id of the key it came with, and the code of an error.
KEY, CODE = "stopwise_key", "stopwise_code"
OURS = re.compile(r"/(cascades/[a-z0-9][a-z0-9_-]{0,63})?\Z")

_FORMS = Guard(Settings(max_body=MOST_BODY), None)
FILES = html.Files(
    ASSETS["dashboard.css"].address, ASSETS["dashboard.js"].address, ASSETS["icon.svg"].address
)


def dashboard(service: Service, settings: Settings, keys: Keys | None) -> list[HTTPRouteHandler]:
    """Return the routes of the dashboard.

    Parameters
    ----------
    service : Service
        What is shown.
    settings : Settings
        ``port`` names the cookie, so that two services on one machine keep theirs apart.
    keys : Keys or None
        With which to sign in. None: everybody may look, and nobody may act.
    """
    pages = Pages(service, settings, keys)
    routes: tuple[tuple[str, str, str, Callable[..., Any]], ...] = (
        ("GET", "/", "dashboard", pages.overview),
        ("GET", "/cascades/{name:str}", "dashboard_cascade", pages.cascade),
        ("POST", "/cascades/{name:str}/retire", "dashboard_retire", pages.retire),
        ("GET", "/signin", "dashboard_sign_in_page", pages.sign_in_page),
        ("POST", "/signin", "dashboard_sign_in", pages.sign_in),
        ("POST", "/signout", "dashboard_sign_out", pages.sign_out),
        ("GET", "/static/{file:str}", "dashboard_file", pages.file),
    )
    return [_route(*route) for route in routes]


def _route(method: Any, path: str, name: str, answer: Callable[..., Any]) -> HTTPRouteHandler:
    async def handle(request: Asked) -> Page:
        try:
            return await answer(request, **request.path_params)
        except _Elsewhere as elsewhere:
            return _redirect(elsewhere.address)
        except Refusal as refusal:
            cast(MutableMapping[str, Any], request.scope)[CODE] = refusal.code
            title = TITLES.get(refusal.status, "That did not work")
            page = html.notice(FILES, title, f"{_sentence(refusal.message)}.")
            return _html(page, refusal.status)

    return HTTPRouteHandler(path, http_method=method, name=name)(handle)


TITLES = {
    400: "Not a form",
    403: "Not allowed",
    404: "Not found",
    409: "Too late",
    413: "Too large",
    415: "Not a form",
    503: "Not now",
}


class _Elsewhere(Exception):
    """The visitor has to go to another page first."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


class Pages:
    """Answers requests for pages.

    Parameters
    ----------
    service, settings, keys
        As for `dashboard`.
    """

    def __init__(self, service: Service, settings: Settings, keys: Keys | None) -> None:
        self._service = service
        self._sessions = None if keys is None else Sessions(keys)
        self._cookie = f"stopwise_{settings.port}"

    # -- looking ------------------------------------------------------------------------------

    async def overview(self, request: Asked) -> Page:
        """Show every cascade."""
        visitor = self._visitor(request)
        running = views.running(self._service)
        create = views.create_command(_base(request), with_key=self._sessions is not None)
        learners = views.ordered(self._service.state.order)
        pages = max(1, -(-len(learners) // PER_PAGE))
        page = _number(request.query_params.get("page"), pages)
        glances = [views.glance(one) for one in learners[(page - 1) * PER_PAGE : page * PER_PAGE]]
        # Reading happens here, between two events; setting the page needs the state no more.
        return _html(
            await asyncio.to_thread(
                overview.overview,
                FILES,
                visitor,
                running,
                glances,
                create=create,
                page=page,
                pages=pages,
                sums=views.sums(learners),
            )
        )

    async def cascade(self, request: Asked, name: str) -> Page:
        """Show one cascade."""
        visitor = self._visitor(request)
        return await self._cascade(request, visitor, name)

    async def _cascade(
        self, request: Asked, visitor: Visitor, name: str, *, unconfirmed: bool = False
    ) -> Page:
        running = views.running(self._service)
        if not self._service.ready:
            return _html(html.starting(FILES, visitor, running))
        learner = self._service.state.learner(name)
        whole = views.whole(learner, _base(request), with_key=self._sessions is not None)
        page = await asyncio.to_thread(
            cascade.cascade, FILES, visitor, running, whole, unconfirmed=unconfirmed
        )
        return _html(page, 422 if unconfirmed else 200)

    async def file(self, request: Asked, file: str) -> Page:
        """Return the style sheet, the script or the icon."""
        asset = ASSETS.get(file)
        if asset is None:
            raise Refusal(404, "unknown_path", "there is no such file")
        known = request.query_params.get("v") == asset.tag
        return Response(
            asset.content,
            media_type=asset.media_type,
            headers={
                "cache-control": "public, max-age=31536000, immutable" if known else "no-cache",
                "content-security-policy": POLICY,
            },
        )

    # -- signing in and out -------------------------------------------------------------------

    async def sign_in_page(self, request: Asked) -> Page:
        """Ask for a key, unless there is no need to."""
        after = _ours(request.query_params.get("after"))
        if self._sessions is None or self._sessions.find(self._cookie_of(request)):
            return _redirect(after)
        return _html(html.sign_in(FILES, after=after))

    async def sign_in(self, request: Asked) -> Page:
        """Begin a session with the key of the form."""
        _check_same_site(request)
        if self._sessions is None:
            return _redirect("/")
        form = await _form(request)
        after = _ours(form.get("after"))
        try:
            cookie = self._sessions.begin(form.get("key", ""))
        except Refusal:
            problem = "This is not a valid key of this service: mistyped, expired or revoked."
            return _html(html.sign_in(FILES, after=after, problem=problem), 401)
        self._sessions.end(self._cookie_of(request))
        return _redirect(after, self._made(request, cookie, int(LASTING)))

    async def sign_out(self, request: Asked) -> Page:
        """End the session."""
        session, _ = self._signed_in(request)
        await self._checked_form(request, session)
        if self._sessions is not None:
            self._sessions.end(self._cookie_of(request))
        return _redirect("/signin", self._made(request, "", 0))

    # -- acting -------------------------------------------------------------------------------

    async def retire(self, request: Asked, name: str) -> Page:
        """Retire a cascade, for an admin who has typed its name."""
        if self._sessions is None:
            raise Refusal(
                403,
                "forbidden",
                "without keys the dashboard is read-only: use the API, or serve with keys and "
                "sign in with one of an admin",
            )
        session, key = self._signed_in(request)
        form = await self._checked_form(request, session)
        if not key.may("admin"):
            raise Refusal(403, "forbidden", f"this needs an admin's key, and {key.name!r} is none")
        if form.get("confirm", "").strip() != name:
            visitor = Visitor(key.name, True, session.token)
            return await self._cascade(request, visitor, name, unconfirmed=True)
        await self._service.retire(name)
        return _redirect(f"/cascades/{name}")

    # -- who ----------------------------------------------------------------------------------

    def _visitor(self, request: Asked) -> Visitor:
        """Return who looks; send those to sign in who must."""
        if self._sessions is None:
            return Visitor()
        session, key = self._signed_in(request)
        return Visitor(key.name, key.may("admin"), session.token)

    def _signed_in(self, request: Asked) -> tuple[Session, Key]:
        if self._sessions is None:
            raise _Elsewhere("/")
        found = self._sessions.find(self._cookie_of(request))
        if found is None:
            after = request.scope["path"]
            known = after if OURS.match(after) and after != "/" else ""
            raise _Elsewhere(f"/signin?after={known}" if known else "/signin")
        cast(MutableMapping[str, Any], request.scope)[KEY] = found[1].id
        return found

    async def _checked_form(self, request: Asked, session: Session) -> Mapping[str, str]:
        """Return the form, which came from a page of this session."""
        _check_same_site(request)
        form = await _form(request)
        if not session.owns(form.get("token", "")):
            raise Refusal(
                403, "forbidden", "this form is not from this session: load the page again"
            )
        return form

    def _cookie_of(self, request: Asked) -> str | None:
        return request.cookies.get(self._cookie)

    def _made(self, request: Asked, value: str, seconds: int) -> Cookie:
        return Cookie(
            self._cookie,
            value=value,
            path="/",
            max_age=seconds,
            httponly=True,
            samesite="strict",
            secure=_scheme(request) == "https",
        )


# --- requests and answers -------------------------------------------------------------------------


def _check_same_site(request: Asked) -> None:
    """Refuse a form that another site made the browser send."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        good = site in {"same-origin", "none"}
    else:
        host = request.headers.get("host", "")
        good = origin is None or origin.partition("://")[2] == host
    if not good:
        raise Refusal(403, "forbidden", "this form was sent by another site")


async def _form(request: Asked) -> dict[str, str]:
    """Return the fields of a form, the first of each name."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Refusal(415, "unsupported_media_type", "this takes the form of a page")
    body = await _FORMS.body(dict(request.scope["headers"]), request.receive)
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except ValueError:  # not ASCII, not UTF-8 behind it, or too many fields
        raise Refusal(400, "bad_request", "this is not the form of a page") from None
    return {name: values[0] for name, values in fields.items()}


def _html(page: str, status: int = 200) -> Page:
    return Response(page, status_code=status, media_type=HTML, headers=HEADERS)


def _redirect(address: str, cookie: Cookie | None = None) -> Page:
    return Response(
        b"",
        status_code=303,
        media_type=HTML,
        headers={**HEADERS, "location": address},
        cookies=[] if cookie is None else [cookie],
    )


def _base(request: Asked) -> str:
    """Return where the visitor finds the service."""
    return f"{_scheme(request)}://{request.headers.get('host', '127.0.0.1')}"


def _scheme(request: Asked) -> str:
    """Return how the visitor came, through a proxy that says so or directly."""
    forwarded = request.headers.get("x-forwarded-proto", "")
    return "https" if "https" in (forwarded, request.scope["scheme"]) else "http"


def _ours(address: str | None) -> str:
    """Return an address if it is one of our pages, and nothing else may be visited."""
    return address if address is not None and OURS.match(address) else "/"


def _number(text: str | None, most: int) -> int:
    given = (
        int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else 1
    )
    return min(max(given, 1), most)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")
