"""``stopwise log``: read, check, copy and shorten the event log of a service."""

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

from stopwise.errors import InvalidParameterError

if TYPE_CHECKING:
    from stopwise.service.store.base import Store
    from stopwise.service.tools.folding import Progress

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
DEFAULT = "stopwise.db"  # as the service's settings have it

log = typer.Typer(no_args_is_help=True)


@log.callback()
def log_() -> None:
    """Read, check, copy and shorten the event log of a service.

    All that a service knows is in its log: a file, stopwise.db, or a PostgreSQL database. Every
    verb but restore works while the service is running.

        stopwise log info

        stopwise log verify

        stopwise log backup stopwise.db monday.db

    Exit codes: 0 for success, 1 for damage or failure, 2 where the command, or what it names, is
    wrong.
    """


@log.command()
def info(store: Where = DEFAULT) -> None:
    """Tell what a log holds: events, cascades, snapshots, times.

    stopwise log info stopwise.db
    """
    _check(store)
    from stopwise.service.tools import words
    from stopwise.service.tools.looking import look

    _say(words.of_sight(_with(store, look)))


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
    """Read a log by hand, event by event, and tell what it amounts to.

    No snapshot is used, unless the log was compacted and begins with one. The state hash is that
    of the service (GET /v1/state) after the same event; equal hashes, equal states, bit for bit.

        stopwise log replay

        stopwise log replay --cascade triage --save triage.stopwise

    The policy saved decides and learns on exactly as that of the service would: in Python,
    stopwise.load("triage.stopwise").
    """
    _check(store)
    from stopwise.service.state import State
    from stopwise.service.tools import words
    from stopwise.service.tools.exporting import chosen
    from stopwise.service.tools.folding import Beginning, beginning, fold

    async def work(log: "Store", progress: "Progress") -> tuple[Beginning, int, State]:
        start = await beginning(log)
        began = start.state.position
        return start, began, await fold(log, start, upto=upto, progress=progress)

    if cascade is not None and save is None:
        raise typer.BadParameter("say where to, with --save", param_hint="--cascade")
    start, began, state = _with(store, work)
    _say(words.of_replay(start, began, state))
    if save is not None:
        try:
            learner = chosen(state, cascade)
        except InvalidParameterError as error:
            raise _refused(error) from None
        learner.policy.save(save)
        _say(["", f"The policy of {learner.spec.name} is in {save}."])


@log.command()
def verify(store: Where = DEFAULT) -> None:
    """Check that a log is what was written, and amounts to what its snapshots say.

    Every block carries the digest of all before it; every event must be able to follow those
    before it; every recorded decision is taken again; every snapshot must equal what the events
    up to it amount to, bit for bit. The first damage is named, with exit code 1.

        stopwise log verify stopwise.db
    """
    _check(store)
    from stopwise.service.tools import words
    from stopwise.service.tools.verifying import verify as run

    _say(words.of_verified(_with(store, run)))


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
            "with a salt that is forgotten); or not at all.",
        ),
    ] = "plain",
    events: Annotated[
        bool, typer.Option("--events", help="Every event as a line of JSON, instead of rounds.")
    ] = False,
) -> None:
    r"""Write the rounds of a cascade as a log that other verbs read.

    One row a round, in the order in which they were learned: what was known, what the arms said,
    where it stopped, and the label if there is one. Of a damaged log nothing is written.

        stopwise log export --cascade triage --out triage.parquet

        stopwise diagnose triage.parquet --costs 0.01,0.24,0.25

    What happened, for people and programs to read, without anything personal in the contexts:

        stopwise log export --events --contexts none --out events.jsonl
    """
    _check(store)
    from stopwise.logs.diagnosis.diagnose import LEAST_ROWS
    from stopwise.service.settings import load_settings
    from stopwise.service.tools import words
    from stopwise.service.tools.exporting import Exported, export_rounds
    from stopwise.service.tools.telling import export_events

    if out is None:
        raise typer.BadParameter("say where to, as in --out rounds.parquet", param_hint="--out")

    async def as_rounds(log: "Store", progress: "Progress") -> Exported:
        return await export_rounds(log, out, cascade, contexts=contexts, progress=progress)

    async def as_events(log: "Store", progress: "Progress") -> int:
        return await export_events(
            log, out, cascade, contexts=contexts, salt=salt, progress=progress
        )

    if events:
        try:
            salt = load_settings(None, os.environ, {}).log_salt
        except InvalidParameterError as error:
            raise _refused(error) from None
        written = _with(store, as_events)
        _say([f"{words.counted(written, 'event')} in {out}."])
        return
    done = _with(store, as_rounds)
    _say([f"Wrote {out}: {words.of_export(done)[0]}", *words.of_export(done)[1:]])
    if done.balanced >= LEAST_ROWS:
        costs = ",".join(f"{cost:.6g}" for cost in done.costs)
        none = ["--context", ""] if done.bare else []
        _say([f"Next: {shlex.join(['stopwise', 'diagnose', str(out), '--costs', costs, *none])}"])
    else:
        _say(words.of_few(done, LEAST_ROWS))


