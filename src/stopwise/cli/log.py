"""``stopwise log``: read, check, export and compact the event log of a service."""

import asyncio
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

if TYPE_CHECKING:
    from stopwise.service.state import State
    from stopwise.service.store.base import EventStore
    from stopwise.service.tools.reading import Progress

T = TypeVar("T")
Where: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        envvar="STOPWISE_STORE",
        help="The log: an SQLite file, or postgresql://user@host/database (the password in "
        "PGPASSWORD).",
        show_envvar=True,
    ),
]
Cascade: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cascade",
        metavar="NAME",
        help="Which one; may be left out if there is only one.",
        show_default=False,
    ),
]
DEFAULT = "stopwise.db"  # as in the settings of the service

log = typer.Typer(no_args_is_help=True)


@log.callback()
def log_() -> None:
    """Read, check, export and compact the event log of a service.

    All data of a service is in its log: a file, stopwise.db, or a PostgreSQL database. Every
    command works while the service is running.

        stopwise log info

        stopwise log verify

        stopwise log export --cascade triage --out triage.parquet

    Exit codes: 0 for success, 1 for damage or failure, 2 where the command, or what it names, is
    wrong.
    """


@log.command()
def info(store: Where = DEFAULT) -> None:
    """Show what a log holds: events, cascades, snapshots, times.

    stopwise log info stopwise.db
    """
    from stopwise.service.tools.reading import inspect

    found = _with(store, inspect)
    if not found.end:
        typer.echo("The log is empty.")
        return
    gone = f"; events 1 to {found.first - 1:,} were compacted away" if found.first > 1 else ""
    kinds = [f"{n:,} {kind}" for kind, n in found.kinds.items()]
    sizes = [f"at {position:,} ({n:,} bytes)" for position, n in found.snapshots.items()]
    _print(
        f"{_counted(found.end - found.first + 1, 'event')} in {_counted(found.blocks, 'block')}, "
        f"{found.size:,} bytes{gone} (not checked: log verify does)",
        f"events: {', '.join(kinds) or 'none'}",
        f"written: {' to '.join(map(_time, found.times)) or 'none'}",
        f"snapshots: {', '.join(sizes) or 'none'}",
        *_cascades(found.state),
    )


@log.command()
def rebuild(
    store: Where = DEFAULT,
    cascade: Cascade = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the policy of a cascade there, as stopwise.load reads it.",
            show_default=False,
        ),
    ] = None,
    upto: Annotated[
        int | None,
        typer.Option(
            "--upto", metavar="N", min=0, help="Stop after event N.", show_default="the last"
        ),
    ] = None,
) -> None:
    """Rebuild the state from the events of a log, and show it.

    No snapshot is used, unless the log was compacted and begins with one. The state hash is that
    of the service (GET /v1/state) after the same event; equal hashes, equal states, bit for bit.

        stopwise log rebuild

        stopwise log rebuild --cascade triage --save triage.stopwise

    The saved policy decides and learns exactly as that of the service would: in Python,
    stopwise.load("triage.stopwise").
    """
    from stopwise.service.tools.checking import rebuild as run
    from stopwise.service.tools.reading import chosen, private_file

    if cascade is not None and save is None:
        raise typer.BadParameter("name a file with --save", param_hint="--cascade")

    async def work(log: "EventStore", progress: "Progress") -> "tuple[State, int]":
        state, began = await run(log, upto, progress)
        if save is not None:
            with private_file(save) as path:
                chosen(state, cascade).policy.save(path)
        return state, began

    state, began = _with(store, work)
    earlier = f", after the snapshot at event {began:,}: those before were compacted away"
    _print(
        f"Applied {_counted(state.position - began, 'event')}{earlier if began else ''}.",
        f"State hash: {state.hash()}",
        *_cascades(state),
        *([] if save is None else ["", f"Wrote the policy to {save}."]),
    )


@log.command()
def verify(store: Where = DEFAULT) -> None:
    """Check that a log is what was written, and that its snapshots agree with it.

    Every block has the digest of all before it; no acknowledged event may be missing; every event
    must be possible after those before it; every recorded decision is made again; every snapshot
    must equal the state after the events up to it, bit for bit. The first damage is reported, with
    exit code 1.

        stopwise log verify stopwise.db
    """
    from stopwise.service.tools.checking import verify as run

    found = _with(store, run)
    if not found.end:
        typer.echo("The log is empty.")
        return
    held = found.end - found.first + 1
    holds = f"events {found.first:,} to {found.end:,}" if held else "a snapshot, and no events"
    gone = f" Events 1 to {found.first - 1:,} were compacted away." if found.first > 1 else ""
    _print(f"The log is complete: {holds}.{gone}")
    if held > found.applied:
        _print(f"{_counted(held - found.applied, 'event')} before the first snapshot: only read.")
    notes = {
        "equal": "equal to the state after the events up to it, bit for bit",
        "not compared": "of another version, or older than the first event; not compared",
    }
    _print(*(f"Snapshot at event {at:,}: {notes[one]}." for at, one in found.snapshots.items()))
    for name, n in found.divergences.items():
        _print(
            f"{name}: {_counted(n, 'decision')} would differ here. This is no damage: another "
            "version of Stopwise decided, and the recorded decisions count."
        )
    _print(f"State hash: {found.hash}")


