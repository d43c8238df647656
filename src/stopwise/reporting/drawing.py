"""How figures look, and how they become files."""

import io
import warnings
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from stopwise.errors import MissingPackageError
from stopwise.reporting.elements import Picture

# matplotlib's stubs leave half of every method unknown, and it is loaded late: it is slow.
Figure: TypeAlias = Any
Axes: TypeAlias = Any

# Colours that stay apart for colour-blind readers (after Okabe and Ito), and marks that differ too.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKS = "os^Dv<"
STYLE: Any = {  # whose keys matplotlib lists as literals
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "legend.frameon": False,
    "svg.hashsalt": "stopwise",  # else the names of clip paths change from run to run
    "svg.fonttype": "path",  # letters as outlines: no font need be installed
    "savefig.facecolor": "white",
}


def panels(rows: int, columns: int, width: float = 3.1, height: float = 2.5) -> Figure:
    """Return an empty figure of panels in rows and columns."""
    from matplotlib.figure import Figure as Empty

    figure: Figure = Empty(
        figsize=(width * columns + 0.4, height * rows + 0.7), layout="constrained"
    )
    figure.subplots(rows, columns, squeeze=False)
    return figure


class FigureFiles(NamedTuple):
    """A picture as files."""

    svg: bytes
    png: bytes


def need_matplotlib(extra: str) -> None:
    """Raise `MissingPackageError` where figures cannot be drawn, naming the extra to install."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise MissingPackageError.of("drawing the figures", "matplotlib", extra) from error


def draw(picture: Picture) -> FigureFiles:
    """Draw a picture in the house style, whatever the user's own is.

    The same picture gives the same bytes, and looks the same everywhere.
    """
    matplotlib: Any = import_module("matplotlib")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # a letter that no font has is drawn as a box; nobody can act on a warning
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure: Any = picture.draw()
        # found once for both formats: it is most of what saving would cost
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return FigureFiles(svg.getvalue(), png.getvalue())


def start_at_zero(axes: Axes) -> None:
    """Start the axis at zero and include all that is drawn, with its intervals."""
    axes.set_ylim(0, 1.05 * float(axes.dataLim.y1) or 1.0)


def legend_below(figure: Figure) -> None:
    """Put one legend for all panels under them."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    # about 1.3 inches an entry: a legend wider than its figure would be cut off
    columns = max(1, min(len(entries), int(figure.get_figwidth() / 1.3)))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)
