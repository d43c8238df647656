"""Where numbers come from: the machine, the versions, the seeds. Never who or where on it."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from stopwise.reporting.wording import duration, plural
from stopwise.version import __version__

Facts = tuple[tuple[str, str], ...]


def provenance(started: datetime, seconds: float, seeds: str, engine: str, jobs: int) -> Facts:
    """Return what somebody who repeats a reproduction has to know, as names and words.

    Examples
    --------
    >>> facts = provenance(datetime(2024, 5, 1, 12, tzinfo=UTC), 1.5, "0 to 99", "threads", 2)
    >>> facts[0], facts[3]
    (('Started', '2024-05-01 12:00:00 UTC'), ('Engine', 'threads, 2 at a time'))
    """
    packages = [f"{name} {version(name)}" for name in ("numpy", "matplotlib")]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        ("Started", f"{started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("Took", f"{duration(seconds)}, not counting runs stored before"),
        ("Seeds", seeds),
        ("Engine", f"{engine}, {jobs} at a time"),
        ("Processor", f"{_processor()}, {plural(os.cpu_count() or 1, 'core')}"),
        ("System", f"{platform.system()} {platform.machine()}, {python}"),
        ("Versions", ", ".join([f"stopwise {__version__}", *packages])),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or "unknown"
