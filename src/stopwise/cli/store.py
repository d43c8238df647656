"""``stopwise store``: read, check, export and compact the event log of a service."""

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

from stopwise.reporting.wording import plural

if TYPE_CHECKING:
    from stopwise.progress import Progress
    from stopwise.service.domain.state import State
    from stopwise.service.persistence.stores.base import EventStore

T = TypeVar("T")
STORE = "An SQLite file, or postgresql://user@host/database (password in PGPASSWORD)."
Where: TypeAlias = Annotated[
    str, typer.Argument(metavar="STORE", envvar="STOPWISE_STORE", help=STORE, show_envvar=True)
]
Cascade: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which cascade; not needed if there is only one.")
]
SAVE = "Save the policy of the cascade to this file, for stopwise.load."
OUT = "Needed: the file to write, .parquet, .csv or .jsonl."
CONTEXTS = "plain: write the contexts; none: leave them out, as they may be personal."
DEFAULT = "stopwise.db"  # as in the settings of the service

store = typer.Typer(no_args_is_help=True)


@store.callback()
def store_() -> None:
    """Read, check, export and compact the event log of a service.

    All data of a service is in its log: a file, stopwise.db, or a PostgreSQL database. Every
    command works while the service is running.

        stopwise store verify

        stopwise store export --cascade triage --out triage.parquet

    Exit codes: 0 for success, 1 for damage or failure, 2 if the command is wrong.
    """


@store.command()
def verify(
    store: Where = DEFAULT,
    cascade: Cascade = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help=SAVE)] = None,
) -> None:
    """Check that a log is what was written, and show what it holds.

    No event may have changed, be missing, or contradict those before it; every decision is computed
    again; every snapshot must equal the state after the events up to it, bit for bit. The first
    damage is reported, with exit code 1. The state hash is that of the service (GET /v1/state)
    after the same event; equal hashes, equal states.

        stopwise store verify stopwise.db

        stopwise store verify --cascade triage --save triage.stopwise

    The saved policy decides and learns as that of the service: stopwise.load("triage.stopwise").
    """
    from stopwise.files import private_file
    from stopwise.service.tools.log_reader import chosen
    from stopwise.service.tools.verification import verify as run

    if cascade is not None and save is None:
        raise typer.BadParameter("name a file with --save", param_hint="--cascade")
    found = _with(store, run)
    if save is not None:
        with private_file(save) as path:
            chosen(found.state, cascade).policy.save(path)
    if not found.end:
        typer.echo("The log is empty.")
        return
    held = found.end - found.first + 1
    holds = f"events {found.first:,} to {found.end:,}" if held else "a snapshot, and no events"
    lines = [f"The log is complete: {holds}.{_compacted(found.first)}"]
    if found.times:
        lines.append(f"Written: {' to '.join(map(_time, found.times))}.")
    if held > found.applied:
        lines.append(
            f"{plural(held - found.applied, 'event')} before the first snapshot: only read."
        )
    notes = {
        "equal": "equal to the state after the events up to it, bit for bit",
        "not compared": "of another version, or older than the first event; not compared",
    }
    lines += [f"Snapshot at event {at:,}: {notes[one]}." for at, one in found.snapshots.items()]
    lines += [
        f"{name}: {plural(n, 'decision')} would differ here. This is no damage: another version of "
        "Stopwise decided, and the recorded decisions count."
        for name, n in found.divergences.items()
    ]
    _print(*lines, f"State hash: {found.hash}", *_cascades(found.state))
    if save is not None:
        _print("", f"Wrote the policy to {save}.")


