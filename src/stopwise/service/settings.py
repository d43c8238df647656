"""The settings of a service: one table, from which all sources and their documentation come.

A setting is a field of `Settings`. In a TOML file it has the name of the field, ``port``; in the
environment ``STOPWISE_PORT``; as a flag of ``stopwise serve``, ``--port``. Later sources in this
order win: default, file, environment, flag.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from stopwise.errors import InvalidParameterError

PREFIX = "STOPWISE_"
# Variables that the program and clients read. They are not settings, however similar.
NOT_SETTINGS = frozenset({"CONFIG", "DEBUG", "KEY", "URL"})

Text: TypeAlias = Annotated[str, Meta(min_length=1, pattern=r"^[^\0]*$")]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a service runs; `_HELP` says what each field means."""

    store: Text = "stopwise.db"
    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8350
    keys: Text | None = None
    tls_cert: Text | None = None
    tls_key: Text | None = None
    max_connections: Count = 2_000
    max_body: Annotated[int, Meta(ge=1024)] = 1_048_576
    max_batch: Count = 1_000
    max_context: Count = 1_000
    max_features: Count = 512
    max_cascades: Count = 1_000
    max_tables: Count = 1_024
    max_waiting: Count = 5_000
    snapshot_every: Count = 100_000
    follow_every: Seconds = 0.2
    drain: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    stop_timeout: Seconds = 10.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    log_requests: Literal["none", "failed", "all"] = "failed"

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidParameterError("tls_cert and tls_key belong together: set both, or none")


_HELP = {
    "store": "Where the events are kept: the path of an SQLite file, or a `postgresql://` "
    "address, which several replicas may share.",
    "host": "Address to listen on. Anything but loopback needs `keys`.",
    "port": "Port to listen on; 0 takes one that is free.",
    "keys": "File of API keys, which `stopwise keys add` makes; without it, no key is needed.",
    "tls_cert": "File with the TLS certificate and its chain (PEM). With it, and `tls_key`, the "
    "service speaks HTTPS.",
    "tls_key": "File with the private key of `tls_cert` (PEM).",
    "max_connections": "Most connections at the same time; others wait until one is closed.",
    "max_body": "Largest body of a request, in bytes; beyond it 413.",
    "max_batch": "Most contexts in one batch.",
    "max_context": "Most numbers in the context of a cascade.",
    "max_features": "Most features of a cascade. A decision takes time that grows with their "
    "square; wide cascades run in a worker thread.",
    "max_cascades": "Most cascades, the retired included.",
    "max_tables": "Most memory, in megabytes, for the tables of all cascades: each pair of arms "
    "keeps some of the square of its features.",
    "max_waiting": "Most requests that wait to be written; beyond it 429.",
    "snapshot_every": "Least number of events between snapshots; in a long log, a quarter of it.",
    "follow_every": "Seconds from one look at what other replicas wrote to the next.",
    "drain": "Seconds that the service goes on serving after SIGTERM while `/readyz` answers 503, "
    "so that load balancers send no more.",
    "stop_timeout": "Seconds that requests in flight have to finish when the service stops.",
    "log_level": "Lowest level of what is logged on stderr.",
    "log_format": "One JSON object a line, or text for people.",
    "log_requests": "Which requests are logged: `failed` are those answered with 400 and above, "
    "but not 429 and 503, which come in floods and are counted.",
}


class Setting(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    help: str  # a sentence or two, with names in backticks
    default: Any
    type: Any  # that a value must have, without None
    kind: Any  # str, int or float
    choices: tuple[str, ...]  # if it is one of a few words

    @property
    def flag(self) -> str:
        """Its flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def must_be(self) -> str:
        """What a value must be, in words: a number above 0, up to 3600."""
        if self.choices:
            return ", ".join(self.choices[:-1]) + " or " + self.choices[-1]
        limits = get_args(self.type)[1]
        if self.kind is str:
            return f"text of at least {limits.min_length} characters"
        noun = "a whole number" if self.kind is int else "a number"
        least = f"from {limits.ge}" if limits.gt is None else f"above {limits.gt},"
        return f"{noun} {least}" + (f" up to {limits.le}" if limits.le else "")


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    options = get_args(field.type)
    type_ = options[0] if NoneType in options else field.type
    choices = options if get_origin(type_) is Literal else ()
    kind = str if choices else get_args(type_)[0]
    return Setting(field.name, _HELP[field.name], field.default, type_, kind, choices)


SETTINGS: Mapping[str, Setting] = {
    field.name: _setting(field) for field in msgspec.structs.fields(Settings)
}


def load_settings(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> Settings:
    """Combine settings: flags win over the environment, over a TOML file, over the defaults.

    Empty variables and flags that are None count as not set. An unknown name or a value that is not
    valid raises `InvalidParameterError`, whose message names the source.
    """
    found = _of_file(file) if file is not None else {}
    names = {name.upper(): row for name, row in SETTINGS.items()}
    for variable, text in environment.items():
        name = variable.removeprefix(PREFIX)
        if name == variable or not text or name in NOT_SETTINGS:
            continue
        if (row := names.get(name)) is not None:
            found[row.name] = _checked(row, text, variable, text=True)
        # Only near misses are refused: container platforms set STOPWISE_SERVICE_HOST and more.
        elif near := get_close_matches(name.upper(), names, 1, 0.7):
            hint = f"did you mean {PREFIX}{near[0]}?"
            raise InvalidParameterError(f"{variable} is not a setting: {hint}")
    for name, value in flags.items():
        if value is not None:
            row = SETTINGS[name]
            found[name] = _checked(row, value, row.flag, text=True)
    return Settings(**found)


def _of_file(file: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:  # no such file, or not TOML
        raise InvalidParameterError(f"cannot read the settings in {file}: {error}") from error
    for name, value in table.items():
        if name not in SETTINGS:
            near = get_close_matches(name.lower().replace("-", "_"), SETTINGS, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTINGS)}"
            raise InvalidParameterError(f"{file}: {name!r} is not a setting: {hint}")
        table[name] = _checked(SETTINGS[name], value, f"{file}: {name}")
    return table


def _checked(row: Setting, value: Any, source: str, *, text: bool = False) -> Any:
    """Return a value of the right type; ``text`` may be converted."""
    if text and isinstance(value, str) and row.kind is not str:
        value = value.strip()
    try:
        return msgspec.convert(value, row.type, strict=not text)
    except msgspec.ValidationError:
        hint = ""
    if str(value).startswith("tcp://"):
        hint = " (Kubernetes sets it for a Service called stopwise; set enableServiceLinks: false)"
    raise InvalidParameterError(f"{source} is {value!r}: must be {row.must_be}{hint}")


def shown_store(store: str) -> str:
    """Return the address of a store without its password and options, for messages."""
    if "://" not in store:
        return store
    try:
        parts = urlsplit(store)
    except ValueError:  # not a valid address: any part of it may be secret
        return store.partition("://")[0] + "://…"
    login, at, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{place}{parts.path}"
