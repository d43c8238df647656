"""Where numbers come from: the machine, the versions, the seeds. Never who or where on it."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version

from stopwise.reporting.wording import duration, plural
from stopwise.version import __version__

Facts = tuple[tuple[str, str], ...]


def provenance(started: datetime, seconds: float, seeds: str, engine: str, jobs: int) -> Facts:
    """Return what somebody who repeats a reproduction has to know, as names and words."""
    packages = [f"{name} {version(name)}" for name in ("numpy", "matplotlib")]
    system = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        ("Started", f"{started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("Took", f"{duration(seconds)}, not counting runs stored before"),
        ("Seeds", seeds),
        ("Engine", f"{engine}, {jobs} at a time"),
        ("System", f"{system}, {plural(os.cpu_count() or 1, 'core')}, {python}"),
        ("Versions", ", ".join([f"stopwise {__version__}", *packages])),
    )