@log.command()
def export(
    store: Where = DEFAULT,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Needed: where to. Rounds are written as .parquet, .csv or .jsonl.",
            show_default=False,
        ),
    ] = None,
    cascade: Cascade = None,
    contexts: Annotated[
        Literal["plain", "none"],
        typer.Option("--contexts", help="As they are, or not at all: they may be personal."),
    ] = "plain",
    events: Annotated[
        bool, typer.Option("--events", help="Every event as a line of JSON, instead of rounds.")
    ] = False,
) -> None:
    r"""Write the rounds of a cascade as a log that other commands read.

    One row a round, in the order in which they were learned: context, outputs, where it stopped,
    and the label if there is one. Only you can read the file. Of a damaged log nothing is written.

        stopwise log export --cascade triage --out triage.parquet

        stopwise diagnose triage.parquet --costs 0.01,0.24,0.25

        stopwise log export --events --contexts none --out events.jsonl
    """
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.service.tools.exporting import export_events, export_rounds

    if out is None:
        raise typer.BadParameter("name a file, as in --out rounds.parquet", param_hint="--out")
    if events:
        n = _with(store, lambda log, p: export_events(log, out, cascade, contexts, p))
        _print(f"Wrote {out}: {_counted(n, 'event')}.")
        return
    done = _with(store, lambda log, p: export_rounds(log, out, cascade, contexts, p))
    n = done.counts
    _print(
        f"Wrote {out}: {_counted(n['written'], 'round')}; {n['labelled']:,} with labels, "
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
        _print(
            f"Too few for stopwise diagnose, which needs {LEAST_ROWS} rounds with the outputs of "
            "all arms; full_depth_every in the policy gives some."
        )


@log.command()
def compact(
    store: Where = DEFAULT,
    keep_days: Annotated[
        float,
        typer.Option("--keep-days", metavar="N", min=0, help="Keep the events of the last N days."),
    ] = 30.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete old events; the state stays, in a snapshot.

    The complete log is checked first. Afterwards the rounds opened in those events can no longer be
    looked up or labelled, and their contexts are gone from the log; nothing else changes, and a
    service that starts from the snapshot has the same state, bit for bit. Make a backup first.

        stopwise log compact stopwise.db --keep-days 90
    """
    from stopwise.service.tools.compacting import compact as run
    from stopwise.service.tools.compacting import plan

    planned = _with(store, lambda log, progress: plan(log, keep_days, progress=progress))
    if not planned.events:
        _print(f"No event is older than {keep_days:g} days: nothing to delete.")
        return
    _print(
        f"{_counted(planned.events, 'event')} would be deleted, written until "
        f"{_time(planned.until)}.",
        f"{_counted(planned.rounds, 'round')} opened in them could no longer be looked up or "
        "labelled, and their contexts",
        f"would be gone from the log; {planned.open:,} still open could be reported on all the "
        "same. The policy keeps",
        "the features of what it learned. The state could be rebuilt from the snapshot only: if",
        "that may matter, make a backup of the database first.",
    )
    if planned.verified.divergences:
        _print("This version decides differently (see stopwise log verify): use the one in use.")
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask; add --yes", param_hint="--yes")
        typer.confirm("Delete them?", abort=True)
    position = _with(store, lambda log, progress: run(log, planned, progress))
    _print(
        f"Deleted {_counted(planned.events, 'event')}. The snapshot at event {position:,} has the "
        "state."
    )


def _with(where: str, work: "Callable[[EventStore, Progress], Awaitable[T]]") -> T:
    """Do something that may take long with the log at an address; show progress at a terminal."""
    from rich.console import Console

    from stopwise.cli.progress import follow
    from stopwise.service.tools.reading import existing, no_progress

    async def run(progress: "Progress") -> T:
        async with existing(where) as store:
            return await work(store, progress)

    console = Console(stderr=True)
    if not console.is_terminal:
        return asyncio.run(run(no_progress))
    with follow() as bar:
        due = time.monotonic() + 1  # what takes less than a second needs no bar

        def progress(stage: str, done: int, of: int) -> None:
            nonlocal due
            if (now := time.monotonic()) >= due:
                due = now + 0.05
                bar.report(stage, done, of)

        return asyncio.run(run(progress))


def _cascades(state: "State") -> list[str]:
    """Return what each cascade has decided and learned, as text."""
    lines: list[str] = []
    for learner in state.order:
        view, tally, arms = learner.view(), learner.counts, learner.cascade.names
        kind = learner.policy.name + ("" if learner.status == "active" else ", retired")
        lines += ["", f"{learner.spec.name} ({kind}): {_counted(view.rounds, 'round')}, "]
        lines[-1] += f"{view.learned:,} learned, {view.open:,} open, {view.audited:,} labelled"
        if total := sum(view.stops):
            shares = "/".join(f"{100 * n / total:.0f}" for n in view.stops)
            cost = view.mean_cost or 0.0
            lines.append(f"  stops at {'/'.join(arms)}: {shares} %, mean cost {cost:.4g}")
        pairs = zip(learner.cascade.pairs(), tally.seen_total, tally.differed_total, strict=True)
        lines += [
            f"  {arms[i]} and {arms[j]}: both ran in {_counted(seen, 'round')}, disagreed in "
            f"{100 * differed / seen:.1f} %"
            for (i, j), seen, differed in pairs
            if seen
        ]
    return lines


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _print(*lines: str) -> None:
    for line in lines:
        typer.echo(line)
