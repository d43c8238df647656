"""The report of a diagnosis as files."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.page import html
from stopwise.logs.diagnosis.sections import parts
from stopwise.reporting.drawing import Drawn, draw, need_matplotlib
from stopwise.reporting.files import write_files
from stopwise.version import __version__

PAGE = "report.html"


def as_json(diagnosis: Diagnosis, command: str = "") -> bytes:
    """Return a diagnosis as JSON, with the version and the command it comes from."""
    made = {"stopwise": __version__, "command": command}
    return (
        msgspec.json.format(msgspec.json.encode(made | msgspec.structs.asdict(diagnosis))) + b"\n"
    )


def write_report(
    diagnosis: Diagnosis,
    folder: Path,
    *,
    command: str = "",
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Write ``report.html``, ``diagnosis.json`` and ``figures`` into a folder.

    The page needs nothing beside it. The same diagnosis gives the same bytes. All files are
    written, or none.

    Parameters
    ----------
    diagnosis : Diagnosis
        What was found.
    folder : Path
        Made if it is not there.
    command : str, optional
        What to type to get the same numbers again.
    progress : callable, optional
        Called with ``("drawing", done, of)``, in pictures.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    MissingPackageError
        If matplotlib is not installed.
    """
    need_matplotlib("logs")
    pictures = [exhibit.picture for part in parts(diagnosis) for exhibit in part.exhibits]
    drawn: dict[str, Drawn] = {}
    files: dict[str, bytes] = {}
    for done, picture in enumerate(pictures):
        if progress is not None:
            progress("drawing", done, len(pictures))
        drawn[picture.name] = made = draw(picture)
        files[f"figures/{picture.name}.svg"] = made.svg
        files[f"figures/{picture.name}.png"] = made.png
    files["diagnosis.json"] = as_json(diagnosis, command)
    files[PAGE] = html(diagnosis, drawn, __version__, command).encode()
    write_files(folder, files)
    if progress is not None:
        progress("drawing", len(pictures), len(pictures))
    return folder / PAGE
