"""Where numbers come from: the machine, the versions, the seeds. Never who or where on it."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from stopwise.reporting.wording import duration
from stopwise.version import __version__

PACKAGES = ("numpy", "matplotlib")


class Provenance(msgspec.Struct, frozen=True):
    """What somebody who wants to repeat a reproduction has to know.

    Attributes
    ----------
    started : str
        Date and time in UTC, to the second.
    seconds : float
        How long it took by the clock.
    seeds : str
        Which seeds, in words.
    engine : str
        What did the runs.
    jobs : int
        How many at a time.
    python, system : str
        The version of Python; the operating system and the kind of machine.
    processor : str
        The model; "unknown" where the system does not say.
    cores : int
        Processors this process may use.
    memory : float
        In GiB; NaN where the system does not say.
    versions : tuple of (name, version)
        Of stopwise and what computes and draws.
    """

    started: str
    seconds: float
    seeds: str
    engine: str
    jobs: int
    python: str
    system: str
    processor: str
    cores: int
    memory: float
    versions: tuple[tuple[str, str], ...]


def gather(
    started: datetime, seconds: float, seeds: str, engine: str = "in-process", jobs: int = 1
) -> Provenance:
    """Look at this machine and write down what it is.

    Parameters
    ----------
    started : datetime
        When the reproduction began, with a time zone.
    seconds, seeds, engine, jobs
        As in `Provenance`.

    Examples
    --------
    >>> found = gather(datetime(2024, 5, 1, 12, tzinfo=UTC), 1.5, "0 to 99")
    >>> found.started, [name for name, _ in found.versions]
    ('2024-05-01 12:00:00 UTC', ['stopwise', 'numpy', 'matplotlib'])
    """
    return Provenance(
        started=f"{started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        seconds=seconds,
        seeds=seeds,
        engine=engine,
        jobs=jobs,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=_cores(),
        memory=_memory(),
        versions=(
            ("stopwise", __version__),
            *((name, _version(name)) for name in PACKAGES),
        ),
    )


def facts(provenance: Provenance) -> tuple[tuple[str, str], ...]:
    """Return the provenance as names and words, in the order of the report."""
    memory = f", {provenance.memory:.0f} GiB" if provenance.memory > 0 else ""
    cores = "1 core" if provenance.cores == 1 else f"{provenance.cores} cores"
    return (
        ("Started", provenance.started),
        ("Took", f"{duration(provenance.seconds)}, not counting runs kept from before"),
        ("Seeds", provenance.seeds),
        ("Engine", f"{provenance.engine}, {provenance.jobs} at a time"),
        ("Processor", f"{provenance.processor}, {cores}{memory}"),
        ("System", f"{provenance.system}, {provenance.python}"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in provenance.versions)),
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or "unknown"


def _cores() -> int:
    mine = getattr(os, "sched_getaffinity", None)
    return len(mine(0)) if mine else os.cpu_count() or 1


def _memory() -> float:
    if sys.platform == "win32":
        return float("nan")
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError):
        return float("nan")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
