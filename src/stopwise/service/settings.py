"""The settings of a service: one table, from which all sources and their documentation come.

A setting is called ``port`` in a TOML file, ``STOPWISE_PORT`` in the environment, ``--port`` as a
flag of ``stopwise serve``.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta

from stopwise.errors import InvalidParameterError
from stopwise.service.validation import NO_NUL, explain
from stopwise.text import closest, suggestion

PREFIX = "STOPWISE_"
# Variables that the program and clients read. They are not settings, however similar.
NOT_SETTINGS = frozenset({"config", "debug", "key", "url"})

Text: TypeAlias = Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a service runs; `_HELP` explains each field."""

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
    log_requests: Literal["none", "failed", "all"] = "failed"
    traces: Text | None = None

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidParameterError("tls_cert and tls_key belong together: set both, or none")
        if not (self.traces or "http://").startswith(("http://", "https://")):
            raise InvalidParameterError(f"traces is {self.traces!r}: write http://HOST:PORT")


_HELP = {
    "store": "Where the events are stored: the path of an SQLite file, or a `postgresql://` "
    "address, which several replicas may share.",
    "host": "Address to listen on. Anything but loopback needs `keys`.",
    "port": "Port to listen on; 0 takes one that is free.",
    "keys": "File of API keys, which `stopwise keys add` writes; without it, no key is needed.",
    "tls_cert": "File with the TLS certificate and its chain (PEM). With it, and `tls_key`, the "
    "service speaks HTTPS.",
    "tls_key": "File with the private key of `tls_cert` (PEM).",
    "max_connections": "Most connections at the same time; others wait until one is closed.",
    "max_body": "Largest body of a request, in bytes; a larger one gets the error `too_large`.",
    "max_batch": "Most contexts in one batch.",
    "max_context": "Most numbers in the context of a cascade.",
    "max_features": "Most features of a cascade. A decision takes time that grows with their "
    "square; wide cascades run in a worker thread.",
    "max_cascades": "Most cascades, the retired included.",
    "max_tables": "Most memory, in megabytes, for the tables of all cascades: each pair of arms "
    "needs tables whose size grows with the square of its number of features.",
    "max_waiting": "Most requests that wait to be written; more get the error `too_many_requests`.",
    "snapshot_every": "Least number of events between snapshots, or a quarter of the log if more.",
    "follow_every": "Seconds between checks for events that other replicas wrote.",
    "drain": "Seconds that the service goes on serving after SIGTERM while `/readyz` fails, so "
    "that load balancers send no more.",
    "stop_timeout": "Seconds that requests in flight have to finish when the service stops.",
    "log_level": "Lowest level of what is logged on stderr.",
    "log_requests": "Which requests are logged: `failed` are those answered with an error, except "
    "`too_many_requests`, `unavailable` and `cascade_failed`, which come in floods and are "
    "counted.",
    "traces": "Address of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`, that is sent "
    "OpenTelemetry traces; without it, there are none.",
}


class Setting(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    help: str  # a sentence or two, with names in backticks
    default: Any
    type: Any  # that a value must have, without None
    kind: Any  # str, int or float
    choices: tuple[str, ...]  # if it is one of a few words


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
    table: Mapping[str, Any] = {}
    if file is not None:
        try:
            table = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:  # no such file, or not TOML
            raise InvalidParameterError(f"cannot read the settings in {file}: {error}") from error
    return combined_settings(table, f"{file}: ", environment, flags)


def combined_settings(
    table: Mapping[str, Any],
    source: str,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> Settings:
    """Combine settings as `load_settings` does; ``source`` is what messages call the table."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found[name] = _checked(name, value, f"{source}{name}", strict=True)
    for variable, text in environment.items():
        name = variable.removeprefix(PREFIX).lower()
        ours = variable.startswith(PREFIX) and variable.isupper()  # written in capitals
        if not ours or not text or name in NOT_SETTINGS:
            continue
        # Only near misses are refused: container platforms set STOPWISE_SERVICE_HOST and more.
        if closest(name, SETTINGS, 0.7):
            found[name] = _checked(name, text, variable)
    for name, value in flags.items():
        if value is not None:
            found[name] = _checked(name, value, f"--{name.replace('_', '-')}")
    return Settings(**found)


def _checked(name: str, value: Any, source: str, *, strict: bool = False) -> Any:
    """Return a value of the right type; unless strict, text is converted."""
    if (row := SETTINGS.get(name)) is None:
        hint = suggestion(name.lower().replace("-", "_"), SETTINGS)
        raise InvalidParameterError(f"{source} is not a setting: {hint}")
    if not strict and isinstance(value, str) and row.kind is not str:
        value = value.strip()
    try:
        return msgspec.convert(value, row.type, strict=strict)
    except msgspec.ValidationError as error:
        choices = f"must be {' or '.join(row.choices)}"
        words = choices if row.choices else explain(error)[1]
    if str(value).startswith("tcp://"):
        words += " (Kubernetes sets it for a Service called stopwise: enableServiceLinks: false)"
    raise InvalidParameterError(f"{source} is {value!r}: {words}. {row.help}")


def shown_store(store: str) -> str:
    """Return the address of a store without its user, password and options, for messages."""
    scheme, separator, rest = store.partition("://")
    if not separator:
        return store
    place, _, options = rest.partition("?")
    # With an @ after a ?, any part may be secret.
    return f"{scheme}://{'…' if '@' in options else place.rpartition('@')[2]}"
