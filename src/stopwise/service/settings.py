"""What a service can be told: one table, from which all its sources and their documentation come.

A setting is a field of `Settings`. Its name in a file (TOML) is that of the field, ``port``; in the
environment ``STOPWISE_PORT``; as a flag of ``stopwise serve``, ``--port``. What is said later in
this order wins: default, file, environment, flag.
"""

import math
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from stopwise.errors import InvalidParameterError

PREFIX = "STOPWISE_"
# Variables that others read: the program, and clients. They are no settings, however near.
NOT_SETTINGS = frozenset({"CONFIG", "DEBUG", "KEY", "URL"})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a service runs; docs/service.md lists what each field means.

    Examples
    --------
    >>> Settings().port, Settings(port=9000).port
    (8350, 9000)
    """

    store: Annotated[
        str,
        Meta(
            min_length=1,
            description="Where the events are kept: the path of an SQLite file, or a "
            "`postgresql://` address, which several replicas may share.",
        ),
    ] = "stopwise.db"
    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. Anything but loopback needs `keys`.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes one that is free.")
    ] = 8350
    keys: Annotated[
        str | None,
        Meta(
            description="File of API keys, which `stopwise keys add` makes. Without it nobody is "
            "asked for a key.",
        ),
    ] = None
    max_body: Annotated[
        int, Meta(ge=1024, description="Largest body of a request, in bytes; beyond it 413.")
    ] = 1_048_576
    max_batch: Annotated[int, Meta(ge=1, description="Most contexts in one batch.")] = 1_000
    max_context: Annotated[
        int, Meta(ge=1, description="Most numbers in the context of a cascade.")
    ] = 1_000
    max_features: Annotated[
        int,
        Meta(
            ge=1,
            description="Most features of a cascade. A decision takes time that grows with their "
            "square.",
        ),
    ] = 512
    max_cascades: Annotated[int, Meta(ge=1, description="Most cascades, the retired included.")] = (
        1_000
    )
    max_tables: Annotated[
        int,
        Meta(
            ge=1,
            description="Most memory, in megabytes, for the tables of all cascades: each pair of "
            "arms keeps some of the square of its features.",
        ),
    ] = 1_024
    max_waiting: Annotated[
        int,
        Meta(ge=1, description="Most requests that wait to be written; beyond it 429."),
    ] = 5_000
    snapshot_every: Annotated[
        int,
        Meta(
            ge=1,
            description="Least number of events from one snapshot to the next; in a long log, a "
            "quarter of it.",
        ),
    ] = 100_000
    follow_every: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds from one look at what other replicas wrote to the next.",
        ),
    ] = 0.2
    stop_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds that requests in flight are given to finish when the service is "
            "stopped.",
        ),
    ] = 10.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least of what goes into the log on stderr."),
    ] = "info"
    log_format: Annotated[
        Literal["json", "text"], Meta(description="One JSON object a line, or text for people.")
    ] = "json"
    log_requests: Annotated[
        Literal["none", "failed", "all"],
        Meta(
            description="Which requests are logged: `failed` are those answered with 400 and "
            "above, but not 429 and 503, which come in floods and are counted."
        ),
    ] = "failed"
    log_contexts: Annotated[
        Literal["none", "hashed", "plain"],
        Meta(
            description="Whether each decision is logged with its context, and how. `none` logs "
            "no decisions."
        ),
    ] = "none"
    log_salt: Annotated[
        str | None,
        Meta(
            min_length=16,
            description="Secret under which contexts are hashed, so that replicas and restarts "
            "agree; by default one that is drawn at every start. No flag: others could read it.",
        ),
    ] = None


class Setting(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes
    ----------
    name : str
        As in a file.
    help : str
        A sentence or two, with names in backticks.
    default : object
        None: nothing.
    kind : type
        ``str``, ``int``, ``float``, or ``Literal`` for one of a few words.
    choices : tuple of str
        The words, if it is one of a few.
    limits : Meta
        What it must lie between.
    secret : bool
        Never shown, and no flag.
    """

    name: str
    help: str
    default: Any
    kind: Any
    choices: tuple[str, ...]
    limits: Meta
    secret: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """Its flag; empty for a secret: how a program was called is no secret on a machine."""
        return "" if self.secret else "--" + self.name.replace("_", "-")

    @property
    def must_be(self) -> str:
        """What a value must be, in words.

        Examples
        --------
        >>> SETTINGS["port"].must_be, SETTINGS["follow_every"].must_be
        ('a whole number from 0 to 65535', 'a number above 0, at most 3600')
        >>> SETTINGS["log_format"].must_be, SETTINGS["log_salt"].must_be
        ('json or text', 'text of at least 16 characters')
        """
        if self.choices:
            return ", ".join(self.choices[:-1]) + " or " + self.choices[-1]
        limits = self.limits
        if self.kind is str:
            least = limits.min_length or 0
            return f"text of at least {least} characters" if least > 1 else "text, not empty"
        noun = "a whole number" if self.kind is int else "a number"
        if limits.gt is not None:
            return f"{noun} above {limits.gt}" + (f", at most {limits.le}" if limits.le else "")
        return f"{noun} from {limits.ge}" + (f" to {limits.le}" if limits.le else "")


def _row(field: msgspec.structs.FieldInfo) -> Setting:
    kind, limits = get_args(field.type)
    several = [one for one in get_args(kind) if one is not NoneType]
    literal = get_origin(kind) is Literal
    return Setting(
        name=field.name,
        help=limits.description,
        default=field.default,
        kind=str if literal else several[0] if several else kind,
        choices=tuple(several) if literal else (),
        limits=limits,
        secret=field.name == "log_salt",
    )


