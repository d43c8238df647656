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
STORE = "SQLite file, or postgresql://user@host/database (password in PGPASSWORD)."
Address: TypeAlias = Annotated[
    str, typer.Argument(metavar="STORE", envvar="STOPWISE_STORE", help=STORE, show_envvar=True)
]
Cascade: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Cascade; optional if there is only one."),
]
SAVE = "Save the cascade's policy to this file, for stopwise.load."
OUT = "Output file, .parquet, .csv or .jsonl. Required."
CONTEXTS = "plain: write the contexts. none: omit them, because they may be personal data."
DEFAULT = "stopwise.db"  # the default of the setting `store`

store = typer.Typer(no_args_is_help=True)


@store.callback()
def store_() -> None:
    """Read, check, export and compact the event log of a service.

    The event log contains all data of a service. It is the file stopwise.db or a PostgreSQL
    database. All commands work while the service is running.

        stopwise store verify

        stopwise store export --cascade triage --out triage.parquet

    Exit codes: 0 success, 1 damaged log or failure, 2 usage error.
    """


@store.command()
def verify(
    store: Address = DEFAULT,
    cascade: Cascade = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help=SAVE)] = None,
) -> None:
    """Verify the event log and summarise its contents.

    Checks that no event was changed, is missing or contradicts an earlier one, recomputes every
    decision, and compares each snapshot bit for bit with the recomputed state. Stops at the first
    error, with exit code 1. The state hash equals that of the service (GET /v1/state) after the
    same event.

        stopwise store verify stopwise.db

        stopwise store verify --cascade triage --save triage.stopwise

    The saved policy is an exact copy of the service's: stopwise.load("triage.stopwise") loads it.
    """
    from stopwise.files import private_file
    from stopwise.service.tools.log_reader import select_cascade
    from stopwise.service.tools.verification import verify as run

    if cascade is not None and save is None:
        raise typer.BadParameter("requires --save FILE", param_hint="--cascade")
    verified = _run_on_store(store, run)
    if save is not None:
        with private_file(save) as path:
            select_cascade(verified.state, cascade).policy.save(path)
    if not verified.end:
        typer.echo("The log is empty.")
        return
    events = verified.end - verified.first + 1
    if events:
        contents = f"events {verified.first:,} to {verified.end:,}"
    else:
        contents = "a snapshot and no events"
    lines = [f"The log is complete: {contents}.{_compacted(verified.first)}"]
    if verified.times:
        lines.append(f"Written: {' to '.join(map(_time, verified.times))}.")
    if events > verified.applied:
        skipped = plural(events - verified.applied, "event")
        lines.append(f"{skipped} before the first snapshot: decoded but not applied.")
    notes = {
        "equal": "identical to the recomputed state",
        "not compared": "not compared (from another version, or older than the first event)",
    }
    for position, comparison in verified.snapshots.items():
        lines.append(f"Snapshot at event {position:,}: {notes[comparison]}.")
    for name, n in verified.divergences.items():
        lines.append(
            f"{name}: this version would have made {plural(n, 'decision')} differently. The log is "
            "not damaged: another version of Stopwise wrote it, and the recorded decisions count."
        )
    _print(*lines, f"State hash: {verified.hash}", *_cascades(verified.state))
    if save is not None:
        _print("", f"Wrote the policy to {save}.")


@store.command()
def export(
    store: Address = DEFAULT,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=OUT)] = None,
    cascade: Cascade = None,
    contexts: Annotated[Literal["plain", "none"], typer.Option(help=CONTEXTS)] = "plain",
) -> None:
    r"""Export the rounds of a cascade as a log for other commands.

    The log has one row per round, in learning order, with its context, outputs, stop and label.
    Only you can read the file. If the event log is damaged, nothing is written.

        stopwise store export --cascade triage --out triage.parquet

        stopwise diagnose triage.parquet --costs 0.01,0.24,0.25
    """
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.service.tools.export import export_rounds

    if out is None:
        raise typer.BadParameter("missing; for example --out rounds.parquet", param_hint="--out")
    exported = _run_on_store(
        store, lambda log, progress: export_rounds(log, out, cascade, contexts, progress)
    )
    n = exported.counts
    _print(
        f"Wrote {out}: {plural(n['written'], 'round')}; {n['labelled']:,} with labels, "
        f"{n['failed']:,} ended early, {n['complete']:,} with the outputs of all arms.",
        f"Skipped: {n['open']:,} open, {n['expired']:,} expired, {n['lost']:,} opened before the "
        "first event in the log.",
    )
    if exported.as_json:
        _print("Outputs are written as JSON text, because their types differ.")
    if n["complete"] >= LEAST_ROWS:
        costs = ",".join(f"{cost:.6g}" for cost in exported.costs)
        command = ["stopwise", "diagnose", str(out), "--costs", costs]
        if exported.without_context:
            command += ["--context", ""]
        _print(f"Next: {shlex.join(command)}")
    else:
        _print(
            f"Too few rounds for stopwise diagnose, which requires {LEAST_ROWS} with the outputs "
            "of all arms; set the policy parameter explore to collect such rounds."
        )


@store.command()
def compact(
    store: Address = DEFAULT,
    keep_days: Annotated[
        float, typer.Option(metavar="N", min=0, help="Keep the events of the last N days.")
    ] = 30.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete old events; a snapshot preserves the state.

    Verifies the complete log first. Rounds whose opening is among the deleted events can then no
    longer be looked up or labelled, and their contexts are gone. Nothing else changes. Make a
    backup before you compact.

        stopwise store compact stopwise.db --keep-days 90
    """
    from stopwise.service.tools.compaction import compact as run
    from stopwise.service.tools.compaction import plan

    planned = _run_on_store(store, lambda log, progress: plan(log, keep_days, progress=progress))
    if not planned.events:
        _print(f"Nothing to delete: no event is older than {keep_days:g} days.")
        return
    events = plural(planned.events, "event")
    _print(
        f"This deletes {events}, written until {_time(planned.until)}.",
        "Rounds opened in them can then no longer be looked up or labelled, and their contexts",
        "are gone from the log. Outputs of open rounds can still be reported.",
        "The state can then be restored only from the snapshot; make a backup first.",
    )
    if planned.verified.divergences:
        _print(
            "This version of Stopwise decides differently from the one that wrote the log (see "
            "stopwise store verify); run compact with the version that the service uses."
        )
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("required if the input is not a terminal", param_hint="--yes")
        typer.confirm("Delete them?", abort=True)
    position = _run_on_store(store, lambda log, progress: run(log, planned, progress))
    _print(f"Deleted {events}. The state is in the snapshot at event {position:,}.")


def _run_on_store(address: str, work: "Callable[[EventStore, Progress], Awaitable[T]]") -> T:
    """Open a store, run work on it and show its progress."""
    from stopwise.cli.progress import show_progress
    from stopwise.service.persistence.stores.opening import open_existing_store

    async def run(progress: "Progress") -> T:
        async with open_existing_store(address) as store:
            return await work(store, progress)

    with show_progress() as progress:
        return asyncio.run(run(progress))


def _compacted(first: int) -> str:
    return f" Events 1 to {first - 1:,} were compacted away." if first > 1 else ""


def _cascades(state: "State") -> list[str]:
    """Return a summary of each cascade, as lines."""
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
