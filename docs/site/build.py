"""Build the site: ``python -m docs.site.build FOLDER``. Any warning is an error."""

import argparse
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs.site import pages, reference

ROOT = Path(__file__).parents[2]


def build(site: Path) -> int:
    """Write the pages beside ``site`` and build them; return 0 if nothing was wrong."""
    source = site.with_name(f"{site.name}-source")
    pages.Stage(ROOT, source).copy_all(reference.pages())
    pages.link_folder(source / "images", ROOT / "docs/images")
    options = ["-q", "-W", "--keep-going", "-j", "auto", "-c", str(Path(__file__).parent)]
    options += ["-E"]  # all pages anew: an unchanged page may link to a heading that has gone
    failed = sphinx([*options, "-d", f"{source}-cache", str(source), str(site)])
    text = pages.llms(ROOT, lambda path: f"_sources/{pages.Stage.place_of_page(path)}.txt")
    (site / "llms.txt").write_text(text, "utf-8")
    return failed


def main() -> int:
    """Build the site that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the folder to build it in")
    parser.add_argument("--llms", type=Path, help="also write llms.txt for the repository, here")
    options = parser.parse_args()
    try:
        failed = build(options.site.absolute())
        if options.llms:
            options.llms.write_text(pages.llms(ROOT, lambda path: path), "utf-8")
    except pages.BadPages as problem:
        print(problem, file=sys.stderr)
        return 1
    if not failed:
        print(f"Open {options.site / 'index.html'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
