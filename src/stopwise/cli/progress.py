"""How far a long command is, on stderr: a bar at a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import Self

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

from stopwise.reporting.wording import clock

EVERY_SECONDS = 10.0
EVERY_SHARE = 0.1


class Bar:
    """A progress bar for each stage; ``report`` is what long work calls."""

    def __init__(self, console: Console) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            expand=True,
        )

    def report(self, stage: str, done: int, of: int) -> None:
        """Show how much of a stage is done."""
        if of:
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(stage, total=of, completed=done)
            self._progress.update(self._tasks[stage], completed=done, total=of)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._progress.stop()


class Lines:
    """Plain lines, for a file or a pipe: no colours, nothing drawn over."""

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._stage = ""
        self._began = self._said = 0.0  # when the stage began, and when its last line was written
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
            now - self._said >= EVERY_SECONDS or share - self._share >= EVERY_SHARE or done == of
        ):
            return
        self._said, self._share = now, share
        elapsed, line = now - self._began, f"{stage} {done}/{of}"
        line += f", {clock(elapsed)}"
        if self._stored < done < of:
            line += f", about {clock(elapsed / (done - self._stored) * (of - done))} left"
        self._write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        pass


def follow() -> Bar | Lines:
    """Choose how to show progress on stderr."""
    console = Console(stderr=True)
    if console.is_terminal:
        return Bar(console)
    return Lines(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
