"""``stopwise keys``: the API keys of a service."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from stopwise.errors import InvalidParameterError

HELP = "The file with the keys; it holds only a hash of each."
File: TypeAlias = Annotated[
    Path, typer.Option("--keys", metavar="FILE", envvar="STOPWISE_KEYS", help=HELP)
]
SCOPES = (
    "read: read everything, as every key may. decide: open rounds. observe: report outputs and "
    "labels. admin: everything. May be repeated."
)
CASCADES = "Only for this cascade. May be repeated."
UNITS = {"m": 60, "h": 3600, "d": 86_400}

keys = typer.Typer(no_args_is_help=True)


@keys.callback()
def keys_() -> None:
    """Add, list and revoke the API keys of a service.

    A service with a file of keys needs one in every request:

        stopwise keys add --name triage --scope decide --scope observe

        stopwise serve --keys keys.jsonl

    It sees a change within a second or two. To replace a key, add another, give it to whoever uses
    the first, and revoke the first.
    """


@keys.command()
def add(
    name: Annotated[
        str, typer.Option(metavar="TEXT", help="Who or what uses the key.", show_default=False)
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="read|decide|observe|admin", help=SCOPES, show_default="read"),
    ] = None,
    cascade: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=CASCADES, show_default="all cascades"),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="Most requests per second; more are refused."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="90d", help="Valid for so many days (d), hours (h) or minutes (m)."),
    ] = None,
    file: File = Path("keys.jsonl"),
) -> None:
    """Add a key and print it. It is shown only once: the file holds only its hash.

    Programs send it to the service with every request, in the header
    "Authorization: Bearer sw_…".

        stopwise keys add --name laptop --scope admin --expires 90d

        stopwise keys add --name ward --scope decide --cascade triage --rate 100
    """
    from stopwise.service.http.keys import add_key

    until = None if expires is None else time.time() + _seconds(expires)
    key, text = add_key(file, name, scope or ["read"], until, rate=rate, cascades=cascade or [])
    typer.echo(text)
    words = f"This is the only time it is shown. Its id is {key.id}; {file} has its hash."
    typer.echo(words, err=True)


@keys.command("list")
def list_(file: File = Path("keys.jsonl")) -> None:
    """List the keys, without their secrets."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from stopwise.service.http.keys import read_keys

    headings = ("id", "name", "scopes", "cascades", "rate", "created", "expires")
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for key in read_keys(file):
        lists = (", ".join(key.scopes), ", ".join(key.cascades) or "all")
        rate = "no limit" if key.rate is None else f"{key.rate:g}/s"
        until = _date(key.expires) + (" (expired)" if key.expired else "")
        cells = (key.id, key.name, *lists, rate, _date(key.created), until)
        table.add_row(*map(Text, cells))  # not as markup: a name may have [brackets]
    Console().print(table if table.rows else Text(f"{file} has no keys."))


@keys.command()
def revoke(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The id, which 'stopwise keys list' shows.")
    ],
    file: File = Path("keys.jsonl"),
) -> None:
    """Revoke a key. A running service refuses it within a second or two."""
    from stopwise.service.http.keys import revoke_key

    key = revoke_key(file, id_)
    typer.echo(f"Revoked {key.id} ({key.name}).")


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text.strip())
    if found is None:
        words = "must be a number of days, hours or minutes, such as 90d"
        raise InvalidParameterError(f"--expires is {text!r}: {words}")
    return int(found[1]) * UNITS[found[2]]


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()
