"""How far a long command is, on stderr: a bar at a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stopwise import records
from stopwise.reporting.wording import duration

EVERY_SECONDS = 10.0
EVERY_SHARE = 0.1


class Lines:
    """Plain lines, for a file or a pipe: no colours, nothing drawn over."""

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._stage = ""
        self._began = self._written = 0.0  # when the stage began, and its last line was written
        self._stored = 0  # done by an earlier command, which took no time now
        self._share = 0.0  # of the last line

    def report(self, stage: str, done: int, of: int) -> None:
        """Write how much of a stage is done, if it is time to."""
        if not of:
            return
        now, share = self._clock(), done / of
        if stage != self._stage:
            self._stage, self._began, self._stored = stage, now, done
        elif self._share == 1.0 or not (
            now - self._written >= EVERY_SECONDS or share - self._share >= EVERY_SHARE or done == of
        ):
            return
        self._written, self._share = now, share
        elapsed = now - self._began
        line = f"{stage} {done}/{of}, {duration(elapsed)}"
        if self._stored < done < of:
            line += f", about {duration(elapsed / (done - self._stored) * (of - done))} left"
        self._write(line)


@contextmanager
def follow(after: str = "") -> Generator[records.Progress]:
    """Show progress on stderr; long work calls what this yields. Ctrl-C ends it with a sentence.

    ``after`` says what an interrupt has left.
    """
    try:
        with _shown() as report:
            yield report
    except KeyboardInterrupt:
        typer.echo(f"stopwise: interrupted. {after}".rstrip(), err=True)
        raise typer.Exit(1) from None


@contextmanager
def _shown() -> Generator[records.Progress]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(partial(console.print, markup=False, highlight=False, soft_wrap=True)).report
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left"))
    with Progress(*columns, *times, console=console, expand=True) as bar:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, of: int) -> None:
            if of:
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=of, completed=done)
                bar.update(tasks[stage], completed=done, total=of)

        yield report
