"""The pages of the site, made from the Markdown of this repository.

``docs/index.md`` is the navigation: each of its sections is a part of it, with the pages that the
section links to, in that order. A page that no section links to is an error. Pages are copied with
their links turned to where the linked file is on the site: another page, or a page that shows a
source file.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HOME = "docs/index.md"
START = "Start here"  # the part of the navigation with what stands before the first section
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
MOVED = {"README.md": "index.md"}
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml"}

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")
DOCTEST_END = re.compile(r"(^```pycon\n(?:(?!```).*\n)*?.+)\n\n+```", re.MULTILINE)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)")


class BadPages(Exception):
    """What is wrong with the pages, one problem a line."""


def prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line with its number, from 1, and whether it is outside blocks of code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        found = FENCE.match(line)
        if fence:
            inside = True
            if found and line.strip() == found[1] and found[1].startswith(fence):
                fence = ""
        else:
            inside = found is not None
            fence = found[1] if found else ""
        yield number, line, not inside


def links(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, target) of each link and picture that is not in code."""
    for number, line, outside in prose(text):
        if outside:
            yield from ((number, found[1]) for found in LINK.finditer(without_code(line)))


def without_code(line: str) -> str:
    """Return a line of the same length in which what is in backticks is blank."""
    return CODE.sub(lambda code: " " * len(code[0]), line)


def is_local(target: str) -> bool:
    return not re.match(r"[a-z]+:|#|/", target)


def sections(root: Path) -> dict[str, list[str]]:
    """Return the navigation: the title of each section, and its pages as paths from ``root``.

    Examples
    --------
    >>> root = Path(__file__).parents[2]
    >>> next(iter(sections(root).items()))[1][0]
    'docs/language-models.md'
    """
    found: dict[str, list[str]] = {START: []}
    title, seen = START, {HOME}
    for _, line, outside in prose((root / HOME).read_text("utf-8")):
        if outside and line.startswith("## "):
            title = line.removeprefix("## ").strip()
            found[title] = []
        for _, target in links(line) if outside else ():
            if is_local(target):
                path = posixpath.normpath(posixpath.join("docs", target.partition("#")[0]))
                if path.endswith(".md") and path not in seen:
                    seen.add(path)
                    found[title].append(path)
    pages = {f"docs/{page.name}" for page in (root / "docs").glob("*.md")}
    if missing := sorted(pages - seen):
        raise BadPages(
            "\n".join(f"{HOME} links to no {page}: add it to one of its paths" for page in missing)
        )
    return {title: paths for title, paths in found.items() if paths}


def title_of(page: Path) -> str:
    """Return the heading of a page."""
    first = page.read_text("utf-8").partition("\n")[0]
    if not first.startswith("# "):
        raise BadPages(f"{page}: the first line must be the title, '# …'")
    return first.removeprefix("# ").strip()


def summary_of(page: Path) -> str:
    """Return in one line what a page is for: the first sentence below its title."""
    _, _, text = page.read_text("utf-8").partition("\n")
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    paragraph = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    sentence = re.split(r"(?<=[.:]) (?=[A-Z`(])", paragraph)[0].rstrip(".:")
    sentence = re.sub(r"^After reading this page, you (can|know) ", "", sentence)
    return sentence[:1].upper() + sentence[1:]


def llms(root: Path, address: Callable[[str], str]) -> str:
    """Return llms.txt: what Stopwise is, and each page with one line; ``address`` of a path."""
    lines = ["# Stopwise", "", f"> {summary_of(root / HOME)}.", ""]
    lines += [
        "`import stopwise as sw`, or the command `stopwise`. Costs are in units of one error."
    ]
    for title, paths in sections(root).items():
        lines += ["", f"## {title}", ""]
        for path in paths:
            page = root / path
            lines.append(f"- [{title_of(page)}]({address(path)}): {summary_of(page)}")
    return "\n".join(lines) + "\n"


