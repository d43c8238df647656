"""The pages of the documentation, as text."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/stopwise"
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES}


def mentions(pattern: str) -> list[tuple[str, str]]:
    """Return each match of a pattern with the page that it is on."""
    return [
        (page, match)
        for page, text in TEXTS.items()
        for match in re.findall(pattern, text, re.MULTILINE)
    ]


def is_mentioned(name: str) -> bool:
    """Whether some page has a name as a whole word."""
    pattern = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    return any(pattern.search(text) for text in TEXTS.values())


def table_after(page: str, marker: str) -> list[list[str]]:
    """Return the cells of the first table after a text, without its two header lines."""
    _, _, after = TEXTS[page].partition(marker)
    assert after, f"{page} has no {marker!r}"
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table
    lines = table[0].splitlines()[2:]
    # A bar within a cell is written as \|.
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def names_in(cell: str) -> list[str]:
    """Return the names in backticks in a cell of a table."""
    return re.findall(r"`([\w./]+)`", cell)
