"""API keys: who may ask for what.

A key reads ``sw_<id>_<secret>``. The file keeps its id, name, scopes and the SHA-256 of its
secret, one JSON object a line. A slow hash, as passwords need, would add nothing: it makes guessing
dearer, and a secret of 256 random bits is not guessed, however cheap a guess is. A fast one keeps
the check within a microsecond or two.
"""

import math
import os
import re
import secrets
import stat
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from stopwise.errors import InvalidParameterError
from stopwise.service.journal import trouble
from stopwise.service.refusals import Refusal

Scope: TypeAlias = Literal["read", "decide", "observe", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

LOOK_EVERY = 1.0  # seconds between two looks at the file
SETTLED = 2.0  # seconds: a file younger than this may change again within one tick of its clock

_START = "sw_"
_ID = re.compile(r"[a-z0-9]{1,32}\Z")
_HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
_USUAL = "Bearer " + _START  # how a header begins


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key without its secret, as the file has it.

    Attributes
    ----------
    id : str
        The part that may be shown and logged.
    name : str
        Whose it is, for people.
    scopes : tuple of str
        read: what every key may. decide: ask for decisions and begin rounds. observe: tell
        outputs, labels and steps. admin: these and everything else.
    hash : str
        "sha256:" and the digest of the secret.
    created, expires : float or None
        Seconds since 1970.

    Examples
    --------
    >>> key = Key("k1", "nightly job", ("observe",), "sha256:" + 64 * "0", created=0.0)
    >>> key.may("observe"), key.may("decide"), key.expired(now=1e9)
    (True, False, False)
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    hash: str
    created: float
    expires: float | None = None

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope; admin has them all, and everybody may read."""
        return scope == "read" or scope in self.scopes or "admin" in self.scopes

    def expired(self, now: float | None = None) -> bool:
        """Whether its time is over."""
        return self.expires is not None and (time.time() if now is None else now) >= self.expires


class Keys:
    """The keys of a file, read again when it changes.

    A file that is broken, or gone, changes nothing: the keys read last go on being valid, and the
    journal is told. Nothing that happens to the file opens the service to those without a key.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    InvalidParameterError
        If the file cannot be read as keys to begin with.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     key, text = add_key(Path(folder, "keys.jsonl"), "laptop", ["decide"])
    ...     keys = Keys(Path(folder, "keys.jsonl"))
    >>> keys.check(f"Bearer {text}").name
    'laptop'
    >>> keys.check(f"Bearer {text}", "admin")
    Traceback (most recent call last):
    stopwise.service.refusals.Refusal: this needs a key with the scope admin; yours has decide
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._told = ""
        self._by_id: dict[str, tuple[bytes, Key]] = {}
        self._seen: object = None
        self._look_at = 0.0
        self._read()

    # No __len__: a file without keys must not be taken for keys that nobody asks for.

    def count(self) -> int:
        """Return how many keys are valid now."""
        return sum(not key.expired() for _, key in self._by_id.values())

    def check(self, header: str | None, scope: Scope | None = None) -> Key:
        """Return the key in the value of an Authorization header.

        Takes the same time for a wrong secret and for an id that does not exist.

        Raises
        ------
        Refusal
            401 if there is no key or it is not valid, 403 if it lacks the scope.
        """
        if time.monotonic() >= self._look_at:
            self._look()
        if not header:
            raise Refusal(401, "unauthorized", "send a key: Authorization: Bearer sw_…")
        if not header.startswith(_USUAL):
            header = _tidied(header)
        id_, _, secret = header[len(_USUAL) :].partition("_")
        expected, key = self._by_id.get(id_, _NOBODY)
        given = sha256(secret.encode("utf-8", "replace")).digest()
        if not compare_digest(given, expected) or key is None:
            raise Refusal(
                401,
                "unauthorized",
                "the key is not valid: mistyped, revoked, or not of this service. It is sent as "
                "Authorization: Bearer sw_…",
            )
        if key.expires is not None and key.expired():
            raise Refusal(401, "unauthorized", f"the key {key.id} has expired")
        if scope is not None and not key.may(scope):
            raise Refusal(
                403,
                "forbidden",
                f"this needs a key with the scope {scope}; yours has {', '.join(key.scopes)}",
            )
        return key

    def _look(self) -> None:
        self._look_at = time.monotonic() + LOOK_EVERY
        try:
            if self._seen is not None and _signature(self._path.stat()) == self._seen:
                return
            self._read()
        except (OSError, InvalidParameterError) as error:
            if self._told != str(error):
                self._told = str(error)
                trouble(
                    "the keys cannot be read again; those read before stay valid", reason=self._told
                )

    def _read(self) -> None:
        before = None
        with suppress(OSError):  # read_keys words what is wrong
            before = self._path.stat()
        keys = read_keys(self._path)
        self._by_id = {key.id: (bytes.fromhex(key.hash[7:]), key) for key in keys}
        young = before is None or abs(time.time() - before.st_mtime) < SETTLED
        self._seen = None if young or before is None else _signature(before)
        self._look_at = time.monotonic() + LOOK_EVERY
        self._told = ""


# What an unknown id is compared with.
_NOBODY: tuple[bytes, Key | None] = (sha256(secrets.token_bytes(32)).digest(), None)


def _tidied(header: str) -> str:
    """Return a header as it usually comes, or one that names nobody."""
    scheme, _, text = header.partition(" ")
    tidy = f"Bearer {text.strip()}" if scheme.lower() == "bearer" else ""
    return tidy if tidy.startswith(_USUAL) else ""


def _signature(found: os.stat_result) -> tuple[int, ...]:
    # ctime: it tells of changed rights too
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev


def read_keys(path: Path) -> list[Key]:
    """Return the keys of a file.

    Raises
    ------
    InvalidParameterError
        If there is no such file, others can write to it, or a line is not a key. What the line
        holds is not told.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read()
    except OSError as error:
        raise InvalidParameterError(
            f"cannot read the keys in {path}: {error.strerror or error}"
        ) from error
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidParameterError(
            f"the keys in {path} can be changed by other users: chmod 600 {path}"
        )
    keys: dict[str, Key] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        key = _decoded(line)
        if key is None:
            raise InvalidParameterError(
                f"{path}, line {number}: is not a key as 'stopwise keys add' writes it"
            )
        if key.id in keys:
            raise InvalidParameterError(f"{path}, line {number}: the key {key.id} is there twice")
        keys[key.id] = key
    return list(keys.values())


def _decoded(line: bytes) -> Key | None:
    try:
        key = msgspec.json.decode(line, type=Key)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    times = (key.created,) if key.expires is None else (key.created, key.expires)
    good = _ID.match(key.id) and _HASH.match(key.hash) and key.scopes
    return key if good and all(map(math.isfinite, times)) else None


def add_key(
    path: Path, name: str, scopes: Iterable[str], expires: float | None = None
) -> tuple[Key, str]:
    """Make a key and add it to a file, which is made if there is none.

    Returns
    -------
    Key, str
        What the file keeps, and the key itself, which is nowhere else.

    Raises
    ------
    InvalidParameterError
        If the name or a scope is not one, or the time is over already.
    """
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise InvalidParameterError("a key's name has 1 to 100 characters that can be printed")
    given = set(scopes)
    if unknown := sorted(given.difference(SCOPES)):
        raise InvalidParameterError(
            f"there is no scope {unknown[0]!r}; there are {', '.join(SCOPES)}"
        )
    if not given:
        raise InvalidParameterError(f"a key needs a scope: {', '.join(SCOPES)}")
    now = time.time()
    if expires is not None and not now < expires < math.inf:
        raise InvalidParameterError("the key would have expired before its first use")
    with _alone(path):
        keys = read_keys(path) if path.exists() else []
        taken = {key.id for key in keys}
        id_ = next(one for one in iter(lambda: secrets.token_hex(4), None) if one not in taken)
        secret = secrets.token_urlsafe(32)
        digest = sha256(secret.encode()).hexdigest()
        wanted: tuple[Scope, ...] = tuple(one for one in SCOPES if one in given)
        key = Key(id_, name, wanted, f"sha256:{digest}", float(int(now)), expires)
        _write(path, [*keys, key])
    return key, f"{_START}{id_}_{secret}"


def revoke_key(path: Path, id_: str) -> Key:
    """Take a key out of a file; a running service stops taking it within about a second.

    Raises
    ------
    InvalidParameterError
        If there is no such key.
    """
    with _alone(path):
        keys = read_keys(path)
        found = next((key for key in keys if key.id == id_), None)
        if found is None:
            # never repeated: somebody may have typed the key itself
            ids = [key.id for key in keys if key.name == id_]
            raise InvalidParameterError(
                f"that is a name; the id is {' or '.join(ids)}: stopwise keys revoke {ids[0]}"
                if ids
                else f"{path} has no key with that id; 'stopwise keys list' shows the ids"
            )
        _write(path, [key for key in keys if key.id != id_])
    return found


def _write(path: Path, keys: list[Key]) -> None:
    """Put the file in place in one step, readable for its owner alone."""
    path = path.resolve()  # where it is a link, the file and not the link is replaced
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    lines = b"".join(msgspec.json.encode(key) + b"\n" for key in keys)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name must survive a power cut too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _alone(path: Path) -> Generator[None, None, None]:
    """Keep out others who would change the same file, so that no key is lost."""
    try:
        fcntl: Any = import_module("fcntl")
    except ImportError:  # Windows: one at a time is up to whoever types
        yield
        return
    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
        yield
    finally:
        os.close(folder)


def as_date(seconds: float | None) -> str:
    """Word a time as a date.

    Examples
    --------
    >>> as_date(0), as_date(None)
    ('1970-01-01', 'never')
    """
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()


def shown(keys: Iterable[Key], now: float) -> list[Mapping[str, str]]:
    """Return what may be shown of some keys, as words."""
    return [
        {
            "id": key.id,
            "name": key.name,
            "scopes": ", ".join(key.scopes),
            "created": as_date(key.created),
            "expires": as_date(key.expires) + (" (over)" if key.expired(now) else ""),
        }
        for key in keys
    ]
