"""Build the site with ``python -m docs.site.build FOLDER``; warnings are errors."""

import argparse
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs.site import pages, reference

ROOT = Path(__file__).parents[2]


def build(site: Path) -> int:
    """Write the pages beside ``site`` and build them; return the exit status of Sphinx."""
    source = site.with_name(f"{site.name}-source")
    pages.Stage(ROOT, source).copy_all(reference.pages())
    pages.link_folder(source / "images", ROOT / "docs/images")
    options = ["-q", "-W", "--keep-going", "-j", "auto", "-c", str(Path(__file__).parent)]
    options += ["-E"]  # read all pages again: an unchanged page may link to a deleted heading
    status = sphinx([*options, "-d", f"{source}-cache", str(source), str(site)])
    text = pages.llms(ROOT, lambda path: f"_sources/{pages.Stage.place_of_page(path)}.txt")
    (site / "llms.txt").write_text(text, "utf-8")
    return status


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="output folder")
    parser.add_argument(
        "--llms", type=Path, help="also write llms.txt of the repository to this path"
    )
    options = parser.parse_args()
    try:
        status = build(options.site.absolute())
        if options.llms:
            options.llms.write_text(pages.llms(ROOT, lambda path: path), "utf-8")
    except pages.InvalidPagesError as error:
        print(error, file=sys.stderr)
        return 1
    if status == 0:
        print(f"Open {options.site / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
