"""``stopwise log``: read, check, export, copy and shorten the event log of a service."""

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

from stopwise.errors import InvalidParameterError

if TYPE_CHECKING:
    from stopwise.service.state import State
    from stopwise.service.store.base import Store
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
    """Read, check, export, copy and shorten the event log of a service.

    All data of a service is in its log: a file, stopwise.db, or a PostgreSQL database. Every
    command but restore works while the service is running.

        stopwise log info

        stopwise log verify

        stopwise log backup stopwise.db monday.db

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
    _say(
        f"{_counted(found.end - found.first + 1, 'event')} in {_counted(found.blocks, 'block')}, "
        f"{found.size:,} bytes{gone} (not checked: log verify does)",
        f"events: {', '.join(kinds) or 'none'}",
        f"written: {' to '.join(map(_time, found.times)) or 'none'}",
        f"snapshots: {', '.join(sizes) or 'none'}",
        *_cascades(found.state),
    )


@log.command()
def replay(
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
    """Apply the events of a log one by one, and show the state.

    No snapshot is used, unless the log was compacted and begins with one. The state hash is that
    of the service (GET /v1/state) after the same event; equal hashes, equal states, bit for bit.

        stopwise log replay

        stopwise log replay --cascade triage --save triage.stopwise

    The saved policy decides and learns on exactly as that of the service would: in Python,
    stopwise.load("triage.stopwise").
    """
    from stopwise.service.tools.checking import replay as run
    from stopwise.service.tools.reading import chosen, private_file

    if cascade is not None and save is None:
        raise typer.BadParameter("say where to, with --save", param_hint="--cascade")

    async def work(log: "Store", progress: "Progress") -> "tuple[State, int]":
        state, began = await run(log, upto, progress)
        if save is not None:
            with private_file(save, replace=True) as path:
                chosen(state, cascade).policy.save(path)
        return state, began

    state, began = _with(store, work)
    earlier = f", after the snapshot at event {began:,}: those before were compacted away"
    _say(
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
    _say(f"The log is complete: {holds}.{gone}")
    if held > found.applied:
        _say(f"{_counted(held - found.applied, 'event')} before the first snapshot: only read.")
    for position, result in found.snapshots.items():
        notes = {
            "equal": "equal to the events up to it, bit for bit",
            "rounded": "differs from the events up to it by rounding only (no damage)",
            "not compared": "of another version, or older than the first event; not compared",
        }
        _say(f"Snapshot at event {position:,}: {notes[result]}.")
    for name, n in found.divergences.items():
        _say(
            f"{name}: {_counted(n, 'decision')} would differ here. This is no damage: another "
            "version or processor rounds differently, and the recorded decisions count."
        )
    _say(f"State hash: {found.hash}")


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
        Literal["plain", "hashed", "none"],
        typer.Option(
            "--contexts",
            help="As they are; as hashes, with --events only (salted with STOPWISE_LOG_SALT, or "
            "with a random salt that is not stored); or not at all.",
        ),
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

    Every event, without contexts, which may be personal:

        stopwise log export --events --contexts none --out events.jsonl
    """
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.service.settings import load_settings
    from stopwise.service.tools.exporting import Exported, export_events, export_rounds

    if out is None:
        raise typer.BadParameter("say where to, as in --out rounds.parquet", param_hint="--out")

    async def as_rounds(log: "Store", progress: "Progress") -> Exported:
        return await export_rounds(log, out, cascade, contexts=contexts, progress=progress)

    async def as_events(log: "Store", progress: "Progress") -> int:
        salt = load_settings(None, os.environ, {}).log_salt
        return await export_events(
            log, out, cascade, contexts=contexts, salt=salt, progress=progress
        )

    if events:
        _say(f"Wrote {out}: {_counted(_with(store, as_events), 'event')}.")
        return
    done = _with(store, as_rounds)
    n = done.counts
    _say(
        f"Wrote {out}: {_counted(n['written'], 'round')}; {n['labelled']:,} with labels, "
        f"{n['failed']:,} that ended early, {n['complete']:,} with the outputs of all arms.",
        f"Left out: {n['open']:,} open, {n['expired']:,} expired, {n['lost']:,} that began before "
        "the first event.",
    )
    if done.as_json:
        _say("Outputs are written as JSON in text: they are not all text or all numbers.")
    if n["complete"] >= LEAST_ROWS:
        costs = ",".join(f"{cost:.6g}" for cost in done.costs)
        none = ["--context", ""] if done.bare else []
        _say(f"Next: {shlex.join(['stopwise', 'diagnose', str(out), '--costs', costs, *none])}")
    else:
        _say(
            f"Too few for stopwise diagnose, which needs {LEAST_ROWS} rounds with the outputs of "
            "all arms; full_depth_every in the policy makes some."
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

    The whole log is checked first. Afterwards the rounds opened in those events can no longer be
    looked up or labelled, and their contexts are gone from the log; nothing else changes, and a
    service that starts from the snapshot has the same state, bit for bit.

        stopwise log backup stopwise.db before.db

        stopwise log compact stopwise.db --keep-days 90
    """
    from stopwise.service.tools.copying import Plan, plan
    from stopwise.service.tools.copying import compact as run

    async def look(log: "Store", progress: "Progress") -> Plan:
        return await plan(log, keep_days, progress=progress)

    async def work(log: "Store", progress: "Progress") -> int:
        return await run(log, planned, progress)

    planned = _with(store, look)
    if not planned.events:
        _say(f"No event is older than {keep_days:g} days: nothing to delete.")
        return
    _say(
        f"{_counted(planned.events, 'event')} would be deleted, written until "
        f"{_time(planned.until)}.",
        f"{_counted(planned.rounds, 'round')} opened in them could no longer be looked up or "
        "labelled, and their contexts",
        f"would be gone from the log; {planned.open:,} still open could be reported on all the "
        "same. The policy keeps",
        "the features of what it learned. The log could be replayed from its snapshot only: if",
        "that may matter, make a backup first, with stopwise log backup.",
    )
    if not planned.verified.exact:
        _say(
            "This machine rounds differently (see stopwise log verify): compact on the one in use."
        )
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask; add --yes", param_hint="--yes")
        typer.confirm("Delete them?", abort=True)
    position = _with(store, work)
    _say(
        f"Deleted {_counted(planned.events, 'event')}. The snapshot at event {position:,} has the "
        "state."
    )


@log.command()
def backup(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="The log: an SQLite file, or postgresql://….")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new file.")],
) -> None:
    """Copy a log to a new SQLite file, as it is at this moment, while the service is running.

    The copy is complete or not there, and ends with the digest of the log. Only you can read it. A
    service can run on it at once; "stopwise log restore" copies it back, also to PostgreSQL.

        stopwise log backup stopwise.db monday.db

        stopwise log backup postgresql://stopwise@db.example/triage monday.db
    """
    from stopwise.service.tools.copying import backup as run

    done = _followed(lambda progress: run(store, target, progress))
    _say(f"{target} holds the log up to event {done.end:,}, with digest {done.digest.hex()}.")


@log.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="Written by log backup.")],
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="A new file, or a PostgreSQL database without events."
        ),
    ],
) -> None:
    """Copy a backup to an empty store, for a service to start from.

        stopwise log restore monday.db stopwise.db

        stopwise log restore monday.db postgresql://stopwise@db.example/triage

    This is also how to move from SQLite to PostgreSQL, or back. If it is interrupted, no service
    takes a part for the whole: start again.
    """
    from stopwise.service.settings import shown_store
    from stopwise.service.tools.copying import restore as run

    done = _followed(lambda progress: run(source, store, progress))
    _say(f"{shown_store(store)} holds the log up to event {done.end:,}.")


def _with(where: str, work: "Callable[[Store, Progress], Awaitable[T]]") -> T:
    """Do something with the log at an address."""
    from stopwise.service.tools.reading import existing

    async def opened(progress: "Progress") -> T:
        async with existing(where) as store:
            return await work(store, progress)

    return _followed(opened)


def _followed(work: "Callable[[Progress], Awaitable[T]]") -> T:
    """Run something that may take long, and show progress on stderr."""
    from rich.console import Console

    from stopwise.cli.progress import follow

    async def run(progress: "Progress") -> T:
        return await work(progress)

    try:
        with follow(Console(stderr=True)) as bar:
            return asyncio.run(run(Delayed(bar.report)))
    except InvalidParameterError as error:
        typer.echo(f"stopwise: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopwise: interrupted.", err=True)
        raise typer.Exit(1) from None


class Delayed:
    """Reports progress after a second, and not too often.

    Examples
    --------
    >>> now = iter([0.0, 0.5, 2.0, 2.01, 2.02])
    >>> report = Delayed(lambda *values: print(*values), clock=lambda: next(now))
    >>> for done in (1, 2, 3, 4):
    ...     report("checking", done, 4)
    checking 2 4
    checking 4 4
    """

    FIRST = 1.0  # seconds
    EVERY = 0.05

    def __init__(self, report: "Progress", clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._due = clock() + self.FIRST
        self._silent = True

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Report progress, if it is time to."""
        now = self._clock()
        if now >= self._due or (done == of and not self._silent):
            self._due, self._silent = now + self.EVERY, False
            self._report(stage, done, of)


def _cascades(state: "State") -> list[str]:
    """Return what each cascade has decided and learned, as text."""
    lines: list[str] = []
    for learner in state.order:
        view, tally, arms = learner.view(), learner.tally, learner.cascade.names
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


def _say(*lines: str) -> None:
    for line in lines:
        typer.echo(line)
