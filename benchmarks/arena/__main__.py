"""Run the arena: ``python -m benchmarks.arena --data FOLDER``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.arena import contest, data, picture, scores, tables
from benchmarks.arena.players import players

REFERENCE = "thresholds, 100 labels"

EPILOG = """\
what is played
  Seven recorded cascades at four cost levels: the level is what running all arms costs, in wrong
  answers. The rounds are played in several random orders. A round's loss is what the arms it ran
  cost, plus one if the answer is wrong; every round counts, also those spent on learning.

what is written, into --out
  runs.csv       what everybody lost a round, in every setting and order
  summary.md     the tables, with 95 % intervals over the orders
  arena.png/svg  the picture

examples
  python -m benchmarks.arena --data FOLDER --quick
  python -m benchmarks.arena --data FOLDER --jobs 4 --docs docs/arena.md
  python -m benchmarks.arena --data FOLDER --only uss-pd --update   play again, keep the others
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, play, and write what came of it."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except data.ArenaError as error:
        print(f"arena: {error}", file=sys.stderr)
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    if options.data is None:
        raise data.ArenaError(f"say where the data are, with --data.\n{data.SOURCES}")
    cascades = _chosen("cascade", options.cascades, data.names(options.data))
    levels, orders = data.LEVELS, options.orders
    if options.quick:
        cascades, levels, orders = cascades[:2], levels[1::2], 1
    titles = [player.title for player in players()]
    names = _chosen("competitor", options.only, sorted({player.name for player in players()}))
    played = [player.title for player in players() if player.name in names]
    runs = contest.run(options.data, cascades, levels, orders, played, options.jobs)

    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "runs.csv"
    if options.update and kept.exists():
        others = [r for r in contest.read(kept) if r.player in titles and r.player not in played]
        runs = sorted(runs + others, key=lambda run: titles.index(run.player))
    summed, places = scores.score(runs, options.against), scores.settings(runs)
    contest.write(kept, runs)
    short = tables.summary(summed, options.against) + "\n" + tables.by_cascade(summed, places)
    long = f"{short}\n{tables.by_setting(summed, places)}"
    (options.out / "summary.md").write_text(long, encoding="utf-8")
    image = picture.drawn(summed, places)
    (options.out / "arena.png").write_bytes(image.png)
    (options.out / "arena.svg").write_bytes(image.svg)
    if options.docs is not None:
        tables.put(options.docs, short)
        (options.docs.parent / "images" / "arena.png").write_bytes(image.png)
    print(short)


def _chosen(what: str, asked: list[str] | None, there: Sequence[str]) -> list[str]:
    unknown = [name for name in asked or [] if name not in there]
    if unknown:
        raise data.ArenaError(f"no {what} is called {unknown[0]!r}; there are {', '.join(there)}")
    return [name for name in there if not asked or name in asked]


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.arena",
        description="Policies and plain rules on seven real cascades.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the cascades are")
    parser.add_argument(
        "--out", type=Path, default=report.RESULTS / "arena", metavar="FOLDER", help="for results"
    )
    parser.add_argument("--jobs", type=_positive, default=1, help="processes (1)")
    parser.add_argument("--orders", type=_positive, default=5, help="orders of the rounds (5)")
    parser.add_argument("--quick", action="store_true", help="two cascades and levels, one order")
    parser.add_argument("--cascades", nargs="+", metavar="NAME", help="these cascades only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these competitors only")
    parser.add_argument(
        "--update", action="store_true", help="keep the other competitors' rows of runs.csv"
    )
    parser.add_argument(
        "--against", default=REFERENCE, metavar="TITLE", help=f"compare with ({REFERENCE})"
    )
    parser.add_argument(
        "--docs", type=Path, metavar="PAGE", help="also put tables and picture into this page"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
