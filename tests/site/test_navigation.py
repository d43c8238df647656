"""Navigation of the site, links between pages, and llms.txt."""

import re
import shutil
from pathlib import Path

import pytest

from docs.site.pages import HOME, InvalidPagesError, Stage, is_local, links, llms, sections

ROOT = Path(__file__).parents[2]
LINKING = [*(ROOT / "docs").glob("*.md"), *(ROOT / f for f in ("README.md", "CONTRIBUTING.md"))]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with an index, two pages and a source file."""
    (tmp_path / "docs/images").mkdir(parents=True)
    (tmp_path / HOME).write_text(
        "# Index\n\nStart with [one](one.md).\n\n## Paths\n\n[two](two.md)\n"
    )
    (tmp_path / "docs/one.md").write_text("# One\n\nCount to one. Yes.\n")
    (tmp_path / "docs/two.md").write_text(
        "# Two\n\n[code](../a.py), `[no](link)`\n\n```\n[no](l)\n```\n"
    )
    (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


def test_every_page_is_in_the_navigation() -> None:
    listed = [path for paths in sections(ROOT).values() for path in paths]
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")} == {
        HOME, *(path for path in listed if path.startswith("docs/"))
    }  # fmt: skip
    assert len(listed) == len(set(listed))
    assert [title for title in sections(ROOT) if title.startswith("For")] == [
        "For engineers: in Python", "For engineers: services", "For analysts", "For researchers",
        "For contributors",
    ]  # fmt: skip


def test_the_index_must_link_to_every_page(repository: Path) -> None:
    assert sections(repository) == {"Start here": ["docs/one.md"], "Paths": ["docs/two.md"]}
    (repository / "docs/three.md").write_text("# Three\n")
    with pytest.raises(
        InvalidPagesError,
        match=r"docs/three\.md is not linked from docs/index\.md: add it to a section",
    ):
        sections(repository)


def test_links_are_rewritten_to_the_places_on_the_site(repository: Path, tmp_path: Path) -> None:
    Stage(repository, tmp_path / "staged").copy_all({})
    two = (tmp_path / "staged/two.md").read_text("utf-8")
    assert "[code](source/a.py.md), `[no](link)`" in two
    assert "x = 1" in (tmp_path / "staged/source/a.py.md").read_text("utf-8")
    shutil.move(repository / "a.py", repository / "b.py")
    with pytest.raises(
        InvalidPagesError, match=r"docs/two\.md:3 links to \.\./a\.py, which does not exist"
    ):
        Stage(repository, tmp_path / "staged").copy_all({})


def test_links_in_markdown_lead_to_files() -> None:
    missing = [
        f"{page.relative_to(ROOT)}:{number} {target}"
        for page in LINKING
        for number, target in links(page.read_text("utf-8"))
        if is_local(target) and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert missing == []


def test_llms_txt_lists_every_page() -> None:
    text = (ROOT / "llms.txt").read_text("utf-8")
    assert text == llms(ROOT, lambda path: path), "run `make docs`, and commit llms.txt"
    entries = re.findall(r"^- \[(.+)\]\((.+)\): (.+)$", text, re.MULTILINE)
    assert all((ROOT / path).is_file() and len(summary) > 20 for _, path, summary in entries)
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - {HOME}
    assert pages < {path for _, path, _ in entries}
