"""The documentation as a site: built without a warning, links followed, looked at in Chromium."""

import os
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from selenium.webdriver.support.wait import WebDriverWait

import stopwise as sw
from stopwise import research
from tests.browser.seeing import CONTRASTS, SCREENS, fetched

ROOT = Path(__file__).parents[2]
LOOKED_AT = [
    "index.html",
    "examples.html",
    "certificate.html",
    "api.html",
    "reference/policies.html",
]


def test_the_site(page: Any, tmp_path: Path) -> None:
    """One test, because it takes some ten seconds to build."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "docs.site.build", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    check_links(site)
    check_names(site)
    for width, scheme in SCREENS:
        check_screen(page, site, width, scheme)
    check_search(page, site)


class Html(HTMLParser):
    """The names that a page can be linked at, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loads += [values["src"]] if "src" in values else []
        self.loads += (
            [values["href"]] if tag == "link" and values.get("rel") == "stylesheet" else []
        )


def check_links(site: Path) -> None:
    """Check that every link leads somewhere, and that nothing is loaded from elsewhere."""

    @cache
    def parsed(page: Path) -> Html:
        return Html(page.read_text("utf-8"))

    @cache
    def leads(page: Path, fragment: str) -> bool:
        return page.is_file() and (page.suffix != ".html" or fragment in parsed(page).ids)

    broken: list[str] = []
    followed = 0
    for page in sorted(site.rglob("*.html")):
        loads = set(parsed(page).loads)
        for link in loads.union(parsed(page).links):
            parts = urlsplit(link)
            followed += 1
            if parts.scheme or parts.netloc:
                good = link not in loads or parts.scheme == "data"
            else:
                to = os.path.normpath(page.parent / unquote(parts.path)) if parts.path else page
                good = leads(Path(to), unquote(parts.fragment))
            if not good:
                broken.append(f"{page.relative_to(site)} → {link}")
    assert broken == []
    assert followed > 3000
    listed = (site / "llms.txt").read_text("utf-8").split("](")[1:]
    assert len(listed) > 35
    assert all((site / entry.partition(")")[0]).is_file() for entry in listed)


def check_names(site: Path) -> None:
    """Check that every public name is described."""
    described = {
        name
        for page in (site / "reference").glob("*.html")
        for name in Html(page.read_text("utf-8")).ids
    }
    names = {f"stopwise.{name}" for name in dir(sw) if not name.startswith("_")}
    names -= {"stopwise.errors", "stopwise.simulate"}  # a module, and a name of research
    names |= {f"stopwise.errors.{name}" for name in vars(sw.errors) if not name.startswith("_")}
    names |= {f"stopwise.research.{name}" for name in dir(research)}
    assert names - described == set()


def check_screen(page: Any, site: Path, width: int, scheme: str) -> None:
    """Check that pages can be read, show their pictures, fit, and ask no other host."""
    for name in LOOKED_AT:
        page.open(site / name, width=width, scheme=scheme)
        assert all(url.startswith("file:") for url in fetched(page))
        assert page.run("return document.documentElement.scrollWidth") <= width, name
        pictures = page.run("return [...document.images].map(i => [i.naturalWidth, i.clientWidth])")
        assert all(natural > 0 and 0 < wide <= width for natural, wide in pictures)
        assert len(pictures) >= (7 if name == "examples.html" else 0)
        behind = page.run("return getComputedStyle(document.body).backgroundColor")
        red = int(behind.removeprefix("rgb(").partition(",")[0])
        assert red < 60 if scheme == "dark" else red > 240
        contrasts = page.run(CONTRASTS)
        assert min(contrasts)[0] >= 4.5, min(contrasts)
        assert page.logs("browser") == []


def check_search(page: Any, site: Path) -> None:
    """Check that search finds a page without a server."""
    page.open(f"{(site / 'search.html').as_uri()}?q=half_life")
    hits = "return [...document.querySelectorAll('ul.search li a')].map(a => a.href)"
    WebDriverWait(page, 60).until(
        lambda seen: any("/forgetting.html" in hit for hit in seen.run(hits))
    )
