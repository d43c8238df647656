"""How far a long command is, on stderr: a bar at a terminal, plain lines elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial

import typer
from rich import progress as bars
from rich.console import Console

from stopwise.progress import Progress
from stopwise.reporting.wording import duration

EVERY_SECONDS = 10.0
EVERY_SHARE = 0.1


@contextmanager
def show_progress(after: str = "") -> Generator[Progress]:
    """Show progress on stderr; long work calls what this yields. Ctrl-C ends it with a sentence.

    ``after`` says what an interrupt has left.
    """
    console = Console(stderr=True)
    stage, bar = bars.TextColumn("{task.description}"), bars.BarColumn(bar_width=None)
    times = (bars.TimeElapsedColumn(), bars.TimeRemainingColumn(), bars.TextColumn("left"))
    columns = (stage, bar, bars.MofNCompleteColumn(), *times)
    shown = bars.Progress(*columns, console=console, expand=True, disable=not console.is_terminal)
    try:
        with shown if console.is_terminal else nullcontext():
            yield partial(report, shown)
    except KeyboardInterrupt:
        typer.echo(f"stopwise: interrupted. {after}".rstrip(), err=True)
        raise typer.Exit(1) from None


def report(shown: bars.Progress, stage: str, done: int, of: int) -> None:
    """Show how much of a stage is done: where bars are disabled in a plain line, if it is time."""
    if not of:
        return
    task = next((task for task in shown.tasks if task.description == stage), None)
    if task is None:
        # what an earlier command has done took no time now
        shown.add_task(stage, total=of, completed=done, stored=done, written=0.0, share=-1.0)
        task = shown.tasks[-1]
    shown.update(task.id, completed=done, total=of)
    elapsed, share, last = task.elapsed or 0.0, done / of, task.fields
    due = elapsed - last["written"] >= EVERY_SECONDS or share - last["share"] >= EVERY_SHARE
    if not shown.disable or last["share"] == 1.0 or not (due or done == of):
        return
    shown.update(task.id, written=elapsed, share=share)
    line = f"{stage} {done}/{of}, {duration(elapsed)}"
    if last["stored"] < done < of:
        line += f", about {duration(elapsed / (done - last['stored']) * (of - done))} left"
    shown.console.print(line, markup=False, highlight=False, soft_wrap=True)
