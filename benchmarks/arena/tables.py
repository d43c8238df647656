"""Results as Markdown tables, and their insertion into a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.arena.data import ArenaError
from benchmarks.arena.scores import Score, over_orders

BEGIN = "<!-- written by python -m benchmarks.arena: begin -->"
END = "<!-- written by python -m benchmarks.arena: end -->"


def summary(scores: Sequence[Score], reference: str | None) -> str:
    """Return a table with one row per competitor."""
    compared = any(score.against for score in scores)
    columns = [
        "competitor",
        "of the best fixed depth",
        "worst setting",
        "of always last",
        "better in",
    ]
    columns += [f"minus *{reference}*"] if compared else []
    rows = []
    for score in scores:
        cascade, level = score.worst_at
        where = f" ({cascade}, {level:g})" if score.varies else ""
        row = [score.player, str(score.of_best), f"{score.worst}{where}"]
        row += [str(score.of_last), f"{score.better} of {len(score.by_setting)}"]
        if compared:
            other = score.against if score.player != reference else None
            row.append("" if other is None else other.signed)
        rows.append(row)
    return _markdown(columns, rows)


def by_cascade(scores: Sequence[Score], places: Sequence[tuple[str, float]]) -> str:
    """Return a table of relative losses with one column per cascade, averaged over levels."""
    cascades = list(dict.fromkeys(name for name, _ in places))
    picked = {name: [k for k, place in enumerate(places) if place[0] == name] for name in cascades}
    rows = [
        [score.player, *(f"{score.by_setting[picked[name]].mean():.2f}" for name in cascades)]
        for score in scores
    ]
    return _markdown(["competitor", *cascades], rows)


def by_setting(scores: Sequence[Score], places: Sequence[tuple[str, float]]) -> str:
    """Return a table with one row per competitor and setting."""
    rows = [
        [score.player, cascade, f"{level:g}", str(over_orders(score.by_setting[k]))]
        for score in scores
        for k, (cascade, level) in enumerate(places)
    ]
    return _markdown(["competitor", "cascade", "level", "of the best fixed depth"], rows)


def update_page(page: Path, text: str) -> None:
    """Replace the text between the two markers of a page."""
    before, begin, remainder = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = remainder.partition(END)
    if not (begin and end):
        raise ArenaError(f"{page} needs the lines {BEGIN} and {END} around the tables")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] + ["--:"] * (len(columns) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
