"""Settings of the service, from a TOML file, the environment and command-line options.

For example, ``port`` is ``STOPWISE_PORT`` in the environment and ``--port`` on the command line.
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
# Variables with other uses, which must not be mistaken for misspelled settings.
NOT_SETTINGS = frozenset({"config", "debug", "key", "url"})

Text: TypeAlias = Annotated[str, Meta(min_length=1, pattern=NO_NUL)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a service; `_HELP` explains each of them."""

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
        """Check settings that depend on each other."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidParameterError("set both tls_cert and tls_key, or neither")
        if not (self.traces or "http://").startswith(("http://", "https://")):
            raise InvalidParameterError(
                f"traces must look like http://HOST:PORT, got {self.traces!r}"
            )


_HELP = {
    "store": "Event store: the path of an SQLite file, or a `postgresql://` address, which several "
    "replicas may share.",
    "host": "Address to listen on. Any address other than loopback requires `keys`.",
    "port": "Port to listen on; 0 chooses a free port.",
    "keys": "File with API keys, created by `stopwise keys add`. Without it, no key is required.",
    "tls_cert": "File with the TLS certificate and its chain (PEM). With `tls_key`, it enables "
    "HTTPS.",
    "tls_key": "File with the private key of `tls_cert` (PEM).",
    "max_connections": "Maximum concurrent connections; others wait until one is closed.",
    "max_body": "Maximum size of a request body in bytes; beyond it, the error is `too_large`.",
    "max_batch": "Maximum contexts in a batch.",
    "max_context": "Maximum numbers in the context of a cascade.",
    "max_features": "Maximum features of a cascade. The time of a decision grows with their "
    "square; cascades with many features decide in a worker thread.",
    "max_cascades": "Maximum number of cascades, including retired ones.",
    "max_tables": "Maximum memory in megabytes for the tables of all cascades. The size of the "
    "tables of each pair of arms grows with the square of its number of features.",
    "max_waiting": "Maximum requests waiting to be written; beyond it, the error is "
    "`too_many_requests`.",
    "snapshot_every": "Minimum events between snapshots, or 25 % of the log if that is larger.",
    "follow_every": "Seconds between checks for events from other replicas.",
    "drain": "Seconds for which the service still serves requests after SIGTERM while `/readyz` "
    "fails, so that load balancers stop sending.",
    "stop_timeout": "Seconds for requests in flight to finish when the service stops.",
    "log_level": "Minimum level of log lines on stderr.",
    "log_requests": "Requests to log. `failed` means errors except `too_many_requests`, "
    "`unavailable` and `cascade_failed`, which may be frequent and are counted in the metrics "
    "instead.",
    "traces": "Address of an OTLP/HTTP collector for OpenTelemetry traces, such as "
    "`http://127.0.0.1:4318`. Without it, tracing is off.",
}


class Setting(msgspec.Struct, frozen=True):
    """The description of a setting."""

    name: str
    help: str  # Markdown, with names in backticks
    default: Any
    type: Any  # of its values, without None
    kind: Any  # str, int or float
    choices: tuple[str, ...]  # the values of a Literal, else empty


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
    """Combine settings: flags override the environment, which overrides the TOML file.

    Empty variables, and flags whose value is None, are ignored. An unknown name or an invalid value
    raises `InvalidParameterError`, whose message begins with the file, variable or flag.
    """
    table: Mapping[str, Any] = {}
    if file is not None:
        try:
            table = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:  # ValueError: not TOML
            raise InvalidParameterError(f"cannot read the settings in {file}: {error}") from error
    return combined_settings(table, f"{file}: ", environment, flags)


def combined_settings(
    table: Mapping[str, Any],
    source: str,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> Settings:
    """Combine settings as `load_settings` does; errors in ``table`` begin with ``source``."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        values[name] = _checked(name, value, f"{source}{name}", strict=True)
    for variable, text in environment.items():
        name = variable.removeprefix(PREFIX).lower()
        has_form = variable.startswith(PREFIX) and variable.isupper()
        if not has_form or not text or name in NOT_SETTINGS:
            continue
        # Reject only near misses: container platforms set variables like STOPWISE_SERVICE_HOST.
        if closest(name, SETTINGS, 0.7):
            values[name] = _checked(name, text, variable)
    for name, value in flags.items():
        if value is not None:
            values[name] = _checked(name, value, f"--{name.replace('_', '-')}")
    return Settings(**values)


def _checked(name: str, value: Any, source: str, *, strict: bool = False) -> Any:
    """Return a value in the type of its setting; text is converted unless ``strict`` is true."""
    setting = SETTINGS.get(name)
    if setting is None:
        hint = suggestion(name.lower().replace("-", "_"), SETTINGS)
        raise InvalidParameterError(f"{source}: unknown setting; {hint}")
    if not strict and isinstance(value, str) and setting.kind is not str:
        value = value.strip()
    try:
        return msgspec.convert(value, setting.type, strict=strict)
    except msgspec.ValidationError as error:
        if setting.choices:
            problem = f"must be {' or '.join(setting.choices)}"
        else:
            problem = explain(error)[1]
    message = f"{source} {problem}, got {value!r}. {setting.help}"
    if str(value).startswith("tcp://"):
        message += (
            " Kubernetes sets this variable for a Service named stopwise; rename the Service or "
            "set enableServiceLinks: false."
        )
    raise InvalidParameterError(message)


def redacted_store(store: str) -> str:
    """Return the address of a store without user, password and options."""
    scheme, separator, rest = store.partition("://")
    if not separator:
        return store
    location, _, options = rest.partition("?")
    # An @ after a ? may belong to the password, so any part may be secret.
    return f"{scheme}://{'…' if '@' in options else location.rpartition('@')[2]}"
