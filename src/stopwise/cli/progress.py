"""How far a long command is, on stderr: a bar at a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

import typer
from rich import progress as bars
from rich.console import Console

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
    console = Console(stderr=True)
    write = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    stage, bar = bars.TextColumn("{task.description}"), bars.BarColumn(bar_width=None)
    times = (bars.TimeElapsedColumn(), bars.TimeRemainingColumn(), bars.TextColumn("left"))
    columns = (stage, bar, bars.MofNCompleteColumn(), *times)
    tasks: dict[str, bars.TaskID] = {}
    try:
        if not console.is_terminal:
            yield Lines(write).report
            return
        with bars.Progress(*columns, console=console, expand=True) as shown:

            def report(stage: str, done: int, of: int) -> None:
                if of:
                    if stage not in tasks:
                        tasks[stage] = shown.add_task(stage, total=of, completed=done)
                    shown.update(tasks[stage], completed=done, total=of)

            yield report
    except KeyboardInterrupt:
        typer.echo(f"stopwise: interrupted. {after}".rstrip(), err=True)
        raise typer.Exit(1) from None
