"""The program ``stopwise``: its commands, and how it reports failures."""

import os
import sys
from typing import Annotated

import typer

from stopwise.cli.demo import demo
from stopwise.cli.diagnose import diagnose
from stopwise.cli.import_ import import_
from stopwise.cli.keys import keys
from stopwise.cli.proxy import proxy
from stopwise.cli.replay import replay
from stopwise.cli.reproduce import reproduce
from stopwise.cli.serve import serve
from stopwise.cli.store import store
from stopwise.errors import (
    CascadeMismatchError,
    InvalidInputError,
    StopwiseError,
    UnknownPolicyError,
)
from stopwise.version import __version__

DEBUG = "STOPWISE_DEBUG"
MISUNDERSTOOD = (InvalidInputError, UnknownPolicyError, CascadeMismatchError, FileNotFoundError)

app = typer.Typer(
    name="stopwise",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, diagnose, replay, reproduce, serve):
    app.command()(command)
app.command("import")(import_)
app.add_typer(keys, name="keys")
app.add_typer(proxy, name="proxy")
app.add_typer(store, name="store")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stopwise {__version__}")
        raise typer.Exit


@app.callback()
def stopwise_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn, online and without labels, how deep to go in a cascade.

    To watch a cascade of three medical tests learn, in thirty seconds:

        stopwise demo

    From a table of what your arms answered in the past, find out how deep they should have gone,
    and whether that can be learned without labels:

        stopwise diagnose LOG --costs 0.01,0.24,0.25

    "stopwise replay" plays the same log with the policies themselves. To repeat the paper's
    experiments, in a few minutes at most:

        stopwise reproduce --quick

    Each prints a summary; "stopwise diagnose --help" says more. In a Python program, import
    stopwise. From other languages, over HTTP:

        stopwise serve
    """


def main() -> None:
    """Run the program.

    Exit codes: 0 for success, 1 for failure, 2 for a command or a log that is not understood.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # better a ? than a crash where ✓ cannot be shown
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] (text streams have it)
    try:
        app(prog_name="stopwise")
    except (StopwiseError, OSError) as error:
        if os.environ.get(DEBUG):
            raise
        typer.echo(f"stopwise: {error}", err=True)
        sys.exit(2 if isinstance(error, MISUNDERSTOOD) else 1)