@log.command()
def compact(
    store: Where = DEFAULT,
    keep_days: Annotated[
        float,
        typer.Option("--keep-days", metavar="N", min=0, help="Keep the events of the last N days."),
    ] = 30.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget old events; what they amount to stays, in a snapshot.

    The whole log is checked first. Afterwards the decisions in those events can be looked up and
    labelled no more, and their contexts are gone from the log; nothing else changes, and a service
    that starts from the snapshot has the same state, bit for bit.

        stopwise log backup stopwise.db before.db

        stopwise log compact stopwise.db --keep-days 90
    """
    _check(store)
    from stopwise.service.tools import words
    from stopwise.service.tools.compacting import Compacted, Plan
    from stopwise.service.tools.compacting import compact as run
    from stopwise.service.tools.compacting import plan as make_plan

    async def look(log: "Store", progress: "Progress") -> Plan:
        return await make_plan(log, keep_days=keep_days, progress=progress)

    planned = _with(store, look)
    if not planned.events:
        _say([f"Nothing is older than {keep_days:g} days: there is nothing to forget."])
        return
    _say(words.of_plan(planned))
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody can be asked here; say --yes", param_hint="--yes")
        typer.confirm("Forget them?", abort=True)

    async def work(log: "Store", progress: "Progress") -> Compacted:
        return await run(log, planned, progress)

    _say(words.of_compacted(planned, _with(store, work)))


@log.command()
def backup(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="The log: an SQLite file, or postgresql://….")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new file.")],
) -> None:
    """Copy a log to a new SQLite file, as it is at this moment, while the service is running.

    The copy is whole or not there, and ends with the digest that the log had. A service can run on
    it at once; "stopwise log restore" brings it back, also into PostgreSQL.

        stopwise log backup stopwise.db monday.db

        stopwise log backup postgresql://stopwise@db.example/triage monday.db
    """
    _check(store)
    from stopwise.service.tools.copying import backup as run

    done = _followed(lambda progress: run(store, target, progress))
    _say(
        [
            (
                f"{target} holds the log up to event {done.end:,}; its digest there is "
                f"{done.digest.hex()}."
            )
        ]
    )


@log.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What backup has written.")],
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="A new file, or a PostgreSQL database without events."
        ),
    ],
) -> None:
    """Copy a backup into an empty store, for a service to start from.

        stopwise log restore monday.db stopwise.db

        stopwise log restore monday.db postgresql://stopwise@db.example/triage

    A way to move from SQLite to PostgreSQL, or back. If it is interrupted, no service takes a part
    for the whole: begin again.
    """
    _check(str(source))
    from stopwise.service.settings import shown_store
    from stopwise.service.tools.copying import restore as run

    done = _followed(lambda progress: run(source, store, progress))
    _say([f"{shown_store(store)} holds the log up to event {done.end:,}."])


def _check(where: str) -> None:
    """Say at once what is plainly wrong: the rest takes a second or two to load."""
    from stopwise.service.tools.opening import check_file, is_file

    try:
        if is_file(where):
            check_file(Path(where))
    except InvalidParameterError as error:
        raise _refused(error) from None


def _with(where: str, work: "Callable[[Store, Progress], Awaitable[T]]") -> T:
    """Do something with the log at an address."""
    from stopwise.service.tools.opening import existing

    async def opened(progress: "Progress") -> T:
        async with existing(where) as store:
            return await work(store, progress)

    return _followed(opened)


def _followed(work: "Callable[[Progress], Awaitable[T]]") -> T:
    """Run something long, and show on stderr how far it is."""
    from rich.console import Console

    from stopwise.cli.progress import follow

    async def run(progress: "Progress") -> T:
        return await work(progress)

    try:
        with follow(Console(stderr=True)) as bar:
            return asyncio.run(run(Patient(bar.report)))
    except InvalidParameterError as error:
        raise _refused(error) from None
    except KeyboardInterrupt:
        typer.echo("stopwise: interrupted.", err=True)
        raise typer.Exit(1) from None


class Patient:
    """Passes progress on, but not that of what is over in a moment, and not all of it.

    Examples
    --------
    >>> now = iter([0.0, 0.5, 2.0, 2.01, 2.02])
    >>> report = Patient(lambda *told: print(*told), clock=lambda: next(now))
    >>> for done in (1, 2, 3, 4):
    ...     report("checking", done, 4)
    checking 2 4
    checking 4 4
    """

    FIRST = 1.0  # seconds before anything is said
    EVERY = 0.05

    def __init__(self, report: "Progress", clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._due = clock() + self.FIRST
        self._silent = True

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Take how far it is."""
        now = self._clock()
        if now >= self._due or (done == of and not self._silent):
            self._due, self._silent = now + self.EVERY, False
            self._report(stage, done, of)


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)


def _refused(error: InvalidParameterError) -> typer.Exit:
    typer.echo(f"stopwise: {error}", err=True)
    return typer.Exit(2)
