"""``stopwise serve``: run the service."""

import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stopwise.service.settings import SETTINGS, Setting, load_settings

PANELS = {"max_": "Limits", "log_": "Log (on stderr)"}


def serve(config: Path | None = None, **flags: str | None) -> None:
    """Serve decisions over HTTP, to programs in any language.

    All data is in one store, by default the file stopwise.db, and a restart continues from there.
    Without API keys, only programs on this machine can connect:

        stopwise serve

        curl http://127.0.0.1:8350/healthz

    The dashboard is at http://127.0.0.1:8350. To accept connections from other machines, create an
    API key:

        stopwise keys add --name triage --scope decide --scope observe

        stopwise serve --host 0.0.0.0 --keys keys.jsonl

    Every option can also be set in the environment (STOPWISE_PORT for --port) or in a TOML file
    (port = 8350). Options override the environment, which overrides the file. Ctrl-C or SIGTERM
    stops the service after it has finished the requests in flight.
    """
    from stopwise.service.serve import serve as run

    run(load_settings(config, os.environ, flags), typer.echo)


def _parameter(name: str, kind: Any, **option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, typer.Option(f"--{name.replace('_', '-')}", **option)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _option(setting: Setting) -> inspect.Parameter:
    """Return the option of a setting.

    Its type is text, so that invalid values get the same message from every source.
    """
    metavar = "|".join(setting.choices) or {int: "N", float: "SECONDS"}.get(setting.kind, "TEXT")
    text = setting.help.replace("`", "")
    if setting.default is not None:
        text += f" Default: {setting.default}."
    panel = PANELS.get(setting.name[:4], "Options")
    return _parameter(setting.name, str, metavar=metavar, help=text, rich_help_panel=panel)


# The options are generated from `SETTINGS`, the only place that lists them.
_CONFIG = "TOML file with settings, named like the options: max_body = 2000000."
_parameters = [
    _parameter("config", Path, metavar="FILE", envvar="STOPWISE_CONFIG", help=_CONFIG),
    *map(_option, SETTINGS.values()),
]
serve.__signature__ = inspect.Signature(_parameters)  # pyright: ignore[reportFunctionMemberAccess] (any function may have one)
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters}
