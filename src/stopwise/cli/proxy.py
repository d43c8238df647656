"""``stopwise proxy``: run the OpenAI-compatible proxy and report on shadow mode."""

import asyncio
import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from stopwise.errors import MissingPackageError

CONFIG = "The TOML file that describes the proxy."
OUT = "Folder for the exported rounds and report.json."
EXAMPLE = "Print an example configuration and exit."


class _RunByDefault(TyperGroup):
    """Makes ``stopwise proxy proxy.toml`` short for ``stopwise proxy run proxy.toml``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


proxy = typer.Typer(cls=_RunByDefault, no_args_is_help=True)


@proxy.callback()
def proxy_group() -> None:
    """Answer chat completions from the cheapest model that is good enough.

    Runs an OpenAI-compatible endpoint in front of several models. It starts in shadow mode, which
    does not change any answer:

        stopwise proxy --example > proxy.toml

        stopwise proxy proxy.toml

    After a day, estimate how much switching it on would save, and how many answers would change:

        stopwise proxy report proxy.toml
    """


@proxy.command()
def run(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help=CONFIG)] = None,
    example: Annotated[bool, typer.Option("--example", help=EXAMPLE)] = False,
) -> None:
    """Run the proxy described by a configuration file. The word "run" is optional."""
    if find_spec("aiohttp") is None:
        raise MissingPackageError.of("the proxy", "aiohttp", "proxy")
    from stopwise.proxy.app import ProxyApp
    from stopwise.proxy.config import load_config
    from stopwise.service.serve import serve

    if example:
        typer.echo(files("stopwise.proxy").joinpath("example.toml").read_text("utf-8"), nl=False)
        return
    if config is None:
        raise typer.BadParameter("CONFIG is missing; pass a file, as in: stopwise proxy proxy.toml")
    loaded = load_config(config, os.environ)
    serve(
        loaded.settings, typer.echo, lambda service, settings: ProxyApp(service, settings, loaded)
    )


@proxy.command()
def report(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help=CONFIG)],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help=OUT)] = Path("proxy-report"),
) -> None:
    """Estimate what switching the proxy on would save, and how many answers would change.

    Uses the rounds recorded in shadow mode and reports 90 % intervals. Works while the proxy runs.
    """
    from stopwise.proxy.config import load_config
    from stopwise.proxy.report import make_reports

    loaded = load_config(config, os.environ, serves=False)
    for shadow_report in asyncio.run(make_reports(loaded, out)):
        typer.echo("\n".join(shadow_report.lines()))
