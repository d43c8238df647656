"""Run the arena: ``python -m benchmarks.arena --data FOLDER``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.arena import contest, data, picture, scores, tables
from benchmarks.arena.players import players
from stopwise.text import suggestion

REFERENCE = "thresholds, 100 labels"

EPILOG = """\
rounds
  Seven recorded cascades at four cost levels: the level is the cost of running all arms, in wrong
  answers. The rounds are run in several random orders. The loss of a round is the cost of the arms
  that ran, plus one if the answer is wrong; all rounds count, including those for learning.

files in --out
  runs.csv       the loss per round of each competitor, in every setting and order
  summary.md     the tables, with 95 % intervals over the orders
  arena.png/svg  the picture

examples
  python -m benchmarks.arena --data FOLDER --quick
  python -m benchmarks.arena --data FOLDER --jobs 4 --docs docs/arena.md
  python -m benchmarks.arena --data FOLDER --only uss-pd --update   rerun one, keep the others
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run the contest and write the results."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except data.ArenaError as error:
        print(f"arena: {error}", file=sys.stderr)
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.data is None:
        raise data.ArenaError(f"--data is missing.\n{data.SOURCES}")
    cascades = _chosen("cascade", options.cascades, data.names(options.data))
    levels, orders = data.LEVELS, options.orders
    if options.quick:
        cascades, levels, orders = cascades[:2], levels[1::2], 1
    titles = [player.title for player in players()]
    names = _chosen("competitor", options.only, sorted({player.name for player in players()}))
    played = [player.title for player in players() if player.name in names]
    runs = contest.run(options.data, cascades, levels, orders, played, options.jobs)

    options.out.mkdir(parents=True, exist_ok=True)
    csv = options.out / "runs.csv"
    if options.update and csv.exists():
        others = [r for r in contest.read(csv) if r.player in titles and r.player not in played]
        runs = sorted(runs + others, key=lambda run: titles.index(run.player))
    totals, places = scores.score(runs, options.against), scores.settings(runs)
    contest.write(csv, runs)
    short = tables.summary(totals, options.against) + "\n" + tables.by_cascade(totals, places)
    long = f"{short}\n{tables.by_setting(totals, places)}"
    (options.out / "summary.md").write_text(long, encoding="utf-8")
    image = picture.draw_scores(totals, places)
    (options.out / "arena.png").write_bytes(image.png)
    (options.out / "arena.svg").write_bytes(image.svg)
    if options.docs is not None:
        tables.update_page(options.docs, short)
        (options.docs.parent / "images" / "arena.png").write_bytes(image.png)
    print(short)


def _chosen(kind: str, selected: list[str] | None, available: Sequence[str]) -> list[str]:
    for name in selected or []:
        if name not in available:
            raise data.ArenaError(f"unknown {kind} {name!r}; {suggestion(name, available)}")
    return [name for name in available if not selected or name in selected]


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.arena",
        description="Compare policies and simple rules on seven real cascades.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder with the cascades")
    parser.add_argument(
        "--out",
        type=Path,
        default=report.RESULTS / "arena",
        metavar="FOLDER",
        help="folder for results",
    )
    parser.add_argument("--jobs", type=_positive, default=1, help="number of processes (1)")
    parser.add_argument("--orders", type=_positive, default=5, help="number of random orders (5)")
    parser.add_argument("--quick", action="store_true", help="two cascades and levels, one order")
    parser.add_argument("--cascades", nargs="+", metavar="NAME", help="only these cascades")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these competitors")
    parser.add_argument(
        "--update", action="store_true", help="keep the other competitors' rows of runs.csv"
    )
    parser.add_argument(
        "--against",
        default=REFERENCE,
        metavar="TITLE",
        help=f"compare with it ({REFERENCE})",
    )
    parser.add_argument(
        "--docs", type=Path, metavar="PAGE", help="also update tables and picture of this page"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
