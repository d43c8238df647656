"""Check names and prose for the few wordings that this project never uses.

Run by ``make lint``. Every entry is a phrase or a name that is always replaced by a plainer one;
style that needs judgement is left to readers.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "deploy", ".github", ".ci")
SUFFIXES = {".py", ".cpp", ".h", ".md", ".toml", ".html", ".js", ".yml", ".yaml", ".ipynb"}

# A thing that a value can fail to be: "text is no number" should be "text is not a number".
THINGS = (
    "answer|arm|array|chunk|column|context|cost|date|field|file|folder|label|list|log|name|number|"
    "object|output|pair|path|policy|probability|question|round|row|rule|stage|string|table|text|value"
)
NO_THING = rf"(?<!there\s)\b(?:is|are|was|were) no (?:{THINGS})s?\b"
# A space, or the end of a line and the comment sign that begins the next one.
GAP = r"\s+(?:(?:#|//|\*)\s*)?"
PHRASES = {
    rf"{NO_THING}(?! (?:to|in|for|of|on|here|left|yet)\b)": "it is not a …",
    r"(?<!there\s)\bare none\b": "none are …",
    r"\b(?:nobody|somebody|everybody|strangers?)\b": "you, the caller, or the passive",
    r"\blest\b": "so that … does not",
    r"\bhence\b": "so, therefore",
    r"\bin vain\b": "wasted, without effect",
    r"\bof its own\b": "its own …, separate",
    r"\bas (?:it|they) came\b": "in order, unchanged",
    r"\bby night\b": "at night, in dark mode",
    r"\bgoes without\b": "runs without",
    r"\bcannot go on\b": "cannot continue, stops",
    r"\b(?:was|were|is|are) given up\b": "expired, cancelled",
    r"\bis there twice\b": "duplicate",
    r"\bis not there\b": "is missing, does not exist",
    r"\bafter reading this page\b": "begin with the command or the code",
    r"\bwhat (?:is|was) known (?:of|about)\b": "a noun",
}
COMPILED = {
    re.compile(pattern.replace(" ", GAP), re.IGNORECASE): instead
    for pattern, instead in PHRASES.items()
}
NAMES = {
    "one": "the thing it holds",
    "found": "the thing it holds, such as row or match",
    "given": "the thing it holds, such as options",
    "known": "the thing it holds",
    "here": "the thing it holds, such as folder",
    "whole": "the thing it holds",
    "ends": "stops, or what it holds",
    "told": "reported, labelled",
    "judged": "evaluated, labelled",
}


class Finding(NamedTuple):
    """A wording to replace."""

    path: Path
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path}:{self.line}: {self.text!r}: write {self.instead}"


def phrases(path: Path, text: str) -> Iterator[Finding]:
    """Yield the phrases in a text."""
    for pattern, instead in COMPILED.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Finding(path, line, re.sub(GAP, " ", match[0]), instead)


def names(path: Path, text: str) -> Iterator[Finding]:
    """Yield the variables, parameters and functions of a module that have a vague name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        else:
            continue
        if name in NAMES:
            yield Finding(path, node.lineno, name, NAMES[name])


def check(path: Path) -> Iterator[Finding]:
    """Yield what is to be replaced in a file."""
    text = path.read_text("utf-8")
    yield from phrases(path, text)
    if path.suffix == ".py":
        yield from names(path, text)


def files() -> Iterator[Path]:
    """Yield the files with names or prose, except those that list what is banned."""
    paths = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        paths += (ROOT / folder).rglob("*")
    for path in sorted(paths):
        if path.suffix in SUFFIXES and path not in {
            Path(__file__).resolve(),
            ROOT / "tests/repository/test_wording_check.py",
        }:
            yield path


def main() -> int:
    """Print what is to be replaced; return 1 if there is any."""
    findings = [finding for path in files() for finding in check(path)]
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
