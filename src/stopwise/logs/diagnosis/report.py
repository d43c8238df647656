"""Write the report of a diagnosis."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stopwise.files import write_file, write_files
from stopwise.logs.diagnosis.figures import colours
from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.sections import main_numbers, sections
from stopwise.logs.diagnosis.verdict import BADGES
from stopwise.logs.formats.csv import csv_line
from stopwise.logs.log import RIGHT, Log
from stopwise.progress import Progress, no_progress
from stopwise.reporting.drawing import FigureFiles, draw, need_matplotlib
from stopwise.reporting.pages import render
from stopwise.reporting.wording import code, join_list, plain, plural
from stopwise.version import __version__

PAGE = "report.html"
TEMPLATES = Path(__file__).parent / "templates"


def as_json(diagnosis: Diagnosis, command: str = "") -> bytes:
    """Return a diagnosis as JSON, with the version and the command that produced it."""
    fields = {"stopwise": __version__, "command": command} | msgspec.structs.asdict(diagnosis)
    return msgspec.json.format(msgspec.json.encode(fields)) + b"\n"


def write_report(
    diagnosis: Diagnosis, folder: Path, *, command: str = "", progress: Progress = no_progress
) -> Path:
    """Write ``report.html``, ``diagnosis.json`` and ``figures`` into a folder; return the page.

    The page is self-contained, and the same diagnosis gives the same bytes. Either all files are
    written or none. ``command`` is the command that reproduces the numbers; ``progress`` is called
    as ``progress("drawing", done, of)`` for each figure.
    """
    need_matplotlib("logs")
    content = sections(diagnosis)
    pictures = [p.picture for s in content for p in s.panels if p.picture is not None]
    drawn: dict[str, FigureFiles] = {}
    files: dict[str, bytes] = {}
    for done, picture in enumerate(pictures):
        progress("drawing", done, len(pictures))
        drawn[picture.name] = draw(picture)
        files[f"figures/{picture.name}.svg"] = drawn[picture.name].svg
        files[f"figures/{picture.name}.png"] = drawn[picture.name].png
    files["diagnosis.json"] = as_json(diagnosis, command)
    sign, badge = BADGES[diagnosis.verdict.answer]
    page = render(
        TEMPLATES,
        "diagnosis.html",
        title=f"Diagnosis of {plain(diagnosis.log)}",
        skip=("verdict", "Skip to the verdict"),
        contents=[*((s.name, s.title) for s in content), ("how", "How it was computed")],
        d=diagnosis,
        sign=sign,
        badge=badge,
        numbers=main_numbers(diagnosis),
        colours=colours(len(diagnosis.arms)),
        sections=content,
        drawn=drawn,
        facts=[
            ("Rows", f"{diagnosis.rows:,} in the log, {diagnosis.full_depth:,} with every output"),
            ("Fitted on", plural(diagnosis.used, "row")),
            ("Labels", plural(diagnosis.labelled, "row") if diagnosis.labelled else "none"),
            ("Context", join_list([code(name) for name in diagnosis.context]) or "none"),
            *((f"Column {name}", encoding) for name, encoding in diagnosis.columns.items()),
            ("Seed", str(diagnosis.seed)),
            ("Stopwise", __version__),
        ],
        command=command,
        compare=replay_command(diagnosis, command),
    )
    files[PAGE] = page.encode()
    write_files(folder, files)
    progress("drawing", len(pictures), len(pictures))
    return folder / PAGE


def write_label_rows(log: Log, rows: Sequence[int], path: Path) -> None:
    """Write the rows to label (`LabelPlan.rows`) as CSV, numbered from 1.

    The label columns are empty: ``right.<arm>`` for each arm if the log has such columns, otherwise
    ``label``.
    """
    labels = [RIGHT + arm for arm in log.arms] if log.layout.right else ["label"]
    texts = log.read_cells(["id", "time", *log.layout.outputs], rows)
    header, cells = texts[0], texts[1:]
    empty = [""] * len(labels)
    lines = [[str(row + 1), *row_cells, *empty] for row, row_cells in zip(rows, cells, strict=True)]
    write_file(path, b"".join(map(csv_line, [["row", *header, *labels], *lines])))


def replay_command(diagnosis: Diagnosis, command: str) -> str:
    """Return the `stopwise replay` command for the same log as a `stopwise diagnose` command."""
    labels = " --labels 100" if diagnosis.labelled else ""
    return f"{command.replace('diagnose', 'replay', 1)} --answers{labels}"
