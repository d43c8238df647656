"""A table or figure of the paper, to the reproduction: runs to do, and a section to write."""

from collections.abc import Callable

import msgspec

from stopwise.paper.evidence import Cell, ClaimEvidence
from stopwise.paper.section import Section


def _no_cells() -> list[Cell]:
    return []


class Exhibit(msgspec.Struct, frozen=True):
    """A table or figure of the paper.

    Attributes
    ----------
    name, title, where : str
        What ``--only`` calls it, what it is, and its place in the paper.
    build : callable
        From the evidence to the section of the report.
    cells : callable
        Which runs it needs; none by default.
    many : tuple of str
        The policies that are repeated 500 times, as in the realizable plots, rather than 100.
    """

    name: str
    title: str
    where: str
    build: Callable[[ClaimEvidence], Section]
    cells: Callable[[], list[Cell]] = _no_cells
    many: tuple[str, ...] = ()
