"""``stopwise keys``: manage the API keys of a service."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from stopwise.errors import InvalidParameterError

HELP = "Key file. It stores only a hash of each key."
File: TypeAlias = Annotated[
    Path, typer.Option("--keys", metavar="FILE", envvar="STOPWISE_KEYS", help=HELP)
]
SCOPES = (
    "read: read everything (included in every key). decide: open rounds. observe: report outputs "
    "and labels. admin: everything. Repeatable."
)
CASCADES = "Restrict the key to this cascade. Repeatable."
UNITS = {"m": 60, "h": 3600, "d": 86_400}

keys = typer.Typer(no_args_is_help=True)


@keys.callback()
def keys_() -> None:
    """Add, list and revoke the API keys of a service.

    A service with a key file requires a key in every request:

        stopwise keys add --name triage --scope decide --scope observe

        stopwise serve --keys keys.jsonl

    A running service reloads the file within two seconds of a change. To rotate a key, add a new
    one, use it in all programs that used the old one, and revoke the old one.
    """


@keys.command()
def add(
    name: Annotated[
        str,
        typer.Option(metavar="TEXT", help="User or program that uses the key.", show_default=False),
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
        typer.Option(metavar="N", help="Maximum requests per second; any excess gets status 429."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="90d", help="Lifetime in days (d), hours (h) or minutes (m)."),
    ] = None,
    file: File = Path("keys.jsonl"),
) -> None:
    """Create a key and print it. It cannot be shown again: the file stores only its hash.

    Programs send the key in the header "Authorization: Bearer sw_…" of every request.

        stopwise keys add --name laptop --scope admin --expires 90d

        stopwise keys add --name ward --scope decide --cascade triage --rate 100
    """
    from stopwise.service.http.keys import add_key

    expiry = None if expires is None else time.time() + _seconds(expires)
    key, secret = add_key(file, name, scope or ["read"], expiry, rate=rate, cascades=cascade or [])
    typer.echo(secret)
    typer.echo(f"Save it now, it cannot be shown again. Key id: {key.id} (in {file}).", err=True)


@keys.command("list")
def list_(file: File = Path("keys.jsonl")) -> None:
    """List the keys without their secrets."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from stopwise.service.http.keys import read_keys

    headings = ("id", "name", "scopes", "cascades", "rate", "created", "expires")
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for key in read_keys(file):
        scopes = ", ".join(key.scopes)
        cascades = ", ".join(key.cascades) or "all"
        rate = "no limit" if key.rate is None else f"{key.rate:g}/s"
        expiry = _date(key.expires) + (" (expired)" if key.expired else "")
        cells = (key.id, key.name, scopes, cascades, rate, _date(key.created), expiry)
        table.add_row(*map(Text, cells))  # `Text`, because a name may have [brackets]
    Console().print(table if table.rows else Text(f"{file} has no keys."))


@keys.command()
def revoke(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the key, from 'stopwise keys list'.")
    ],
    file: File = Path("keys.jsonl"),
) -> None:
    """Revoke a key. A running service rejects it within two seconds."""
    from stopwise.service.http.keys import revoke_key

    key = revoke_key(file, id_)
    typer.echo(f"Revoked {key.id} ({key.name}).")


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d{0,5})([mhd])", text.strip())
    if match is None:
        raise InvalidParameterError(
            f"--expires must be a number of days, hours or minutes such as 90d, got {text!r}"
        )
    return int(match[1]) * UNITS[match[2]]


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()
