"""On what screens a page is looked at, and whether it can be read there."""

SCREENS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]

# The contrast of every piece of text with what is behind it, as WCAG 2 defines it.
CONTRASTS = """
const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const parse = c => c.match(/[\\d.]+/g).map(Number);
const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
function behind(e) {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c;
  }
  return [255, 255, 255];
}
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim()) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.textContent.slice(0, 60)]);
}
return found;
"""
