"""How far a long command is: a bar at a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from stopwise.cli.wording import clock

EVERY_SECONDS = 10.0
EVERY_SHARE = 0.1


class Stage:
    """One stage of the work: how long it took, and will take.

    Examples
    --------
    >>> now = iter([0.0, 30.0, 30.0])
    >>> stage = Stage("running", done=40, clock=lambda: next(now))
    >>> stage.left(done=60, of=100)
    60.0
    """

    def __init__(self, name: str, done: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._clock = clock
        self._began = clock()
        self._kept = done  # stored by an earlier command: that took no time now

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._began

    def left(self, done: int, of: int) -> float | None:
        """Return the seconds to come, at the pace of the whole stage; None before there is one."""
        if done <= self._kept:
            return None
        return self.elapsed / (done - self._kept) * (of - done)


class Bar:
    """A progress bar for each stage; ``report`` is what long work calls."""

    def __init__(self, console: Console) -> None:
        self._stages: dict[str, tuple[Stage, int]] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            _Times(self._stages),
            console=console,
            expand=True,
        )

    def report(self, stage: str, done: int, of: int) -> None:
        """Show how much of a stage is done."""
        if not of:
            return
        if stage not in self._stages:
            number = self._progress.add_task(stage, total=of, completed=done)
            self._stages[stage] = Stage(stage, done), number
        self._progress.update(self._stages[stage][1], completed=done, total=of)  # pyright: ignore[reportArgumentType] (a TaskID is an int)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


class Lines:
    """Plain lines, for a file or a pipe: no colours, nothing drawn over."""

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._stage: Stage | None = None
        self._said = (0.0, 0.0)

    def report(self, stage: str, done: int, of: int) -> None:
        """Say how much of a stage is done, if it is time to."""
        if not of:
            return
        fresh = self._stage is None or self._stage.name != stage
        if self._stage is None or fresh:
            self._stage = Stage(stage, done, self._clock)
        when, share = self._clock(), done / of
        last = self._said
        due = when - last[0] >= EVERY_SECONDS or share - last[1] >= EVERY_SHARE or done == of
        if not fresh and (not due or last[1] == 1.0):
            return
        self._said = when, share
        left = self._stage.left(done, of)
        rest = f", about {clock(left)} left" if left is not None and done < of else ""
        self._write(f"{stage} {done}/{of}, {clock(self._stage.elapsed)}{rest}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        pass


class _Times(ProgressColumn):
    """Time taken and time left."""

    max_refresh = 0.5

    def __init__(self, stages: dict[str, tuple[Stage, int]]) -> None:
        super().__init__()
        self._stages = stages
        self._final: dict[int, str] = {}

    def render(self, task: Task) -> Text:
        if task.id in self._final:
            return Text(self._final[task.id])
        stage, _ = self._stages.get(task.description, (None, 0))
        if stage is None:
            return Text("")
        if task.finished:
            self._final[task.id] = clock(stage.elapsed)
            return Text(self._final[task.id])
        left = stage.left(int(task.completed), int(task.total or 0))
        return Text(f"{clock(stage.elapsed)}, {'?' if left is None else clock(left)} left")


def follow(console: Console) -> Bar | Lines:
    """Choose how to show progress on this console."""
    if console.is_terminal:
        return Bar(console)
    return Lines(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
