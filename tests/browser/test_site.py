"""The documentation site: warnings of the build, links, layout in Chromium, search."""

import os
import re
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
from tests.browser.screens import CONTRASTS, SCREENS, fetched

ROOT = Path(__file__).parents[2]
CHECKED_PAGES = [
    "index.html",
    "examples.html",
    "certificate.html",
    "api.html",
    "reference/policies.html",
]


def test_site_builds_and_can_be_read(page: Any, tmp_path: Path) -> None:
    """One test, because the build takes about ten seconds."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "docs.site.build", str(site)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    check_links(site)
    check_names(site)
    check_formulas(site)
    for width, scheme in SCREENS:
        check_screen(page, site, width, scheme)
    check_search(page, site)


class Html(HTMLParser):
    """The anchors, links and loaded resources of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.resources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.resources += [values["src"]] if "src" in values else []
        self.resources += (
            [values["href"]] if tag == "link" and values.get("rel") == "stylesheet" else []
        )


def check_links(site: Path) -> None:
    """Check that links resolve and that nothing is loaded from other hosts."""

    @cache
    def parsed(page: Path) -> Html:
        return Html(page.read_text("utf-8"))

    @cache
    def resolves(page: Path, fragment: str) -> bool:
        return page.is_file() and (page.suffix != ".html" or fragment in parsed(page).anchors)

    broken: list[str] = []
    followed = 0
    for page in sorted(site.rglob("*.html")):
        resources = set(parsed(page).resources)
        for link in resources.union(parsed(page).links):
            parts = urlsplit(link)
            followed += 1
            if parts.scheme or parts.netloc:
                good = link not in resources or parts.scheme == "data"
            else:
                target = os.path.normpath(page.parent / unquote(parts.path)) if parts.path else page
                good = resolves(Path(target), unquote(parts.fragment))
            if not good:
                broken.append(f"{page.relative_to(site)} → {link}")
    assert broken == []
    assert followed > 3000
    listed = (site / "llms.txt").read_text("utf-8").split("](")[1:]
    assert len(listed) > 35
    assert all((site / entry.partition(")")[0]).is_file() for entry in listed)


def check_names(site: Path) -> None:
    """Check that the API reference has every public name."""
    documented = {
        name
        for page in (site / "reference").glob("*.html")
        for name in Html(page.read_text("utf-8")).anchors
    }
    names = {f"stopwise.{name}" for name in dir(sw) if not name.startswith("_")}
    names -= {"stopwise.errors", "stopwise.simulate"}  # a module, and a name of research
    names |= {f"stopwise.errors.{name}" for name in vars(sw.errors) if not name.startswith("_")}
    names |= {f"stopwise.research.{name}" for name in dir(research)}
    assert names - documented == set()


def check_formulas(site: Path) -> None:
    """Check that no asterisk or underscore of a formula is taken for emphasis."""
    emphasised = [
        (page.name, text)
        for page in site.glob("*.html")
        for text in re.findall(r"<em>([^<]*)</em>", page.read_text("utf-8"))
    ]
    assert len(emphasised) > 50
    assert [item for item in emphasised if re.search("[‖√≤≥=|·]", item[1])] == []


def check_screen(page: Any, site: Path, width: int, scheme: str) -> None:
    """Check layout, pictures, contrast and colours, and that no other host is contacted."""
    for name in CHECKED_PAGES:
        page.open(site / name, width=width, scheme=scheme)
        assert all(url.startswith("file:") for url in fetched(page))
        assert page.run("return document.documentElement.scrollWidth") <= width, name
        pictures = page.run("return [...document.images].map(i => [i.naturalWidth, i.clientWidth])")
        assert all(natural > 0 and 0 < wide <= width for natural, wide in pictures)
        assert len(pictures) >= (7 if name == "examples.html" else 0)
        background = page.run("return getComputedStyle(document.body).backgroundColor")
        red = int(background.removeprefix("rgb(").partition(",")[0])
        assert red < 60 if scheme == "dark" else red > 240
        contrasts = page.run(CONTRASTS)
        assert min(contrasts)[0] >= 4.5, min(contrasts)
        assert page.logs("browser") == []


def check_search(page: Any, site: Path) -> None:
    """Check that search finds a page without a server."""
    page.open(f"{(site / 'search.html').as_uri()}?q=half_life")
    hits = "return [...document.querySelectorAll('ul.search li a')].map(a => a.href)"
    WebDriverWait(page, 60).until(
        lambda search: any("/forgetting.html" in hit for hit in search.run(hits))
    )