class Stage:
    """The pages as the site's builder reads them, below ``target``."""

    def __init__(self, root: Path, target: Path) -> None:
        self.root, self.target = root, target
        self.written: set[Path] = set()
        self.sources: dict[str, str] = {}  # path of a shown source file: its page
        self.problems: list[str] = []

    def write(self, place: str, text: str) -> None:
        """Write a file unless it is there already with this text: the builder looks at times."""
        path = self.target / place
        self.written.add(path)
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def copy_all(self, reference: dict[str, str]) -> None:
        """Write all pages; ``reference`` has those of the API, by name."""
        parts = sections(self.root)
        pages = {HOME, *(path for paths in parts.values() for path in paths)}
        for path in sorted(pages):
            place = self.place_of_page(path)
            text = self.turned(path, place, (self.root / path).read_text("utf-8"))
            if path == HOME:
                text += "".join(
                    toctree(title, map(self.place_of_page, paths)) for title, paths in parts.items()
                )
                text += toctree("The API, from its docstrings", reference)
            if path == "docs/examples.md":
                shown = (at for of, at in self.sources.items() if of.startswith("examples/"))
                text += toctree("", shown)
            self.write(place, text)
        for name, text in reference.items():
            self.write(name, text)
        for path, place in list(self.sources.items()):
            self.write(place, self.shown(path))
        if self.problems:
            raise BadPages("\n".join(self.problems))
        for old in self.target.rglob("*.md"):
            if old not in self.written:
                old.unlink()

    @staticmethod
    def place_of_page(path: str) -> str:
        return OUTSIDE.get(path) or posixpath.relpath(path, "docs")

    def place(self, path: str) -> str | None:
        """Return where a file of the repository is on the site, from the top of the site."""
        if path in MOVED:
            return MOVED[path]
        if path.endswith(".md"):
            return self.place_of_page(path) if (self.root / path).is_file() else None
        if path.startswith("docs/images/"):
            return posixpath.relpath(path, "docs") if (self.root / path).is_file() else None
        if (self.root / path).is_file():
            return self.sources.setdefault(path, f"source/{path.removesuffix('.md')}.md")
        return None

    def turned(self, path: str, place: str, text: str) -> str:
        """Return the text of a page, to be at ``place``, with its links as they are on the site."""
        here, at = posixpath.dirname(path), posixpath.dirname(place) or "."
        lines: list[str] = []
        for number, written, outside in prose(text):
            line, found = written, LINK.finditer(without_code(written)) if outside else ()
            for link in reversed([link for link in found if is_local(link[1])]):
                target, hash_, anchor = link[1].partition("#")
                to = self.place(posixpath.normpath(posixpath.join(here, target)))
                if to is None:
                    self.problems.append(f"{path}:{number} links to {target}, which is not there")
                    continue
                turned = f"]({posixpath.relpath(to, at)}{hash_}{anchor})"
                line = line[: link.start()] + turned + line[link.end() :]
            lines.append(line)
        return DOCTEST_END.sub(r"\1\n```", "\n".join(lines) + "\n")

    def shown(self, path: str) -> str:
        """Return the page that shows a source file."""
        file = self.root / path
        text = file.read_text("utf-8")
        head = f"---\norphan: true\n---\n\n# {file.name}\n\n`{path}`, as it is in the repository.\n"
        if file.suffix == ".ipynb":
            cells = "\n\n".join(notebook_cells(json.loads(text)))
            return head + "\n" + self.turned(path, self.sources[path], cells)
        return head + f"\n`````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n`````\n"


def notebook_cells(notebook: dict[str, list[dict[str, object]]]) -> Iterator[str]:
    """Yield the cells of a notebook as Markdown, its headings one level lower."""
    for cell in notebook["cells"]:
        source = cell["source"]
        text = source if isinstance(source, str) else "".join(source)  # type: ignore[arg-type]
        if cell["cell_type"] == "markdown":
            yield re.sub(r"^#", "##", text, flags=re.MULTILINE)
        else:
            yield f"```python\n{text}\n```"


def toctree(caption: str, places: Iterable[str]) -> str:
    """Return a part of the navigation, which the page itself does not show."""
    lines = ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join([*lines, "", *(place.removesuffix(".md") for place in places), "```", ""])


def link_folder(target: Path, source: Path) -> None:
    """Let ``target`` be ``source``: pictures need no copy."""
    if target.is_symlink():
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source, target_is_directory=True)
