"""Tables for stdout, results as JSON, and facts about the machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"

_PACKAGES = (
    "stopwise",
    "numpy",
    "vowpalwabbit",
    "river",
    "mabwiser",
    "scikit-learn",
)

_CODE = {".py", ".cpp", ".hpp", ".h", ".so", ".pyd"}


def machine() -> dict[str, str]:
    """Return versions, cores and a hash of the sources; nothing identifies the machine."""
    facts = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "sources": _sources(),
    }
    facts |= {package: _version(package) for package in _PACKAGES}
    facts["numba (references only)"] = _version("numba")
    return facts


def header(facts: dict[str, str]) -> str:
    """Return the facts about the machine as two lines of text."""
    return (
        "  ".join(f"{name} {version}" for name, version in facts.items())
        + "\nCPU time of the process, BLAS on one thread, the references compiled beforehand"
    )


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> str:
    """Return a table as text: the first column left-aligned, the others right-aligned."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]

    def line(values: Sequence[str]) -> str:
        first, *others = values
        padded = [value.rjust(width) for value, width in zip(others, widths[1:], strict=True)]
        return "  ".join([first.ljust(widths[0]), *padded]).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    lines = ["", title, rule, line(columns), rule, *map(line, cells), rule]
    return "\n".join([*lines, note] if note else lines)


def write(name: str, facts: dict[str, str], result: dict[str, Any]) -> Path:
    """Write the result of a benchmark to ``benchmarks/results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": facts, **result}, indent=2, ensure_ascii=False) + "\n")
    return path


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from source" if find_spec(package) else "not installed"


def _sources() -> str:
    """Return a hash of the measured code: Stopwise, its extension module, and the references."""
    files = list(Path(__file__).parent.glob("*reference.py"))
    stopwise = find_spec("stopwise")
    for folder in (stopwise and stopwise.submodule_search_locations) or ():
        files += [path for path in Path(folder).rglob("*") if path.suffix in _CODE]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _text(value: Any) -> str:
    """Return a value as text: three or four digits, thousands separators, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
