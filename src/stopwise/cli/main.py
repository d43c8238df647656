"""The program ``stopwise``: its verbs, and how it says that something went wrong."""

import os
import sys
from typing import Annotated

import typer

import stopwise
from stopwise.cli.reproduce import reproduce
from stopwise.errors import StopwiseError

DEBUG = "STOPWISE_DEBUG"

app = typer.Typer(
    name="stopwise",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(reproduce)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"stopwise {stopwise.__version__}")
        raise typer.Exit


@app.callback()
def stopwise_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    """Learn, online and without labels, how deep to go in a cascade.

    As a first step, see the paper's experiments repeated in a minute or two:

        stopwise reproduce --quick

    It ends with a table of the paper's claims, and a report to open in a browser; "stopwise
    reproduce --help" tells more. To use Stopwise in a program of yours: import stopwise.
    """


def main() -> None:
    """Run the program. Exit codes: 0 for success, 1 for failure, 2 for a command not understood."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # better a ? than a crash where ✓ cannot be shown
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] (text streams have it)
    try:
        app(prog_name="stopwise")
    except (StopwiseError, OSError) as error:
        if os.environ.get(DEBUG):
            raise
        typer.echo(f"stopwise: {error}", err=True)
        sys.exit(1)
