"""``stopwise proxy``: an OpenAI-compatible endpoint in front of a cascade."""

import asyncio
import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stopwise.errors import MissingPackageError

OUT = "Where the rounds and the report are written."
EXAMPLE = "Print a configuration with comments, and do nothing else."


class _RunByDefault(TyperGroup):
    """``stopwise proxy proxy.toml`` is ``stopwise proxy run proxy.toml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


proxy = typer.Typer(cls=_RunByDefault, no_args_is_help=True)


@proxy.callback()
def proxy_() -> None:
    """Answer chat completions from the cheapest model that is good enough.

    An OpenAI-compatible endpoint in front of several models, described in one file; it begins in
    shadow mode, which changes no answer:

        stopwise proxy --example > proxy.toml

        stopwise proxy proxy.toml

    After a day, see what switching it on would save, and which answers would change:

        stopwise proxy report proxy.toml
    """


@proxy.command()
def run(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="A TOML file.")] = None,
    example: Annotated[bool, typer.Option("--example", help=EXAMPLE)] = False,
) -> None:
    """Serve the cascades of a configuration; the word "run" may be left out."""
    if find_spec("aiohttp") is None:
        raise MissingPackageError.of("the proxy", "aiohttp", "proxy")
    from stopwise.proxy.app import ProxyApp
    from stopwise.proxy.config import load
    from stopwise.service.serve import serve

    if example:
        typer.echo(files("stopwise.proxy").joinpath("example.toml").read_text("utf-8"), nl=False)
        return
    if config is None:
        raise typer.BadParameter("name a file, as in: stopwise proxy proxy.toml")
    loaded = load(config, os.environ)
    serve(loaded.settings, typer.echo, lambda one, settings: ProxyApp(one, settings, loaded))


@proxy.command()
def report(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help=OUT)] = Path("proxy-report"),
) -> None:
    """Say what switching on would save, and which answers would change.

    From the rounds in shadow mode, with intervals of 90 %. Works while the proxy is running.
    """
    from stopwise.proxy.config import load
    from stopwise.proxy.report import report as made

    for one in asyncio.run(made(load(config, os.environ, serves=False), out)):
        typer.echo("\n".join(one.lines()))
