"""``stopwise keys``: the API keys of a service."""

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from stopwise.errors import InvalidParameterError

File: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--keys",
        metavar="FILE",
        envvar="STOPWISE_KEYS",
        help="File of the keys, each without its secret.",
    ),
]
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
        str, typer.Option("--name", metavar="TEXT", help="Who uses it.", show_default=False)
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="read|decide|observe|admin",
            help="read: read everything, as any key may. decide: open rounds. observe: report "
            "outputs and labels. admin: everything. May be repeated.",
            show_default="read",
        ),
    ] = None,
    cascade: Annotated[
        list[str] | None,
        typer.Option(
            "--cascade",
            metavar="NAME",
            help="A cascade that it may use. May be repeated.",
            show_default="all",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="N",
            help="Most requests a second; beyond it the answer is 429.",
            show_default="no limit",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="90d", help="After so many days (d), hours (h) or minutes (m)."
        ),
    ] = None,
    file: File = Path("keys.jsonl"),
) -> None:
    """Add a key and print it: once, as only its hash is stored.

    Send it in the header "Authorization: Bearer sw_…".

        stopwise keys add --name laptop --scope admin --expires 90d

        stopwise keys add --name prometheus --scope read

        stopwise keys add --name ward --scope decide --cascade triage --rate 100
    """
    from stopwise.service.keys import add_key

    until = None if expires is None else time.time() + _seconds(expires)
    key, text = add_key(file, name, scope or ["read"], until, rate=rate, cascades=cascade or [])
    typer.echo(text)
    typer.echo(
        f"This is the only time it is shown. Its id is {key.id}; {file} keeps its hash.", err=True
    )


@keys.command("list")
def list_(file: File = Path("keys.jsonl")) -> None:
    """List the keys, without their secrets."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from stopwise.service.keys import read_keys

    keys = read_keys(file)
    if not keys:
        typer.echo(f"{file} has no keys.")
        return
    now = time.time()
    headings = ("id", "name", "scopes", "cascades", "rate", "created", "expires")
    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for key in keys:
        cells = (
            key.id,
            key.name,
            ", ".join(key.scopes),
            ", ".join(key.cascades) or "all",
            "no limit" if key.rate is None else f"{key.rate:g}/s",
            _date(key.created),
            _date(key.expires) + (" (over)" if key.expired(now) else ""),
        )
        table.add_row(*map(Text, cells))  # as it is: a name may have [brackets]
    Console().print(table)


@keys.command()
def revoke(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The id, which 'stopwise keys list' shows.")
    ],
    file: File = Path("keys.jsonl"),
) -> None:
    """Revoke a key. A running service refuses it within a second or two."""
    from stopwise.service.keys import revoke_key

    key = revoke_key(file, id_)
    typer.echo(f"Revoked {key.id} ({key.name}).")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([mhd])", text.strip())
    if found is None or not int(found[1]):
        raise InvalidParameterError(
            f"--expires is {text!r}: must be a number of days, hours or minutes, such as 90d"
        )
    return float(int(found[1]) * UNITS[found[2]])


def _date(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()
