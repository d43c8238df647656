"""Progress on stderr: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial

import typer
from rich import progress as bars
from rich.console import Console

from stopwise.progress import Progress
from stopwise.reporting.wording import duration

# A plain line is printed after this time, or after this share of the work.
LINE_SECONDS = 10.0
LINE_SHARE = 0.1


@contextmanager
def show_progress(after_interrupt: str = "") -> Generator[Progress]:
    """Yield a callback that shows progress on stderr, and exit with a message on Ctrl-C.

    ``after_interrupt`` is appended to that message; for example, "Nothing was written."
    """
    console = Console(stderr=True)
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=None),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left"),
    )
    shown = bars.Progress(*columns, console=console, expand=True, disable=not console.is_terminal)
    try:
        with shown if console.is_terminal else nullcontext():
            yield partial(report, shown)
    except KeyboardInterrupt:
        typer.echo(f"stopwise: interrupted. {after_interrupt}".rstrip(), err=True)
        raise typer.Exit(1) from None


def report(shown: bars.Progress, stage: str, done: int, of: int) -> None:
    """Update the bar of a stage, or print a plain line when one is due."""
    if not of:
        return
    task = next((task for task in shown.tasks if task.description == stage), None)
    if task is None:
        # work done by an earlier run does not count toward the speed of this one
        shown.add_task(stage, total=of, completed=done, stored=done, written=0.0, share=-1.0)
        task = shown.tasks[-1]
    shown.update(task.id, completed=done, total=of)
    elapsed = task.elapsed or 0.0
    share = done / of
    last = task.fields
    due = elapsed - last["written"] >= LINE_SECONDS or share - last["share"] >= LINE_SHARE
    if not shown.disable or last["share"] == 1.0 or not (due or done == of):
        return
    shown.update(task.id, written=elapsed, share=share)
    line = f"{stage} {done}/{of}, {duration(elapsed)}"
    if last["stored"] < done < of:
        line += f", about {duration(elapsed / (done - last['stored']) * (of - done))} left"
    shown.console.print(line, markup=False, highlight=False, soft_wrap=True)