SETTINGS: Mapping[str, Setting] = {
    field.name: _row(field) for field in msgspec.structs.fields(Settings)
}


def load_settings(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> Settings:
    """Put settings together: flags before the environment, before a file, before the defaults.

    Parameters
    ----------
    file : Path or None
        TOML, with the names of the settings as keys.
    environment : mapping
        As ``os.environ``; variables that are not settings are left alone, unless they look like a
        slip of the pen. An empty one says nothing.
    flags : mapping
        By name of the setting; None says nothing.

    Raises
    ------
    InvalidParameterError
        If a name is unknown, or a value is not what it must be; the message names where it stands.

    Examples
    --------
    >>> load_settings(None, {"STOPWISE_PORT": "9000"}, {}).port
    9000
    >>> load_settings(None, {"STOPWISE_PORT": "9000"}, {"port": 9001}).port
    9001
    >>> load_settings(None, {"STOPWISE_PORT": "abc"}, {})
    Traceback (most recent call last):
    stopwise.errors.InvalidParameterError: STOPWISE_PORT is 'abc': must be a whole number from 0 ...
    >>> load_settings(None, {"STOPWISE_PROT": "9000"}, {})
    Traceback (most recent call last):
    stopwise.errors.InvalidParameterError: STOPWISE_PROT is no setting: did you mean STOPWISE_PORT?
    """
    found = _of_file(file) if file is not None else {}
    found |= _of_environment(environment)
    for name, value in flags.items():
        if value is not None:
            row = SETTINGS[name]
            found[name] = _checked(row, value, row.flag or name, from_text=True)
    return Settings(**found)


def _of_file(file: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InvalidParameterError(
            f"cannot read the settings in {file}: {error.strerror or error}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameterError(f"{file} is not TOML: {error}") from error
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name not in SETTINGS:
            near = get_close_matches(name.lower().replace("-", "_"), SETTINGS, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTINGS)}"
            raise InvalidParameterError(f"{file}: {name!r} is no setting: {hint}")
        found[name] = _checked(SETTINGS[name], value, f"{file}: {name}")
    return found


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    by_variable = {row.variable: row for row in SETTINGS.values()}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or not text:
            continue
        if (row := by_variable.get(variable)) is not None:
            found[row.name] = _checked(row, text, variable, from_text=True)
        elif variable.removeprefix(PREFIX) not in NOT_SETTINGS:
            # Without the prefix, which would make all of them alike. What is like no setting may
            # be anybody's: container platforms set STOPWISE_SERVICE_HOST and more.
            names = {row.variable.removeprefix(PREFIX): row for row in by_variable.values()}
            if near := get_close_matches(variable.removeprefix(PREFIX).upper(), names, 1, 0.7):
                raise InvalidParameterError(
                    f"{variable} is no setting: did you mean {PREFIX}{near[0]}?"
                )
    return found


def _checked(row: Setting, value: Any, source: str, *, from_text: bool = False) -> Any:
    """Return a value of the right type, or say what is wrong with it and where it stands."""
    right: Any = None
    if row.kind is str:
        right = value if isinstance(value, str) else None
    elif isinstance(value, str) and from_text:
        try:
            right = row.kind(value.strip())
        except ValueError:
            right = None
    elif isinstance(value, int) and not isinstance(value, bool):
        right = row.kind(value)
    elif isinstance(value, float) and row.kind is float:
        right = value
    if right is None or not _within(row, right):
        shown = "not shown" if row.secret else repr(value)
        hint = ""
        if row.name == "port" and isinstance(value, str) and value.startswith("tcp://"):
            hint = (
                " (Kubernetes sets it for a Service called stopwise; give that another name, or "
                "set enableServiceLinks: false)"
            )
        raise InvalidParameterError(f"{source} is {shown}: must be {row.must_be}{hint}")
    return right


def _within(row: Setting, value: Any) -> bool:
    limits = row.limits
    if row.choices:
        return value in row.choices
    if isinstance(value, str):
        return len(value) >= max(limits.min_length or 0, 1) and "\0" not in value
    return (
        math.isfinite(value)
        and (limits.ge is None or value >= limits.ge)
        and (limits.gt is None or value > limits.gt)
        and (limits.le is None or value <= limits.le)
    )


def settings_table() -> str:
    """Return the table of docs/service.md.

    Examples
    --------
    >>> print(settings_table().splitlines()[4])  # doctest: +NORMALIZE_WHITESPACE
    | `port` | `8350` | Port to listen on; 0 takes one that is free. |
    """
    lines = ["| setting | default | |", "|---|---|---|"]
    for row in SETTINGS.values():
        default = "–" if row.default is None else f"`{row.default}`"
        choices = f" ({', '.join(f'`{one}`' for one in row.choices)})" if row.choices else ""
        lines.append(f"| `{row.name}` | {default}{choices} | {row.help} |")
    return "\n".join(lines) + "\n"


def shown_store(store: str) -> str:
    """Name a store in a message: without its password.

    Examples
    --------
    >>> shown_store("postgresql://me:secret@db.example:5432/stopwise?sslmode=require")
    'postgresql://me@db.example:5432/stopwise'
    >>> shown_store("stopwise.db")
    'stopwise.db'
    """
    if "://" not in store:
        return store
    try:
        parts = urlsplit(store)
    except ValueError:  # an address that is none: its parts are unknown, and one may be secret
        return store.partition("://")[0] + "://…"
    login, at, place = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{place}{parts.path}"
