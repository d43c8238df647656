"""The style of figures, and their rendering to files."""

import io
import warnings
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from stopwise.errors import MissingPackageError
from stopwise.reporting.elements import Picture

# matplotlib is imported on first use, because it is slow, and its stubs are incomplete.
Figure: TypeAlias = Any
Axes: TypeAlias = Any

# Colours that colour-blind readers can distinguish (after Okabe and Ito), and distinct markers.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKS = "os^Dv<"
STYLE: Any = {  # Any: matplotlib types the keys as literals
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "legend.frameon": False,
    "svg.hashsalt": "stopwise",  # otherwise the names of clip paths change between runs
    "svg.fonttype": "path",  # text as outlines, so that no font is required
    "savefig.facecolor": "white",
}


def panels(rows: int, columns: int, width: float = 3.1, height: float = 2.5) -> Figure:
    """Return an empty figure with a grid of panels."""
    from matplotlib.figure import Figure as MatplotlibFigure

    figure: Figure = MatplotlibFigure(
        figsize=(width * columns + 0.4, height * rows + 0.7), layout="constrained"
    )
    figure.subplots(rows, columns, squeeze=False)
    return figure


class FigureFiles(NamedTuple):
    """A figure as SVG and PNG."""

    svg: bytes
    png: bytes


def need_matplotlib(extra: str) -> None:
    """Raise `MissingPackageError` if matplotlib is missing, naming the extra to install."""
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise MissingPackageError.of("drawing the figures", "matplotlib", extra) from error


def draw(picture: Picture) -> FigureFiles:
    """Draw a picture in the style of Stopwise, ignoring the user's matplotlib settings.

    The same picture gives the same bytes.
    """
    matplotlib: Any = import_module("matplotlib")
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # a missing glyph is drawn as a box; the warning is not actionable
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure: Any = picture.draw()
        # compute the layout once for both formats: it takes most of the time
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return FigureFiles(svg.getvalue(), png.getvalue())


def start_at_zero(axes: Axes) -> None:
    """Start the y axis at zero and include everything drawn."""
    axes.set_ylim(0, 1.05 * float(axes.dataLim.y1) or 1.0)


def legend_below(figure: Figure) -> None:
    """Put one legend for all panels below them."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    # about 1.3 inches per entry: a legend wider than the figure would be clipped
    columns = max(1, min(len(entries), int(figure.get_figwidth() / 1.3)))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)
