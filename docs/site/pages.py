"""Prepare the Markdown pages of this repository for the site.

``docs/index.md`` defines the navigation: one group per section, with the pages that it links to,
in order. A page without such a link is an error. Links to source files are rewritten to generated
pages that show them.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HOME = "docs/index.md"
START = "Start here"  # the group of the pages linked before the first section
PAGES_OUTSIDE_DOCS = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
LANGUAGES = {
    ".md": "markdown",
    ".py": "python",
    ".toml": "toml",
    ".sh": "bash",
    ".yaml": "yaml",
    ".yml": "yaml",
}

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")
DOCTEST_END = re.compile(r"(^```pycon\n(?:(?!```).*\n)*?.+)\n\n+```", re.MULTILINE)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)")


class InvalidPagesError(Exception):
    """Problems of the pages, one per line."""


def prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line with its number, from 1, and whether it is outside blocks of code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if fence:
            inside = True
            if match and line.strip() == match[1] and match[1].startswith(fence):
                fence = ""
        else:
            inside = match is not None
            fence = match[1] if match else ""
        yield number, line, not inside


def links(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, target) of each link and picture outside code."""
    for number, line, outside in prose(text):
        if outside:
            yield from ((number, match[1]) for match in LINK.finditer(without_code(line)))


def without_code(line: str) -> str:
    """Replace code in backticks by spaces, so that positions stay the same."""
    return CODE.sub(lambda code: " " * len(code[0]), line)


def is_local(target: str) -> bool:
    return not re.match(r"[a-z]+:|#|/", target)


def sections(root: Path) -> dict[str, list[str]]:
    """Return the navigation: the pages of each section by its title, as paths from ``root``.

    Examples
    --------
    >>> root = Path(__file__).parents[2]
    >>> next(iter(sections(root).items()))[1][0]
    'docs/language-models.md'
    """
    groups: dict[str, list[str]] = {START: []}
    title, seen = START, {HOME}
    for _, line, outside in prose((root / HOME).read_text("utf-8")):
        if outside and line.startswith("## "):
            title = line.removeprefix("## ").strip()
            groups[title] = []
        for _, target in links(line) if outside else ():
            if is_local(target):
                path = posixpath.normpath(posixpath.join("docs", target.partition("#")[0]))
                if path.endswith(".md") and path not in seen:
                    seen.add(path)
                    groups[title].append(path)
    pages = {f"docs/{page.name}" for page in (root / "docs").glob("*.md")}
    if missing := sorted(pages - seen):
        raise InvalidPagesError(
            "\n".join(f"{page} is not linked from {HOME}: add it to a section" for page in missing)
        )
    return {title: paths for title, paths in groups.items() if paths}


def title_of(page: Path) -> str:
    """Return the heading of a page."""
    first = page.read_text("utf-8").partition("\n")[0]
    if not first.startswith("# "):
        raise InvalidPagesError(f"{page}: the first line must be the title, '# …'")
    return first.removeprefix("# ").strip()


def summary_of(page: Path) -> str:
    """Return the first sentence below the title of a page."""
    _, _, text = page.read_text("utf-8").partition("\n")
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    paragraph = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return re.split(r"(?<=[.:]) (?=[A-Z`(])", paragraph)[0].rstrip(".:")


