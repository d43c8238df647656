"""The command line program ``stopwise``."""

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
USAGE_ERRORS = (InvalidInputError, UnknownPolicyError, CascadeMismatchError, FileNotFoundError)

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


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"stopwise {__version__}")
        raise typer.Exit


@app.callback()
def stopwise_(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Learn, online and without labels, how deep to go in a cascade.

    Watch a cascade of three medical tests learn, in thirty seconds:

        stopwise demo

    From a log of past answers, estimate whether stopping early would pay, and compare policies:

        stopwise diagnose LOG --costs 0.01,0.24,0.25

        stopwise replay LOG --costs 0.01,0.24,0.25

    Reproduce the paper's experiments, in a few minutes at most:

        stopwise reproduce --quick

    Share one policy between programs over HTTP, or put it in front of language models:

        stopwise serve

        stopwise proxy --help

    "stopwise COMMAND --help" explains each command. In a Python program, import stopwise.
    """


def main() -> None:
    """Run the program.

    Exit codes: 0 for success, 1 for failure, 2 for an invalid command line or log.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # print ? rather than crash on terminals without ✓
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] (text streams have it)
    try:
        app(prog_name="stopwise")
    except (StopwiseError, OSError) as error:
        if os.environ.get(DEBUG):
            raise
        typer.echo(f"stopwise: {error}", err=True)
        sys.exit(2 if isinstance(error, USAGE_ERRORS) else 1)
