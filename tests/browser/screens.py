"""Screens to check pages on, and checks of layout and contrast."""

import json
from pathlib import Path
from typing import Any

SCREENS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]

# The contrast of each text with its background, as defined by WCAG 2.
CONTRASTS = """
const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const parse = c => c.match(/[\\d.]+/g).map(Number);
const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
function background(e) {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c;
  }
  return [255, 255, 255];
}
const contrasts = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim()) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(background(e))];
  contrasts.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.slice(0, 60)]);
}
return contrasts;
"""


# On a page of the dashboard, every visible element ends within the window.
INSIDE = (
    "[...document.querySelectorAll('main *')].every(e => !e.checkVisibility() ||"
    " e.closest('.scroll, svg, .unseen, thead, pre') ||"
    " e.getBoundingClientRect().right <= innerWidth + 1)"
)


def fetched(page: Any) -> list[str]:
    """Return the addresses that the page requested, without data URLs."""
    events = [json.loads(entry["message"])["message"] for entry in page.logs("performance")]
    sent = [e["params"]["request"]["url"] for e in events if "request" in e["params"]]
    return [url for url in sent if not url.startswith("data:")]


def check_layout(page: Any, width: int, inside: str, texts: int) -> None:
    """Check contrast, and that a page of this width does not scroll sideways.

    ``inside`` is a JavaScript condition on the page's boxes; ``texts`` is the minimum number of
    texts.
    """
    for unfold in ("", "document.querySelectorAll('details').forEach(d => d.open = true)"):
        page.run(unfold)
        assert page.run("return innerWidth") == width
        assert page.run("return document.documentElement.scrollWidth") <= width
        assert page.run(f"return {inside}")
    contrasts = page.run(CONTRASTS)
    assert len(contrasts) > texts
    assert min(contrasts)[0] >= 4.5, min(contrasts)
    assert page.logs("browser") == []


def check_report(page: Any, file: Path, width: int, scheme: str, pictures: int) -> None:
    """Check that a report is one file, shows its pictures, and scrolls sideways only in boxes."""
    page.open(file, width=width, scheme=scheme)
    assert fetched(page) == [file.as_uri()]
    shown = page.run("return [...document.images].map(i => [i.naturalWidth, i.clientWidth])")
    assert len(shown) == pictures > 0
    assert all(natural > 0 and wide > 300 for natural, wide in shown)
    boxes = "[...document.querySelectorAll('.scroll, .plate, .number-card, caption span')]"
    inside = f"{boxes}.every(b => b.getBoundingClientRect().right <= innerWidth)"
    check_layout(page, width, inside, texts=100)
    for selector, dark in (("body", scheme == "dark"), (".plate", False)):  # figures are on white
        colour = f"return getComputedStyle(document.querySelector('{selector}')).backgroundColor"
        red = int(page.run(colour).removeprefix("rgb(").partition(",")[0])
        assert red < 60 if dark else red > 240
