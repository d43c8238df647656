"""API keys: the key file, authentication, scopes and rate limits.

A key has the form ``sw_<id>_<secret>``. The file has one JSON object per line, with the SHA-256 of
the secret. A slow password hash would add nothing: 256 random bits cannot be guessed.
"""

import math
import os
import re
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from stopwise.errors import InvalidParameterError
from stopwise.files import private_file
from stopwise.service.domain.errors import TooManyRequests
from stopwise.service.domain.messages import Name
from stopwise.service.http.errors import Forbidden, Unauthorized
from stopwise.service.server_log import LOG
from stopwise.service.validation import explain
from stopwise.text import shorten, suggestion

Scope: TypeAlias = Literal["read", "decide", "observe", "admin"]
Time: TypeAlias = Annotated[float, Meta(ge=0, le=253402300799)]  # until the year 9999

RELOAD_FAILED = "cannot reload the API keys; the keys loaded before stay valid"
RELOAD_EVERY = 1.0  # seconds between checks of the file
_HEADER = re.compile(r"(?i:bearer) +sw_([a-z0-9]+)_(\S+) *")


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of the key file: an API key without its secret. Times are seconds since 1970."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9]{1,32}\Z")]  # public: it is shown and logged
    name: str  # a description of its user
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)]
    hash: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]  # of the secret
    created: Time
    expires: Time | None = None
    rate: Annotated[float, Meta(gt=0, le=1e9)] | None = None  # requests per second
    cascades: tuple[Name, ...] = ()  # restricts the key to these; empty: all cascades

    def allows(self, scope: Scope) -> bool:
        """Return whether the key has a scope; admin includes all, and every key has read."""
        return scope == "read" or scope in self.scopes or "admin" in self.scopes

    @property
    def expired(self) -> bool:
        """Whether the key has expired."""
        return self.expires is not None and time.time() >= self.expires


# Stands in for unknown ids, so that rejecting one takes as long as rejecting a wrong secret.
_UNKNOWN: tuple[bytes, Key | None] = (sha256(secrets.token_bytes(32)).digest(), None)