@store.command()
def export(
    store: Where = DEFAULT,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=OUT)] = None,
    cascade: Cascade = None,
    contexts: Annotated[Literal["plain", "none"], typer.Option(help=CONTEXTS)] = "plain",
) -> None:
    r"""Write the rounds of a cascade as a log that other commands read.

    One row per round, in the order in which they were learned: context, outputs, where it stopped,
    and the label if there is one. Only you can read the file. Of a damaged log nothing is written.

        stopwise store export --cascade triage --out triage.parquet

        stopwise diagnose triage.parquet --costs 0.01,0.24,0.25
    """
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.service.tools.export import export_rounds

    if out is None:
        raise typer.BadParameter("name a file, as in --out rounds.parquet", param_hint="--out")
    done = _with(store, lambda log, p: export_rounds(log, out, cascade, contexts, p))
    n = done.counts
    _print(
        f"Wrote {out}: {plural(n['written'], 'round')}; {n['labelled']:,} with labels, "
        f"{n['failed']:,} that ended early, {n['complete']:,} with the outputs of all arms.",
        f"Left out: {n['open']:,} open, {n['expired']:,} expired, {n['lost']:,} that began before "
        "the first event.",
    )
    if done.as_json:
        _print("Outputs are written as JSON in text: they are not all text or all numbers.")
    if n["complete"] >= LEAST_ROWS:
        costs = ",".join(f"{cost:.6g}" for cost in done.costs)
        none = ["--context", ""] if done.bare else []
        _print(f"Next: {shlex.join(['stopwise', 'diagnose', str(out), '--costs', costs, *none])}")
    else:
        few = f"Too few for stopwise diagnose, which needs {LEAST_ROWS} with all outputs"
        _print(f"{few}; explore in the policy gives some.")


@store.command()
def compact(
    store: Where = DEFAULT,
    keep_days: Annotated[
        float, typer.Option(metavar="N", min=0, help="Keep the events of the last N days.")
    ] = 30.0,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete old events; the state stays, in a snapshot.

    The complete log is checked first. Rounds opened in those events can no longer be looked up or
    labelled, and their contexts are gone from the log; nothing else changes. Make a backup first.

        stopwise store compact stopwise.db --keep-days 90
    """
    from stopwise.service.tools.compaction import compact as run
    from stopwise.service.tools.compaction import plan

    planned = _with(store, lambda log, progress: plan(log, keep_days, progress=progress))
    if not planned.events:
        _print(f"No event is older than {keep_days:g} days: nothing to delete.")
        return
    events = plural(planned.events, "event")
    _print(
        f"{events}, written until {_time(planned.until)}, would be deleted.",
        "Rounds opened in them could no longer be looked up or labelled, and their contexts",
        "would be gone from the log; those still open could be reported on.",
        "The state could be rebuilt from the snapshot only: make a backup first if that matters.",
    )
    if planned.verified.divergences:
        _print("This version decides differently (see stopwise store verify): use the one in use.")
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask; add --yes", param_hint="--yes")
        typer.confirm("Delete them?", abort=True)
    at = _with(store, lambda log, progress: run(log, planned, progress))
    _print(
        f"Deleted {plural(planned.events, 'event')}. The snapshot at event {at:,} has the state."
    )


def _with(where: str, work: "Callable[[EventStore, Progress], Awaitable[T]]") -> T:
    """Do something with the log at an address, and show progress."""
    from stopwise.cli.progress import show_progress
    from stopwise.service.persistence.stores.opening import open_existing_store

    async def run(progress: "Progress") -> T:
        async with open_existing_store(where) as store:
            return await work(store, progress)

    with show_progress() as progress:
        return asyncio.run(run(progress))


def _compacted(first: int) -> str:
    return f" Events 1 to {first - 1:,} were compacted away." if first > 1 else ""


def _cascades(state: "State") -> list[str]:
    """Return what each cascade has decided and learned, as text."""
    lines: list[str] = []
    for cascade in state.order:
        view, arms = cascade.view(), cascade.arms.names
        kind = cascade.policy.name + ("" if cascade.status == "active" else ", retired")
        counts = f"{view.learned:,} learned, {view.open:,} open, {view.labelled:,} labelled"
        lines += ["", f"{cascade.spec.name} ({kind}): {plural(view.rounds, 'round')}, {counts}"]
        if total := sum(view.stops):
            shares = "/".join(f"{100 * n / total:.0f}" for n in view.stops)
            cost = view.mean_cost or 0.0
            lines.append(f"  stops at {'/'.join(arms)}: {shares} %, mean cost {cost:.4g}")
    return lines


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _print(*lines: str) -> None:
    typer.echo("\n".join(lines))