def llms(root: Path, address: Callable[[str], str]) -> str:
    """Return llms.txt: a summary and one line per page; ``address`` maps a path to its link."""
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
    """The folder of pages that Sphinx reads."""

    def __init__(self, root: Path, target: Path) -> None:
        self.root, self.target = root, target
        self.written: set[Path] = set()
        self.sources: dict[str, str] = {}  # path of a shown source file: its page
        self.problems: list[str] = []

    def write(self, place: str, text: str) -> None:
        """Write a file if its text changed: Sphinx compares modification times."""
        path = self.target / place
        self.written.add(path)
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def copy_all(self, reference: dict[str, str]) -> None:
        """Write all pages; ``reference`` holds those of the API by path."""
        groups = sections(self.root)
        pages = {HOME, *(path for paths in groups.values() for path in paths)}
        for path in sorted(pages):
            place = self.place_of_page(path)
            text = self.with_site_links(path, place, (self.root / path).read_text("utf-8"))
            if path == HOME:
                text += "".join(
                    toctree(title, map(self.place_of_page, paths))
                    for title, paths in groups.items()
                )
                text += toctree("API reference", reference)
            if path == "docs/examples.md":
                examples = [path for path in self.sources if path.startswith("examples/")]
                text += toctree("", [self.sources[path] for path in examples])
            self.write(place, text)
        for name, text in reference.items():
            self.write(name, text)
        for path, place in list(self.sources.items()):
            self.write(place, self.source_page(path))
        if self.problems:
            raise InvalidPagesError("\n".join(self.problems))
        for old in self.target.rglob("*.md"):
            if old not in self.written:
                old.unlink()

    @staticmethod
    def place_of_page(path: str) -> str:
        return PAGES_OUTSIDE_DOCS.get(path) or posixpath.relpath(path, "docs")

    def place(self, path: str) -> str | None:
        """Return the path on the site of a file of the repository, None if it does not exist."""
        if not (self.root / path).is_file():
            return None
        if path == "README.md":
            return "index.md"
        if path in PAGES_OUTSIDE_DOCS or (path.startswith("docs/") and path.endswith(".md")):
            return self.place_of_page(path)
        if path.startswith("docs/images/"):
            return posixpath.relpath(path, "docs")
        return self.sources.setdefault(path, f"source/{path}.md")

    def with_site_links(self, path: str, place: str, text: str) -> str:
        """Return the text of a page with its links rewritten for ``place`` on the site."""
        folder = posixpath.dirname(path)
        site_folder = posixpath.dirname(place) or "."
        lines: list[str] = []
        for number, original, outside in prose(text):
            line = original
            matches = list(LINK.finditer(without_code(line))) if outside else []
            for match in reversed(matches):  # from the end, so that positions stay valid
                if not is_local(match[1]):
                    continue
                target, hash_, anchor = match[1].partition("#")
                destination = self.place(posixpath.normpath(posixpath.join(folder, target)))
                if destination is None:
                    self.problems.append(f"{path}:{number} links to {target}, which does not exist")
                    continue
                link = f"]({posixpath.relpath(destination, site_folder)}{hash_}{anchor})"
                line = line[: match.start()] + link + line[match.end() :]
            lines.append(line)
        return DOCTEST_END.sub(r"\1\n```", "\n".join(lines) + "\n")

    def source_page(self, path: str) -> str:
        """Return a page that shows a source file."""
        file = self.root / path
        text = file.read_text("utf-8")
        head = f"---\norphan: true\n---\n\n# {file.name}\n\nFrom `{path}`.\n"
        if file.suffix == ".ipynb":
            cells = "\n\n".join(notebook_cells(json.loads(text)))
            return head + "\n" + self.with_site_links(path, self.sources[path], cells)
        return head + f"\n`````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n`````\n"


def notebook_cells(notebook: dict[str, list[dict[str, object]]]) -> Iterator[str]:
    """Yield the cells of a notebook as Markdown, with headings one level lower."""
    for cell in notebook["cells"]:
        source = cell["source"]
        text = source if isinstance(source, str) else "".join(source)  # type: ignore[arg-type]
        if cell["cell_type"] == "markdown":
            yield re.sub(r"^#", "##", text, flags=re.MULTILINE)
        else:
            yield f"```python\n{text}\n```"


def toctree(caption: str, places: Iterable[str]) -> str:
    """Return a hidden table of contents, which Sphinx shows in the navigation."""
    lines = ["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join([*lines, "", *(place.removesuffix(".md") for place in places), "```", ""])


def link_folder(target: Path, source: Path) -> None:
    """Make ``target`` a symbolic link to ``source``."""
    if target.is_symlink():
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source, target_is_directory=True)