class Keys:
    """The keys of a file, which is reloaded when it changes.

    If the file becomes invalid or is deleted, the keys loaded last stay valid and the server log
    reports the problem. If the first load fails, `InvalidParameterError` is raised.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._reported = ""  # the load error that was logged last
        self._content: bytes | None = None
        self._full_at: dict[str, float] = {}  # when the token bucket of each key is full again
        self._load()

    # No __len__: keys from an empty file would be falsy, as if the service required no keys.

    def count(self) -> int:
        """Return the number of keys that have not expired."""
        return sum(not key.expired for _, key in self._by_id.values())

    def reload(self) -> None:
        """Reload the file now, and log the number of keys or the error."""
        try:
            self._load()
            LOG.info("keys reloaded", extra={"keys": self.count()})
        except InvalidParameterError as error:
            LOG.error(RELOAD_FAILED, extra={"reason": str(error)})

    def check(self, key: Key, scope: Scope | None = None, cascade: str | None = None) -> None:
        """Count a request against a key's rate limit, and check the key's scopes and cascades.

        Raises `TooManyRequests` if the key exceeds its rate limit, and `Forbidden` if it does not
        have ``scope`` or may not use ``cascade``.
        """
        self.count_request(key)
        self.check_rights(key, scope, cascade)

    def count_request(self, key: Key) -> None:
        """Count a request; raise `TooManyRequests` if the key exceeds its rate limit."""
        if key.rate is not None:
            self._take_token(key.id, key.rate)

    def check_rights(self, key: Key, scope: Scope | None, cascade: str | None) -> None:
        """Raise `Forbidden` if a key does not have a scope, or may not use a cascade."""
        if scope is not None and not key.allows(scope):
            scopes = ", ".join(key.scopes)
            raise Forbidden(
                f"this request requires the scope {scope!r}; key {key.id} has: {scopes}"
            )
        if cascade is not None and key.cascades and cascade not in key.cascades:
            cascades = ", ".join(key.cascades)
            raise Forbidden(f"key {key.id} is restricted to these cascades: {cascades}")

    def identify(self, header: str | None) -> Key:
        """Return the key in an Authorization header; raise `Unauthorized` if the key is not valid.

        Scope, cascades and rate are not checked.
        """
        if time.monotonic() >= self._reload_at:
            try:
                self._load()
            except InvalidParameterError as error:
                if self._reported != str(error):
                    self._reported = str(error)
                    LOG.warning(RELOAD_FAILED, extra={"reason": self._reported})
        if not header:
            raise Unauthorized("missing API key; send Authorization: Bearer sw_…")
        match = _HEADER.fullmatch(header)
        id_, secret = match.groups() if match else ("", "")
        expected, key = self._by_id.get(id_, _UNKNOWN)
        digest = sha256(secret.encode("utf-8", "replace")).digest()
        if not compare_digest(digest, expected) or key is None:
            raise Unauthorized("invalid API key: mistyped, revoked, or from another service")
        if key.expired:
            raise Unauthorized(f"key {key.id} has expired")
        return key

    def _take_token(self, id_: str, rate: float) -> None:
        """Take a token from a key's bucket, or raise `TooManyRequests` if the bucket is empty.

        A bucket holds the tokens of one second, or a single token if ``rate`` is less than 1.
        """
        now = time.monotonic()
        full_at = max(self._full_at.get(id_, now), now) + 1 / rate
        wait = full_at - now - max(1.0, 1 / rate)
        if wait > 1e-6:  # more than a rounding error
            message = f"key {id_} is limited to {rate:g} requests per second; retry later"
            raise TooManyRequests(message, retry_after=math.ceil(wait))
        self._full_at[id_] = full_at

    def _load(self) -> None:
        self._reload_at = time.monotonic() + RELOAD_EVERY
        content = _read_file(self._path)
        if content != self._content:
            keys = _parse(self._path, content)
            self._by_id = {key.id: (bytes.fromhex(key.hash[7:]), key) for key in keys}
            self._full_at = {id_: at for id_, at in self._full_at.items() if id_ in self._by_id}
            self._content = content
        self._reported = ""


def read_keys(path: Path) -> list[Key]:
    """Return the keys of a file; an error gives the number of an invalid line, not its text."""
    return _parse(path, _read_file(path))


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read()
    except OSError as error:
        raise InvalidParameterError(f"cannot read the API keys: {error}") from error
    if os.name == "posix" and mode & 0o022:
        raise InvalidParameterError(f"other users can change the key file; run: chmod 600 {path}")
    return content


def _parse(path: Path, content: bytes) -> list[Key]:
    keys: dict[str, Key] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            key = msgspec.json.decode(line, type=Key)
        except (msgspec.DecodeError, UnicodeDecodeError):
            problem = "invalid key; use 'stopwise keys add' to create one"
            raise InvalidParameterError(f"{path}, line {number}: {problem}") from None
        if key.id in keys:
            raise InvalidParameterError(f"{path}, line {number}: duplicate key id {key.id}")
        keys[key.id] = key
    return list(keys.values())


def add_key(
    path: Path,
    name: str,
    scopes: Iterable[str],
    expires: float | None = None,
    *,
    rate: float | None = None,
    cascades: Iterable[str] = (),
) -> tuple[Key, str]:
    """Create a key and add it to a file; return its entry, and the full key for its user."""
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise InvalidParameterError(
            f"name must be 1 to 100 printable characters, got {shorten(name)!r}"
        )
    now = time.time()
    if expires is not None and expires <= now:
        raise InvalidParameterError("expires must be in the future")
    scopes = tuple(dict.fromkeys(scopes))
    for scope in scopes:
        if scope not in get_args(Scope):
            hint = suggestion(scope, get_args(Scope))
            raise InvalidParameterError(f"unknown scope {shorten(scope)!r}; {hint}")
    secret = secrets.token_urlsafe(32)
    with _locked(path):
        keys = read_keys(path) if path.exists() else []
        taken = {key.id for key in keys}
        id_ = secrets.token_hex(4)
        while id_ in taken:
            id_ = secrets.token_hex(4)
        fields = {
            "id": id_,
            "name": name,
            "scopes": scopes,
            "hash": f"sha256:{sha256(secret.encode()).hexdigest()}",
            "created": float(int(now)),
            "expires": expires,
            "rate": rate,
            "cascades": tuple(dict.fromkeys(cascades)),
        }
        try:
            key = msgspec.convert(fields, Key)
        except msgspec.ValidationError as error:
            raise InvalidParameterError(" ".join(explain(error, fields))) from None
        _write(path, [*keys, key])
    return key, f"sw_{id_}_{secret}"


def revoke_key(path: Path, id_: str) -> Key:
    """Remove a key from a file; a running service rejects the key within about two seconds."""
    with _locked(path):
        keys = {key.id: key for key in read_keys(path)}
        revoked = keys.pop(id_, None)
        if revoked is None:
            # The message does not repeat the id: the user may have pasted the whole key.
            hint = "'stopwise keys list' shows the ids"
            raise InvalidParameterError(f"{path} has no key with this id; {hint}")
        _write(path, keys.values())
    return revoked


def _write(path: Path, keys: Iterable[Key]) -> None:
    with private_file(path) as new:
        new.write_bytes(b"".join(msgspec.json.encode(key) + b"\n" for key in keys))


@contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    """Hold a lock that keeps other processes from changing the file."""
    if os.name != "posix":
        yield
        return
    import fcntl

    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # closing the folder releases it
        yield
    finally:
        os.close(folder)
