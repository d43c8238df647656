"""``stopwise serve``: decisions over HTTP."""

import inspect
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stopwise.service.settings import SETTINGS, Setting, load_settings

PANELS = {"max_": "Limits", "log_": "Log (on stderr)"}


def serve(config: Path | None = None, **flags: str | None) -> None:
    """Decide over HTTP, for programs in any language.

    Keeps every cascade, round and output in one file, and continues from there when it starts
    again. Listens on this machine alone:

        stopwise serve

        curl http://127.0.0.1:8350/healthz

    A dashboard is at http://127.0.0.1:8350. To let others reach it, add keys:

        stopwise keys add --name triage --scope decide --scope observe

        stopwise serve --host 0.0.0.0 --keys keys.jsonl

    Every option can also be set in the environment (STOPWISE_PORT for --port) or in a file (port =
    8350); an option wins over the environment, and that over the file. Stop it with Ctrl-C or
    SIGTERM: requests in flight are finished first.
    """
    from stopwise.service.serve import serve as run

    run(load_settings(config, os.environ, flags), typer.echo)


def _parameter(name: str, kind: Any, **option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, typer.Option(f"--{name.replace('_', '-')}", **option)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _flag(row: Setting) -> inspect.Parameter:
    """Return the option of a setting: text, so that every source gives the same messages."""
    metavar = "|".join(row.choices) or {int: "N", float: "SECONDS"}.get(row.kind, "TEXT")
    default = "" if row.default is None else f" Default: {row.default}."
    panel, words = PANELS.get(row.name[:4], "Options"), row.help.replace("`", "") + default
    return _parameter(row.name, str, metavar=metavar, help=words, rich_help_panel=panel)


# One flag for each row of the table of settings, which is the only place that lists them.
_CONFIG = "Settings in TOML, with the names of the options: max_body = 2000000."
_parameters = [
    _parameter("config", Path, metavar="FILE", envvar="STOPWISE_CONFIG", help=_CONFIG),
    *map(_flag, SETTINGS.values()),
]
serve.__signature__ = inspect.Signature(_parameters)  # pyright: ignore[reportFunctionMemberAccess] (any function may have one)
serve.__annotations__ = {one.name: one.annotation for one in _parameters}
